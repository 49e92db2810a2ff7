"""Crawling: pages are items that lead to other pages, by rules that also recognise traps.

The frontier is the queue of the job: a page's links are committed with its outcome, each canonical
URL once. What the rules count is counted in the same transaction (`Quota`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from selectolax.lexbor import LexborHTMLParser

from longline.config.expressions import Pattern, user_pattern
from longline.config.validation import StrictModel, invalid, one_or_several
from longline.core.errors import NothingToStore, SkipItem
from longline.core.model import Cursor, Item, Quota
from longline.core.threads import off_loop
from longline.http.messages import Page, may_be_html
from longline.sources.base import Source, Visit, layer
from longline.sources.html.canonical import UrlRules, pattern_of
from longline.sources.html.places import Links, PageScope, Selectors, default_key

_DATA = "crawl"
"""The name under which an item carries its place in the crawl."""
_MAX_URL = 2_000  # characters
_MAX_LINKS = 10_000  # of one page
_MAX_LINEAGE = 12  # patterns of the pages that led to a page
_MAX_PATHS = 2_000  # whose texts are remembered, in each process
_MAX_TEXTS = 64  # of one path
_NOT_PAGES = frozenset(
    """
    7z apk avi bmp bz2 css csv dmg doc docx eot epub exe flv gif gz ico iso jar jpeg jpg js json
    m4a m4v map mkv mov mp3 mp4 mpeg mpg msi odp ods odt ogg ogv otf pdf png pps ppt pptx rar rpm
    svg tar tgz tif tiff ttf wav webm webp wma wmv woff woff2 xls xlsx xml xz zip
    """.split()  # noqa: SIM905  # a list of words, not of quotes
)
"""Endings of links that are not followed; a rule for items may select them."""


def _as_mappings(value: Any) -> Any:
    values = [value] if isinstance(value, str | Mapping | LinkRule) else value
    if not isinstance(values, list | tuple):
        return values
    return [{"links": [one]} if isinstance(one, str) else one for one in values]


def _check_domain(domain: str) -> str:
    host = domain.strip().lower()
    if "://" in host or "/" in host:
        name = host.partition("://")[2] or host
        example = name.split("/")[0] or "example.com"
        raise invalid(f"a domain is the name of a host, not a URL; write {example}")
    if not host or any(map(str.isspace, host)) or "*" in host:
        raise invalid("a domain is the name of a host, such as example.com; it covers subdomains")
    return host.removeprefix(".")


Patterns = Annotated[tuple[Pattern, ...], BeforeValidator(one_or_several)]
"""One regular expression, or several of which one must match."""
Domains = Annotated[
    tuple[Annotated[str, AfterValidator(_check_domain)], ...], BeforeValidator(one_or_several)
]


class LinkRule(StrictModel):
    """Links of a page: where they are, and which URLs are meant."""

    links: Selectors = ("a@href", "area@href")
    """Where the links are; every selector counts."""
    allow: Patterns = ()
    """Only URLs that match one of these."""
    deny: Patterns = ()
    """No URL that matches one of these."""


class ItemRule(LinkRule):
    """Links to pages that are items."""

    follow: bool = True
    """Whether the links on these pages are followed, too."""

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        if not self.allow and "links" not in self.model_fields_set:
            raise invalid("write which links lead to items: allow (URLs) or links (selectors)")
        return self


class Traps(StrictModel):
    """When links are left out because the site makes ever more of them."""

    barren_pages: int = Field(default=100, ge=1)
    """Pages of one URL pattern in a row that lead to nothing new."""
    pages_per_pattern: int = Field(default=10_000, ge=1)
    """Pages of one URL pattern that are not items."""
    same_text: int = Field(default=20, ge=1)
    """Pages of one path, with different parameters, that repeat the text of another."""
    repeats: int = Field(default=2, ge=1)
    """How often a name may occur in a path."""
    segments: int = Field(default=20, ge=1)
    """Parts of a path between its slashes."""


class Crawl(StrictModel):
    """Which links are followed, and which pages are items."""

    items: Annotated[tuple[ItemRule, ...], BeforeValidator(_as_mappings)] = ()
    """Links to items; the first rule that selects a link counts."""
    follow: Annotated[tuple[LinkRule, ...], BeforeValidator(_as_mappings)] = (LinkRule(),)
    """Links that only lead on; default: all."""
    domains: Domains = ()
    """Domains of pages, with their subdomains; default: the hosts of the start URLs."""
    max_depth: int | None = Field(default=None, ge=0)
    """Maximum number of links from a start URL."""
    max_pages: int = Field(default=100_000, ge=1)
    """Maximum number of pages of a job, items included."""
    urls: UrlRules = UrlRules()
    """What identifies a page."""
    traps: Traps = Traps()

    @model_validator(mode="after")
    def _check_items(self) -> Self:
        if not self.items:
            raise invalid("a crawl needs items, the links to items: items: {allow: /product/}")
        return self


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page is in the crawl, as its item carries it.

    `lineage` has the URL patterns of the pages that led to it, and its own if it is not an item.
    """

    depth: int = 0
    is_item: bool = False
    is_followed: bool = True
    lineage: tuple[str, ...] = ()

    @classmethod
    def of(cls, item: Item) -> _Place:
        values = item.data.get(_DATA) or {}
        lineage = tuple(map(str, values.get("lineage", ())))
        is_followed = bool(values.get("follow", True))
        return cls(int(values.get("depth", 0)), bool(values.get("item")), is_followed, lineage)

    def as_data(self) -> dict[str, Any]:
        values: dict[str, Any] = {"depth": self.depth}
        if self.is_item:
            values["item"] = True
        if not self.is_followed:
            values["follow"] = False
        if self.lineage:
            values["lineage"] = list(self.lineage)
        return {_DATA: values}


class _Rule:
    def __init__(self, rule: LinkRule) -> None:
        self.links = [Links((one,)) for one in rule.links]  # all, not the first that matches
        self.is_for_all_links = "links" not in rule.model_fields_set
        self.is_followed = not isinstance(rule, ItemRule) or rule.follow
        self._allow = [user_pattern(one) for one in rule.allow]
        self._deny = [user_pattern(one) for one in rule.deny]

    def selects(self, url: str) -> bool:
        if self._allow and not any(one.search(url) for one in self._allow):
            return False
        return not any(one.search(url) for one in self._deny)


class Crawler:
    """Applies the rules of a crawl to pages; one object per source.

    `make_key` returns the key of an item's canonical URL; it gets the host of the first start URL,
    which the default key leaves out.
    """

    def __init__(
        self,
        rules: Crawl,
        start: Iterable[str],
        make_key: Callable[[str, str], str] = default_key,
    ) -> None:
        self._rules = rules
        self._urls = rules.urls
        hosts = list(dict.fromkeys(urlsplit(url).netloc.lower() for url in start))
        self._host = hosts[0] if hosts else ""
        self._make_key = make_key
        self._domains = rules.domains or tuple(one.removeprefix("www.") for one in hosts)
        self._items = [_Rule(one) for one in rules.items]
        self._follow = [_Rule(one) for one in rules.follow]
        self._texts: OrderedDict[str, set[str]] = OrderedDict()

    def start(self, url: str) -> Item:
        """Return the item of a start URL."""
        cleaned = self._urls.clean(url) or url
        rule = next(
            (one for one in self._items if one.is_for_all_links and one.selects(cleaned)), None
        )
        return self._item(cleaned, rule, _Place(-1), is_start=True)

    def redirected(self, url: str, item: Item) -> Item:
        """Return the item of the URL that the page of an item redirects to."""
        place = _Place.of(item)
        cleaned = self._urls.clean(url) or url
        rule = next((one for one in self._items if one.selects(cleaned)), None)
        if rule is None and place.is_item:
            rule = self._items[0]
        lineage = place.lineage if place.is_item else place.lineage[:-1]
        return self._item(cleaned, rule, replace(place, depth=place.depth - 1, lineage=lineage))

    def covers(self, url: str) -> bool:
        """Return whether a URL is on one of the domains."""
        return is_on_domain(url, self._domains)

    def links(self, page: Page, place: _Place) -> Iterator[Item]:
        """Yield the items of the links of a page, each canonical URL once."""
        scope = PageScope(page)
        seen: set[str] = set()
        for rules, is_item in ((self._items, True), (self._follow, False)):
            for rule in rules:
                for _, url in chain.from_iterable(one.find(scope) for one in rule.links):
                    cleaned = self._urls.clean(url)
                    if cleaned is None or cleaned in seen or not self.covers(cleaned):
                        continue
                    if not rule.selects(cleaned) or not (is_item or _may_be_page(cleaned)):
                        continue
                    seen.add(cleaned)
                    yield self._item(cleaned, rule if is_item else None, place)

    def repeated_path(self, page: Page) -> str | None:
        """Remember the text of a page with parameters; return its path if that has had it."""
        path, _, query = (self._urls.clean(page.url) or page.url).partition("?")
        if not query:
            return None
        texts = self._texts.setdefault(path, set())
        self._texts.move_to_end(path)
        if len(self._texts) > _MAX_PATHS:
            self._texts.popitem(last=False)
        mark = _text_mark(page)
        is_known = mark in texts
        if len(texts) < _MAX_TEXTS:
            texts.add(mark)
        return path if is_known else None

    def _item(
        self, url: str, rule: _Rule | None, parent: _Place, *, is_start: bool = False
    ) -> Item:
        """Return the item of a link; `rule` is that of its items, None if it only leads on."""
        canonical, depth = self._urls.canonical(url), parent.depth + 1
        pattern, is_item = pattern_of(url), rule is not None
        lineage, refills = parent.lineage, tuple(map(_barren, parent.lineage))
        if not is_item:
            is_new_kind = pattern not in lineage
            refills = refills[-1:] if is_new_kind else ()
            lineage = (*lineage, pattern)[-_MAX_LINEAGE:] if is_new_kind else lineage
        make_key = self._make_key if is_item else default_key
        key = make_key(canonical, self._host)
        place = _Place(depth, is_item, rule is None or rule.is_followed, lineage)
        quotas = () if is_start else tuple(self._trap_quotas(url, pattern, depth, is_item=is_item))
        return Item(
            key if is_item else f"page {key}",
            url,
            is_item - 2 * depth,  # breadth first; of one depth, items first
            place.as_data(),
            (*quotas, *self._size_quotas(pattern, is_item=is_item)),
            refills,
        )

    def _size_quotas(self, pattern: str, *, is_item: bool) -> Iterator[Quota]:
        most, each = self._rules.max_pages, self._rules.traps.pages_per_pattern
        yield Quota("pages", most, f"there are more pages than max_pages ({most}) of the crawl")
        if not is_item:
            reason = f"there are more than {each} pages like {pattern} (pages_per_pattern)"
            yield Quota(f"pattern {pattern}", each, reason)

    def _trap_quotas(self, url: str, pattern: str, depth: int, *, is_item: bool) -> Iterator[Quota]:
        """Yield the quotas that may leave a link out: those that are 0 do."""
        traps, most = self._rules.traps, self._rules.max_depth
        if most is not None and depth > most:
            reason = f"links beyond max_depth ({most}) were not followed, such as {url}"
            yield _never("depth", reason)
        if problem := _path_problem(url, traps):
            yield _never(problem.partition(" (")[0], f"{problem}: {url:.200}")
        if not is_item:
            reason = (
                f"pages like {pattern} are followed no further: {traps.barren_pages} in a row led "
                "to nothing new (barren_pages)"
            )
            yield Quota(
                _barren(pattern), traps.barren_pages, reason, is_cut=False, counts_items=False
            )
        path, _, query = url.partition("?")
        if query:
            what = "links to items with other" if is_item else "other"
            reason = (
                f"{what} parameters of {path} are followed no further: {traps.same_text} pages "
                "repeated the text of another (same_text)"
            )
            # Behind links to items that were left out, there may be records.
            name = _same(path, is_item=is_item)
            yield Quota(name, traps.same_text, reason, is_cut=is_item, counts_items=False)


def _never(name: str, reason: str) -> Quota:
    return Quota(name, 0, reason, is_cut=False)


def _barren(pattern: str) -> str:
    return f"barren {pattern}"


def _same(path: str, *, is_item: bool) -> str:
    return f"same item {path}" if is_item else f"same {path}"


def _path_problem(url: str, traps: Traps) -> str | None:
    """Return why a URL cannot be a page; what is in parentheses differs from job to job."""
    if len(url) > _MAX_URL:
        return f"URLs of more than {_MAX_URL} characters were left out"
    parts = [one for one in urlsplit(url).path.split("/") if one]
    if len(parts) > traps.segments:
        return f"paths of more than {traps.segments} parts were left out (segments)"
    names = Counter(one for one in parts if not one.isdecimal())
    if names and max(names.values()) > traps.repeats:
        return f"paths that repeat a name more than {traps.repeats} times were left out (repeats)"
    return None


def _may_be_page(url: str) -> bool:
    name = urlsplit(url).path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() not in _NOT_PAGES if "." in name else True


def _text_mark(page: Page) -> str:
    tree = LexborHTMLParser(page.text)  # a copy: the page itself keeps its scripts
    tree.strip_tags(["script", "style", "noscript"])
    text = " ".join((tree.body.text() if tree.body else "").split())
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def is_on_domain(url: str, domains: Iterable[str]) -> bool:
    """Return whether the host of a URL is one of these domains, or below one."""
    parts = urlsplit(url)
    hosts = (parts.netloc.lower().rpartition("@")[2], (parts.hostname or "").lower())
    return any(host == one or host.endswith(f".{one}") for one in domains for host in hosts)


class CrawlSource(Source):
    """A source that crawls: it follows links from its start URLs and reads the pages of items.

    A subclass has `start` and `crawl`, and reads an item's page in `read`; further layers may
    follow. Pages that only lead on end as skipped items.
    """

    start: tuple[str, ...] = ()
    """URLs where the crawl starts; `__init__` can set them from the options."""
    crawl: ClassVar[Crawl]

    async def read(self, page: Page, visit: Visit) -> Mapping[str, Any]:
        """Return the fields of the page of an item."""
        raise NotImplementedError  # every source implements it

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the start URLs; pages lead to the others."""
        del visit
        for url in self.start:
            yield self._crawler.start(url)

    @layer()
    async def page(self, visit: Visit) -> Mapping[str, Any]:
        """Queue the links of a page, and read its fields if it is an item."""
        is_rendered = self.transport == "browser"
        page = await visit.fetch(visit.item.url, rendered=is_rendered)
        await follow_links(self._crawler, visit, page)
        return await self.read(page, visit)

    def leads_on(self, item: Item) -> bool:
        return not is_item(item)

    def carries_values(self, item: Item) -> bool:
        return not item.data.keys() <= {_DATA}

    @cached_property
    def _crawler(self) -> Crawler:
        return Crawler(self.crawl, self.start)


def is_item(item: Item) -> bool:
    """Return whether the page of a crawl is an item, and does not only lead on."""
    return _Place.of(item).is_item


async def follow_links(crawler: Crawler, visit: Visit, page: Page) -> None:
    """Queue the links of a page; return if its item is to be read.

    Raises:
        NothingToStore: the page is not an item.
        SkipItem: it redirects to another domain.
    """
    place = _Place.of(visit.item)
    _check_address(crawler, visit, page, place)
    if not may_be_html(page.headers):
        if place.is_item:
            return
        raise NothingToStore("not HTML, so it has no links")
    renewed: tuple[str, ...] = ()
    if (path := await off_loop(len(page.body), crawler.repeated_path, page)) is not None:
        visit.spend(_same(path, is_item=place.is_item))
        # A list of images has little text: it is a repetition only if it leads to no new item.
        renewed = () if place.is_item else (_same(path, is_item=False),)
    if place.is_followed:
        most = _MAX_LINKS + 1
        found = await off_loop(
            len(page.body), lambda: list(islice(crawler.links(page, place), most))
        )
        if len(found) == most:
            visit.cut(
                f"{page.url:.200} has more than {_MAX_LINKS:,} links to follow; the others were "
                "left out"
            )
        for item in found[:_MAX_LINKS]:
            refills = (*item.refills, *renewed) if is_item(item) else item.refills
            visit.add(replace(item, refills=refills))
    if not place.depth and not visit.found and not place.is_item:
        visit.cut(f"the start URL {page.url:.200} has no link that the rules of the crawl select")
    if not place.is_item:
        visit.spend(_barren(pattern_of(visit.item.url)))
        raise NothingToStore(f"a page with {len(visit.found)} links to follow")


def _check_address(crawler: Crawler, visit: Visit, page: Page, place: _Place) -> None:
    if not crawler.covers(page.url):
        if not place.depth and not crawler.covers(visit.item.url):
            visit.cut(f"the start URL {visit.item.url:.200} is not on a domain of the crawl")
            raise SkipItem("not on a domain of the crawl; write its host in domains")
        if not place.depth:
            visit.cut(f"the start URL redirects to another domain: {page.url:.200}")
        raise SkipItem(f"redirected to another domain: {page.url:.200}")
    onward = crawler.redirected(page.url, visit.item)
    if onward.key != visit.item.key:
        # Another link may lead to that URL directly: it is one page with one key.
        visit.add(onward)
        raise NothingToStore(f"redirected to {page.url:.200}")
