"""A spider with the parts of Scrapy that shape its requests and items, without Scrapy's engine."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from http.cookiejar import Cookie
from typing import Any, TypeVar

from itemadapter import ItemAdapter
from pydispatch import dispatcher
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.downloadermiddlewares.redirect import MetaRefreshMiddleware, RedirectMiddleware
from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    DropItem,
    IgnoreRequest,
    NotConfigured,
    ResponseDataLossError,
    ScrapyDeprecationWarning,
)
from scrapy.http import Headers, Response
from scrapy.http.cookies import CookieJar
from scrapy.pipelines import ItemPipelineManager
from scrapy.pipelines.files import FilesPipeline
from scrapy.pipelines.images import ImagesPipeline
from scrapy.pipelines.media import MediaPipeline
from scrapy.responsetypes import responsetypes
from scrapy.settings import Settings
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.spidermiddlewares.httperror import HttpError, HttpErrorMiddleware
from scrapy.spidermiddlewares.referer import RefererMiddleware
from scrapy.spidermiddlewares.urllength import UrlLengthMiddleware
from scrapy.utils.conf import build_component_list
from scrapy.utils.httpobj import urlparse_cached
from scrapy.utils.misc import arg_to_iter, build_from_crawler, load_object
from scrapy.utils.project import get_project_settings
from scrapy.utils.python import global_object_name
from twisted.python.failure import Failure

from longline.core.errors import (
    BadSource,
    BadStatus,
    ConnectFailed,
    RobotsUnreachable,
    SkipItem,
    UnexpectedShape,
)
from longline.http.errors import BadAnswer, BodyCut, RobotsDisallowed, TimedOut
from longline.http.messages import FileWish, Page
from longline.http.middleware.identity import is_public_suffix
from longline.limits.retry import RETRIED_STATUSES
from longline.sources.base import Visit

_ERRORS = frozenset(range(400, 600))
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHAIN_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "proxy-authorization"}
)
_COOKIE_FIELDS = (
    *("version", "name", "value", "port", "port_specified", "domain", "domain_specified"),
    *("domain_initial_dot", "path", "path_specified", "secure", "expires", "discard"),
    *("comment", "comment_url", "rfc2109"),
)
_COMPONENTS = {
    "SPIDER_MIDDLEWARES": "spider middleware",
    "DOWNLOADER_MIDDLEWARES": "downloader middleware",
    "EXTENSIONS": "extension",
}
_REPLACED = {
    "ADDONS": "its add-ons",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "use --concurrency",
    "DOWNLOAD_HANDLERS": "requests go through longline",
    "DOWNLOADER": "requests go through longline",
    "DUPEFILTER_CLASS": "requests are deduplicated by their fingerprint",
    "FEEDS": "use `longline export`",
    "HTTPCACHE_ENABLED": "use --cache",
    "ITEM_PROCESSOR": "item pipelines run in their order",
    "RETRY_TIMES": "use --retries",
    "SCHEDULER": "requests are queued by longline",
}
"""Settings without effect, and their replacement."""
_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_CALLED = frozenset({"get_media_requests", "item_completed"})
_NOT_CALLED = (frozenset(dir(ImagesPipeline)) | {"close_spider", "from_settings"}) - _CALLED
"""Names of pipelines for files that Scrapy calls or reads, and longline does not."""
_IMAGE_LIMITS = ("MIN_HEIGHT", "MIN_WIDTH", "THUMBS")
_SENT_SIGNALS = (
    *(signals.spider_opened, signals.engine_started),
    *(signals.spider_closed, signals.engine_stopped),
)
_current_visit: ContextVar[Visit] = ContextVar("_current_visit")
Prepare = Callable[[Request], Request]
Cut = Callable[[str], None]
"""Receives the reason why a request was left out."""


def headers_to_send(request: Request) -> dict[str, str]:
    """Return the headers of a request, except headers that the chain sets."""
    pairs = ((name.decode("latin-1"), values) for name, values in request.headers.items())
    return {
        name: b", ".join(values).decode("latin-1")
        for name, values in pairs
        if name.lower() not in _CHAIN_HEADERS
    }


def response_of(page: Page, request: Request) -> Response:
    """Return a page as the type of response that Scrapy would make."""
    headers = Headers()
    for name, value in page.headers.items():
        headers.appendlist(name, value)
    headers.pop("Content-Encoding", None)  # the body is decompressed already
    kind = responsetypes.from_args(headers=headers, url=page.url, body=page.body)
    request.meta["download_latency"] = page.seconds
    return kind(url=page.url, status=page.status, headers=headers, body=page.body, request=request)


def _scrapy_error(error: Exception) -> Exception:
    """Return the error that an errback expects; the original is its cause."""
    cause = (error.__cause__ or error) if isinstance(error, RobotsUnreachable) else error
    converted: Exception
    match cause:
        case BadStatus():
            converted = HttpError(Response(cause.url, status=cause.status), str(error))
        case RobotsDisallowed():
            converted = IgnoreRequest(str(error))
        case TimedOut():
            converted = DownloadTimeoutError(str(error))
        case BodyCut():
            converted = ResponseDataLossError(str(error))
        case ConnectFailed():
            converted = DownloadConnectionRefusedError(str(error))
        case _:
            converted = DownloadFailedError(str(error))
    converted.__cause__ = error
    return converted


class Jars(CookiesMiddleware):
    """Scrapy's cookie jars, which can be stored as JSON.

    Public suffixes are those of longline, since Scrapy downloads its list of them.
    """

    def _process_cookies(
        self, cookies: Iterable[Cookie], *, jar: CookieJar, request: Request
    ) -> None:
        host = urlparse_cached(request).hostname or ""
        for cookie in cookies:
            domain = cookie.domain.removeprefix(".")
            if domain and is_public_suffix(domain):
                if domain != host:
                    continue
                cookie.domain = host
            jar.set_cookie_if_ok(cookie, request)

    def stored(self, request: Request) -> list[dict[str, Any]]:
        """Return the cookies of a request's jar as JSON, to be stored with its item."""
        jar = self.jars[request.meta.get("cookiejar")].jar
        return [{name: getattr(one, name) for name in _COOKIE_FIELDS} for one in jar]

    def restore(self, request: Request, stored: list[dict[str, Any]]) -> None:
        """Restore the cookies of an earlier process, unless newer ones are known."""
        jar = self.jars[request.meta.get("cookiejar")].jar
        known = {(one.domain, one.path, one.name) for one in jar}
        for cookie in stored:
            if (cookie["domain"], cookie["path"], cookie["name"]) not in known:
                jar.set_cookie(Cookie(**cookie, rest={}))


def settings_of(kind: type[Spider]) -> Settings:
    """Return the settings of a spider in its project; raise BadSource if they are broken."""
    try:
        settings = get_project_settings()
        kind.update_settings(settings)
    except Exception as error:
        problem = f"the settings of its project are broken: {type(error).__name__}: {error}"
        raise BadSource(kind.__name__, problem) from error
    return settings


def _is_changed(settings: Settings, name: str) -> bool:
    """Return whether the project changes a setting: Scrapy's defaults have the priority 0."""
    return bool(settings.getpriority(name))


def parts_not_run(settings: Settings, kind: type[Spider]) -> Iterator[str]:
    """Yield the parts of a project that do not run, each with its kind."""
    for name, word in _COMPONENTS.items():
        usual = {_component_name(one) for one in settings.getdict(f"{name}_BASE")}
        given = settings.getdict(name)
        named = (_component_name(one) for one, order in given.items() if order is not None)
        yield from (f"{word} {one}" for one in named if one not in usual)
    for one in _pipeline_classes(settings, kind):
        if issubclass(one, FilesPipeline):
            yield from _file_parts_not_run(settings, one)
        elif issubclass(one, MediaPipeline):
            name = _component_name(one)
            yield f"item pipeline {name}, which needs Scrapy's engine to download files"
    for name, instead in _REPLACED.items():
        if _is_changed(settings, name) and settings.get(name):
            yield f"setting {name} ({instead})"
    if getattr(kind, "http_user", None) or getattr(kind, "http_pass", None):
        yield "HTTP authentication by http_user (use `auth` in a job file)"


def _file_parts_not_run(settings: Settings, kind: type[FilesPipeline]) -> Iterator[str]:
    name, is_image = _component_name(kind), issubclass(kind, ImagesPipeline)
    for method in sorted(_own_names(kind) & _NOT_CALLED):
        if method == "__init__" or (method[:2] != "__" and callable(getattr(kind, method))):
            yield f"{method} of item pipeline {name} (longline stores its files)"
    for limit in _IMAGE_LIMITS if is_image else ():
        if limit in _own_names(kind) and getattr(kind, limit):
            yield f"{limit} of item pipeline {name} (images are stored as they are)"
        for setting in (f"IMAGES_{limit}", f"{kind.__name__.upper()}_IMAGES_{limit}"):
            if _is_changed(settings, setting) and settings.get(setting):
                yield f"setting {setting} (images are stored as they are)"
    store = "IMAGES_STORE" if is_image else "FILES_STORE"
    if settings.get(store):
        yield f"setting {store} (files are stored in the home, or in LONGLINE_FILES)"


def _own_names(kind: type) -> set[str]:
    """Return the names that the project's classes of a pipeline define."""
    own = (one for one in kind.__mro__ if not one.__module__.startswith(("scrapy.", "builtins")))
    return {name for one in own for name in vars(one)}


def _component_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else global_object_name(kind)


def _pipeline_classes(settings: Settings, kind: type[Spider]) -> list[type]:
    try:
        numbered = settings.get_component_priority_dict_with_base("ITEM_PIPELINES")
        return [load_object(one) for one in build_component_list(numbered)]
    except Exception as error:  # modules of the project, which may raise anything
        problem = f"its item pipelines cannot be used: {type(error).__name__}: {error}"
        raise BadSource(kind.__name__, problem) from error


def _build_components(
    kinds: Iterable[type],
    crawler: Crawler,
    build: Callable[[type, Crawler], Any] = build_from_crawler,
) -> list[Any]:
    built = []
    for kind in kinds:
        try:
            built.append(build(kind, crawler))
        except NotConfigured as error:
            if error.args:  # without a reason, a setting disables it
                _log.warning("%s is disabled: %s", _component_name(kind), error)
    return built


class _FileStage:
    """An item pipeline that downloads files through longline, in place of one of Scrapy.

    Of the original, `get_media_requests` and `item_completed` are called; what else it needs of
    Scrapy's engine, such as its store, does not exist.
    """

    def __init__(self, kind: type[FilesPipeline], crawler: Crawler, prepare: Prepare) -> None:
        settings = crawler.settings
        self._is_image = issubclass(kind, ImagesPipeline)
        names = ("IMAGES", "ImagesPipeline") if self._is_image else ("FILES", "FilesPipeline")
        prefix, base = names
        self._pipeline: Any = kind.__new__(kind)

        def setting(name: str) -> Any:
            key = self._pipeline._key_for_pipe(name, base, settings)  # noqa: SLF001  # its own names
            own = getattr(kind, name, getattr(kind, f"DEFAULT_{name}", None))
            return settings.get(key, own)

        if not setting(f"{prefix}_STORE"):
            raise NotConfigured(f"{prefix}_STORE is not set")
        self._field = str(setting(f"{prefix}_URLS_FIELD"))
        setattr(self._pipeline, f"{prefix.lower()}_urls_field", self._field)
        result = setting(f"{prefix}_RESULT_FIELD")
        setattr(self._pipeline, f"{prefix.lower()}_result_field", result)
        self._pipeline.crawler = crawler
        assert crawler.spider is not None  # noqa: S101  # pipelines are built after the spider
        self._info = self._pipeline.spiderinfo = MediaPipeline.SpiderInfo(crawler.spider)
        self._prepare = prepare

    async def process_item(self, item: Any) -> Any:
        """Download the files of an item, and return it with what refers to them."""
        requests = list(arg_to_iter(self._pipeline.get_media_requests(item, self._info)))
        results = [await self._download(number, one) for number, one in enumerate(requests)]
        completed = self._pipeline.item_completed(results, item, self._info)
        return await completed if inspect.isawaitable(completed) else completed

    async def _download(self, number: int, request: Request) -> tuple[bool, Any]:
        field = f"{self._field}[{number}]"
        values = {
            "file": FileWish(is_image=self._is_image),
            "headers": headers_to_send(self._prepare(request)),
        }
        visit = _current_visit.get()
        if request.method != "GET" or request.body:
            problem = f"files are requested with GET and without a body, not with {request.method}"
            visit.warn(f"not supported: {problem}")
            visit.note(field, f"the file was not stored: {problem}")
            return False, Failure(IgnoreRequest(problem))  # type: ignore[no-untyped-call]  # no types
        file = await visit.download_with_digests(request.url, field, request=values)
        if file is None:
            reason = next(note.text for note in reversed(visit.notes) if note.field == field)
            failure = Failure(IgnoreRequest(reason))  # type: ignore[no-untyped-call]  # no types
            return False, failure
        place = file.get("path") or file.get("url")
        status = "uptodate" if file["is_cached"] else "downloaded"
        about = {name: file[name] for name in ("sha256", "bytes", "type")}
        return True, {
            "url": request.url,
            "path": place,
            "checksum": file["md5"],
            "status": status,
            **about,
        }


class _Pipelines:
    """The item pipelines of one spider in one process, opened with the first item."""

    def __init__(self, crawler: Crawler, kinds: list[type], prepare: Prepare) -> None:
        def build(kind: type, crawler: Crawler) -> Any:
            try:
                if issubclass(kind, FilesPipeline):
                    return _FileStage(kind, crawler, prepare)
                return build_from_crawler(kind, crawler)
            except NotConfigured:
                raise
            except Exception as error:  # the project's code, which may raise anything
                problem = f"its item pipeline {_component_name(kind)} cannot be created: "
                problem += f"{type(error).__name__}: {error}"
                raise BadSource(crawler.spidercls.__name__, problem) from error

        with warnings.catch_warnings():
            # Deprecation warnings concern `scrapy crawl`.
            warnings.simplefilter("ignore", ScrapyDeprecationWarning)
            built = _build_components(kinds, crawler, build)
            self._manager = ItemPipelineManager(*built, crawler=crawler)
        self._opening = asyncio.Lock()
        self._is_open = False
        self._failure: Exception | None = None

    async def process(self, item: Any, visit: Visit) -> Any:
        """Return an item as the pipelines leave it; raise SkipItem if one dropped it."""
        _current_visit.set(visit)
        async with self._opening:
            if self._failure is not None:
                raise self._failure  # some may be open already
            if not self._is_open:
                try:
                    await self._manager.open_spider_async()
                except Exception as error:
                    self._failure = error
                    raise
                self._is_open = True
        try:
            result = await self._manager.process_item_async(item)
        except DropItem as error:
            raise SkipItem(f"dropped by an item pipeline: {error}") from error
        if not ItemAdapter.is_item(result):
            problem = f"the item pipelines returned a {type(result).__name__}, which is not an item"
            raise UnexpectedShape(visit.item.url, problem)
        return result

    async def close(self) -> None:
        """Close what was opened."""
        if self._is_open:
            self._is_open = False
            await self._manager.close_spider_async()


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
        self._redirects = _build_components((RedirectMiddleware, MetaRefreshMiddleware), crawler)
        shaping = (UrlLengthMiddleware, RefererMiddleware, DepthMiddleware)
        self._shaping = _build_components(shaping, crawler)
        self._errors = HttpErrorMiddleware.from_crawler(crawler)
        # Other media pipelines need Scrapy's engine.
        enabled = _pipeline_classes(settings, kind)
        pipelines = [
            one
            for one in enabled
            if issubclass(one, FilesPipeline) or not issubclass(one, MediaPipeline)
        ]
        self.pipelines = _Pipelines(crawler, pipelines, self.prepared) if pipelines else None
        crawler.spider_middlewares = [*self._shaping, self._errors]
        crawler.signals.send_catch_log(signal=signals.spider_opened, spider=self.spider)
        crawler.signals.send_catch_log(signal=signals.engine_started)

    async def start(self, cut: Cut) -> AsyncIterator[Any]:
        """Yield the start requests and items of the spider."""
        start: Callable[[], Any] = self.spider.start
        if type(self.spider).start is Spider.start:  # spiders for Scrapy before 2.13
            start = getattr(self.spider, "start_requests", start)
        async for one in _iterate_outcome(start()):
            if isinstance(one, Request):
                one.meta.setdefault("is_start_request", True)
            if (shaped := self._shaped(one, None, cut)) is not None:
                yield shaped

    def _shaped(self, one: Any, response: Response | None, cut: Cut) -> Any:
        """Return a request or item after the spider middlewares; None when it is left out.

        A request that a limit of the project's settings leaves out is reported to `cut`.
        """
        if not isinstance(one, Request):
            return one
        for part in self._shaping:
            one = part.get_processed_request(one, response)
            if one is None:
                name = "DEPTH_LIMIT" if isinstance(part, DepthMiddleware) else "URLLENGTH_LIMIT"
                cut(f"requests beyond {name} ({self._settings.getint(name)}) were left out")
                return None
        return one if self.is_allowed(one) else None

    def unused_limits(self) -> list[str]:
        """Return the settings that would have ended the spider early under Scrapy itself."""
        names = (name for name in self._settings if str(name).startswith("CLOSESPIDER_"))
        return [str(name) for name in names if self._settings.getfloat(name)]

    def unsent_signals(self) -> list[str]:
        """Return the signals of Scrapy that the project receives there, but not here."""
        return [
            name
            for name, signal in vars(signals).items()
            if type(signal) is object and signal not in _SENT_SIGNALS and self._has_receiver(signal)
        ]

    def _has_receiver(self, signal: object) -> bool:
        found = dispatcher.getAllReceivers(self._crawler.signals.sender, signal)
        modules = (getattr(one, "__module__", "") for one in dispatcher.liveReceivers(found))
        return any(not str(one).startswith("scrapy.") for one in modules)

    def is_allowed(self, request: Request) -> bool:
        """Return whether a request is within the allowed domains."""
        try:
            self._offsite.process_request(request)
        except IgnoreRequest:
            return False
        return True

    def prepared(self, request: Request) -> Request:
        """Return a copy of a request with default headers and cookies."""
        sent = request.copy()
        self._headers.process_request(sent)
        if _is_changed(self._settings, "USER_AGENT"):
            sent.headers.setdefault("User-Agent", self._settings["USER_AGENT"])
        if self.jars is not None:
            self.jars.process_request(sent)
        return sent

    def timeout(self, request: Request) -> float | None:
        """Return the timeout of a request in seconds; None if the project sets none.

        That is `download_timeout` of the request or the spider, or DOWNLOAD_TIMEOUT.
        """
        own = request.meta.get("download_timeout", getattr(self.spider, "download_timeout", None))
        if own is None and _is_changed(self._settings, "DOWNLOAD_TIMEOUT"):
            own = self._settings.getfloat("DOWNLOAD_TIMEOUT")
        return float(own) if own else None

    def returned_statuses(self, request: Request) -> frozenset[int]:
        """Return the statuses that the chain returns instead of retrying or raising.

        They include redirects: Scrapy sends each hop through its duplicate filter.
        """
        meta = request.meta
        if meta.get("handle_httpstatus_all") or meta.get("dont_retry"):
            return _ERRORS | _REDIRECTS
        allowed = self._settings.getlist("HTTPERROR_ALLOWED_CODES")
        allowed = getattr(self.spider, "handle_httpstatus_list", allowed)
        allowed = meta.get("handle_httpstatus_list", allowed)
        return (_ERRORS - RETRIED_STATUSES) | _REDIRECTS | frozenset(map(int, allowed))

    def redirected(self, request: Request, response: Response) -> Request | None:
        """Return the request that a response redirects to; None if it does not."""
        for part in self._redirects:
            try:
                result = part.process_response(request, response)
            except IgnoreRequest as error:
                raise BadAnswer(request.url, str(error)) from error
            if isinstance(result, Request):
                return result
        return None

    async def callback_results(
        self, request: Request, response: Response, cut: Cut
    ) -> AsyncIterator[Any]:
        """Yield what the spider makes of a response; raise HttpError for an unhandled status."""
        response.meta.setdefault("depth", 0)
        try:
            self._errors.process_spider_input(response)
        except HttpError as error:
            outcome = _call_errback(request, error)
        else:
            callback = request.callback or self.spider._parse  # noqa: SLF001  # as Scrapy's engine
            outcome = callback(response, **request.cb_kwargs)
        async for one in _iterate_outcome(outcome):
            if (shaped := self._shaped(one, response, cut)) is not None:
                yield shaped

    async def errback_results(self, request: Request, error: Exception) -> AsyncIterator[Any]:
        """Yield what the spider's errback makes of a request that failed for good."""
        async for one in _iterate_outcome(_call_errback(request, _scrapy_error(error))):
            if one is not None:
                yield one

    def fingerprint(self, request: Request) -> str:
        """Return the fingerprint of a request by the settings of the project."""
        found: bytes = self._fingerprinter.fingerprint(request)
        return found.hex()[:24]

    async def close(self, reason: str) -> None:
        """Close the item pipelines, then send the spider the signal that its run is over."""
        send = self._crawler.signals.send_catch_log
        try:
            if self.pipelines is not None:
                await self.pipelines.close()
        finally:
            send(signal=signals.spider_closed, spider=self.spider, reason=reason)
            send(signal=signals.engine_stopped)


def _call_errback(request: Request, error: Exception) -> Any:
    if request.errback is None:
        raise error
    failure = Failure(error)  # type: ignore[no-untyped-call]  # Twisted has no types here
    failure.request = request  # type: ignore[attr-defined]  # where Scrapy puts it
    outcome = request.errback(failure)
    if isinstance(outcome, Failure):
        outcome.raiseException()
    return outcome


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
