"""Text as every database can keep it: half a surrogate pair, as broken JSON has it, is its escape.

It stands in addresses and messages that somebody is to read; the data of a record is not changed
like this, but held back (`finishing.unstorable`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.sources.plain import to_json


def kept_text(text: str) -> str:
    """Return a text as it is stored."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def kept_value(value: Any) -> Any:
    """Return what is to be JSON with every text as it is stored, and what is no data as text."""
    if isinstance(value, str):
        return kept_text(value)
    if isinstance(value, Mapping):
        return {_kept_name(name): kept_value(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [kept_value(one) for one in value]
    return value if value is None or isinstance(value, int | float) else _kept_data(value)


def _kept_data(value: Any) -> Any:
    try:
        to_json(value)
    except TypeError:
        return kept_text(str(value))
    return value


def _kept_name(name: Any) -> Any:
    return kept_text(name) if isinstance(name, str) else name
