"""Regular expressions that users write: compiled in one place, and never endless.

Python's `re` tries every way to match, which on a text that a site chose may take forever. It is
used where a pattern is simple enough for the length of a text, as nearly always. Elsewhere the
`regex` package matches by the same rules and gives up after a time
(docs/decisions/0037-patterns-with-a-time-limit.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Protocol

import regex

from longline.core.errors import UnexpectedShape

SECONDS = 0.25
"""Processor time that one search may take."""
_MOST_STEPS = 50_000_000
_NESTED = re.compile(r"\)[*+{]")
_REPEATS = re.compile(r"(?<!\\)[*+{]")
_OPTIONAL = re.compile(r"(?<![\\(])\?")


class Match(Protocol):
    """What was found; as `re.Match`."""

    def __getitem__(self, group: int | str, /) -> Any:
        """Return a group."""

    def end(self) -> int:
        """Return where it ends."""


class UserPattern:
    """A regular expression with a time limit.

    Args:
        text: As Python's `re` understands it.
        ignores_case: Whether capitals and small letters are the same.

    Raises:
        ValueError: it is not a regular expression.
    """

    __slots__ = ("_guarded", "_longest", "_plain", "groups", "is_nested", "pattern")

    def __init__(self, text: str, *, ignores_case: bool = False) -> None:
        self.pattern = text
        try:
            self._plain = re.compile(text, re.IGNORECASE if ignores_case else 0)
            self._guarded = regex.compile(text, regex.IGNORECASE if ignores_case else 0)
        except (re.error, regex.error, OverflowError, RecursionError) as error:
            raise ValueError(str(error)) from None
        self.groups = self._plain.groups
        self.is_nested = _NESTED.search(text) is not None
        self._longest = 0.0 if self.is_nested else _longest(text)

    def search(self, text: str) -> Match | None:
        """Return the first match in a text.

        Raises:
            UnexpectedShape: it takes too long.
        """
        if len(text) <= self._longest:
            return self._plain.search(text)
        try:
            found: Match | None = self._guarded.search(text, timeout=SECONDS)
        except TimeoutError:
            raise self._too_long(text) from None
        return found

    def finditer(self, text: str) -> Iterator[Match]:
        """Yield all matches in a text.

        Raises:
            UnexpectedShape: it takes too long.
        """
        if len(text) <= self._longest:
            yield from self._plain.finditer(text)
            return
        try:
            yield from self._guarded.finditer(text, timeout=SECONDS)
        except TimeoutError:
            raise self._too_long(text) from None

    def first_group(self, found: Match) -> str | None:
        """Return the first group of a match, or all of it when there are no groups."""
        return found[1 if self.groups else 0] or None

    def _too_long(self, text: str) -> UnexpectedShape:
        problem = f"the pattern takes over {SECONDS:g} s on a text of {len(text)} characters"
        return UnexpectedShape(repr(self.pattern), f"{problem}; write it without nested repetition")


@lru_cache(maxsize=512)
def user_pattern(text: str, *, ignores_case: bool = False) -> UserPattern:
    """Return a pattern that is compiled once.

    Raises:
        ValueError: it is not a regular expression.
    """
    return UserPattern(text, ignores_case=ignores_case)


def _longest(text: str) -> float:
    """Return the length of texts up to which a pattern cannot take long, counted generously.

    A search begins at each character, and each repetition may end at each: n to the power of the
    repetitions and one.
    """
    repeats = len(_REPEATS.findall(text))
    steps = _MOST_STEPS / 2.0 ** min(len(_OPTIONAL.findall(text)), 64)
    return float(max(steps, 0.0) ** (1 / (repeats + 1)))
