"""The source of an HTML manifest: discovery on index pages, and the layer that reads fields."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import urlsplit

from selectolax.lexbor import LexborHTMLParser

from longline.config.expressions import find, user_pattern
from longline.core.errors import BadOption, Gone, UnexpectedShape
from longline.core.json import to_json
from longline.core.model import Cursor, Item
from longline.core.threads import off_loop
from longline.http.browser.transport import BrowserPage, clicked_in
from longline.http.messages import Clicks, Page
from longline.sources.base import Options, Source, Visit, layer
from longline.sources.files import download_files, has_files
from longline.sources.html.crawl import Crawler, follow_links, is_item
from longline.sources.html.fields import (
    FieldReader,
    FieldSpec,
    Reading,
    make_readers,
    read_fields,
)
from longline.sources.html.items import ELEMENT, FoundItems, ItemFinder, KeyConflicts
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.pagination import ClickPages, MorePages, PageStep, ReadPage, make_pager
from longline.sources.html.places import BROKEN_LINK_ERRORS, Links, PageScope, whole_page
from longline.sources.html.requests import REQUEST
from longline.sources.html.sitemaps import discover_sitemaps
from longline.sources.manifest import Discovered, fail_if_empty, source_attributes, url_problem

_MAX_STALE_PAGES = 3
"""Pages in a row without new items after which a list ends: the site repeats itself."""
_MARKS_PER_CURSOR = 200
"""Known index pages that are written with every cursor; with more, cursors become rarer."""
_CHUNK = 200  # items
_FIRST_CLICKS = 10
_MAX_CLICKS = 50
"""Pages per browser visit: it grows from visit to visit, since each starts at the first page."""


def start_urls(manifest: HtmlManifest, parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield every start URL; raise UnexpectedShape if an end of a range is not a number."""
    return (url for url, _ in start_requests(manifest, parameters))


def start_requests(
    manifest: HtmlManifest, parameters: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield every start URL and how it is requested, as `Start.requests`.

    Raises:
        UnexpectedShape: an end of a range is not a number.
    """
    for start in manifest.start:
        try:
            yield from start.requests(parameters)
        except ValueError as error:
            raise UnexpectedShape(f"start {start.url}", str(error)) from error


async def discover_start_urls(
    visit: Visit, manifest: HtmlManifest, finder: ItemFinder, parameters: Mapping[str, Any]
) -> Discovered:
    """Yield the start URLs as items."""
    begin = int((visit.cursor or {}).get("start", 0))
    host = None
    for number, (url, sent) in enumerate(start_requests(manifest, parameters)):
        host = urlsplit(url).netloc if host is None else host
        if number < begin:
            continue
        item = finder.at_url(url, host)
        if sent is not None:  # the URL alone does not identify its page
            key = f"{item.key} {_url_hash(to_json(sent).decode())}"
            item = replace(item, key=key, data={REQUEST: sent})
        yield item
        if (number + 1) % _CHUNK == 0:
            yield Cursor({"start": number + 1})


class IndexDiscovery:
    """Reads the lists of the start URLs and of followed links, page by page."""

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
        self._max_pages = manifest.pages.most_pages if manifest.pages else 1
        self._has_one_start = len(manifest.start) == 1 and not manifest.start[0].each
        self._follow_links = [Links(one.links) for one in manifest.follow]
        cursor = visit.cursor or {}
        self._keys = KeyConflicts(cursor.get("marks"))
        self._start = int(cursor.get("start", 0))
        self._pending = deque((str(url), int(depth)) for url, depth in cursor.get("pending", ()))
        self._step = PageStep(**cursor["step"]) if cursor.get("step") else None
        self._known = set(cursor.get("known", ()))
        self._read = int(cursor.get("read", 0))
        self._pages_since_cursor = 0
        self._is_cut = False
        self._sent: dict[str, Any] | None = None  # how the start URL is requested; None for GET
        self._clicked_lists = 0  # lists in which a click led to a second page
        self._second_pages: list[bool] = []  # whether the second page of a list differed

    async def run(self) -> Discovered:
        """Yield items as they are found, and a cursor after each index page."""
        pages = self._manifest.pages
        starts = start_requests(self._manifest, self._parameters)
        for url, sent in islice(starts, self._start, None):
            self._sent = sent
            name = url if sent is None else f"{url} {to_json(sent).decode()}"
            if not self._pending and self._add_known(name):
                self._pending.append((url, 0))
            while self._pending:
                if isinstance(pages, ClickPages):
                    stream = self._clicked_list(pages, *self._pending[0])
                else:
                    stream = self._paged_list(*self._pending[0])
                async with aclosing(stream) as found:
                    async for one in found:
                        yield one
                if self._is_cut:
                    return
                self._pending.popleft()
                self._step = None
                if self._pending and self._is_cursor_due():
                    yield self._cursor()
            self._start += 1
            yield self._cursor()
        if isinstance(pages, ClickPages) and not (self._clicked_lists or self._visit.cuts):
            self._visit.warn(
                f"`pages: {{click: {pages.click}}}` led to no second page: either every list has "
                "only one page, or the selector is wrong"
            )
        if self._second_pages and not any(self._second_pages):
            self._visit.warn(
                "the second page of every list repeats its first: either there is only one page, "
                "or the site ignores the way `pages` requests the next one"
            )

    async def _clicked_list(self, pages: ClickPages, url: str, depth: int) -> Discovered:
        """Yield the items of a list with a next button, several pages per browser visit.

        Its steps hold the URL to open, and how many clicks lead from there to the next page.
        """
        step = self._step or PageStep(url)
        freshness = _Freshness()
        size = _FIRST_CLICKS
        while True:
            if self._read >= self._manifest.most_pages:
                self._cut_at_limit()
                return
            room = min(self._max_pages - step.count + 1, self._manifest.most_pages - self._read)
            clicks = Clicks(pages.click, step.value, min(size, room), self._finder.selector)
            page = await self._visit.fetch(step.url, rendered=True, clicks=clicks)
            clicked = clicked_in(page)
            self._clicked_lists += step.count + len(clicked.shown) > 2  # noqa: PLR2004  # two pages
            is_last = False
            for number, shown in enumerate(clicked.shown):
                self._read += 1
                scope = PageScope(replace(page, url=shown.url, body=shown.html.encode()))
                found = self._finder.on_page(scope)
                if step.count + number == 1:
                    self._check_lost_items(page, found)
                self._follow(scope, depth)
                for item in self._keys.resolve(found.items):
                    yield item
                self._report(found, shown.url)
                is_last = freshness.is_last(found.candidates)
                if is_last:
                    break
            count = step.count + len(clicked.shown)
            end = "last" if is_last else clicked.end
            if end == "more" and count > self._max_pages:
                end = f"it has more than most_pages ({self._max_pages}) pages"
            if end in ("last", "same"):
                return
            if end != "more":
                self._visit.cut(f"{url} ended after {count - 1} pages: {end}")
                return
            clicks_made = 1 if clicked.has_address else step.value + len(clicked.shown)
            opened = clicked.shown[-1].url if clicked.has_address else step.url
            self._step = step = PageStep(opened, count, clicks_made)
            size = min(size * 2, _MAX_CLICKS)
            yield self._cursor()

    async def _paged_list(self, url: str, depth: int) -> Discovered:
        step: PageStep | None = self._step or self._pager.first(url)
        freshness = _Freshness()
        is_from_start = self._step is None  # not resumed after a crash
        while step is not None:
            if self._read >= self._manifest.most_pages:
                self._cut_at_limit()
                return
            page = await self._fetch_page(step, depth)
            if page is None:
                return
            scope, found = await self._find_items(step, page)
            await off_loop(len(page.body), self._follow, scope, depth)
            while chunk := await off_loop(len(page.body), _next_chunk, found.items):
                for item in self._keys.resolve(chunk):
                    yield item
            self._report(found, page.url)
            read = ReadPage(scope, is_last=freshness.is_last(found.candidates))
            if is_from_start and step.count == 2 and found.candidates:  # noqa: PLR2004  # the second
                self._second_pages.append(not freshness.is_repeated)
            following = self._pager.after(url, step, read)
            if following is None:
                self._report_end(url, step)
            elif step.count >= self._max_pages:
                self._visit.cut(f"{url} has more than most_pages ({self._max_pages}) pages")
                return
            self._step = step = following
            if step is not None and self._is_cursor_due():
                yield self._cursor()

    def _report_end(self, url: str, step: PageStep) -> None:
        if missing := self._pager.missing_pages(step, is_read=True):
            self._visit.cut(f"{url} ended after {step.count} pages: {missing}")
        if unmatched := self._pager.unmatched_next:
            self._visit.warn(f"{url} has a next page that `pages` does not match: {unmatched}")

    async def _fetch_page(self, step: PageStep, depth: int) -> Page | None:
        """Return a page of a list; None when it is missing or cannot be read."""
        self._read += 1
        try:
            if step.count == 1 and depth == 0 and self._sent is not None:
                return await self._visit.fetch(step.url, **self._sent)
            return await self._fetch_step(step, rendered=self._manifest.transport == "browser")
        except (Gone, *BROKEN_LINK_ERRORS) as error:
            if step.count == 1 and depth == 0 and self._has_one_start:
                raise
            if not isinstance(error, Gone):
                self._visit.cut(f"an index page cannot be read: {error}")
                return None
            # Numbered pages end with a page that does not exist; a linked page should exist.
            pages = self._manifest.pages
            if step.count == 1 and depth > 0:
                self._add_note(str(error))  # a dead link of the site: it leads to no list
            elif pages is None or pages.kind == "next" or step.count == 1:
                self._visit.cut(f"an index page is missing: {error}")
            elif missing := self._pager.missing_pages(step, is_read=False):
                self._visit.cut(f"{missing}, and {error}")
            return None

    async def _fetch_step(self, step: PageStep, *, rendered: bool) -> Page:
        if step.is_more and isinstance(self._manifest.pages, MorePages):
            return await self._visit.fetch(step.url, headers=self._manifest.pages.headers)
        return await self._visit.fetch(step.url, rendered=rendered)

    async def _find_items(self, step: PageStep, page: Page) -> tuple[PageScope, FoundItems]:
        pages = self._manifest.pages
        if step.is_more and isinstance(pages, MorePages):
            return await off_loop(len(page.body), self._items_of_more, page, pages)
        scope = await off_loop(len(page.body), PageScope, page)
        found = await off_loop(len(page.body), self._finder.on_page, scope)
        if self._manifest.transport == "auto" and await off_loop(len(page.body), found.is_empty):
            # Scripts may add what the page itself lacks.
            page = await self._fetch_step(step, rendered=True)
            scope = await off_loop(len(page.body), PageScope, page)
            found = await off_loop(len(page.body), self._finder.on_page, scope)
        self._check_lost_items(page, found)
        return scope, found

    def _check_lost_items(self, page: Page, found: FoundItems) -> None:
        """Report items that were on the page before the browser's actions and no longer are."""
        if not isinstance(page, BrowserPage) or page.before is None:
            return
        shown = set(self._finder.on_page(PageScope(page.before)).read_all())
        lost = shown - set(found.read_all())
        if not lost:
            return
        how = f"; `{page.led_away}` led to {page.url}" if page.led_away else ""
        problem = (
            f"{len(lost)} of {len(shown)} items on {page.before.url} disappeared with the "
            f"browser's actions{how}. For a list with a next button, write "
            "`pages: {click: SELECTOR}`; for a search or a filter, `replaces: true` on the action"
        )
        if len(lost) * 2 >= len(shown):
            self._visit.cut(problem)
        else:
            self._visit.warn(problem)

    def _items_of_more(self, page: Page, pages: MorePages) -> tuple[PageScope, FoundItems]:
        html: Any = ""
        if not pages.is_json:
            html = page.text
        elif pages.html is not None:
            html = self._find_in(page, pages.html, str)
        scope = PageScope(page, _parse_fragment(html if isinstance(html, str) else ""))
        if pages.records is not None:
            records = self._find_in(page, pages.records, list)
            return scope, self._finder.from_records(scope, records)
        if pages.is_json and pages.html is None:
            urls = self._find_in(page, pages.links or "@", list)
            return scope, self._finder.from_urls(scope, urls)
        return scope, self._finder.on_page(scope)

    def _find_in(self, page: Page, path: str, kind: type) -> Any:
        """Return what a path selects from a response; warn if it is of another type."""
        try:
            found = find(path, page.json)
        except ValueError as error:
            raise UnexpectedShape(page.url, str(error)) from error
        if not isinstance(found, kind):
            self._visit.warn(f"a list ended at {page.url}, which has nothing usable at {path!r}")
        return found

    def _follow(self, scope: PageScope, depth: int) -> None:
        """Add the links to more index pages on the host of this page."""
        host = urlsplit(scope.url).netloc
        for rule, links in zip(self._manifest.follow, self._follow_links, strict=True):
            match = user_pattern(rule.match or "")
            urls = (url for _, url in links.find(scope) if urlsplit(url).netloc == host)
            for url in filter(match.search, urls):
                if depth < rule.depth:
                    if self._add_known(url):
                        self._pending.append((url, depth + 1))
                elif "depth" not in rule.model_fields_set and _url_hash(url) not in self._known:
                    reason = f"there are links to more index pages beyond a depth of {rule.depth}"
                    self._visit.cut(f"{reason}; set `depth` in `follow`")
                    break

    def _add_known(self, url: str) -> bool:
        """Remember an index page; return whether it was unknown."""
        if not self._follow_links:
            return True
        mark = _url_hash(url)
        is_new = mark not in self._known
        self._known.add(mark)
        return is_new

    def _cut_at_limit(self) -> None:
        self._is_cut = True
        most = self._manifest.most_pages
        self._visit.cut(f"there are more index pages than most_pages ({most}) of the source")

    def _is_cursor_due(self) -> bool:
        self._pages_since_cursor += 1
        size = max(len(self._known), len(self._keys.known) // 10)
        if self._pages_since_cursor * _MARKS_PER_CURSOR < size:
            return False
        self._pages_since_cursor = 0
        return True

    def _cursor(self) -> Cursor:
        values: dict[str, Any] = {"start": self._start, "read": self._read}
        if self._pending:
            values["pending"] = [list(one) for one in self._pending]
        if self._step is not None:
            values["step"] = asdict(self._step)
        if self._known:
            values["known"] = sorted(self._known)
        if self._keys.known:
            values["marks"] = dict(self._keys.known)
        return Cursor(values)

    def _report(self, found: FoundItems, url: str) -> None:
        if found.without_key:
            self._add_note(f"{found.without_key} items on {url} have no value for their key")
        if found.without_link:
            self._add_note(f"{found.without_link} elements on {url} have no link and are left out")
            self._visit.warn("elements without a link to their page were left out")
        if self._keys.duplicate_links:
            self._add_note(
                f"{self._keys.duplicate_links} links on {url} have the key of another link and are "
                "treated as the same item; the key may not be specific enough"
            )
            self._visit.warn("different links have the same key, and only one of each was kept")
            self._keys.duplicate_links = 0
        if self._keys.renamed:
            self._add_note(f"{self._keys.renamed} elements on {url} share a key with others")
            self._keys.renamed = 0

    def _add_note(self, text: str) -> None:
        if all(note.text != text for note in self._visit.notes):
            self._visit.note("discovery", text)


class _Freshness:
    """Detects the end of a list: pages without new items."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._previous: list[str] = []
        self._stale_pages = 0
        self.is_repeated = False
        """Whether the last page was the same as the one before."""

    def is_last(self, candidates: list[str]) -> bool:
        """Add a page; return whether nothing new is to be expected after it."""
        self.is_repeated = candidates == self._previous
        self._stale_pages = 0 if set(candidates) - self._seen else self._stale_pages + 1
        self._previous = candidates
        self._seen.update(candidates)
        return not candidates or self.is_repeated or self._stale_pages >= _MAX_STALE_PAGES


def _next_chunk(items: Iterator[Item]) -> list[Item]:
    return list(islice(items, _CHUNK))


def _url_hash(url: str) -> str:
    return hashlib.blake2b(url.encode(), digest_size=6).hexdigest()


def _parse_fragment(html: str) -> LexborHTMLParser:
    # A row outside a table loses its cells by the rules of HTML.
    is_row = html.lstrip()[:3].lower() in {"<tr", "<td"}
    return LexborHTMLParser(f"<table>{html}</table>" if is_row else html)


def html_source(manifest: HtmlManifest) -> type[Source]:
    """Return the source class of a manifest."""
    sitemaps = manifest.items.sitemap if manifest.items else False
    urls = (
        *(start.url for start in manifest.start),
        *(sitemaps if isinstance(sitemaps, tuple) else ()),
    )
    attributes = {
        **source_attributes(manifest),
        # Two pictures of a page are hardly ever the same, and a PDF has its time.
        "volatile": manifest.volatile.union(
            name for name, one in manifest.fields.items() if one.is_capture
        ),
        "kind": "html",
        "target": next(iter(urls), None),
        "browser": manifest.browser,
        "manifest": manifest,
        "_finder": ItemFinder(manifest),
        "_readers": make_readers(manifest.fields, manifest.locale),
        "_captures": {name: one for name, one in manifest.fields.items() if one.is_capture},
        "_required": tuple(name for name, one in manifest.fields.items() if one.required),
    }
    base = HtmlSource if manifest.crawl is None else HtmlCrawlSource
    return type(manifest.name, (base,), attributes)


class HtmlSource(Source):
    """The base of all HTML sources; `html_source` adds what a manifest says."""

    manifest: ClassVar[HtmlManifest]
    _finder: ClassVar[ItemFinder]
    _readers: ClassVar[tuple[FieldReader, ...]]
    _captures: ClassVar[Mapping[str, FieldSpec]]
    _required: ClassVar[tuple[str, ...]]

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        for start in self.manifest.start:
            if problem := url_problem(start.url, self.options.model_dump()):
                raise BadOption(f"start {start.url}", problem)

    def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the items of index pages, sitemaps or start URLs."""
        manifest, parameters = self.manifest, self.options.model_dump()
        if manifest.items is None:
            stream = discover_start_urls(visit, manifest, self._finder, parameters)
        elif manifest.items.sitemap:
            stream = discover_sitemaps(visit, manifest, self._finder, parameters)
        else:
            stream = IndexDiscovery(visit, manifest, self._finder, parameters).run()
        may_be_empty = manifest.may_be_empty or bool(visit.cursor)
        return fail_if_empty(stream, self.name, "check items", may_be_empty=may_be_empty)

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        """Read the fields of an item's page; those of an element were read by discovery."""
        item = visit.item
        carried = Reading.from_item_data(item.data) if "fields" in item.data else None
        if carried is not None and self.manifest.items and self.manifest.items.are_elements:
            return await self._with_files(visit, _fields_for_record(carried, visit))
        page, reading = await self._read_item_page(visit)
        fields: Mapping[str, Any] = _fields_for_record(reading, visit)
        if carried is not None:
            fields = {**_fields_for_record(carried, visit), **fields}
        return await self._with_files(visit, {**fields, **self._captured(visit, page)})

    async def _with_files(self, visit: Visit, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        items = self.manifest.items
        specs = {**((items and items.fields) or {}), **self.manifest.fields}
        if not has_files(specs):
            return fields
        return await download_files(visit, specs, fields, visit.item.url)

    def _captured(self, visit: Visit, page: Page) -> dict[str, Any]:
        return {
            name: visit.capture(page, one.type, name, required=one.required)
            for name, one in self._captures.items()
            if one.type == "screenshot" or one.type == "pdf"  # noqa: PLR1714  # narrows the type
        }

    def identity_of(self, item: Item) -> str | None:
        identity: str | None = item.data.get(ELEMENT)
        return identity

    def read(self, page: Page) -> Reading:
        """Return the fields of a page."""
        return read_fields(self._readers, whole_page(page))

    def _item_request(self, item: Item) -> dict[str, Any]:
        """Return how the page of an item is requested, as arguments of `Visit.fetch`."""
        spec = self.manifest.items.request if self.manifest.items else None
        if spec is None:
            sent: dict[str, Any] = item.data.get(REQUEST, {})
            return sent
        found = {"url": item.url, "key": item.key, **item.data.get("fields", {})}
        return spec.filled({**self.options.model_dump(), **found})

    async def _read_item_page(self, visit: Visit) -> tuple[Page, Reading]:
        if self.transport != "browser" and not self._captures:
            page = await visit.fetch(visit.item.url, **self._item_request(visit.item))
            reading = self.read(page)
            # Scripts may add what the page itself lacks: a required field, or else all fields.
            is_lacking = reading.problem is not None
            if not self._required:
                is_lacking = all(value is None for value in reading.fields.values())
            if self.transport != "auto" or not is_lacking:
                return page, reading
        kinds = {one.type for one in self._captures.values()}
        page = await visit.fetch(
            visit.item.url, rendered=True, screenshot="screenshot" in kinds, pdf="pdf" in kinds
        )
        if isinstance(page, BrowserPage) and page.led_away:
            visit.warn(
                f"`{page.led_away}` led from the pages of items to other URLs, and the fields were "
                "read there; write `replaces: true` on the action if that is intended"
            )
        return page, self.read(page)


class HtmlCrawlSource(HtmlSource):
    """The base of HTML sources that crawl: every page may lead to others."""

    def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the start URLs; pages lead to the others."""
        return self._discover(visit)

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        """Queue the links of a page, and read its fields if it is an item."""
        if not is_item(visit.item):
            page = await visit.fetch(visit.item.url, rendered=self.transport == "browser")
            await follow_links(self._crawler, visit, page)
        return await super().page(visit)

    def leads_on(self, item: Item) -> bool:
        return not is_item(item)

    def carries_values(self, item: Item) -> bool:
        del item
        return False

    async def _discover(self, visit: Visit) -> Discovered:
        begin = int((visit.cursor or {}).get("start", 0))
        urls = start_urls(self.manifest, self.options.model_dump())
        for number, url in enumerate(islice(urls, begin, None), begin + 1):
            yield self._crawler.start(url)
            if number % _CHUNK == 0:
                yield Cursor({"start": number})

    async def _read_item_page(self, visit: Visit) -> tuple[Page, Reading]:
        page, reading = await super()._read_item_page(visit)
        await follow_links(self._crawler, visit, page)
        return page, reading

    @cached_property
    def _crawler(self) -> Crawler:
        rules = self.manifest.crawl
        assert rules is not None  # noqa: S101  # html_source chooses the class by it
        urls = start_urls(self.manifest, self.options.model_dump())
        return Crawler(rules, urls, lambda url, host: self._finder.at_url(url, host).key)


def _fields_for_record(reading: Reading, visit: Visit) -> Mapping[str, Any]:
    reading.add_to(visit)
    if reading.problem is not None:
        raise UnexpectedShape(visit.address or visit.item.url, reading.problem)
    return reading.fields
