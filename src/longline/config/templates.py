"""Templates in manifests: text with names in braces, such as `{base_url}/page/{page}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from longline.config.strict_model import invalid

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_MISSING = object()


def names_in(text: str) -> list[str]:
    """Return the names in a template, in order; `{{` and `}}` are literal braces."""
    return [found[1] for found in _PLACEHOLDER.finditer(text) if found[1]]


def fill(text: str, values: Mapping[str, Any], *, in_url: bool = False) -> str:
    """Return the template with its names replaced by their values.

    With `in_url`, values are percent-encoded, except one at the very start (`{base_url}/…`).

    Raises:
        KeyError: a name has no value.
    """

    def replacement(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = look_up(found[1], values, _MISSING)
        if value is _MISSING:
            raise KeyError(found[1])
        if isinstance(value, bool):
            value = "true" if value else "false"
        written = "" if value is None else str(value)
        return quote(written, safe="") if in_url and found.start() else written

    return _PLACEHOLDER.sub(replacement, text)


def fill_all(text: str, value: str) -> str:
    """Return the template with every name replaced by the same value."""
    return _PLACEHOLDER.sub(value, text)


def look_up(name: str, values: Mapping[str, Any], default: Any = None) -> Any:
    """Return the value of a name; `a.b` is the value of `b` in the mapping `a`."""
    if name in values:
        return values[name]
    value: Any = values
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def check_braces(text: str) -> str:
    """Return the text if every brace in it is part of a name or doubled.

    Raises:
        PydanticCustomError: a brace is not closed, or does not hold a name.
    """
    rest = fill_all(text, "")
    if "{" in rest or "}" in rest:
        brace, other = ("{", "}") if "{" in rest else ("}", "{")
        raise invalid(
            f"a {brace} has no matching {other}, or no name between them; {{name}} stands for a "
            f"parameter, and a literal brace is written twice: {brace * 2}"
        )
    return text
