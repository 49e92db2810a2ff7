"""What the headers of caching say: Cache-Control, dates and plain numbers, strictly read.

hishel's own reader takes what RFC 9111 calls invalid for an answer without a lifetime; a cache
that is to be trusted takes it for stale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from functools import lru_cache
from math import inf

_DIRECTIVE = re.compile(
    r"""\s*(?P<name>[^\s,="]+)
        (?P<argument>=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^,"]*)))?
        (?P<rest>[^,]*)(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of a Cache-Control header, by name in lower case; None has no argument."""

    arguments: Mapping[str, tuple[str | None, ...]]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    def is_bare(self, name: str) -> bool:
        """Say whether the directive is there without a list of fields."""
        return None in self.arguments.get(name, ())

    def seconds(self, name: str, *, bare: float = 0.0) -> float | None:
        """Return the seconds of a directive; None when it is not there.

        What is no number is 0, the careful reading, and of several the least counts. `bare` is
        what the directive means without an argument.
        """
        found = self.arguments.get(name)
        if found is None:
            return None
        return min(bare if text is None else whole_number(text) or 0.0 for text in found)

    def fields(self, name: str) -> set[str]:
        """Return the names of headers that a directive lists, in lower case."""
        lists = (text for text in self.arguments.get(name, ()) if text is not None)
        return {field.strip().lower() for text in lists for field in text.split(",")}


@lru_cache(maxsize=1024)  # the answers of a site say the same again and again
def read_directives(header: str) -> Directives:
    """Read a Cache-Control header; several lines are joined by commas before."""
    arguments: dict[str, tuple[str | None, ...]] = {}
    for match in _DIRECTIVE.finditer(header):
        name = match["name"].lower()
        arguments[name] = (*arguments.get(name, ()), _argument(match))
    return Directives(arguments)


def whole_number(text: str) -> float | None:
    """Return a number of seconds as HTTP writes it: digits and nothing else."""
    if not (text.isascii() and text.isdigit()):
        return None
    return float(text) if len(text) < 20 else inf  # noqa: PLR2004  # longer than any time there is


@lru_cache(maxsize=1024)
def read_date(text: str) -> float | None:
    """Return a date of HTTP, in any of its three forms, in seconds since the epoch."""
    parsed = parsedate_tz(text)
    if parsed is None:
        return None
    try:
        return float(mktime_tz(parsed))
    except (ValueError, OverflowError):  # a year that no calendar has
        return None


def whole_header(headers: Mapping[str, str], name: str) -> str:
    """Return all lines of a header, joined as one list; empty when there is none."""
    every = getattr(headers, "getall", None)
    if every is None:
        return headers.get(name, "")
    return ", ".join(every(name, ()))


def _argument(match: re.Match[str]) -> str | None:
    if match["argument"] is None:
        rest = match["rest"].strip()
        # "max-age =3600" is not the directive max-age without an argument.
        return rest if rest.startswith("=") else None
    if match["quoted"] is not None:
        return re.sub(r"\\(.)", r"\1", match["quoted"])
    return match["plain"].rstrip() + match["rest"].strip()
