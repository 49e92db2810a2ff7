"""Regular expressions that users write, matched with a time limit.

Python's `re` backtracks, which on a text that a site chose may take forever. It is used where a
pattern is simple enough for the length of a text, which is nearly always. Otherwise the `regex`
package matches by the same rules and stops after a time
(docs/decisions/0037-patterns-with-a-time-limit.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Protocol

import regex
from pydantic import AfterValidator

from longline.config.strict_model import invalid
from longline.core.errors import UnexpectedShape

SECONDS = 0.25
"""CPU time that one search may take."""
_MAX_STEPS = 50_000_000
_NESTED = re.compile(r"\)[*+{]")
_REPEATS = re.compile(r"(?<!\\)[*+{]")
_OPTIONAL = re.compile(r"(?<![\\(])\?")


class Match(Protocol):
    """A match, as `re.Match`."""

    def __getitem__(self, group: int | str, /) -> Any:
        """Return a group."""

    def end(self) -> int:
        """Return the index after the match."""


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

    def search(self, text: str) -> Match | None:
        """Return the first match in a text.

        Raises:
            UnexpectedShape: the search takes too long.
        """
        if len(text) <= self._max_length:
            return self._plain.search(text)
        try:
            found: Match | None = self._timed.search(text, timeout=SECONDS)
        except TimeoutError:
            raise self._timed_out(text) from None
        return found

    def finditer(self, text: str) -> Iterator[Match]:
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

    def first_group(self, found: Match) -> str | None:
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
