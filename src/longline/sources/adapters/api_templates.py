"""Names in braces filled in: in addresses, queries, headers, and anywhere inside a body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longline.config.manifests.templates import fill, names_in

_ALONE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_NO_STEP = frozenset({".", ".."})
_ABSENT = object()


def look_up(name: str, scope: Mapping[str, Any], default: Any = None) -> Any:
    """Return the value of a name; `a.b` looks into what is called a."""
    value: Any = scope
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def fill_address(text: str, scope: Mapping[str, Any]) -> str:
    """Return an address, or a part of one, with quoted values.

    Raises:
        ValueError: a value is missing, empty, or would lead elsewhere.
    """
    for name in names_in(text):
        value = look_up(name, scope, None)
        if value is None or isinstance(value, Mapping | list) or str(value) == "":
            message = f"{{{name}}} has no value for {text!r}"
            raise ValueError(message)
        if str(value) in _NO_STEP:
            message = f"{{{name}}} is {str(value)!r}, which leads elsewhere in {text!r}"
            raise ValueError(message)
    return fill(text, scope, in_address=True)


def fill_value(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return a value with its names filled in; a text that is one name becomes its value.

    Raises:
        ValueError: there is no value of a name.
    """
    if isinstance(value, str):
        return _filled(value, scope)
    if isinstance(value, Mapping):
        return {name: fill_value(one, scope) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [fill_value(one, scope) for one in value]
    return value


def _filled(text: str, scope: Mapping[str, Any]) -> Any:
    alone = _ALONE.fullmatch(text)
    try:
        if alone is None:
            return fill(text, scope)
        found = look_up(alone[1], scope, _ABSENT)
    except KeyError as error:
        message = f"{{{error.args[0]}}} has no value for {text!r}"
        raise ValueError(message) from error
    if found is _ABSENT:
        message = f"{text} has no value"
        raise ValueError(message)
    return found
