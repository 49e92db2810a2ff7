"""A spider with the parts of Scrapy that shape its requests and items, without Scrapy's engine."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeVar

from itemadapter import ItemAdapter
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.downloadermiddlewares.redirect import MetaRefreshMiddleware, RedirectMiddleware
from scrapy.exceptions import DropItem, IgnoreRequest, NotConfigured, ScrapyDeprecationWarning
from scrapy.http import Response
from scrapy.pipelines import ItemPipelineManager
from scrapy.pipelines.media import MediaPipeline
from scrapy.settings import Settings
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import arg_to_iter, build_from_crawler, load_object
from scrapy.utils.project import get_project_settings
from scrapy.utils.python import global_object_name
from twisted.python.failure import Failure

from longline.core.errors import BadSource, SkipItem, UnexpectedShape
from longline.http.errors import BadAnswer
from longline.sources.adapters.scrapy.cookies import Jars
from longline.sources.adapters.scrapy.messages import accepted, scrapy_error

_log = logging.getLogger(__name__)
_PIPELINES = "ITEM_PIPELINES"
_COMPONENTS = {
    "SPIDER_MIDDLEWARES": "spider middleware",
    "DOWNLOADER_MIDDLEWARES": "downloader middleware",
    "EXTENSIONS": "extension",
}
_REPLACED = {
    "ADDONS": "its add-ons",
    "DOWNLOAD_HANDLERS": "requests go through longline",
    "DOWNLOADER": "requests go through longline",
    "DUPEFILTER_CLASS": "requests are deduplicated by their fingerprint",
    "FEEDS": "use `longline export`",
    "HTTPCACHE_ENABLED": "use --cache",
    "ITEM_PROCESSOR": "item pipelines run in their order",
    "SCHEDULER": "requests are queued by longline",
}
"""Settings without effect, and their replacement."""
_DEFAULT = 0  # the priority of a setting that the project does not change


def pipelines_of(settings: Settings, kind: type[Spider]) -> list[type]:
    """Return the classes of the item pipelines that run, in order.

    Those that download files are excluded: they need Scrapy's engine.

    Raises:
        BadSource: one cannot be imported.
    """
    return [one for one in _enabled(settings, kind) if not issubclass(one, MediaPipeline)]


def not_run(settings: Settings, kind: type[Spider]) -> tuple[str, ...]:
    """Return the parts of a project that do not run, each with its kind.

    Raises:
        BadSource: an item pipeline cannot be imported.
    """
    return tuple(_not_run(settings, kind))


def _not_run(settings: Settings, kind: type[Spider]) -> Iterator[str]:
    for name, word in _COMPONENTS.items():
        usual = {_component_name(one) for one in settings.getdict(f"{name}_BASE")}
        given = settings.getdict(name)
        named = (_component_name(one) for one, order in given.items() if order is not None)
        yield from (f"{word} {one}" for one in named if one not in usual)
    for one in _enabled(settings, kind):
        if issubclass(one, MediaPipeline):
            name = _component_name(one)
            yield f"item pipeline {name}, which needs Scrapy's engine to download files"
    for name, instead in _REPLACED.items():
        if (settings.getpriority(name) or _DEFAULT) > _DEFAULT and settings.get(name):
            yield f"setting {name} ({instead})"
    if getattr(kind, "http_user", None) or getattr(kind, "http_pass", None):
        yield "HTTP authentication by http_user (use `auth` in a job file)"


def _enabled(settings: Settings, kind: type[Spider]) -> list[type]:
    try:
        numbered = settings.get_component_priority_dict_with_base(_PIPELINES)
        return [load_object(one) for one in build_component_list(numbered)]
    except Exception as error:  # modules of the project, which may raise anything
        problem = f"its item pipelines cannot be used: {type(error).__name__}: {error}"
        raise BadSource(kind.__name__, problem) from error


def _component_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else global_object_name(kind)


class Pipelines:
    """The item pipelines of one spider in one process, opened with the first item.

    Args:
        crawler: what they are built from.
        kinds: their classes, in their order.
    """

    def __init__(self, crawler: Crawler, kinds: list[type]) -> None:
        built = []
        for kind in kinds:
            try:
                built.append(build_from_crawler(kind, crawler))
            except NotConfigured as error:
                _log.warning("item pipeline %s is switched off: %s", _component_name(kind), error)
        with warnings.catch_warnings():
            # Deprecation warnings concern `scrapy crawl`.
            warnings.simplefilter("ignore", ScrapyDeprecationWarning)
            self._manager = ItemPipelineManager(*built, crawler=crawler)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._failure: Exception | None = None

    async def process(self, item: Any, where: str) -> Any:
        """Return an item as the pipelines leave it.

        Raises:
            SkipItem: a pipeline dropped it.
            UnexpectedShape: they returned something else than an item.
        """
        await self._open()
        try:
            result = await self._manager.process_item_async(item)
        except DropItem as error:
            raise SkipItem(f"dropped by an item pipeline: {error}") from error
        if not ItemAdapter.is_item(result):
            problem = f"the item pipelines returned a {type(result).__name__}, which is not an item"
            raise UnexpectedShape(where, problem)
        return result

    async def close(self) -> None:
        """Close what was opened."""
        if self._is_open:
            self._is_open = False
            await self._manager.close_spider_async()

    async def _open(self) -> None:
        async with self._opening:
            if self._failure is not None:
                raise self._failure  # some may be open already
            if self._is_open:
                return
            try:
                await self._manager.open_spider_async()
            except Exception as error:
                self._failure = error
                raise
            self._is_open = True


_T = TypeVar("_T")
Cut = Callable[[str], None]
"""Receives the reason why a request was left out."""
_CLOSING = (
    *("CLOSESPIDER_TIMEOUT", "CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT"),
    *("CLOSESPIDER_ERRORCOUNT", "CLOSESPIDER_TIMEOUT_NO_ITEM", "CLOSESPIDER_PAGECOUNT_NO_ITEM"),
)


def settings_of(kind: type[Spider]) -> Settings:
    """Return the settings of a spider in its project.

    Raises:
        BadSource: the project's settings cannot be read.
    """
    try:
        settings = get_project_settings()
        kind.update_settings(settings)
    except Exception as error:
        problem = f"the settings of its project are broken: {type(error).__name__}: {error}"
        raise BadSource(kind.__name__, problem) from error
    return settings


class _EngineLessCrawler(Crawler):
    """A crawler without an engine, with the spider middlewares that run."""

    spider_middlewares: Sequence[object] = ()

    def get_spider_middleware(self, cls: type[_T]) -> _T | None:
        """Return the middleware of this class, for spiders and for the Referer of redirects."""
        return next((one for one in self.spider_middlewares if isinstance(one, cls)), None)


class Crawl:
    """One run of a spider: its requests, and what its callbacks yield.

    It has a crawler for settings, signals and statistics, but no engine: longline sends requests.
    """

    def __init__(self, kind: type[Spider], arguments: dict[str, Any]) -> None:
        self._crawler = crawler = _EngineLessCrawler(kind, settings_of(kind))
        self._settings = settings = crawler.settings
        crawler.stats = load_object(settings["STATS_CLASS"])(crawler)
        fingerprinter = load_object(settings["REQUEST_FINGERPRINTER_CLASS"])
        self._fingerprinter = build_from_crawler(fingerprinter, crawler)
        crawler.request_fingerprinter = self._fingerprinter
        self.spider = crawler.spider = kind.from_crawler(crawler, **arguments)
        self.jars = Jars() if settings.getbool("COOKIES_ENABLED") else None
        self._headers = DefaultHeadersMiddleware.from_crawler(crawler)
        self._offsite = OffsiteMiddleware.from_crawler(crawler)
        self._redirects = self._built(RedirectMiddleware, MetaRefreshMiddleware)
        self._shaping = self._built(UrlLengthMiddleware, RefererMiddleware, DepthMiddleware)
        self._errors = HttpErrorMiddleware.from_crawler(crawler)
        pipelines = pipelines_of(settings, kind)
        self._pipelines = Pipelines(crawler, pipelines) if pipelines else None
        crawler.spider_middlewares = [*self._shaping, self._errors]
        crawler.signals.send_catch_log(signal=signals.spider_opened, spider=self.spider)
        crawler.signals.send_catch_log(signal=signals.engine_started)

    def _built(self, *kinds: type) -> list[Any]:
        built = []
        for kind in kinds:
            try:
                built.append(build_from_crawler(kind, self._crawler))
            except NotConfigured:
                continue  # switched off in the settings
        return built

    async def start(self, cut: Cut) -> AsyncIterator[Any]:
        """Yield the start requests and items of the spider."""
        async for one in _iterate_outcome(self._begin()):
            if isinstance(one, Request):
                one.meta.setdefault("is_start_request", True)
            if (shaped := self.shaped(one, None, cut)) is not None:
                yield shaped

    def _begin(self) -> Any:
        older = getattr(type(self.spider), "start_requests", None)
        is_older = older is not None and type(self.spider).start is Spider.start
        if is_older and older is not getattr(Spider, "start_requests", None):
            return self.spider.start_requests()  # type: ignore[attr-defined]  # before Scrapy 2.13
        return self.spider.start()

    def shaped(self, one: Any, response: Response | None, cut: Cut) -> Any:
        """Return a request or item after the spider middlewares; None when it is left out.

        A request that a limit of the project's settings leaves out is reported to `cut`.
        """
        if not isinstance(one, Request):
            return one
        for part in self._shaping:
            one = part.get_processed_request(one, response)
            if one is None:
                cut(self._limit_of(part))
                return None
        return self.filtered(one)

    def _limit_of(self, part: Any) -> str:
        name = "DEPTH_LIMIT" if isinstance(part, DepthMiddleware) else "URLLENGTH_LIMIT"
        return f"requests beyond {name} ({self._settings.getint(name)}) were left out"

    def unused_limits(self) -> list[str]:
        """Return the settings that would have ended the spider early under Scrapy itself."""
        return [name for name in _CLOSING if self._settings.getfloat(name)]

    def filtered(self, request: Request) -> Request | None:
        """Return a request; None when it is outside the allowed domains."""
        try:
            self._offsite.process_request(request)
        except IgnoreRequest:
            return None
        return request

    def dressed(self, request: Request) -> Request:
        """Return a copy of a request with default headers and cookies."""
        sent = request.copy()
        self._headers.process_request(sent)
        if (self._settings.getpriority("USER_AGENT") or _DEFAULT) > _DEFAULT:
            sent.headers.setdefault("User-Agent", self._settings["USER_AGENT"])
        if self.jars is not None and not sent.meta.get("dont_merge_cookies"):
            sent.headers.pop("Cookie", None)
            self.jars.dress(sent)
        return sent

    def accepted(self, request: Request) -> frozenset[int]:
        """Return the statuses that the chain returns instead of raising."""
        return accepted(request, self.spider, self._settings)

    def redirected(self, request: Request, response: Response) -> Request | None:
        """Return the request that a response redirects to; None when it is no redirect.

        Raises:
            BadAnswer: there are too many redirects.
        """
        for part in self._redirects:
            try:
                result = part.process_response(request, response)
            except IgnoreRequest as error:
                raise BadAnswer(request.url, str(error)) from error
            if isinstance(result, Request):
                return result
        return None

    async def answered(self, request: Request, response: Response, cut: Cut) -> AsyncIterator[Any]:
        """Yield what the spider makes of a response.

        Raises:
            HttpError: the spider does not handle its status, and the request has no errback.
        """
        response.meta.setdefault("depth", 0)
        try:
            self._errors.process_spider_input(response)
        except HttpError as error:
            if request.errback is None:
                raise
            outcome = self._failed(request, error)
        else:
            callback = request.callback or self.spider._parse  # noqa: SLF001  # as Scrapy's engine
            outcome = callback(response, **request.cb_kwargs)
        async for one in _iterate_outcome(outcome):
            if (shaped := self.shaped(one, response, cut)) is not None:
                yield shaped

    async def failed(self, request: Request, error: Exception) -> AsyncIterator[Any]:
        """Yield what the spider's errback makes of a request that failed for good."""
        async for one in _iterate_outcome(self._failed(request, scrapy_error(error))):
            if one is not None:
                yield one

    def _failed(self, request: Request, error: Exception) -> Any:
        failure = Failure(error)  # type: ignore[no-untyped-call]  # Twisted has no types here
        failure.request = request  # type: ignore[attr-defined]  # where Scrapy puts it
        if request.errback is None:
            raise error
        outcome = request.errback(failure)
        if isinstance(outcome, Failure):
            outcome.raiseException()
        return outcome

    def mark(self, request: Request) -> str:
        """Return the fingerprint of a request by the settings of the project."""
        mark: bytes = self._fingerprinter.fingerprint(request)
        return mark.hex()[:24]

    @property
    def has_pipelines(self) -> bool:
        """Whether scraped items go through item pipelines."""
        return self._pipelines is not None

    async def processed(self, item: Any, where: str) -> Any:
        """Return a scraped item as the item pipelines leave it.

        Raises:
            SkipItem: a pipeline dropped it.
            UnexpectedShape: they returned something else than an item.
        """
        return item if self._pipelines is None else await self._pipelines.process(item, where)

    async def close(self, reason: str) -> None:
        """Close the item pipelines, then send the spider the signal that its run is over."""
        try:
            if self._pipelines is not None:
                await self._pipelines.close()
        finally:
            self._signal_end(reason)

    def _signal_end(self, reason: str) -> None:
        self._crawler.signals.send_catch_log(
            signal=signals.spider_closed, spider=self.spider, reason=reason
        )
        self._crawler.signals.send_catch_log(signal=signals.engine_stopped)


async def _iterate_outcome(outcome: Any) -> AsyncIterator[Any]:
    """Yield the results of a callback in any form that Scrapy allows."""
    if inspect.isawaitable(outcome):
        outcome = await outcome
    if isinstance(outcome, AsyncIterable):
        async for one in outcome:
            yield one
        return
    for one in arg_to_iter(outcome):
        yield one
