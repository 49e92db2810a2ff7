"""Expressions that users write: templates, JMESPath and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import quote

import jmespath
import regex
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator

from longline.config.validation import invalid
from longline.core.errors import UnexpectedShape

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


_SINGLE_NAME = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.]*)\}")


def fill_value(value: Any, scope: Mapping[str, Any]) -> Any:
    """Return a JSON value with its names filled in; a text that is one name becomes its value."""
    if isinstance(value, Mapping):
        return {name: fill_value(one, scope) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [fill_value(one, scope) for one in value]
    if not isinstance(value, str):
        return value
    single = _SINGLE_NAME.fullmatch(value)
    found = _MISSING if single is None else look_up(single[1], scope, _MISSING)
    try:
        return fill(value, scope) if found is _MISSING else found
    except KeyError as error:
        raise ValueError(f"{{{error.args[0]}}} has no value for {value!r}") from error


def check_braces(text: str) -> str:
    """Return the text if every brace in it is part of a name or doubled.

    Raises:
        PydanticCustomError: a brace is not closed, or does not hold a name.
    """
    rest = fill_all(text, "")
    if "{" in rest or "}" in rest:
        brace, other = ("{", "}") if "{" in rest else ("}", "{")
        raise invalid(
            f"a {brace} has no matching {other}, or no name between them; {{name}} inserts a "
            f"parameter, and a literal brace is written twice: {brace * 2}"
        )
    return text


# ---------------- JMESPath expressions that users write: validated when a manifest is read

_DOTTED_NAMES = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
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
    if not _DOTTED_NAMES.fullmatch(path):
        return expression.search  # type: ignore[no-any-return]  # jmespath has no types
    names = path.split(".")

    def get_nested(value: Any) -> Any:
        try:
            for name in names:
                value = value.get(name)
        except AttributeError:  # not an object: JMESPath selects nothing from it, either
            return None
        return value

    return get_nested


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


# ---------------- Regular expressions that users write, matched with a time limit

SECONDS = 0.25
"""CPU time that one search may take."""
_MAX_STEPS = 50_000_000
_NESTED = re.compile(r"\)[*+{]")
_REPEATS = re.compile(r"(?<!\\)[*+{]")
_OPTIONAL = re.compile(r"(?<![\\(])\?")


class UserPattern:
    """A regular expression with a time limit.

    Args:
        text: The pattern in the syntax of Python's `re`.
        ignore_case: Match without regard to case.

    Raises:
        ValueError: the text is not a regular expression.
    """

    __slots__ = ("_max_length", "_plain", "_timed", "groups", "is_nested", "pattern")

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        self.pattern = text
        try:
            self._plain = re.compile(text, re.IGNORECASE if ignore_case else 0)
            self._timed = regex.compile(text, regex.IGNORECASE if ignore_case else 0)
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None
        self.groups = self._plain.groups
        self.is_nested = _NESTED.search(text) is not None
        self._max_length = 0.0 if self.is_nested else _max_length(text)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match in a text.

        Raises:
            UnexpectedShape: the search takes too long.
        """
        if len(text) <= self._max_length:
            return self._plain.search(text)
        return next(self.finditer(text), None)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield all matches in a text.

        Raises:
            UnexpectedShape: the search takes too long.
        """
        if len(text) <= self._max_length:
            yield from self._plain.finditer(text)
            return
        try:
            yield from self._timed.finditer(text, timeout=SECONDS)
        except TimeoutError:
            raise self._timed_out(text) from None

    def first_group(self, found: re.Match[str]) -> str | None:
        """Return the first group of a match, or the whole match when there are no groups."""
        return found[1 if self.groups else 0] or None

    def _timed_out(self, text: str) -> UnexpectedShape:
        problem = f"the pattern takes over {SECONDS:g} s on a text of {len(text)} characters"
        return UnexpectedShape(repr(self.pattern), f"{problem}; write it without nested repetition")


@lru_cache(maxsize=512)
def user_pattern(text: str, *, ignore_case: bool = False) -> UserPattern:
    """Return the compiled pattern, from a cache.

    Raises:
        ValueError: the text is not a regular expression.
    """
    return UserPattern(text, ignore_case=ignore_case)


def _max_length(text: str) -> float:
    """Return the text length up to which `re` is fast enough for a pattern: a cautious estimate.

    A search begins at each character, and each repetition may end at each: the number of steps is
    the length to the power of the repetitions plus one.
    """
    repeats = len(_REPEATS.findall(text))
    steps = _MAX_STEPS / 2.0 ** min(len(_OPTIONAL.findall(text)), 64)
    return float(max(steps, 0.0) ** (1 / (repeats + 1)))


def _check_pattern(text: str) -> str:
    try:
        user_pattern(text)
    except ValueError as error:
        raise invalid(f"{text!r} is not a regular expression: {error}") from None
    return text


Pattern = Annotated[str, AfterValidator(_check_pattern)]
"""A regular expression; its first group counts, or the whole match."""
