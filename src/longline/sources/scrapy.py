"""An unchanged Scrapy spider as a source: its requests go through the chain, its items to records.

Each request and each scraped item becomes an item of the job, committed with the outcome of its
page: after a crash nothing is lost and no request is repeated.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import pkgutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Literal

from itemadapter import ItemAdapter
from pydantic import ConfigDict
from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider
from scrapy.spidermiddlewares.httperror import HttpError
from scrapy.utils.request import request_from_dict
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
from longline.sources.base import (
    Options,
    RecordSource,
    Source,
    Visit,
    first_key_field,
    layer,
    record_fingerprint,
)
from longline.sources.spider import Crawl, headers_to_send, parts_not_run, response_of, settings_of

_log = logging.getLogger(__name__)
_MARK = "$"
"""Marks a value without a JSON form: `{"$": "bytes", "as": …}`. Nothing is pickled."""


def pack_request(request: Request, spider: Spider) -> dict[str, Any]:
    """Return a request as JSON; raise UnexpectedShape if it cannot be stored."""
    try:
        values = request.to_dict(spider=spider)
    except ValueError as error:
        problem = f"{error}; only methods of the spider can be stored as callbacks"
        raise UnexpectedShape(str(request), problem) from error
    # Such a proxy is not used, so its login is neither stored nor sent to the site.
    values["headers"].pop(b"Proxy-Authorization", None)
    if isinstance(proxy := request.meta.get("proxy"), str):
        values["meta"] = {**values["meta"], "proxy": without_userinfo(proxy)}
    return {name: pack(value, f"{request}: {name}") for name, value in values.items() if value}


def unpack_request(packed: Mapping[str, Any], spider: Spider) -> Request:
    """Return the request that was packed."""
    return request_from_dict(unpack(packed), spider=spider)


def pack(value: Any, where: str) -> Any:
    """Return a value as JSON; raise UnexpectedShape for `where` if its type cannot be stored."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [pack(one, where) for one in value]
    if type(value) is dict:
        if _MARK not in value and all(isinstance(name, str) for name in value):
            return {name: pack(one, f"{where}[{name!r}]") for name, one in value.items()}
        pairs = [[pack(name, where), pack(one, where)] for name, one in value.items()]
        return {_MARK: "pairs", "as": pairs}
    for name, (kind, pack_one, _) in _FORMS.items():
        if isinstance(value, kind):
            return {_MARK: name, "as": pack(pack_one(value), where)}
    kind = type(value)
    if ItemAdapter.is_item(value) and "<locals>" not in kind.__qualname__:
        fields = {name: pack(one, where) for name, one in ItemAdapter(value).items()}
        return {_MARK: "item", "class": f"{kind.__module__}:{kind.__qualname__}", "as": fields}
    problem = (
        f"it has a {kind.__qualname__}, which cannot be stored; text, numbers, lists, mappings, "
        "dates and items whose class is defined in a module can"
    )
    raise UnexpectedShape(where, problem)


def unpack(value: Any) -> Any:
    """Return the value that was packed."""
    if isinstance(value, list):
        return [unpack(one) for one in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {name: unpack(one) for name, one in value.items()}
    content = unpack(value["as"])
    if value[_MARK] == "item":
        kind = pkgutil.resolve_name(value["class"])
        # The class name comes from the database: only item classes may be instantiated.
        if not (isinstance(kind, type) and ItemAdapter.is_item_class(kind)):
            raise UnexpectedShape(value["class"], "it is not an item class")
        return kind(**content)
    _, _, unpack_one = _FORMS[value[_MARK]]
    return unpack_one(content)


_Form = tuple[type | tuple[type, ...], Callable[[Any], Any], Callable[[Any], Any]]
_FORMS: dict[str, _Form] = {
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), base64.b64decode),
    "tuple": (tuple, list, tuple),
    "set": ((set, frozenset), list, set),
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (timedelta, timedelta.total_seconds, lambda v: timedelta(seconds=v)),
    "decimal": (Decimal, str, Decimal),
    # Mappings with string keys are packed before; this is for all others.
    "pairs": ((), list, dict),
}

_NOT_FOR_ERRBACKS = (CircuitOpen, Deferred, BudgetSpent)
"""Errors that defer a request and say nothing about it."""
_RECORDS_FIRST = 1_000_000  # scraped items are stored before further requests
_START = "start"
_JAR = "cookiejar {}"
"""What requests belong to that have a cookie jar in common: a session, with its own proxy."""
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
    """Return the source of a spider class; raise BadSource if it has no name."""
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
        "not_run": tuple(parts_not_run(settings, kind)),
        "has_own_cookies": settings.getbool("COOKIES_ENABLED"),
        "_spider": kind,
    }
    return type(kind.__name__, (_SpiderSource,), values)


class _SpiderSource(RecordSource):
    Options = SpiderOptions
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
            visit.warn(f"not supported: {part}")
        # Known only of a spider that was created, so a run does not log them before.
        signals = (f"the signal {one}, which is not sent" for one in self._crawl.unsent_signals())
        limits = (
            f"setting {one} (--limit ends a run early)" for one in self._crawl.unused_limits()
        )
        for part in (*signals, *limits):
            _log.warning("not supported: %s", part)
            visit.warn(f"not supported: {part}")
        found_items = _PageItems(self._crawl, _START, "", self.options.record_key)
        async for one in self._crawl.start(visit.cut):
            yield found_items.item(one)

    @layer()
    async def record(self, visit: Visit) -> Mapping[str, Any]:
        """Return a scraped item; or fetch a page, and queue what the spider finds there."""
        if self.has_own_cookies:  # files are requested with those of the default cookie jar
            visit.scope = _JAR.format(None)
        if "request" not in visit.item.data:
            visit.address = where = visit.item.url
            if _ITEM not in visit.item.data:
                return await super().record(visit)
            item = unpack(visit.item.data[_ITEM])
            if self._crawl.pipelines is not None:
                item = await self._crawl.pipelines.process(item, visit)
            return _item_as_json(item, where)
        if self._closed is not None:
            raise SkipItem(f"skipped: the spider has closed itself ({self._closed})")
        raise NothingToStore(await self._process_page(visit))

    def carries_values(self, item: Item) -> bool:
        return _ITEM in item.data or super().carries_values(item)

    def obstacle_to_repeat(self, item: Item) -> str | None:
        return _NOT_REPEATED if _ITEM in item.data else None

    async def teardown(self) -> None:
        """Close the spider, if it was used."""
        if "_crawl" in vars(self):
            await self._crawl.close(self._closed or "finished")

    async def _process_page(self, visit: Visit) -> str:
        crawl, data = self._crawl, visit.item.data
        request = unpack_request(data["request"], crawl.spider)
        if crawl.jars is not None:
            crawl.jars.restore(request, data.get("cookies", []))
            visit.scope = _JAR.format(request.meta.get("cookiejar"))
        found_items = _PageItems(crawl, visit.item.key, visit.item.url, self.options.record_key)
        try:
            response = await self._respond(visit, request)
        except _NOT_FOR_ERRBACKS:
            raise
        except FetchError as error:
            if request.errback is None:
                raise
            return await self._queue_results(
                visit, found_items, crawl.errback_results(request, error)
            )
        onward = crawl.redirected(request, response)
        if onward is not None:
            if crawl.is_allowed(onward):
                visit.add(found_items.item(onward))
            return f"redirected to {onward.url}"
        found_items.place = response.url
        try:
            return await self._queue_results(
                visit, found_items, crawl.callback_results(request, response, visit.cut)
            )
        except HttpError as error:
            raise bad_status(request.url, response.status) from error

    async def _respond(self, visit: Visit, request: Request) -> Any:
        sent = self._crawl.prepared(request)
        if request.meta.get("proxy"):
            visit.warn(
                "not supported: the proxy in the meta of requests; `proxies` of the job or "
                "`longline run --proxies` says which proxies are used"
            )
        page = await visit.fetch(
            sent.url,
            method=sent.method,
            headers=headers_to_send(sent),
            body=sent.body or None,
            accept=self._crawl.returned_statuses(request),
            timeout=self._crawl.timeout(request),
        )
        response = response_of(page, request)
        if self._crawl.jars is not None:
            self._crawl.jars.process_response(request, response)
        return response

    async def _queue_results(
        self, visit: Visit, found_items: _PageItems, outcome: AsyncIterator[Any]
    ) -> str:
        """Queue everything the spider yields; return a summary."""
        problem: UnexpectedShape | None = None
        try:
            async for one in outcome:
                try:
                    visit.add(found_items.item(one))
                except UnexpectedShape as error:
                    problem = problem or error  # the rest of the page is not lost over it
        except CloseSpider as error:
            self._closed = error.reason
            visit.cut(f"the spider closed itself: {error.reason}")
        if problem is not None:
            raise problem
        return found_items.summary


def _item_as_json(item: Any, where: str) -> dict[str, Any]:
    """Return a scraped item as JSON; raise UnexpectedShape if it has a value without a form."""
    try:
        data: dict[str, Any] = json.loads(ScrapyJSONEncoder().encode(item))
    except (TypeError, ValueError) as error:
        raise UnexpectedShape(where, f"a scraped item cannot be stored: {error}") from error
    return data


def _as_key_text(value: Any) -> Any:
    # The order of a set differs from process to process, and a key must not.
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


class _PageItems:
    """Makes items of what a spider yields on one page, each with its own key."""

    def __init__(self, crawl: Crawl, origin: str, place: str, record_key: str | None) -> None:
        self._crawl = crawl
        self._origin = origin
        self._record_key = record_key
        self._seen: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self.place = place

    @property
    def summary(self) -> str:
        """What the page yielded, in words."""
        return f"a page with {self._counts['records']} items and {self._counts['links']} links"

    def item(self, one: Any) -> Item:
        """Return the item of a request or scraped item; raise UnexpectedShape for other types."""
        if isinstance(one, Request):
            return self._of_request(one)
        if not ItemAdapter.is_item(one):
            kind = type(one).__name__
            problem = f"the spider yielded a {kind}, which is neither a request nor an item"
            raise UnexpectedShape(self.place or self._origin, problem)
        return self._of_scraped(one)

    def _of_request(self, request: Request) -> Item:
        crawl = self._crawl
        if (address := without_userinfo(request.url)) != request.url:
            request = request.replace(url=address)
        data: dict[str, Any] = {"request": pack_request(request, crawl.spider)}
        if crawl.jars is not None and (kept := crawl.jars.stored(request)):
            data["cookies"] = kept
        self._counts["links"] += 1
        key = crawl.fingerprint(request)
        if request.dont_filter:  # never a duplicate, not even of itself
            key = f"{key}+{self._suffix(key)}"
        return Item(key, request.url, request.priority, data)

    def _of_scraped(self, one: Any) -> Item:
        where = self.place or self._origin
        place = self.place or f"scrapy://{self._crawl.spider.name}"
        if self._crawl.pipelines is not None:
            # They receive the item as the spider made it, of its own class.
            fields = json.dumps(ItemAdapter(one).asdict(), default=_as_key_text)
            key = self._record_key_of(json.loads(fields))
            data = {_ITEM: pack(one, where)}
        else:
            record = _item_as_json(one, where)
            key, data = self._record_key_of(record), {"record": record}
        self._counts["records"] += 1
        return Item(key, place, _RECORDS_FIRST, data)

    def _record_key_of(self, data: dict[str, Any]) -> str:
        if self._record_key is not None:
            value = data.get(self._record_key)
            if value in (None, "", [], {}):
                problem = f"an item has no {self._record_key!r}, which was named as its key"
                raise UnexpectedShape(self.place or self._origin, problem)
            return str(value)
        name = first_key_field(data) or record_fingerprint(data)[:16]
        # Scrapy keeps every item, so two pages about the same thing make two records.
        return f"{name} {self._suffix(name)}"

    def _suffix(self, name: str) -> str:
        """Return a hash that distinguishes things of the same name by origin and number."""
        self._seen[name] += 1
        text = f"{self._origin} {self._seen[name]} {name}"
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()
