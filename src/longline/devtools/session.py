"""A source with its request chain, for developer tools, and a log of its requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from longline.config.job_spec import JobSpec, make_spec
from longline.config.secrets import SecretRef
from longline.config.settings import Settings, prepare_home
from longline.core.clock import Clock
from longline.core.errors import (
    BudgetSpent,
    Deferred,
    DiscoveryFailed,
    FetchError,
    LonglineError,
    NotNow,
)
from longline.core.model import Item, Usage
from longline.core.redaction import SecretRedactor
from longline.engine.extractor import Collector
from longline.http.chain import ClientIdentity
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.transports.browser.page import BrowserPage
from longline.sources.base import Source, Visit
from longline.sources.loader import check_needs, merge_spec
from longline.wiring import Fetching, client_identity, open_fetching, torn_down, usable

NO_SOURCE = "page"
"""The source of a spec that is not about a source."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of a source and its result.

    `requests` counts what was sent for it, with redirects, retries and robots.txt; 0 for a response
    from the cache. `waited` is the part of `seconds` that the rate limit took.
    """

    request: Request
    result: Page | FetchError
    at: float
    seconds: float
    requests: int = 0
    retries: int = 0
    waited: float = 0.0

    @property
    def status(self) -> int | None:
        """The status of the response; None without a response."""
        if isinstance(self.result, Page):
            return self.result.status
        return getattr(self.result, "status", None)

    @property
    def is_cached(self) -> bool:
        """Whether the response came from the cache."""
        return isinstance(self.result, Page) and (self.result.is_cached or not self.requests)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        is_page = isinstance(self.result, Page)
        return {
            "method": self.request.method,
            "url": self.request.url,
            "status": self.status,
            "bytes": len(self.result.body) if isinstance(self.result, Page) else None,
            "seconds": round(self.seconds, 3),
            "waited": round(self.waited, 3),
            "requests": self.requests,
            "cached": self.is_cached,
            "problem": None if is_page else str(self.result),
        }

    def redacted(self, redactor: SecretRedactor) -> Exchange:
        """Return it without secrets."""
        if redactor.is_empty:
            return self
        request = replace(self.request, url=redactor.text(self.request.url))
        return replace(self, request=request, result=_redact_result(self.result, redactor))


def _redact_result(result: Page | FetchError, redactor: SecretRedactor) -> Page | FetchError:
    if isinstance(result, FetchError):
        return type(result)(*redactor.data(result.args))  # as pickle rebuilds it
    changes = {
        "url": redactor.text(result.url),
        "headers": redactor.data(result.headers),
        "body": redactor.body(result.body),
    }
    if isinstance(result, BrowserPage):
        return replace(result, **changes, captured=redactor.data(result.captured))
    return replace(result, **changes)


class ExchangeLog(Middleware):
    """Logs each request and its result.

    `max_requests` refuses further requests once this many were sent; None is unlimited.
    """

    def __init__(self, inner: Middleware, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.max_requests: int | None = None
        self.exchanges: list[Exchange] = []
        self.is_exhausted = False

    async def __call__(self, request: Request, usage: Usage) -> Page:
        sent = sum(one.requests for one in self.exchanges)
        if self.max_requests is not None and sent >= self.max_requests:
            self.is_exhausted = True
            raise BudgetSpent(request.url, f"the budget of {self.max_requests} requests")
        requests, retries, waited = usage.requests, usage.retries, usage.waited
        started = self._clock.now()
        result: Page | FetchError
        try:
            result = await self._inner(request, usage)
        except FetchError as error:
            result = error
        self.exchanges.append(
            Exchange(
                request,
                result,
                started,
                self._clock.now() - started,
                usage.requests - requests,
                usage.retries - retries,
                usage.waited - waited,
            )
        )
        if isinstance(result, FetchError):
            raise result
        return result

    def take(self) -> list[Exchange]:
        """Return the log and empty it."""
        taken, self.exchanges = self.exchanges, []
        return taken


class NoSource(Source):
    """A placeholder where a chain needs the settings of a source."""

    name = NO_SOURCE


class NoSourceInBrowser(NoSource):
    """The same, for pages that a browser renders."""

    transport = "browser"


class LastVisitCollector(Collector):
    """Keeps the last visit: when an item fails, only its visit has the origins of its fields."""

    last: Visit | None = None

    def visit(self, item: Item | None = None, cursor: Mapping[str, Any] | None = None) -> Visit:
        self.last = super().visit(item, cursor)
        return self.last


@dataclass(frozen=True, slots=True)
class SourceSession:
    """A source that can be run item by item, and the log of its requests."""

    spec: JobSpec
    source: Source
    collector: LastVisitCollector
    fetching: Fetching
    log: ExchangeLog
    redactor: SecretRedactor


def session_spec(source: str, params: Mapping[str, Any] | None = None) -> JobSpec:
    """Return the spec of a run of a source; `params` by the names of JobSpec.

    Raises:
        ConfigError: a file is broken, a name unknown, or a value does not fit.
    """
    return merge_spec(make_spec({"source": source}), source, params or {})


@asynccontextmanager
async def open_session(
    settings: Settings, spec: JobSpec, clock: Clock, *, transport: Middleware | None = None
) -> AsyncIterator[SourceSession]:
    """Open the chain of a source in a home, so that it shares the limits of real runs.

    Raises:
        ConfigError: the source cannot be used.
    """
    prepare_home(settings)
    kind, source = usable(spec)
    async with (
        torn_down(source),
        open_fetching(settings, spec, kind, clock, transport) as fetching,
    ):
        log = ExchangeLog(fetching.link, clock)
        yield SourceSession(
            spec,
            source,
            LastVisitCollector(source, log, clock, spec.params),
            fetching,
            log,
            _redactor(kind, client_identity(spec, kind)),
        )


def _redactor(source: type[Source], identity: ClientIdentity) -> SecretRedactor:
    """Return a redactor of all secrets that a source, or the job, refers to."""
    references = [*source.needs.secrets, *(identity.auth.references() if identity.auth else ())]
    hosts = identity.cookies.values() if isinstance(identity.cookies, Mapping) else ()
    references += [one for host in hosts for one in host.values() if isinstance(one, SecretRef)]
    return SecretRedactor({one.read().get_secret_value() for one in references})


@asynccontextmanager
async def open_page_chain(
    settings: Settings,
    spec: JobSpec,
    clock: Clock,
    *,
    transport: Literal["http", "browser"] = "http",
) -> AsyncIterator[ExchangeLog]:
    """Open a chain for single pages, with the settings of a source or, for NO_SOURCE, the defaults.

    With `transport` browser, NO_SOURCE can render pages.

    Raises:
        ConfigError: the source cannot be used.
    """
    prepare_home(settings)
    no_source = NoSourceInBrowser if transport == "browser" else NoSource
    kind = no_source if spec.source == NO_SOURCE else usable(spec)[0]
    check_needs(kind, settings.chromium)
    async with open_fetching(settings, spec, kind, clock) as fetching:
        yield ExchangeLog(_WithoutQueue(fetching.link), clock)


class _WithoutQueue(Middleware):
    """Says that a page cannot be fetched now: there is no job to fetch it later."""

    def __init__(self, inner: Middleware) -> None:
        self._inner = inner

    async def __call__(self, request: Request, usage: Usage) -> Page:
        try:
            return await self._inner(request, usage)
        except Deferred as error:
            raise NotNow(
                error.url, error.until, error.problem, error.kind, error.is_for_domain
            ) from error


async def find_items(session: SourceSession, limit: int, visit: Visit) -> AsyncIterator[Item]:
    """Yield the first items that a source discovers.

    Raises:
        LonglineError: discovery failed; any other error of a source becomes a DiscoveryFailed.
    """
    stream = None
    try:
        await session.source.prepare(visit)
        count = 0
        stream = session.source.discover(visit)
        async for found in stream:
            if isinstance(found, Item):
                count += 1
                yield found
            if count >= limit:
                return
    except LonglineError:
        raise
    except Exception as error:
        raise DiscoveryFailed(session.source.name, repr(error)) from error
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
