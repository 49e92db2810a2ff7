"""Index pages of a site, one after the other, and the items on them; a crash costs one page."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from longline.config.manifests.html import ClickPages, Follow, HtmlManifest, MorePages
from longline.config.manifests.json_paths import find
from longline.config.patterns import user_pattern
from longline.core.errors import Gone, UnexpectedShape
from longline.core.model import Cursor, Item
from longline.core.threads import off_loop
from longline.http.messages import Clicks, Page
from longline.http.transports.browser.page import BrowserPage, clicked_in
from longline.sources.html.fields import PageScope
from longline.sources.html.items import UNUSABLE, Found, ItemFinder, Links, Marks
from longline.sources.html.pagination import Seen, Step, make_pager
from longline.sources.visit import Visit

_STALE_PAGES = 3
"""So many pages in a row with nothing new on them: the site repeats itself."""
_MOST_MARKS = 200
"""So many known index pages are written down with each cursor; with more, ever more seldom."""
_CHUNK = 200  # items
_FIRST_CLICKS = 10
_MOST_CLICKS = 50
"""Pages that one visit of a browser clicks through: more and more, since each begins anew."""


def start_addresses(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield every start address.

    Raises:
        UnexpectedShape: the ends of a range are no numbers.
    """
    for start in manifest.start:
        try:
            yield from start.addresses(parameters)
        except ValueError as error:
            raise UnexpectedShape(f"start {start.url}", str(error)) from error


async def from_starts(
    visit: Visit, manifest: HtmlManifest, finder: ItemFinder, parameters: Mapping[str, Any]
) -> AsyncIterator[Item | Cursor]:
    """Yield the start addresses as items."""
    begin = int((visit.cursor or {}).get("start", 0))
    home = None
    for number, address in enumerate(start_addresses(manifest, parameters)):
        home = urlsplit(address).netloc if home is None else home
        if number < begin:
            continue
        yield finder.named(address, home)
        if (number + 1) % _CHUNK == 0:
            yield Cursor({"start": number + 1})


class Walk:
    """One discovery: lists from the start addresses and from links, each page by page."""

    def __init__(
        self,
        visit: Visit,
        manifest: HtmlManifest,
        finder: ItemFinder,
        parameters: Mapping[str, Any],
    ) -> None:
        self._visit = visit
        self._manifest = manifest
        self._finder = finder
        self._parameters = parameters
        self._pager = make_pager(manifest.pages, parameters)
        self._most = manifest.pages.most_pages if manifest.pages else 1
        self._has_one_start = len(manifest.start) == 1 and not manifest.start[0].each
        self._rules = [_Rule(one) for one in manifest.follow]
        kept = visit.cursor or {}
        self._marks = Marks(kept.get("marks"))
        self._start = int(kept.get("start", 0))
        self._pending = deque((str(one), int(depth)) for one, depth in kept.get("pending", ()))
        self._step = Step(**kept["step"]) if kept.get("step") else None
        self._known = set(kept.get("known", ()))
        self._read = int(kept.get("read", 0))
        self._unwritten = 0
        self._is_cut = False
        self._clicks = 0  # visits in which a click has shown a second page
        self._moves: list[bool] = []  # whether the second page of a list differed from its first

    async def found(self) -> AsyncIterator[Item | Cursor]:
        """Yield items as they are found, and a cursor after each index page."""
        starts = islice(start_addresses(self._manifest, self._parameters), self._start, None)
        for address in starts:
            if not self._pending and self._is_new(address):
                self._pending.append((address, 0))
            while self._pending:
                async with aclosing(self._list(*self._pending[0])) as found:
                    async for one in found:
                        yield one
                if self._is_cut:
                    return
                self._pending.popleft()
                self._step = None
                if self._pending and self._is_time_to_write():
                    yield self._cursor()
            self._start += 1
            yield self._cursor()
        if isinstance(self._manifest.pages, ClickPages) and not (self._clicks or self._visit.cuts):
            self._visit.warn(
                f"`pages: {{click: {self._manifest.pages.click}}}` led to no second page: either "
                "every list has only one page, or the selector is wrong"
            )
        if self._moves and not any(self._moves):
            self._visit.warn(
                "the second page of every list repeats its first: either there is only one page, "
                "or the site does not understand how `pages` asks for the next"
            )

    def _list(self, address: str, depth: int) -> AsyncGenerator[Item | Cursor, None]:
        pages = self._manifest.pages
        if isinstance(pages, ClickPages):
            return self._clicked_list(pages, address, depth)
        return self._paged_list(address, depth)

    async def _clicked_list(
        self, pages: ClickPages, address: str, depth: int
    ) -> AsyncGenerator[Item | Cursor, None]:
        """Yield the items of a list whose next pages a click shows, several pages at a visit.

        Its steps hold the address to open, and how many clicks lead from there to the next page.
        """
        step = self._step or Step(address)
        freshness = _Freshness()
        size = _FIRST_CLICKS
        while True:
            if self._read >= self._manifest.most_pages:
                self._cut()
                return
            room = min(self._most - step.count + 1, self._manifest.most_pages - self._read)
            clicks = Clicks(pages.click, step.value, min(size, room), self._finder.watched)
            page = await self._visit.fetch(step.url, rendered=True, clicks=clicks)
            clicked = clicked_in(page)
            self._clicks += step.count + len(clicked.shown) > 2  # noqa: PLR2004  # two pages
            is_over = False
            for number, shown in enumerate(clicked.shown):
                self._read += 1
                scope = PageScope(replace(page, url=shown.url, body=shown.html.encode()))
                found = self._finder.on(scope)
                if step.count + number == 1:
                    self._check_kept(page, found)
                self._follow(scope, depth)
                for item in self._marks.apart(found.items):
                    yield item
                self._tell(found, shown.url)
                is_over = freshness.is_over(found.candidates)
                if is_over:
                    break
            count = step.count + len(clicked.shown)
            if is_over or not self._goes_on(address, count - 1, clicked.end):
                return
            if count > self._most:
                self._visit.cut(f"{address} has more than most_pages ({self._most}) pages")
                return
            if clicked.has_address:
                step = Step(clicked.shown[-1].url, count, 1)
            else:
                step = Step(step.url, count, step.value + len(clicked.shown))
            self._step = step
            size = min(size * 2, _MOST_CLICKS)
            yield self._cursor()

    def _goes_on(self, address: str, read: int, end: str) -> bool:
        """Say whether a list has further pages; report those that could not be reached."""
        if end in ("last", "same"):
            return False
        if end != "more":
            pages = "page" if read == 1 else "pages"
            self._visit.cut(f"{address} ended after {read} {pages}: {end}")
        return end == "more"

    async def _paged_list(self, address: str, depth: int) -> AsyncGenerator[Item | Cursor, None]:
        step: Step | None = self._step or self._pager.first(address)
        freshness = _Freshness()
        is_whole = self._step is None  # and not taken up after a crash
        while step is not None:
            if self._read >= self._manifest.most_pages:
                self._cut()
                return
            page = await self._page(step, depth)
            if page is None:
                return
            scope, answer, found = await self._items(step, page)
            await off_loop(len(page.body), self._follow, scope, depth)
            async for item in self._read_items(found, len(page.body)):
                yield item
            self._tell(found, page.url)
            seen = Seen(scope, answer, is_over=freshness.is_over(found.candidates))
            if is_whole and step.count == 2 and found.candidates:  # noqa: PLR2004  # the second
                self._moves.append(not freshness.is_same)
            following = self._pager.after(address, step, seen)
            if following is None and (missing := self._pager.missing(step, is_read=True)):
                self._visit.cut(f"{address} ended after {step.count} pages: {missing}")
            if following is None and (unread := self._pager.unread):
                self._visit.warn(f"{address} has a next page that `pages` does not find: {unread}")
            if following is not None and step.count >= self._most:
                self._visit.cut(f"{address} has more than most_pages ({self._most}) pages")
                return
            self._step = step = following
            if step is not None and self._is_time_to_write():
                yield self._cursor()

    async def _read_items(self, found: Found, size: int) -> AsyncIterator[Item]:
        """Yield the items of a page of this size; some are read at a time."""
        while some := await off_loop(size, _next_of, found):
            for item in self._marks.apart(some):
                yield item

    async def _page(self, step: Step, depth: int) -> Page | None:
        """Return a page of a list; None when it is not there and nothing is lost by that."""
        self._read += 1
        try:
            return await self._fetch(step, rendered=self._manifest.transport == "browser")
        except (Gone, *UNUSABLE) as error:
            if step.count == 1 and depth == 0 and self._has_one_start:
                raise
            if not isinstance(error, Gone):
                self._visit.cut(f"an index page cannot be read: {error}")
                return None
            # Past its end, a list of numbered pages has none; what was linked ought to be there.
            pages = self._manifest.pages
            if step.count == 1 and depth > 0:
                self._note(str(error))  # a dead link of the site: there is no list behind it
            elif pages is None or pages.kind == "next" or step.count == 1:
                self._visit.cut(f"an index page is missing: {error}")
            elif missing := self._pager.missing(step, is_read=False):
                self._visit.cut(f"{missing}, and {error}")
            return None

    async def _fetch(self, step: Step, *, rendered: bool) -> Page:
        if step.is_more and isinstance(self._manifest.pages, MorePages):
            return await self._visit.fetch(step.url, headers=self._manifest.pages.headers)
        if rendered:
            return await self._visit.fetch(step.url, rendered=True)
        return await self._visit.fetch(step.url)

    async def _items(self, step: Step, page: Page) -> tuple[PageScope, Any, Found]:
        pages = self._manifest.pages
        if step.is_more and isinstance(pages, MorePages):
            return await off_loop(len(page.body), self._more, page, pages)
        scope, found = await off_loop(len(page.body), self._extract, page)
        if self._manifest.transport == "auto" and await off_loop(len(page.body), found.is_empty):
            # Its scripts may bring what the page itself has not.
            page = await self._fetch(step, rendered=True)
            scope, found = await off_loop(len(page.body), self._extract, page)
        self._check_kept(page, found)
        return scope, None, found

    def _check_kept(self, page: Page, found: Found) -> None:
        """Report items that were on the page before the browser's actions and no longer are."""
        if not isinstance(page, BrowserPage) or page.before is None:
            return
        shown = set(self._finder.on(PageScope(page.before)).read_all())
        lost = shown - set(found.read_all())
        if not lost:
            return
        how = f"; `{page.led_away}` led to {page.url}" if page.led_away else ""
        problem = (
            f"{len(lost)} of {len(shown)} items that {page.before.url} showed before the browser's "
            f"actions were gone after them{how}. For a list that goes on by a click, write "
            "`pages: {click: SELECTOR}`; for a search or a filter, `replaces: true` at the action"
        )
        if len(lost) * 2 >= len(shown):
            self._visit.cut(problem)
        else:
            self._visit.warn(problem)

    def _extract(self, page: Page) -> tuple[PageScope, Found]:
        scope = PageScope(page)
        return scope, self._finder.on(scope)

    def _more(self, page: Page, pages: MorePages) -> tuple[PageScope, Any, Found]:
        if not pages.is_json:
            scope = PageScope(page, _fragment(page.text))
            return scope, None, self._finder.on(scope)
        answer = page.json
        if pages.html is not None:
            html = _looked_up(pages.html, answer, page)
            self._expect(str, html, pages.html, page)
            scope = PageScope(page, _fragment(html if isinstance(html, str) else ""))
            return scope, answer, self._finder.on(scope)
        scope = PageScope(page, _fragment(""))
        if pages.records is not None:
            records = _looked_up(pages.records, answer, page)
            self._expect(list, records, pages.records, page)
            return scope, answer, self._finder.in_records(scope, records)
        links = _looked_up(pages.links or "@", answer, page)
        self._expect(list, links, pages.links or "@", page)
        return scope, answer, self._finder.at(scope, links)

    def _expect(self, kind: type, found: Any, path: str, page: Page) -> None:
        """Warn of an answer that ends a list because nothing is where its entries should be."""
        if not isinstance(found, kind):
            self._visit.warn(f"a list ended at {page.url}, which has nothing usable at {path!r}")

    def _follow(self, scope: PageScope, depth: int) -> None:
        for rule in self._rules:
            if depth >= rule.depth:
                self._stop_following(rule, scope)
                continue
            for address in rule.addresses(scope):
                if self._is_new(address):
                    self._pending.append((address, depth + 1))

    def _stop_following(self, rule: _Rule, scope: PageScope) -> None:
        """Report links that are too deep, unless the manifest says how deep to go."""
        is_more = (_mark(address) not in self._known for address in rule.addresses(scope))
        if not rule.is_depth_asked and any(is_more):
            reason = f"there are links to more index pages beyond a depth of {rule.depth}"
            self._visit.cut(f"{reason}; `depth` in `follow` says how deep to go")

    def _is_new(self, address: str) -> bool:
        if not self._rules:
            return True
        mark = _mark(address)
        is_new = mark not in self._known
        self._known.add(mark)
        return is_new

    def _cut(self) -> None:
        self._is_cut = True
        most = self._manifest.most_pages
        self._visit.cut(f"there are more index pages than most_pages ({most}) of the source")

    def _is_time_to_write(self) -> bool:
        self._unwritten += 1
        if self._unwritten * _MOST_MARKS < max(len(self._known), len(self._marks.known) // 10):
            return False
        self._unwritten = 0
        return True

    def _cursor(self) -> Cursor:
        where: dict[str, Any] = {"start": self._start, "read": self._read}
        if self._pending:
            where["pending"] = [list(one) for one in self._pending]
        if self._step is not None:
            where["step"] = self._step.to_json()
        if self._known:
            where["known"] = sorted(self._known)
        if self._marks.known:
            where["marks"] = dict(self._marks.known)
        return Cursor(where)

    def _tell(self, found: Found, address: str) -> None:
        if found.keyless:
            self._note(f"{found.keyless} items of {address} have no key where it should be")
        if found.linkless:
            self._note(f"{found.linkless} elements of {address} have no link to a page: left out")
            self._visit.warn("elements without a link to their page were left out")
        if self._marks.twice:
            self._note(
                f"{self._marks.twice} links of {address} lead elsewhere under the key of another "
                "item, and are taken for it: is the key too short?"
            )
            self._visit.warn("different links have the same key, and only one of each was kept")
            self._marks.twice = 0
        if self._marks.shared:
            self._note(f"{self._marks.shared} elements of {address} share a key with others")
            self._marks.shared = 0

    def _note(self, text: str) -> None:
        if all(note.text != text for note in self._visit.notes):
            self._visit.note("discovery", text)


class _Rule:
    """Which links lead to more index pages."""

    def __init__(self, follow: Follow) -> None:
        self._links = Links(follow.links)
        self._match = user_pattern(follow.match) if follow.match is not None else None
        self.depth = follow.depth
        self.is_depth_asked = "depth" in follow.model_fields_set

    def addresses(self, scope: PageScope) -> Iterator[str]:
        """Yield where a page leads, on its own host."""
        home = urlsplit(scope.address).netloc
        for _, address in self._links.on(scope):
            if urlsplit(address).netloc != home:
                continue
            if self._match is None or self._match.search(address):
                yield address


class _Freshness:
    """Whether the pages of a list still bring something new."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._before: list[str] = []
        self._stale = 0
        self.is_same = False
        """Whether the last page was the same as the one before."""

    def is_over(self, candidates: list[str]) -> bool:
        """Take a page; say whether nothing new is to be expected after it."""
        self.is_same = candidates == self._before
        self._stale = 0 if set(candidates) - self._seen else self._stale + 1
        self._before = candidates
        self._seen.update(candidates)
        return not candidates or self.is_same or self._stale >= _STALE_PAGES


def _next_of(found: Found) -> list[Item]:
    return list(islice(found.items, _CHUNK))


def _mark(address: str) -> str:
    return hashlib.blake2b(address.encode(), digest_size=6).hexdigest()


def _fragment(html: str) -> LexborHTMLParser:
    # A row outside of a table loses its cells to the rules of HTML.
    is_row = html.lstrip()[:3].lower() in {"<tr", "<td"}
    return LexborHTMLParser(f"<table>{html}</table>" if is_row else html)


def _looked_up(path: str, answer: Any, page: Page) -> Any:
    try:
        return find(path, answer)
    except ValueError as error:
        raise UnexpectedShape(page.url, str(error)) from error
