"""Settings in, objects out: the one place that names a concrete backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from longline.config.identity import check_cookies, merge_headers
from longline.config.job_spec import BudgetSpec, JobSpec, make_spec
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import BadOption, LayerFailed, MissingExtra
from longline.engine.extractor import Collector
from longline.engine.tasks import note_teardown, tear_down
from longline.http.address_policy import AddressPolicy, JobStart
from longline.http.archive.base import Archive
from longline.http.archive.warc import open_warc
from longline.http.cache.base import HttpCache
from longline.http.cache.sqlite import SqliteCache
from longline.http.chain import ClientIdentity, Policies, build_chain
from longline.http.middleware.base import Middleware
from longline.http.middleware.identity import user_agent
from longline.http.middleware.subrequests import Subrequests
from longline.http.robots_rules import RobotsText, robots_agent
from longline.http.transports.aiohttp import (
    ConnectionLimit,
    HttpOptions,
    HttpTransport,
    Resolver,
    ssl_context,
)
from longline.http.transports.browser.manifest import BrowserSpec
from longline.http.transports.browser.options import BrowserOptions, is_remote
from longline.http.transports.browser.transport import BrowserTransport
from longline.http.transports.choosing import TransportChooser
from longline.limits.backends.base import BreakerBackend, ConcurrencyBackend, RateLimitBackend
from longline.limits.backends.cells import Cells
from longline.limits.backends.sqlite import (
    SqliteBreakerBackend,
    SqliteCells,
    SqliteConcurrencyBackend,
    SqliteFile,
    SqliteRateLimitBackend,
)
from longline.limits.budget import Budget, Budgets, Spent
from longline.limits.circuit import CircuitBreaker
from longline.limits.in_flight import ConcurrencyLimiter
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter, Refusals
from longline.limits.retry import RetryHandler
from longline.sources.api.source import Bookmark, Bookmarks
from longline.sources.base import Source
from longline.sources.loader import check_needs, load_source
from longline.storage.store import Store, open_store

_PATIENCE = 60.0  # seconds to wait for a Redis that is away


@dataclass(frozen=True, slots=True)
class LimitBackends:
    """Where the processes of one home share what they know of sites; unused ones cost nothing."""

    paces: RateLimitBackend
    breakers: BreakerBackend
    rooms: ConcurrencyBackend
    limits: Cells[Learned]
    robots: Cells[RobotsText]
    budgets: Cells[Spent]
    bookmarks: Cells[Bookmark]
    starts: Cells[JobStart]
    refusals: Cells[Refusals]


@asynccontextmanager
async def open_limit_backends(
    settings: Settings,
    clock: Clock,
    store: Store | None = None,
    *,
    patience: float | None = _PATIENCE,
    on_trouble: Callable[[str], None] = lambda _text: None,
    is_hasty: Callable[[], bool] = lambda: False,
) -> AsyncIterator[LimitBackends]:
    """Open what processes share: in a file of the home, or on the Redis that is set.

    Args:
        settings: name the Redis, if there is one.
        clock: what waits are measured by.
        store: the database that keeps what Redis may not forget; opened when not given.
        patience: seconds to wait for a Redis that is away; None: for as long as it takes.
        on_trouble: told that it is away, and that it is back.
        is_hasty: says that the process is to end: a Redis that is away has a few seconds left.
    """
    async with AsyncExitStack() as ends:
        if settings.redis is None:
            file = SqliteFile(settings.pace_file, clock)
            ends.push_async_callback(file.close)
            yield _in_file(file)
            return
        store = store or ends.enter_context(open_store(settings.database))
        try:
            from longline.limits.backends.redis import open_redis_backends  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("cluster", "Redis") from error
        shared = await ends.enter_async_context(
            open_redis_backends(
                settings.redis, clock, patience=patience, on_trouble=on_trouble, is_hasty=is_hasty
            )
        )
        yield LimitBackends(
            shared.paces,
            shared.breakers,
            shared.concurrency,
            store.cells("limits", Learned, clock),
            store.cells("robots", RobotsText, clock),
            store.cells("budget", Spent, clock),
            store.cells("bookmarks", Bookmark, clock),
            store.cells("starts", JobStart, clock),
            store.cells("refusals", Refusals, clock),
        )


def _in_file(file: SqliteFile) -> LimitBackends:
    return LimitBackends(
        SqliteRateLimitBackend(file),
        SqliteBreakerBackend(file),
        SqliteConcurrencyBackend(file),
        SqliteCells(file, "limits", Learned),
        SqliteCells(file, "robots", RobotsText),
        SqliteCells(file, "budget", Spent),
        SqliteCells(file, "bookmarks", Bookmark),
        SqliteCells(file, "starts", JobStart),
        SqliteCells(file, "refusals", Refusals),
    )


@dataclass(frozen=True, slots=True)
class SharedHttp:
    """What the request chains of all jobs in a process share."""

    backends: LimitBackends
    connections: ConnectionLimit
    resolver: Resolver


@asynccontextmanager
async def open_shared_http(
    settings: Settings, clock: Clock, store: Store | None = None, **redis: Any
) -> AsyncIterator[SharedHttp]:
    """Open what the request chains of a process share; `redis` is as for `open_limit_backends`."""
    async with open_limit_backends(settings, clock, store, **redis) as backends:
        resolver = Resolver()
        try:
            yield SharedHttp(backends, ConnectionLimit(), resolver)
        finally:
            await resolver.close()


@asynccontextmanager
async def open_archive(settings: Settings) -> AsyncIterator[Archive]:
    """Open the archived answers of a home."""
    async with open_warc(settings.archive, largest_file=settings.archive_file_bytes) as archive:
        yield archive


@contextmanager
def open_cache(settings: Settings) -> Iterator[HttpCache]:
    """Open the HTTP cache of a home."""
    with closing(SqliteCache(settings.cache_file, settings.cache_bytes)) as cache:
        yield cache


@dataclass(frozen=True, slots=True)
class Fetching:
    """The request chain of one run, and the policies whose state people want to see."""

    link: Middleware
    limiter: RateLimiter
    breaker: CircuitBreaker
    rate: float | Literal["auto"] | None
    budgets: Budgets | None = None
    bookmarks: Bookmarks | None = None


@asynccontextmanager
async def open_fetching(
    settings: Settings,
    spec: JobSpec,
    source: type[Source],
    clock: Clock,
    transport: Middleware | None = None,
    *,
    job: str = "",
    shared: SharedHttp | None = None,
    since: float | None = None,
) -> AsyncIterator[Fetching]:
    """Build the request chain for one run of a job; `transport` replaces HTTP in simulations.

    `shared` is what other jobs in this process use; without it, the chain has its own. `since` is
    when the run began, if it was not now.
    """
    rate = source.rate if spec.rate is None else None if spec.rate == "unlimited" else spec.rate
    async with AsyncExitStack() as ends:
        if shared is None:
            shared = await ends.enter_async_context(open_shared_http(settings, clock))
        backends = shared.backends
        limiter = RateLimiter(
            rate,
            spec.burst or source.burst,
            clock=clock,
            backend=backends.paces,
            learned=backends.limits,
            heeds_pins=spec.rate in (None, "auto"),  # what is said for this job counts more
        )
        breaker = CircuitBreaker(clock=clock, backend=backends.breakers)
        budgets = _budgets(spec, job, backends, clock, since)
        addresses = None
        if transport is None:
            addresses = AddressPolicy(
                private_hosts_of(settings, spec, source),
                starts=backends.starts,
                job=job,
                resolver=shared.resolver,
            )
            options = _http_options(settings, spec, source, has_limit=rate is not None)
            http = HttpTransport(options, clock, addresses, shared.resolver)
            ends.push_async_callback(http.close)
            transport = http
            if source.transport != "http":
                values = source.with_options(spec.options).options.model_dump()
                wanted = BrowserSpec.model_validate(source.browser or {}).filled(values)
                browser = _browser(
                    settings,
                    wanted,
                    options=options,
                    turn=Subrequests(
                        limiter,
                        breaker,
                        budgets,
                        addresses,
                        is_remote=is_remote(settings.chromium),
                    ),
                    addresses=addresses,
                    clock=clock,
                    keeps_cookies=(source.cookies if spec.cookies is None else spec.cookies)
                    is not False,
                )
                ends.push_async_callback(browser.close)
                transport = TransportChooser(http, browser)
        cache, archive = None, None
        if source.cache if spec.cache is None else spec.cache:
            cache = ends.enter_context(open_cache(settings))
        if spec.archive:
            archive = await ends.enter_async_context(open_archive(settings))
        policies = Policies(
            limiter,
            breaker,
            RetryHandler(circuit_breaker_threshold=None, jitter=0.1, clock=clock),
            frozenset(spec.ignore_robots),
            identity=client_identity(spec, source),
            robots=backends.robots,
            budgets=budgets,
            cache=cache,
            archive=archive,
            job=job,
            concurrency_limiter=_concurrency_limiter(
                spec.max_in_flight or source.max_in_flight, backends, clock
            ),
            connections=shared.connections,
            refusals=backends.refusals,
            addresses=addresses,
            agent=robots_agent(user_agent_of(settings)),
        )
        link = build_chain(transport, policies, clock, ends)
        bookmarks = Bookmarks(backends.bookmarks)
        yield Fetching(link, limiter, breaker, rate, budgets, bookmarks)


def _browser(
    settings: Settings,
    wanted: BrowserSpec,
    *,
    options: HttpOptions,
    turn: Subrequests,
    clock: Clock,
    keeps_cookies: bool,
    addresses: AddressPolicy,
) -> BrowserTransport:
    """Return a browser whose pages take turns for every host they ask by themselves."""
    return BrowserTransport(
        BrowserOptions(
            folder=settings.home / "browsers",
            spec=wanted,
            chromium=settings.chromium,
            failures=settings.home / "failures",
            user_agent=options.user_agent,
            keeps_cookies=keeps_cookies,
            addresses=addresses,
        ),
        clock,
        turn,
    )


def client_identity(spec: JobSpec, source: type[Source]) -> ClientIdentity:
    """Return how a run presents itself: what the job says, and else the source.

    Raises:
        BadOption: what the source says about itself does not fit.
        UnknownSecret: a secret that is referred to cannot be read.
    """
    own = make_spec(
        {
            "source": source.name,
            "headers": source.headers,
            "cookies": source.cookies,
            "auth": source.auth,
        }
    )
    cookies = own.cookies if spec.cookies is None else spec.cookies
    auth = spec.auth or own.auth
    check_cookies(cookies)
    if auth is not None:
        auth.check()
        if auth.kind == "login" and cookies is False:
            raise BadOption("cookies", "a login needs them: leave out `cookies: false`")
    return ClientIdentity(
        headers=merge_headers(own.headers, spec.headers),
        cookies=True if cookies is None else cookies,
        auth=auth,
        expects=tuple(source.expects),
    )


def ca_file_of(settings: Settings, spec: JobSpec, source: type[Source]) -> Path | None:
    """Return the file of the certificate authorities that a run trusts beside the system's.

    Raises:
        BadOption: it cannot be used.
    """
    file = spec.ca_file or source.ca_file or settings.ca_file
    ssl_context(file)
    return None if file is None else Path(file)


def private_hosts_of(settings: Settings, spec: JobSpec, source: type[Source]) -> tuple[str, ...]:
    """Return the hosts that may be reached at private addresses, whoever lists them.

    Raises:
        BadOption: the source lists something else.
    """
    own = make_spec({"source": source.name, "private_hosts": source.private_hosts})
    return (*settings.private_hosts, *spec.private_hosts, *own.private_hosts)


def _concurrency_limiter(
    max_in_flight: int | None, backends: LimitBackends, clock: Clock
) -> ConcurrencyLimiter | None:
    return (
        None
        if max_in_flight is None
        else ConcurrencyLimiter(max_in_flight, clock=clock, backend=backends.rooms)
    )


def _budgets(
    spec: JobSpec, job: str, backends: LimitBackends, clock: Clock, since: float | None
) -> Budgets | None:
    total, per_domain = _budget(spec.budget), _budget(spec.budget_per_domain)
    if total.is_empty and per_domain.is_empty:
        return None
    return Budgets(job, backends.budgets, clock, total=total, per_domain=per_domain, since=since)


def _budget(spec: BudgetSpec) -> Budget:
    return Budget(spec.requests, spec.bytes, spec.seconds)


def _http_options(
    settings: Settings, spec: JobSpec, source: type[Source], *, has_limit: bool
) -> HttpOptions:
    return HttpOptions(
        ca_file=ca_file_of(settings, spec, source),
        has_limit=has_limit,
        timeout=spec.timeout or settings.timeout,
        user_agent=user_agent_of(settings),
    )


def user_agent_of(settings: Settings) -> str:
    """Return how we present ourselves to sites.

    Raises:
        BadOption: the contact is not one.
    """
    if settings.user_agent:
        return settings.user_agent
    try:
        return user_agent(version("longline"), settings.contact)
    except BadOption as error:
        raise BadOption("LONGLINE_CONTACT", error.problem) from error


def usable(spec: JobSpec, chromium: str | None = None) -> tuple[type[Source], Source]:
    """Return a source, its class first; what it lacks is told now, not at the first request."""
    kind = load_source(spec.source, spec.manifest)
    source = kind.with_options(spec.options)
    check_needs(kind, chromium)
    client_identity(spec, kind)
    ssl_context(spec.ca_file or kind.ca_file)
    return kind, source


@asynccontextmanager
async def open_collector(
    settings: Settings,
    spec: JobSpec,
    clock: Clock,
    store: Store,
    *,
    job: str = "",
    transport: Middleware | None = None,
    shared: SharedHttp | None = None,
    since: float | None = None,
    on_trouble: Callable[[str], None] = lambda _text: None,
) -> AsyncIterator[tuple[Collector, Fetching]]:
    """Open a source with the request chain of one job, ready to collect items.

    What tearing it down raises is told to the job's journal and `on_trouble`, and ends nothing; nor
    does it go on for ever.
    """

    async def told(raised: str) -> None:
        on_trouble(await note_teardown(store, job, clock, source=kind.name, raised=raised))

    kind = load_source(spec.source, spec.manifest)
    source: Source = kind.with_options(spec.options)
    async with AsyncExitStack() as ends:
        if shared is None:
            shared = await ends.enter_async_context(open_shared_http(settings, clock, store))
        await ends.enter_async_context(torn_down(source, told))
        fetching = await ends.enter_async_context(
            open_fetching(
                settings,
                spec,
                kind,
                clock,
                transport,
                job=job,
                shared=shared,
                since=since,
            )
        )
        source.bookmarks = fetching.bookmarks
        yield (
            Collector(
                source,
                fetching.link,
                clock,
                spec.params,
                bans=lambda key: store.failure_log.bans(job, key),
            ),
            fetching,
        )


@asynccontextmanager
async def torn_down(
    source: Source, told: Callable[[str], Awaitable[None]] | None = None
) -> AsyncIterator[None]:
    """Tear the source down at the end, whatever the end is; `told` hears what that raised.

    Raises:
        LayerFailed: it raised something, and there is nobody to tell.
    """
    try:
        yield
    finally:
        raised = await tear_down(source)
        if raised is not None:
            if told is None:
                raise LayerFailed("teardown", raised)
            await told(raised)
