"""Pagination of lists on HTML pages: its schema, and a pager for each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, assert_never
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from longline.config.expressions import JsonPath, fill, find, names_in
from longline.config.identity import Headers
from longline.config.validation import StrictModel, invalid
from longline.http.browser.manifest import Selector
from longline.sources.html.places import (
    Links,
    PageScope,
    Place,
    Scope,
    Selectors,
    absolute_url,
    check_selector,
    make_finders,
)
from longline.sources.manifest import check_url

MAX_PAGES = 1000
_NUMBER = re.compile(r"\d+")


class Pages(StrictModel):
    """What all kinds have in common."""

    until: Literal["empty", "last"] = "empty"
    """A list ends with a page without new items (`empty`), or with its `last` page."""
    most_pages: int = Field(default=MAX_PAGES, ge=1)
    """Maximum number of pages per list."""

    def templates(self) -> tuple[str, ...]:
        """Return every text that may have names in braces."""
        return ()

    @model_validator(mode="after")
    def _check_until(self) -> Self:
        if self.until == "last" and getattr(self, "last", None) is None:
            raise invalid("until: last needs last: the number of the last page, or its selector")
        return self


class NextPages(Pages):
    """Each page links to the next one."""

    kind: Literal["next"] = "next"
    css: Selectors
    """The link to the next page; the list ends where it is missing."""


class CountedPages(Pages):
    """Pages whose URLs are known in advance."""

    url: Annotated[str, AfterValidator(check_url)] | None = None
    """URL of a page; `{start}` is the URL of the list."""
    param: str | None = None
    """Or the query parameter of the list's URL that selects the page."""

    def templates(self) -> tuple[str, ...]:
        return (self.url,) if self.url else ()

    @model_validator(mode="after")
    def _check_page_url(self) -> Self:
        name = "page" if isinstance(self, NumberedPages) else "offset"
        if self.url is not None and self.param is not None:
            raise invalid("url and param cannot be combined; write one of them")
        if self.url is not None and name not in names_in(self.url):
            raise invalid(f"url must contain {{{name}}}, for example {{start}}?{name}={{{name}}}")
        return self


def _check_last(value: int | str) -> int | str:
    return value if isinstance(value, int) else check_selector(value)


class NumberedPages(CountedPages):
    """Pages by number; the list's own URL is the first page."""

    kind: Literal["numbered"] = "numbered"
    first: int = 1
    """Number of the first page."""
    step: int = Field(default=1, ge=1)
    last: Annotated[int | str, AfterValidator(_check_last)] | None = None
    """Number of the last page, or the selector of elements with page numbers."""


class OffsetPages(CountedPages):
    """Pages by the number of entries before them; the list's own URL is the first page."""

    kind: Literal["offset"] = "offset"
    size: int = Field(ge=1)
    """Number of entries per page."""
    first: int = 0
    last: Annotated[int, Field(ge=0)] | None = None
    """Offset of the last page."""


class MorePages(Pages):
    """After the list's own page, a URL that returns more of it as HTML or JSON."""

    kind: Literal["more"] = "more"
    url: Annotated[str, AfterValidator(check_url)]
    """URL with `{page}`, `{offset}` or `{cursor}`; `{start}` is the URL of the list."""
    first: int | None = None
    """First page or offset to request; default: 2, or `size`."""
    size: int = Field(default=1, ge=1)
    """Increment of an offset."""
    links: JsonPath | None = None
    """In a JSON response, the URLs of items: items[].url."""
    html: JsonPath | None = None
    """In a JSON response, an HTML fragment, which is read as a page of the list."""
    records: JsonPath | None = None
    """In a JSON response, the records themselves; fields read them with `path`."""
    cursor: JsonPath | None = None
    """In a JSON response, the next cursor; the list ends where it is missing."""
    headers: Headers = Field(default_factory=dict)
    """Headers of these requests only, such as X-Requested-With."""

    def templates(self) -> tuple[str, ...]:
        return (self.url,)

    @property
    def is_json(self) -> bool:
        return any(one is not None for one in (self.links, self.html, self.records, self.cursor))

    @model_validator(mode="after")
    def _check_more(self) -> Self:
        variables = {"page", "offset", "cursor"} & set(names_in(self.url))
        if not variables:
            raise invalid("url must contain {page}, {offset} or {cursor}, or it never changes")
        if "cursor" in variables and not self.cursor:
            raise invalid("{cursor} in url needs cursor: the path of the next one in the response")
        forms = [name for name in ("links", "html", "records") if getattr(self, name) is not None]
        if len(forms) > 1:
            raise invalid(f"{' and '.join(forms)} cannot be combined; write one of them")
        if self.cursor is not None and not forms:
            raise invalid("a JSON response needs links, html or records: where the list is")
        return self


class ClickPages(Pages):
    """A button in a browser leads to the next page, by navigation or by replacing the list."""

    kind: Literal["click"] = "click"
    click: Selector
    """The button; the list ends where it is missing, disabled, or changes nothing."""


def _expand_pages(value: Any) -> Any:
    if isinstance(value, Mapping) and "click" in value and "kind" not in value:
        return {**value, "kind": "click"}
    return {"kind": "next", "css": [value]} if isinstance(value, str) else value


Pagination = Annotated[
    NextPages | NumberedPages | OffsetPages | MorePages | ClickPages,
    Field(discriminator="kind"),
    BeforeValidator(_expand_pages),
]
"""How a list continues; a plain text is the selector of the link to the next page.

`{click: SELECTOR}` is a button in a browser.
"""


@dataclass(frozen=True, slots=True)
class PageStep:
    """A page of a list: its URL, its number, and the value or cursor that selects it."""

    url: str
    count: int = 1
    value: int = 0
    cursor: str | None = None
    is_more: bool = False


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page of a list after it was read."""

    scope: PageScope
    is_last: bool
    """Whether it had nothing new."""


class Pager:
    """Determines the next page of a list; one object serves one run. This one has a single page."""

    unmatched_next: str | None = None
    """The next page of the last page's rel=next, if the selector did not find it."""

    def first(self, url: str) -> PageStep:
        return PageStep(url)

    def after(self, _url: str, _step: PageStep, _read: ReadPage) -> PageStep | None:
        """Return the page after this one; None when it was the last."""
        return None

    def missing_pages(self, _step: PageStep, *, is_read: bool) -> str | None:  # noqa: ARG002  # an interface
        """Return why a list that ended here is incomplete; None when nothing says so.

        The step is the last page, or one that does not exist (not `is_read`).
        """
        return None


def make_pager(pages: Pagination | None, parameters: Mapping[str, Any]) -> Pager:
    """Return the pager for this kind of pagination."""
    if isinstance(pages, NextPages):
        return _NextPager(pages)
    if isinstance(pages, NumberedPages | OffsetPages):
        return _CountedPager(pages, parameters)
    if isinstance(pages, MorePages):
        return _MorePager(pages, parameters)
    if pages is None or isinstance(pages, ClickPages):  # a browser clicks, without a pager
        return Pager()
    assert_never(pages)


class _NextPager(Pager):
    """Follows next links; a link to a page that was read ends the list.

    The last page of many sites links to itself, to the first page or, where one selector matches
    both links, to the page before. A link to any other page that was read is a loop: the pages
    after it cannot be reached.
    """

    def __init__(self, pages: NextPages) -> None:
        self._links = Links(pages.css)
        self._read: set[str] = set()
        self._previous: set[str] = set()
        self._loop: str | None = None

    def first(self, url: str) -> PageStep:
        self._read = {url}
        self._previous = set()
        return PageStep(url)

    def after(self, url: str, step: PageStep, read: ReadPage) -> PageStep | None:
        scope = read.scope
        here = {step.url, scope.url}
        usual = {url, *here, *self._previous}
        self._read |= {url, *here}
        self._previous = here
        following = next((found for _, found in self._links.find(scope)), None)
        self._loop = following if following in self._read - usual else None
        node = scope.tree.css_first("a[rel~=next][href], link[rel~=next][href]")
        named = absolute_url(scope.base, (node and node.attributes.get("href")) or "")
        is_unmatched = node is not None and following is None and named not in self._read
        self.unmatched_next = named if is_unmatched else None
        if following is None or following in self._read:
            return None
        return PageStep(following, step.count + 1)

    def missing_pages(self, _step: PageStep, *, is_read: bool) -> str | None:  # noqa: ARG002  # an interface
        return f"the next link leads back to {self._loop}" if self._loop else None


class _CountedPager(Pager):
    """Counts page numbers or offsets."""

    def __init__(self, pages: NumberedPages | OffsetPages, parameters: Mapping[str, Any]) -> None:
        self._pages = pages
        self._parameters = parameters
        self._name = "page" if isinstance(pages, NumberedPages) else "offset"
        self._increment = pages.step if isinstance(pages, NumberedPages) else pages.size
        self._last = pages.last if isinstance(pages.last, int) else None
        selector = pages.last if isinstance(pages.last, str) else None
        self._number_finders = make_finders([Place(css=(selector,))]) if selector else ()

    def first(self, url: str) -> PageStep:
        if self._number_finders:
            self._last = None  # each list has its own
        return PageStep(url, value=self._pages.first)

    def after(self, url: str, step: PageStep, read: ReadPage) -> PageStep | None:
        value = step.value + self._increment
        here = Scope(read.scope, read.scope.tree, read.scope.url)
        texts = [str(text) for finder in self._number_finders for text in finder.all(here)]
        numbers = [int(number) for text in texts for number in _NUMBER.findall(text)]
        if numbers:
            self._last = max(*numbers, self._last or 0)
        if read.is_last and (self._pages.until == "empty" or self._last is None):
            return None
        if self._last is not None and value > self._last:
            return None
        if self._pages.url is None:
            page_url = _with_parameter(url, self._pages.param or self._name, str(value))
        else:
            values = {**self._parameters, "start": url, self._name: value}
            page_url = fill(self._pages.url, values, in_url=True)
        return PageStep(page_url, step.count + 1, value)

    def missing_pages(self, step: PageStep, *, is_read: bool) -> str | None:
        # Only the site's own numbers count; `last` in the manifest is an upper limit.
        value = step.value + self._increment if is_read else step.value
        if not self._number_finders or self._last is None or value > self._last:
            return None
        return f"the site numbers its pages up to {self._last}"


class _MorePager(Pager):
    """Requests a load-more URL with a page, an offset or a cursor."""

    def __init__(self, pages: MorePages, parameters: Mapping[str, Any]) -> None:
        self._pages = pages
        self._parameters = parameters
        self._names = set(names_in(pages.url))

    def after(self, url: str, step: PageStep, read: ReadPage) -> PageStep | None:
        # The list's own page may be an empty shell that only its scripts fill.
        if read.is_last and step.is_more:
            return None
        is_offset = "offset" in self._names
        increment = self._pages.size if is_offset else 1
        value = step.value + increment
        if not step.is_more:
            first = increment if is_offset else 2
            value = first if self._pages.first is None else self._pages.first
        cursor = ""
        if step.is_more and self._pages.cursor is not None:
            found = find(self._pages.cursor, read.scope.page.json)
            is_scalar = isinstance(found, str | int) and not isinstance(found, bool)
            cursor = str(found) if is_scalar and found else ""
            if not cursor or cursor == step.cursor:
                return None
        values = {"start": url, "cursor": cursor, "page": value, "offset": value}
        following = fill(self._pages.url, {**self._parameters, **values}, in_url=True)
        return PageStep(following, step.count + 1, value, cursor, is_more=True)


def _with_parameter(url: str, name: str, value: str) -> str:
    parts = urlsplit(url)
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != name]
    return urlunsplit(parts._replace(query=urlencode([*kept, (name, value)]), fragment=""))
