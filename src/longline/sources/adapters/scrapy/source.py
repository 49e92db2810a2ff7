"""An unchanged Scrapy spider as a source: its requests go through the chain, its items to records.

Each request and each scraped item becomes an item of the job, committed with the outcome of its
page: after a crash nothing is lost and no request is repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from itemadapter import ItemAdapter
from pydantic import ConfigDict
from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.serialize import ScrapyJSONEncoder

from longline.core.errors import (
    BadSource,
    BudgetSpent,
    CircuitOpen,
    Deferred,
    FetchError,
    NothingToStore,
    SkipItem,
    UnexpectedShape,
    bad_status,
)
from longline.core.model import Cursor, Item
from longline.http.messages import without_userinfo
from longline.sources.adapters.records import RecordSource, fingerprint, first_key_field
from longline.sources.adapters.scrapy.messages import (
    outgoing,
    pack,
    pack_request,
    response_of,
    unpack,
    unpack_request,
)
from longline.sources.adapters.scrapy.spider import Crawl, not_run, settings_of
from longline.sources.base import Needs, Options, Source, layer
from longline.sources.visit import Visit

_NOT_FOR_ERRBACKS = (CircuitOpen, Deferred, BudgetSpent)
"""Errors that defer a request and say nothing about it."""
_RECORDS_FIRST = 1_000_000  # scraped items are stored before further requests
_START = "start"
_ITEM = "item"
_NOT_REPEATED = (
    "cannot be extracted again: the item pipelines of its project may write or make requests"
)


class SpiderOptions(Options):
    """The arguments of the spider, as with `scrapy crawl -a name=value`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    record_key: str | None = None
    """What identifies a scraped item across runs; default: its page and its `id` or `url`."""


def scrapy_source(kind: type[Spider]) -> type[Source]:
    """Return the source class of a spider class.

    Raises:
        BadSource: it has no name, or the settings of its project cannot be read.
    """
    if not getattr(kind, "name", None):
        raise BadSource(kind.__name__, "the spider has no name")
    settings = settings_of(kind)
    delay = settings.getfloat("DOWNLOAD_DELAY")
    rate: float | Literal["auto"] = 1 / delay if delay else 2.0
    values = {
        "name": kind.name,
        "kind": "scrapy",
        "__doc__": kind.__doc__ or f"The Scrapy spider {kind.name}.",
        "__module__": kind.__module__,
        "rate": "auto" if settings.getbool("AUTOTHROTTLE_ENABLED") else rate,
        "burst": 1 if delay else 5,
        "not_run": not_run(settings, kind),
        "_spider": kind,
    }
    return type(kind.__name__, (_SpiderSource,), values)


class _SpiderSource(RecordSource):
    Options = SpiderOptions
    needs = Needs(extras={"scrapy": "scrapy"})
    cookies = False  # the spider has its own cookie jars, which survive the process
    _spider: ClassVar[type[Spider]]
    _closed: str | None = None

    @cached_property
    def _crawl(self) -> Crawl:
        arguments = self.options.model_dump()
        arguments.pop("record_key")
        return Crawl(self._spider, arguments)

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        """Yield the start requests of the spider; layers find the rest."""
        for part in self.not_run:
            visit.warn(f"not run: {part}")
        for name in self._crawl.unused_limits():
            visit.warn(f"{name} of the project is not applied; --limit ends a run early")
        emitting = _Emitting(self._crawl, _START, "", self.options.record_key)
        async for one in self._crawl.start(visit.cut):
            yield emitting.item(one)

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return a scraped item; or fetch a page, and queue what the spider finds there.

        Raises:
            NothingToStore: it was a page.
        """
        if "request" not in visit.item.data:
            visit.address = visit.item.url
            return await self._scraped(visit)
        if self._closed is not None:
            raise SkipItem(f"skipped: the spider has closed itself ({self._closed})")
        raise NothingToStore(await self._page(visit))

    def carries_values(self, item: Item) -> bool:
        return _ITEM in item.data or super().carries_values(item)

    def obstacle_to_repeat(self, item: Item) -> str | None:
        return _NOT_REPEATED if _ITEM in item.data else None

    async def teardown(self) -> None:
        """Close the spider, if it was used."""
        if "_crawl" in vars(self):
            await self._crawl.close(self._closed or "finished")

    async def _scraped(self, visit: Visit) -> Mapping[str, Any]:
        """Return the record of a scraped item, after the item pipelines."""
        data = visit.item.data
        if _ITEM not in data:
            return await super().record(visit)
        where = visit.item.url
        result = await self._crawl.processed(unpack(data[_ITEM], self._spider), where)
        return _item_as_json(result, where)

    async def _page(self, visit: Visit) -> str:
        crawl, data = self._crawl, visit.item.data
        request = unpack_request(data["request"], crawl.spider)
        if crawl.jars is not None:
            crawl.jars.restore(request, data.get("cookies", []))
        emitting = _Emitting(crawl, visit.item.key, visit.item.url, self.options.record_key)
        try:
            response = await self._respond(visit, request)
        except _NOT_FOR_ERRBACKS:
            raise
        except FetchError as error:
            if request.errback is None:
                raise
            return await self._queue(visit, emitting, crawl.failed(request, error))
        onward = crawl.redirected(request, response)
        if onward is not None:
            if (shaped := crawl.filtered(onward)) is not None:
                visit.add(emitting.item(shaped))
            return f"redirected to {onward.url}"
        emitting.place = response.url
        try:
            return await self._queue(visit, emitting, crawl.answered(request, response, visit.cut))
        except HttpError as error:
            raise bad_status(request.url, response.status) from error

    async def _respond(self, visit: Visit, request: Request) -> Any:
        sent = self._crawl.dressed(request)
        if request.meta.get("proxy"):
            visit.warn("not run: the proxy in the meta of requests; they are sent directly")
        page = await visit.fetch(
            sent.url,
            method=sent.method,
            headers=outgoing(sent),
            body=sent.body or None,
            accept=self._crawl.accepted(request),
            timeout=request.meta.get("download_timeout"),
        )
        response = response_of(page, request)
        if self._crawl.jars is not None:
            self._crawl.jars.take(request, response)
        return response

    async def _queue(self, visit: Visit, emitting: _Emitting, outcome: AsyncIterator[Any]) -> str:
        """Queue everything the spider yields; return a summary."""
        problem: UnexpectedShape | None = None
        try:
            async for one in outcome:
                try:
                    visit.add(emitting.item(one))
                except UnexpectedShape as error:
                    problem = problem or error  # the rest of the page is not lost over it
        except CloseSpider as error:
            self._closed = error.reason
            visit.cut(f"the spider closed itself: {error.reason}")
        if problem is not None:
            raise problem
        return emitting.summary


def _item_as_json(item: Any, where: str) -> dict[str, Any]:
    """Return a scraped item as JSON.

    Raises:
        UnexpectedShape: it holds something that JSON has no form for.
    """
    try:
        data: dict[str, Any] = json.loads(ScrapyJSONEncoder().encode(item))
    except (TypeError, ValueError) as error:
        raise UnexpectedShape(where, f"a scraped item cannot be kept: {error}") from error
    return data


def _key_data(item: Any) -> dict[str, Any]:
    """Return the fields of an item as JSON, to make its key."""
    text = json.dumps(ItemAdapter(item).asdict(), default=_named_by)
    data: dict[str, Any] = json.loads(text)
    return data


def _named_by(value: Any) -> Any:
    # The order of a set differs from process to process, and a key must not.
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


class _Emitting:
    """Makes items of what a spider yields on one page, each with its own key."""

    def __init__(self, crawl: Crawl, origin: str, place: str, record_key: str | None) -> None:
        self._crawl = crawl
        self._origin = origin
        self._record_key = record_key
        self._met: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self.place = place

    @property
    def summary(self) -> str:
        """What the page yielded, in words."""
        return f"a page with {self._counts['records']} items and {self._counts['links']} links"

    def item(self, one: Any) -> Item:
        """Return the item for a request, or for something scraped.

        Raises:
            UnexpectedShape: it is neither, or cannot be kept.
        """
        if isinstance(one, Request):
            return self._of_request(one)
        if not ItemAdapter.is_item(one):
            problem = (
                f"the spider yielded a {type(one).__name__}, which is neither a request nor an item"
            )
            raise UnexpectedShape(self.place or self._origin, problem)
        return self._of_scraped(one)

    def _of_request(self, request: Request) -> Item:
        crawl = self._crawl
        if (address := without_userinfo(request.url)) != request.url:
            request = request.replace(url=address)
        data: dict[str, Any] = {"request": pack_request(request, crawl.spider)}
        if crawl.jars is not None and (kept := crawl.jars.kept(request)):
            data["cookies"] = kept
        self._counts["links"] += 1
        return Item(self._key(request), request.url, request.priority, data)

    def _key(self, request: Request) -> str:
        mark = self._crawl.mark(request)
        if not request.dont_filter:
            return mark
        # Never a duplicate, not even of itself: the key includes its origin.
        return f"{mark}+{self._apart(mark)}"

    def _of_scraped(self, one: Any) -> Item:
        where = self.place or self._origin
        place = self.place or f"scrapy://{self._crawl.spider.name}"
        if self._crawl.has_pipelines:
            # They receive the item as the spider made it, of its own class.
            key = self._named(_key_data(one))
            data = {_ITEM: pack(one, where)}
        else:
            record = _item_as_json(one, where)
            key, data = self._named(record), {"record": record}
        self._counts["records"] += 1
        return Item(key, place, _RECORDS_FIRST, data)

    def _named(self, data: dict[str, Any]) -> str:
        if self._record_key is not None:
            value = data.get(self._record_key)
            if value in (None, "", [], {}):
                problem = f"an item has no {self._record_key!r}, which was named as its key"
                raise UnexpectedShape(self.place or self._origin, problem)
            return str(value)
        name = first_key_field(data) or fingerprint(data)[:16]
        # Scrapy keeps every item, so two pages about the same thing make two records.
        return f"{name} {self._apart(name)}"

    def _apart(self, name: str) -> str:
        self._met[name] += 1
        text = f"{self._origin} {self._met[name]} {name}"
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
