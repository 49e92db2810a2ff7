"""From one page to the next, and how the end is known; nothing here asks or waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from longline.config.manifests.api import (
    ByGraphql,
    ByLink,
    ByNext,
    ByOffset,
    ByPage,
    Pagination,
    Sized,
)
from longline.config.manifests.json_paths import find
from longline.core.errors import UnexpectedShape
from longline.http.messages import Page
from longline.sources.api.records import described, digest
from longline.sources.api.requests import Turn

# ---------------- The Link header (RFC 8288): addresses and what they are to the page that names

# <address>; name=value; name="a \"quoted\" value", <next address>; …
_LINK = re.compile(
    r"\s*,?\s*<([^>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\",;]*))?)*)"
)
_PARAMETER = re.compile(r";\s*([^\s=;,]+)\s*(?:=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\",;]*)))?")
_ESCAPED = re.compile(r"\\(.)")


def linked(headers: Mapping[str, str], rel: str) -> str | None:
    """Return the address that the headers name as this; None when they name none."""
    several = getattr(headers, "getall", None)
    lines = several("link", []) if several else [headers.get("link", headers.get("Link", ""))]
    for address, relations in (link for line in lines for link in _links(line)):
        if rel.lower() in relations:
            return address
    return None


def _links(line: str) -> Iterator[tuple[str, list[str]]]:
    position = 0
    while found := _LINK.match(line, position):
        position = found.end()
        yield found[1], _relations(found[2])


def _relations(parameters: str) -> list[str]:
    """Return the words of the first rel; another one in the same link does not count."""
    for found in _PARAMETER.finditer(parameters):
        if found[1].lower() == "rel":
            text = found[3] if found[2] is None else _ESCAPED.sub(r"\1", found[2])
            return (text or "").lower().split()
    return []


Onward = Callable[[str, str], str]
"""Told an address and the page that names it, returns it as it may be asked for."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a list we are: `at` is the page, offset, cursor or address to ask for next.

    `mark` stands for an earlier page, number `marked`, to know a list that goes round in circles.
    """

    at: str | int | None = None
    pages: int = 0
    seen: int = 0
    mark: str = ""
    marked: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON, to be kept in a cursor."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answered:
    """A page that came: the answer, its JSON, and the keys of its records."""

    page: Page
    body: Any
    keys: list[Any] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.keys)


def beginning(paging: Pagination | None) -> Place:
    """Return where a list begins."""
    return Place(paging.start if isinstance(paging, ByPage | ByOffset) else None)


def turn_of(paging: Pagination | None, place: Place) -> Turn:
    """Return what the request for this place has beside the rest."""
    if paging is None:
        return Turn()
    if isinstance(paging, ByLink | ByNext):
        return Turn(url=None if place.at is None else str(place.at))
    if isinstance(paging, ByGraphql):
        return Turn(variables={} if place.at is None else {paging.variable: place.at})
    said: dict[str, Any] = {} if place.at is None else {paging.parameter: place.at}
    if paging.size is not None and paging.size_parameter:
        said[paging.size_parameter] = paging.size
    if paging.into == "query":
        return Turn(query=said)
    return Turn(body=said) if paging.into == "body" else Turn(variables=said)


def following(
    paging: Pagination | None, place: Place, answered: Answered, onward: Onward
) -> tuple[Place | None, str | None]:
    """Return the next place, None after the last; and why the list is not whole, if it is not.

    Raises:
        UnexpectedShape: the answer does not say what the manifest expects of it.
    """
    if paging is None:
        return None, None
    pages, seen = place.pages + 1, place.seen + answered.count
    at = _next_at(paging, Place(place.at, pages, seen), answered)
    if at is None:
        return None, _shortfall(paging, Place(place.at, pages, seen), answered)
    if isinstance(paging, ByLink | ByNext):
        at = onward(str(at), answered.page.url)
    if pages >= paging.most_pages:
        return None, f"there are more than most_pages ({paging.most_pages}) pages"
    # What counts itself on cannot repeat; there, the records do when the API ignores it.
    mark = digest([None if isinstance(paging, ByPage | ByOffset) else at, answered.keys])
    if mark == place.mark:
        # Past the last of numbered pages, some APIs give the last one again. What repeats the
        # first, or sends round in circles, does not understand how it is asked.
        is_clamped = isinstance(paging, ByPage | ByOffset) and place.marked > 1
        told = f"page {pages} is the same as page {place.marked}: the API repeats itself"
        return None, None if is_clamped else told
    # A mark at pages 1, 2, 4, 8 … finds a circle of any length (Brent).
    is_due = pages >= 2 * place.marked
    return (
        Place(at, pages, seen, *((mark, pages) if is_due else (place.mark, place.marked))),
        None,
    )


def _next_at(paging: Pagination, place: Place, answered: Answered) -> str | int | None:
    """Return what to ask for next; `place` has counted this answer already."""
    if _is_over(paging, place, answered):
        return None
    if isinstance(paging, ByPage):
        return int(place.at or 0) + 1
    if isinstance(paging, ByOffset):
        # By what came, and not by what was asked for: an API may give fewer at a time.
        return int(place.at or 0) + answered.count
    if isinstance(paging, ByLink):
        return linked(answered.page.headers, paging.rel) or None
    path = f"({paging.page_info}).endCursor" if isinstance(paging, ByGraphql) else paging.path
    return _cursor(path, answered)


def _is_over(paging: Pagination, place: Place, answered: Answered) -> bool:
    if isinstance(paging, ByGraphql) and not _truth(f"({paging.page_info}).hasNextPage", answered):
        return True
    if paging.has_more is not None and not _truth(paging.has_more, answered):
        return True
    if paging.total is not None and place.seen >= _number(paging.total, answered):
        return True
    if isinstance(paging, Sized) and _is_short(paging, answered):
        return True
    if isinstance(paging, ByPage) and paging.total_pages is not None:
        return place.pages >= _number(paging.total_pages, answered)
    return isinstance(paging, ByPage | ByOffset) and answered.count == 0


def _is_short(paging: Sized, answered: Answered) -> bool:
    return paging.short_page_is_last and answered.count < (paging.size or 0)


def _shortfall(paging: Pagination, place: Place, answered: Answered) -> str | None:
    """Say what is missing at the end of a list, by the API's own account."""
    if paging.total is not None:
        total = _number(paging.total, answered)
        if place.seen < total:
            return f"the API says {total:g} records, and listed {place.seen}"
    if _promises_more(paging, answered):
        return f"the list ended after {place.pages} pages although the API says that there is more"
    return None


def _promises_more(paging: Pagination, answered: Answered) -> bool:
    """Say whether an answer speaks of a further page; a cursor alone is no promise."""
    if isinstance(paging, ByGraphql) and _truth(f"({paging.page_info}).hasNextPage", answered):
        return True
    if paging.has_more is not None and _truth(paging.has_more, answered):
        return True
    if isinstance(paging, ByLink):
        return linked(answered.page.headers, paging.rel) is not None
    return isinstance(paging, ByNext) and _cursor(paging.path, answered) is not None


def _cursor(path: str, answered: Answered) -> str | int | None:
    found = _found(path, answered)
    if found is None or found is False or found == "":
        return None
    if isinstance(found, str | int) and not isinstance(found, bool):
        return found
    raise _unexpected(path, found, "a text or a number", answered)


def _truth(path: str, answered: Answered) -> bool:
    found = _found(path, answered)
    if isinstance(found, bool):
        return found
    # Nothing is no answer: a path with a slip in it would end every list after a page.
    raise _unexpected(path, found, "true or false", answered)


def _number(path: str, answered: Answered) -> float:
    found = _found(path, answered)
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    raise _unexpected(path, found, "a number", answered)


def _found(path: str, answered: Answered) -> Any:
    try:
        return find(path, answered.body)
    except ValueError as error:
        raise UnexpectedShape(answered.page.url, str(error)) from error


def _unexpected(path: str, found: Any, wanted: str, answered: Answered) -> UnexpectedShape:
    inside = described(answered.body) if isinstance(answered.body, Mapping) else "the answer"
    problem = f"{path!r} finds {described(found)}, and not {wanted}, in {inside}"
    return UnexpectedShape(answered.page.url, problem)
