"""A source, or single pages, with a request chain and a log of the requests."""

from __future__ import annotations

import pydoc
import tempfile
import webbrowser
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborNode

from longline.config.job_spec import JobSpec, make_spec
from longline.config.secrets import SecretRef
from longline.config.settings import Settings, prepare_home
from longline.core.clock import Clock, SystemClock
from longline.core.errors import (
    BadOption,
    BudgetSpent,
    Deferred,
    DiscoveryFailed,
    FetchError,
    LonglineError,
    NotNow,
    UnexpectedShape,
)
from longline.core.model import Cursor, Item, Usage
from longline.core.redaction import SecretRedactor
from longline.core.threads import LoopThread
from longline.engine.collector import Collector
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.request_log import result_of
from longline.sources.base import Source, Visit
from longline.sources.loader import check_needs, merge_spec
from longline.wiring import Fetching, client_identity, open_fetching, torn_down, usable

NO_SOURCE = "page"
"""The source of a spec that is not about a source."""
_MAX_LEADING_PAGES = 10


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
        request, result = replace(self.request, url=redactor.text(self.request.url)), self.result
        if isinstance(result, FetchError):
            error = type(result)(*redactor.data(result.args))  # as pickle rebuilds it
            return replace(self, request=request, result=error)
        page = replace(
            result,
            url=redactor.text(result.url),
            headers=redactor.data(result.headers),
            body=redactor.body(result.body),
        )
        return replace(self, request=request, result=page)


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
        result = await result_of(self._inner, request, usage)
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

    last: Visit

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
    settings: Settings, spec: JobSpec, clock: Clock
) -> AsyncIterator[SourceSession]:
    """Open the chain of a source in a home, so that it shares the limits of real runs.

    Raises:
        ConfigError: the source cannot be used.
    """
    prepare_home(settings)
    kind, source = usable(spec)
    identity = client_identity(spec, kind)
    secrets = list(identity.auth.references()) if identity.auth else []
    hosts = identity.cookies.values() if isinstance(identity.cookies, Mapping) else ()
    secrets += [one for host in hosts for one in host.values() if isinstance(one, SecretRef)]
    async with torn_down(source), open_fetching(settings, spec, kind, clock) as fetching:
        log = ExchangeLog(fetching.chain, clock)
        yield SourceSession(
            spec,
            source,
            LastVisitCollector(source, log, clock, spec.params),
            fetching,
            log,
            SecretRedactor({one.read().get_secret_value() for one in secrets}),
        )


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
        yield ExchangeLog(_WithoutQueue(fetching.chain), clock)


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
        pages = _LeadingPages(session)
        stream = session.source.discover(visit)
        async for found in stream:
            async for item in pages.items(found):
                count += 1
                yield item
                if count >= limit:
                    return
    except LonglineError:
        raise
    except Exception as error:
        raise DiscoveryFailed(session.source.name, repr(error)) from error
    finally:
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()


class _LeadingPages:
    """Pages of a crawl, of which the first are read to find items."""

    def __init__(self, session: SourceSession) -> None:
        self._session = session
        self._left = _MAX_LEADING_PAGES
        self._known: set[str] = set()

    async def items(self, found: Item | Cursor) -> AsyncIterator[Item]:
        """Yield an item, or those that its page leads to if it is not one itself."""
        waiting = deque([found] if isinstance(found, Item) else ())
        while waiting:
            item = waiting.popleft()
            if item.key in self._known or any(one.most <= 0 for one in item.quotas):
                continue
            self._known.add(item.key)
            if not self._session.source.leads_on(item):
                yield item
            elif self._left > 0:
                self._left -= 1
                outcome = await self._session.collector.collect(item)
                await outcome.usage.settle()
                waiting.extend(sorted(outcome.found, key=lambda one: -one.priority))


# ---------------- Fetch pages at a Python prompt, within the limits of a home

_ANY_STATUS = frozenset(range(400, 600))
WORDS = {
    "page": "the response: page.status, page.headers, page.text, page.css(…)",
    "fetch(url)": "fetch another page as `page`; url may be relative to `page`",
    "css(selector)": "the elements that match",
    "text(selector)": "the text of each of them",
    "json": "the response as JSON; None when it is not JSON",
    "view()": "open the page in a web browser, as it was received",
    "help": "this list; help(thing) explains a Python object",
}
"""The names at the prompt."""


class Help:
    """The `help` of the prompt: lists its names; called with an object, explains it."""

    def __repr__(self) -> str:
        return "\n".join(f"  {name:16} {about}" for name, about in WORDS.items())

    def __call__(self, *things: Any) -> None:
        if things:
            pydoc.help(*things)
        else:
            print(self)  # noqa: T201  # the output of a prompt


class PageShell:
    """Fetches pages for code without an event loop.

    Args:
        settings: the home, whose limits apply.
        spec: the source whose settings apply, or NO_SOURCE.
        clock: the time.
        show: opens an address for the user.
    """

    def __init__(
        self,
        settings: Settings,
        spec: JobSpec,
        *,
        clock: Clock | None = None,
        show: Callable[[str], object] = webbrowser.open,
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._clock = clock or SystemClock()
        self._show = show
        self._ends = AsyncExitStack()
        self._link: ExchangeLog | None = None
        self.names: dict[str, Any] = {
            "fetch": self.fetch,
            "css": self.css,
            "text": self.text,
            "view": self.view,
            "help": Help(),
        }
        """The names at the prompt; `page` and `json` change with every page."""

    def __enter__(self) -> Self:
        self._loop = LoopThread("longline-shell")
        try:
            opening = open_page_chain(self._settings, self._spec, self._clock)
            self._link = self._loop.run(self._ends.enter_async_context(opening))
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self._loop.run(self._ends.aclose())
        finally:
            self._loop.close()

    @property
    def page(self) -> Page:
        """The last page.

        Raises:
            LookupError: none was fetched yet.
        """
        if "page" not in self.names:
            message = "no page was fetched; use fetch(url)"
            raise LookupError(message)
        page: Page = self.names["page"]
        return page

    def fetch(self, url: str) -> Page:
        """Fetch a page as `page`, with any status.

        Args:
            url: an address, or one that is relative to the last page.

        Raises:
            BadOption: it is not an http or https address.
            FetchError: there is no response, or robots.txt disallows the address.
        """
        assert self._link is not None  # noqa: S101  # the shell is open
        request = Request(self._resolve_url(url), accept=_ANY_STATUS)
        page = self._loop.run(self._link(request, Usage()))
        self.names["page"] = page
        try:
            self.names["json"] = page.json
        except UnexpectedShape:
            self.names["json"] = None
        return page

    def css(self, selector: str) -> list[LexborNode]:
        """Return the elements of the page that match."""
        return self.page.css(selector)

    def text(self, selector: str) -> list[str]:
        """Return the text of the elements that match."""
        return [" ".join(node.text(separator=" ").split()) for node in self.css(selector)]

    def view(self) -> str:
        """Open the page in a web browser, as it was received; return the address of the file."""
        page = self.page
        # With its address, so that relative links to styles and images work.
        base = f'<base href="{escape(page.url)}">'
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", suffix=".html", prefix="longline-", delete=False
        ) as file:
            file.write(f'<!DOCTYPE html><meta charset="utf-8">{base}\n{page.text}')
        address = Path(file.name).as_uri()
        self._show(address)
        return address

    def _resolve_url(self, url: str) -> str:
        last = self.names.get("page")
        try:
            address = urljoin(last.url, url.strip()) if last is not None else url.strip()
            parts = urlsplit(address)
        except ValueError as error:
            raise BadOption("URL", f"{url!r} is not a URL: {error}") from error
        if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
            problem = f"must be a full URL like https://example.org/a, not {url!r}"
            raise BadOption("URL", problem)
        return address
