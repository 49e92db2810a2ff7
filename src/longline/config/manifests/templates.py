"""Texts with names in braces, which stand for values: `{base_url}/page/{page}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_NAME = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.]*)\}")


def names_in(text: str) -> list[str]:
    """Return the names that a text holds, in order; `{{` and `}}` are plain braces."""
    return [found[1] for found in _NAME.finditer(text) if found[1]]


def fill(text: str, values: Mapping[str, Any], *, in_address: bool = False) -> str:
    """Return the text with a value for each name; in an address, values are quoted.

    A value that begins an address (`{base_url}/…`) is left as it is. `a.b` looks into a mapping.

    Raises:
        KeyError: there is no value of a name.
    """

    def replaced(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = _text(_looked_up(found[1], values))
        return quote(value, safe="") if in_address and found.start() else value

    return _NAME.sub(replaced, text)


def _looked_up(name: str, values: Mapping[str, Any]) -> Any:
    if name in values:
        return values[name]
    value: Any = values
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise KeyError(name)
        value = value[part]
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
