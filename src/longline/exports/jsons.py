"""Values as JSON, with all their digits."""

from __future__ import annotations

import json
from typing import Any

import orjson


def as_bytes(value: Any, *, option: int = 0) -> bytes:
    """Return a value as JSON in UTF-8."""
    try:
        return orjson.dumps(value, default=str, option=option)
    except TypeError:  # numbers of more than 64 bits, or texts that are no UTF-8
        text = json.dumps(_plain(value), default=str, allow_nan=False)
        return text.encode() + (b"\n" if option & orjson.OPT_APPEND_NEWLINE else b"")


def as_text(value: Any) -> str:
    """Return a value as a JSON text."""
    return as_bytes(value).decode()


def _plain(value: Any) -> Any:
    """Return a value without what only orjson would mend: numbers that are none."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
