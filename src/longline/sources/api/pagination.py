"""Pagination of an API: its schema, the parameters of each page, and how the end is detected.

Nothing here sends requests or waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from longline.config.expressions import JsonPath, find
from longline.config.validation import StrictModel, invalid
from longline.core.errors import UnexpectedShape
from longline.http.messages import Page
from longline.sources.api.records import describe_value, digest

Into = Literal["query", "body", "variables"]
# <url>; name=value; name="a \"quoted\" value", <next url>; …
_LINK = re.compile(
    r"\s*,?\s*<([^>]*)>((?:\s*;\s*[^\s=;,]+(?:\s*=\s*(?:\"(?:[^\"\\]|\\.)*\"|[^\",;]*))?)*)"
)
_LINK_PARAMETER = re.compile(r";\s*([^\s=;,]+)\s*(?:=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\",;]*)))?")
_ESCAPED = re.compile(r"\\(.)")


class Paging(StrictModel):
    """What all kinds have in common: how the end is detected."""

    has_more: JsonPath | None = None
    """Path of the flag that says whether there are more pages."""
    total: JsonPath | None = None
    """Path of the total number of records."""
    most_pages: int = Field(default=100_000, ge=1)
    """Maximum number of pages to request."""


class Sized(Paging):
    """A kind with a page size."""

    into: Into = "query"
    """Where the parameters go."""
    size: int | None = Field(default=None, ge=1)
    """Number of records to request per page; default: the API's own."""
    size_parameter: str | None = Field(default=None, min_length=1)
    """Name of the parameter for the page size."""

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        # An offset has a default name for it, which says nothing about the size.
        if self.size is None and self.size_parameter and not isinstance(self, ByOffset):
            raise invalid("size_parameter needs size: the number of records to request")
        if not isinstance(self, ByCursor) and self.size_parameter == getattr(self, "parameter", ""):
            raise invalid("parameter and size_parameter must differ")
        return self


class ByPage(Sized):
    """Pages by number."""

    kind: Literal["page"] = "page"
    parameter: str = Field(default="page", min_length=1)
    start: int = 1
    total_pages: JsonPath | None = None
    """Path of the number of pages."""


class ByOffset(Sized):
    """Pages by the number of records before them."""

    kind: Literal["offset"] = "offset"
    parameter: str = Field(default="offset", min_length=1)
    size_parameter: str | None = Field(default="limit", min_length=1)
    start: int = Field(default=0, ge=0)


class ByCursor(Sized):
    """Each response has the cursor of the next page."""

    kind: Literal["cursor"] = "cursor"
    path: JsonPath
    """Path of the cursor; null or empty on the last page."""
    parameter: str = Field(default="cursor", min_length=1)


class ByLink(Paging):
    """The Link header has the URL of the next page, as rel=next (RFC 8288)."""

    kind: Literal["link"] = "link"
    rel: str = Field(default="next", min_length=1)


class ByNext(Paging):
    """Each response has the URL of the next page."""

    kind: Literal["next"] = "next"
    path: JsonPath
    """Path of the URL; null or empty on the last page."""


class ByGraphql(Paging):
    """GraphQL connections: `pageInfo` with `hasNextPage` and `endCursor`."""

    kind: Literal["graphql"] = "graphql"
    page_info: JsonPath
    """Path of pageInfo, such as data.products.pageInfo."""
    variable: str = Field(default="after", min_length=1)
    """Variable of the query for the cursor."""


Pagination = Annotated[
    ByPage | ByOffset | ByCursor | ByLink | ByNext | ByGraphql,
    Field(discriminator="kind"),
]
"""Any kind of pagination, selected by `kind`."""

ResolveUrl = Callable[[str, str], str]
"""Return the URL to request for a link; it receives the link and the URL of its page."""


@dataclass(frozen=True, slots=True)
class PageParameters:
    """What a page adds to its request: parameters, or the whole URL."""

    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Position in a list: `at` is the page, offset, cursor or URL to request next.

    `mark` is the hash of an earlier page, number `marked`, to detect pages that repeat.
    """

    at: str | int | None = None
    pages: int = 0
    seen: int = 0
    mark: str = ""
    marked: int = 0


@dataclass(frozen=True, slots=True)
class PageResponse:
    """One page of a list: the response, its JSON, and the keys of its records."""

    page: Page
    body: Any
    keys: list[Any] = field(default_factory=list)


def first_position(paging: Pagination | None) -> Position:
    """Return the position of the first page."""
    return Position(paging.start if isinstance(paging, ByPage | ByOffset) else None)


def page_parameters(paging: Pagination | None, position: Position) -> PageParameters:
    """Return what the request for this position needs."""
    at = position.at
    if paging is None:
        return PageParameters()
    if isinstance(paging, ByLink | ByNext):
        return PageParameters(url=None if at is None else str(at))
    if isinstance(paging, ByGraphql):
        return PageParameters(variables={} if at is None else {paging.variable: at})
    parameters: dict[str, Any] = {} if at is None else {paging.parameter: at}
    if paging.size is not None and paging.size_parameter:
        parameters[paging.size_parameter] = paging.size
    placed: dict[str, Any] = {paging.into: parameters}
    return PageParameters(**placed)


def next_position(
    paging: Pagination | None, position: Position, response: PageResponse, resolve: ResolveUrl
) -> tuple[Position | None, str | None]:
    """Return the next position, None after the last page, and why the list is incomplete, if so.

    Raises:
        UnexpectedShape: the response lacks what the manifest expects.
    """
    if paging is None:
        return None, None
    pages, seen = position.pages + 1, position.seen + len(response.keys)
    at = _next_at(paging, Position(position.at, pages, seen), response)
    if at is None:
        return None, _shortfall(paging, Position(position.at, pages, seen), response)
    if isinstance(paging, ByLink | ByNext):
        at = resolve(str(at), response.page.url)
    if pages >= paging.most_pages:
        return None, f"there are more than most_pages ({paging.most_pages}) pages"
    # Page numbers and offsets never repeat; the records do when the API ignores the parameter.
    is_counted = isinstance(paging, ByPage | ByOffset)
    mark = digest([None if is_counted else at, response.keys])
    if mark == position.mark:
        # Beyond the last numbered page, some APIs return the last page again. An API that repeats
        # the first page, or a cursor that loops, did not understand the request.
        if is_counted and position.marked > 1:
            return None, None
        return None, f"page {pages} is the same as page {position.marked}: the API repeats itself"
    # A mark at pages 1, 2, 4, 8 … finds a loop of any length (Brent).
    is_due = pages >= 2 * position.marked
    marked = (mark, pages) if is_due else (position.mark, position.marked)
    return Position(at, pages, seen, *marked), None


def _next_at(paging: Pagination, position: Position, response: PageResponse) -> str | int | None:
    """Return what to request next; `position` already counts this response."""
    if _is_last(paging, position, response):
        return None
    if isinstance(paging, ByPage):
        return int(position.at or 0) + 1
    if isinstance(paging, ByOffset):
        # By what came, not by what was requested: an API may return fewer records per page.
        return int(position.at or 0) + len(response.keys)
    if isinstance(paging, ByLink):
        return linked_url(response.page.headers, paging.rel) or None
    path = f"({paging.page_info}).endCursor" if isinstance(paging, ByGraphql) else paging.path
    return _cursor_at(path, response)


def _is_last(paging: Pagination, position: Position, response: PageResponse) -> bool:
    if _announces_more(paging, response) is False:
        return True
    if paging.total is not None and position.seen >= _number_at(paging.total, response):
        return True
    if isinstance(paging, ByPage) and paging.total_pages is not None:
        return position.pages >= _number_at(paging.total_pages, response)
    return isinstance(paging, ByPage | ByOffset) and len(response.keys) == 0


def _shortfall(paging: Pagination, position: Position, response: PageResponse) -> str | None:
    """Return what is missing at the end of a list according to the API itself."""
    if paging.total is not None:
        total = _number_at(paging.total, response)
        if position.seen < total:
            return f"the API announces {total:g} records but listed {position.seen}"
    is_announced = _announces_more(paging, response)
    if isinstance(paging, ByLink):
        is_announced = is_announced or linked_url(response.page.headers, paging.rel) is not None
    elif isinstance(paging, ByNext):
        is_announced = is_announced or _cursor_at(paging.path, response) is not None
    if is_announced:
        return f"the list ended after {position.pages} pages although the API announces more"
    return None


def _announces_more(paging: Pagination, response: PageResponse) -> bool | None:
    """Return what the flags of a response say about further pages; None if it has none."""
    paths = [f"({paging.page_info}).hasNextPage"] if isinstance(paging, ByGraphql) else []
    paths += [paging.has_more] if paging.has_more is not None else []
    return all(_flag_at(path, response) for path in paths) if paths else None


def _cursor_at(path: str, response: PageResponse) -> str | int | None:
    found = _find_in(path, response)
    if found is None or found is False or found == "":
        return None
    if isinstance(found, str | int) and not isinstance(found, bool):
        return found
    raise _unexpected(path, found, "a text or a number", response)


def _flag_at(path: str, response: PageResponse) -> bool:
    found = _find_in(path, response)
    if isinstance(found, bool):
        return found
    # A missing flag is an error: a typo in the path would end every list after one page.
    raise _unexpected(path, found, "true or false", response)


def _number_at(path: str, response: PageResponse) -> float:
    found = _find_in(path, response)
    if isinstance(found, str) and found.isdecimal():
        return int(found)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return found
    raise _unexpected(path, found, "a number", response)


def _find_in(path: str, response: PageResponse) -> Any:
    try:
        return find(path, response.body)
    except ValueError as error:
        raise UnexpectedShape(response.page.url, str(error)) from error


def _unexpected(path: str, found: Any, wanted: str, response: PageResponse) -> UnexpectedShape:
    inside = describe_value(response.body)
    problem = f"{path!r} is {describe_value(found)} instead of {wanted}, in {inside}"
    return UnexpectedShape(response.page.url, problem)


def linked_url(headers: Mapping[str, str], rel: str) -> str | None:
    """Return the URL with this relation in the Link header (RFC 8288); None when there is none."""
    get_all = getattr(headers, "getall", None)
    lines = get_all("link", []) if get_all else [headers.get("link", headers.get("Link", ""))]
    for line in lines:
        position = 0
        while found := _LINK.match(line, position):
            position = found.end()
            if rel.lower() in _parse_relations(found[2]):
                url: str = found[1]
                return url
    return None


def _parse_relations(parameters: str) -> list[str]:
    """Return the words of the first rel parameter; later ones in the same link are ignored."""
    for found in _LINK_PARAMETER.finditer(parameters):
        if found[1].lower() == "rel":
            text = found[3] if found[2] is None else _ESCAPED.sub(r"\1", found[2])
            return (text or "").lower().split()
    return []
