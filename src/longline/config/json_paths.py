"""JMESPath expressions that users write: validated when a manifest is read, cached for records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator

from longline.config.strict_model import invalid

_MAX_SHOWN = 60  # characters of an invalid path that its error repeats


@lru_cache(maxsize=4096)
def compile_path(path: str) -> Any:
    """Return the compiled expression.

    Raises:
        JMESPathError: the path is not valid JMESPath.
    """
    return jmespath.compile(path)


def find(path: str, value: Any) -> Any:
    """Return what a path selects from a value; None when it selects nothing.

    Raises:
        ValueError: a function in the path does not accept its argument.
    """
    try:
        return _search_function(path)(value)
    except JMESPathError as error:
        message = f"the path {path!r} cannot be applied: {_first_line(error)}"
        raise ValueError(message) from error


@lru_cache(maxsize=4096)
def _search_function(path: str) -> Callable[[Any], Any]:
    """Return the function that applies a path.

    Most paths are names joined by dots and are applied to every record: looking up keys is many
    times faster than JMESPath's walk over the parsed expression.
    """
    expression = compile_path(path)
    names = _dotted_names(expression.parsed)
    if names is None:
        return expression.search  # type: ignore[no-any-return]  # jmespath has no types

    def get_nested(value: Any) -> Any:
        try:
            for name in names:
                value = value.get(name)
        except AttributeError:  # not an object: JMESPath selects nothing from it, either
            return None
        return value

    return get_nested


def _dotted_names(node: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of a path that consists of names alone; None for any other path."""
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return None
    parts = [_dotted_names(child) for child in node["children"]]
    if None in parts:
        return None
    return tuple(name for part in parts if part for name in part)


def _first_line(error: JMESPathError) -> str:
    text = str(error).partition("\n")[0].strip()
    return text.removesuffix(":") or type(error).__name__


def check_path(text: str) -> str:
    """Return the path if it is valid JMESPath.

    Raises:
        PydanticCustomError: it is not.
    """
    try:
        compile_path(text)
    except JMESPathError as error:
        shown = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
        raise invalid(
            f"{shown!r} is not a JMESPath expression ({_first_line(error)}); write for example "
            "items, data.items or items[].name, and put names with other characters in quotes"
        ) from error
    return text


JsonPath = Annotated[str, AfterValidator(check_path)]
"""A JMESPath expression: `data.items`, `meta.next`, `items[].id`."""
