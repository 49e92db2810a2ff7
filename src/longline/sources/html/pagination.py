"""Which page of a list comes next, for each kind of pagination; every kind comes to an end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from longline.config.manifests.base import fill, names_in
from longline.config.manifests.fields import Place
from longline.config.manifests.html import (
    MorePages,
    NextPages,
    NumberedPages,
    OffsetPages,
    Pagination,
)
from longline.config.manifests.json_paths import find
from longline.sources.html.fields import Finder, PageScope, Scope, finders_of
from longline.sources.html.items import joined, with_href

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Step:
    """A page of a list: its address, the how-manieth it is, and what the next one is made of."""

    url: str
    count: int = 1
    value: int = 0
    cursor: str | None = None
    is_more: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return it as part of a discovery's cursor."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pager is told of the page just read."""

    scope: PageScope
    answer: Any = None
    is_over: bool = False
    """Whether nothing new stood on it."""


class Pager(Protocol):
    """The pages of one list after the other; one object serves one run."""

    unread: str | None
    """The next page that the last one names in its own way (rel=next), and that was not found."""

    def first(self, address: str) -> Step:
        """Return the first page of a list."""

    def after(self, address: str, step: Step, seen: Seen) -> Step | None:
        """Return the page after this one; None when it was the last."""

    def missing(self, step: Step, *, is_read: bool) -> str | None:
        """Say why a list that ended with this page is not whole; None when nothing says so.

        Args:
            step: the last page, or one that is not there.
            is_read: whether it was there.
        """


def make_pager(pages: Pagination | None, parameters: Mapping[str, Any]) -> Pager:
    """Return what leads through lists of this kind."""
    if isinstance(pages, NextPages):
        return _Next(pages)
    if isinstance(pages, NumberedPages | OffsetPages):
        return _Counted(pages, parameters)
    return _More(pages, parameters) if isinstance(pages, MorePages) else _Single()


class _Single:
    """A list is one page."""

    unread: str | None = None

    def first(self, address: str) -> Step:
        return Step(address)

    def after(self, address: str, step: Step, seen: Seen) -> Step | None:
        del address, step, seen
        return None

    def missing(self, step: Step, *, is_read: bool) -> str | None:
        del step, is_read
        return None


class _Next:
    """Each page links to the next; a link back to a page that was read ends the list.

    The last page of many sites links to itself, to the first page or, where one selector finds
    both links, to the page before. A link to any other page that was read is a loop: the pages
    behind it cannot be reached.
    """

    def __init__(self, pages: NextPages) -> None:
        self._finders = finders_of([Place(css=tuple(with_href(one) for one in pages.css))])
        self._read: set[str] = set()
        self._before: set[str] = set()
        self._loop: str | None = None
        self.unread: str | None = None

    def first(self, address: str) -> Step:
        self._read = {address}
        self._before = set()
        return Step(address)

    def after(self, address: str, step: Step, seen: Seen) -> Step | None:
        here = {step.url, seen.scope.address}
        usual = {address, *here, *self._before}
        self._read |= {address, *here}
        self._before = here
        link = _first(self._finders, seen.scope)
        url = joined(seen.scope.base, link) if link else None
        self._loop = url if url in self._read - usual else None
        self.unread = None if link else self._relation(seen.scope)
        if url is None or url in self._read:
            return None
        return Step(url, step.count + 1)

    def missing(self, step: Step, *, is_read: bool) -> str | None:
        del step, is_read
        return f"the next link leads back to {self._loop}" if self._loop else None

    def _relation(self, scope: PageScope) -> str | None:
        """Return the unread page that a page names as its next by HTML's own means."""
        node = scope.tree.css_first("a[rel~=next][href], link[rel~=next][href]")
        url = joined(scope.base, node.attributes.get("href") or "") if node is not None else None
        return url if url not in self._read else None


class _Counted:
    """Page numbers, or offsets."""

    unread: str | None = None

    def __init__(self, pages: NumberedPages | OffsetPages, parameters: Mapping[str, Any]) -> None:
        self._pages = pages
        self._parameters = parameters
        self._name = "page" if isinstance(pages, NumberedPages) else "offset"
        self._by = pages.step if isinstance(pages, NumberedPages) else pages.size
        self._last = pages.last if isinstance(pages.last, int) else None
        marked = pages.last if isinstance(pages.last, str) else None
        self._numbers = finders_of([Place(css=(marked,))]) if marked else ()

    def first(self, address: str) -> Step:
        if self._numbers:
            self._last = None  # each list has its own
        return Step(address, value=self._pages.first)

    def after(self, address: str, step: Step, seen: Seen) -> Step | None:
        value = step.value + self._by
        last = self._read_last(seen.scope)
        if seen.is_over and self._pages.until == "empty":
            return None
        if last is None and self._pages.until == "last" and seen.is_over:
            return None  # it names no last page, after all
        if last is not None and value > last:
            return None
        return Step(self._address(address, value), step.count + 1, value)

    def missing(self, step: Step, *, is_read: bool) -> str | None:
        # Only the site's own numbers are a promise; a `last` in the manifest is a wish.
        value = step.value + self._by if is_read else step.value
        if not self._numbers or self._last is None or value > self._last:
            return None
        return f"the site numbers its pages up to {self._last}"

    def _read_last(self, scope: PageScope) -> int | None:
        here = Scope(scope, scope.tree, scope.address)
        texts = [str(text) for finder in self._numbers for text in finder.all(here)]
        numbers = [int(number) for text in texts for number in _NUMBER.findall(text)]
        if numbers:
            self._last = max(*numbers, self._last or 0)
        return self._last

    def _address(self, address: str, value: int) -> str:
        if self._pages.url is None:
            return _with_parameter(address, self._pages.param or self._name, str(value))
        values = {**self._parameters, "start": address, self._name: value}
        return fill(self._pages.url, values, in_address=True)


class _More:
    """An address that gives more, asked for with a page, an offset or a cursor."""

    unread: str | None = None

    def __init__(self, pages: MorePages, parameters: Mapping[str, Any]) -> None:
        self._pages = pages
        self._parameters = parameters
        self._names = set(names_in(pages.url))
        self._first_cursor = finders_of([Place(css=pages.first_cursor)])
        self._cursor = finders_of([Place(css=pages.cursor_css)])

    def first(self, address: str) -> Step:
        return Step(address)

    def after(self, address: str, step: Step, seen: Seen) -> Step | None:
        # The list's own page may be an empty shell that only its scripts fill.
        if seen.is_over and step.is_more:
            return None
        value = self._value_after(step)
        cursor = self._cursor_after(step, seen)
        if "cursor" in self._names and (cursor is None or (cursor == step.cursor and step.is_more)):
            return None
        values = {**self._parameters, "start": address, "cursor": cursor}
        url = fill(self._pages.url, {**values, "page": value, "offset": value}, in_address=True)
        return Step(url, step.count + 1, value, cursor, is_more=True)

    def missing(self, step: Step, *, is_read: bool) -> str | None:
        del step, is_read
        return None

    def _value_after(self, step: Step) -> int:
        by = self._pages.size if "offset" in self._names else 1
        if step.is_more:
            return step.value + by
        first = by if "offset" in self._names else 2
        return first if self._pages.first is None else self._pages.first

    def _cursor_after(self, step: Step, seen: Seen) -> str | None:
        if not step.is_more:
            found = _first(self._first_cursor, seen.scope) if self._first_cursor else ""
        elif self._pages.cursor is not None:
            found = find(self._pages.cursor, seen.answer)
        else:
            found = _first(self._cursor, seen.scope)
        is_one = isinstance(found, str | int) and not isinstance(found, bool)
        return str(found) if is_one and (found or not step.is_more) else None


def _first(finders: tuple[Finder, ...], scope: PageScope) -> str | None:
    here = Scope(scope, scope.tree, scope.address)
    found = (finder.first(here) for finder in finders)
    return next((str(value) for value in found if value is not None), None)


def _with_parameter(address: str, name: str, value: str) -> str:
    parts = urlsplit(address)
    kept = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != name]
    return urlunsplit(parts._replace(query=urlencode([*kept, (name, value)]), fragment=""))
