"""Settings in, objects out: select the backends, transport and policies of a run."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from longline.config.identity import check_cookies, merge_headers
from longline.config.job_spec import BudgetSpec, JobSpec, RetrySpec, make_spec
from longline.config.plugins import BACKENDS, SUBSCRIBERS, load_plugin, plugin_names
from longline.config.proxies import ProxySpec, SessionSpec
from longline.config.settings import Settings
from longline.core.clock import Clock, SystemClock
from longline.core.errors import BadOption, ConfigError, LayerFailed, MissingExtra
from longline.core.model import Usage
from longline.engine.collector import Collector, note_teardown, tear_down
from longline.engine.deliveries import EventDeliveries
from longline.engine.owner import dead_among, this_run
from longline.engine.subscribers import OnResult, Subscription, ignore_result, plugin_subscription
from longline.engine.webhooks import WebhookSender
from longline.http.address_policy import AddressMiddleware, AddressPolicy, JobStart
from longline.http.archive.warc import Archive, open_warc
from longline.http.browser.manifest import BrowserOptions, BrowserSpec, is_remote
from longline.http.browser.transport import BrowserTransport, Subrequests
from longline.http.cache import HttpCache
from longline.http.chain import ClientIdentity, Policies, build_chain
from longline.http.files.store import FileStore, FolderStore, KnownFile
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.files import FileStorage
from longline.http.middleware.identity import user_agent
from longline.http.middleware.rate_limit import RefusedUrls
from longline.http.proxies.choice import Tier, Wanted
from longline.http.proxies.pool import OpenBackend, ProxyPool, ProxyStates
from longline.http.proxies.proxy import CredentialFiles, Proxy
from longline.http.proxies.rotation import ProxyRotation
from longline.http.proxies.sessions import SessionPool
from longline.http.robots import RobotsReader, RobotsText, robots_agent
from longline.http.transport import (
    ConnectionLimit,
    HttpOptions,
    HttpTransport,
    Resolver,
    ssl_context,
)
from longline.limits.backends.sqlite import SqliteStateFile
from longline.limits.backends.state import StateBackend, StateBackends
from longline.limits.breaker import BreakerState, CircuitBreaker
from longline.limits.budget import Budgets, BudgetUsage
from longline.limits.concurrency import ConcurrencyBackend, ConcurrencyLimiter, InFlight
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter
from longline.limits.rate_limit import BucketState, RateLimitBackend
from longline.limits.retry import DEFAULT_RETRY, RetryHandler, RetryPolicy
from longline.sources.api.source import Bookmark
from longline.sources.base import Source
from longline.sources.loader import check_needs, load_listeners, load_middlewares, load_source
from longline.storage.events.events import EventFilter, event_row
from longline.storage.store import Store, open_store

if TYPE_CHECKING:  # needs jsonschema, which a run does not
    from longline.enrichment.phase import Phase, PhaseProgress, PhaseReport
    from longline.enrichment.task_files import AnyTask
    from longline.http.proxies.check import ProxyChecker
    from longline.http.proxies.configuration import CheckOptions
    from longline.monitoring.alerts.channels import Channels
    from longline.scheduling.flow_runner import FlowRunner
    from longline.scheduling.flow_steps import RunLaunch

_LOG = logging.getLogger(__name__)

_MAX_WAIT = 60.0  # seconds to wait while Redis is not reachable
_BREAKER_FRESHNESS = 0.5  # seconds after which a breaker that another process opened is seen


@dataclass(frozen=True, slots=True)
class LimitBackends:
    """Backends of the state that processes of one home share."""

    rate_limits: RateLimitBackend
    concurrency: ConcurrencyBackend
    breakers: StateBackend[BreakerState]
    limits: StateBackend[Learned]
    robots: StateBackend[RobotsText]
    budgets: StateBackend[BudgetUsage]
    bookmarks: StateBackend[Bookmark]
    starts: StateBackend[JobStart]
    refused_urls: StateBackend[RefusedUrls]
    proxies: ProxyStates
    files: StateBackend[KnownFile]


@asynccontextmanager
async def open_limit_backends(
    settings: Settings,
    clock: Clock,
    store: Store | None = None,
    *,
    max_wait: float | None = _MAX_WAIT,
    is_stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[LimitBackends]:
    """Open the shared state: in a file of the home, on Redis, or in the backend of a plugin.

    Args:
        settings: name the Redis server, if there is one.
        clock: the clock to wait by.
        store: the database that keeps what Redis may lose; opened when not given.
        max_wait: seconds to wait while Redis is not reachable; None is without limit.
        is_stopping: returns whether the process is stopping; it then waits a few seconds only.
    """
    async with AsyncExitStack() as ends:
        if settings.redis is None or settings.state_backend is not None:
            states = _open_states(settings, clock)
            ends.push_async_callback(states.close)
            yield LimitBackends(
                RateLimitBackend(states.backend("pace", BucketState)),
                ConcurrencyBackend(states.backend("crowd", InFlight)),
                **_other_backends(states.backend, _pool_backend(settings, clock, store)),
            )
            return
        store = store or ends.enter_context(open_store(settings.database))
        try:
            from longline.limits.backends.redis import open_redis_backends  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtra("cluster", "Redis") from error
        shared = await ends.enter_async_context(
            open_redis_backends(settings.redis, clock, max_wait, is_stopping=is_stopping)
        )
        in_database = partial(store.state_backend, clock=clock)
        yield LimitBackends(shared.rate_limits, shared.concurrency, **_other_backends(in_database))


@dataclass(frozen=True, slots=True)
class DomainStates:
    """Backends of what is known about each domain."""

    limits: StateBackend[Learned]
    breakers: StateBackend[BreakerState]


@asynccontextmanager
async def open_domain_states(
    settings: Settings, clock: Clock, store: Store
) -> AsyncIterator[DomainStates]:
    """Open limits and breakers of domains as `open_limit_backends` does, but never wait for Redis.

    With Redis, both are in the database.
    """
    if settings.redis is not None and settings.state_backend is None:
        others = _other_backends(partial(store.state_backend, clock=clock))
        yield DomainStates(others["limits"], others["breakers"])
        return
    states = _open_states(settings, clock)
    try:
        others = _other_backends(states.backend)
        yield DomainStates(others["limits"], others["breakers"])
    finally:
        await states.close()


def _pool_backend(settings: Settings, clock: Clock, store: Store | None) -> OpenBackend | None:
    """Return what opens the pool of proxies in the database; None if it is in a plugin's backend.

    It is in the database with Redis and without it, so that it stays when a cluster is started.
    Without a store, requests use no proxies.
    """
    if store is None or settings.state_backend is not None:
        return None
    return partial(store.state_backend, clock=clock)


def _other_backends(open_backend: OpenBackend, pool: OpenBackend | None = None) -> dict[str, Any]:
    return {
        "breakers": open_backend("breaker", BreakerState),
        "limits": open_backend("limits", Learned),
        "robots": open_backend("robots", RobotsText),
        "budgets": open_backend("budget", BudgetUsage),
        "bookmarks": open_backend("bookmarks", Bookmark),
        "starts": open_backend("starts", JobStart),
        "refused_urls": open_backend("refusals", RefusedUrls),
        "proxies": ProxyStates.open(open_backend, pool),
        "files": open_backend("files", KnownFile),
    }


def _open_states(settings: Settings, clock: Clock) -> StateBackends:
    """Return the backend of a plugin, or the file of the home.

    Raises:
        BadOption: no plugin has that name.
    """
    name = settings.state_backend
    if name is None:
        return SqliteStateFile(settings.pace_file, clock)
    open_plugin = load_plugin(BACKENDS, name)
    if open_plugin is None:
        known = ", ".join(plugin_names(BACKENDS)) or "none"
        raise BadOption("state_backend", f"no plugin is named {name!r} (installed: {known})")
    states: StateBackends = open_plugin(settings, clock)
    return states


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
    """Open the archived responses of a home."""
    async with open_warc(settings.archive, largest_file=settings.archive_file_bytes) as archive:
        yield archive


@contextmanager
def open_cache(settings: Settings) -> Iterator[HttpCache]:
    """Open the HTTP cache of a home."""
    with closing(HttpCache(settings.cache_file, settings.cache_bytes)) as cache:
        yield cache


@asynccontextmanager
async def open_robots_reader(settings: Settings) -> AsyncIterator[RobotsReader]:
    """Open a reader of robots.txt files that belongs to no job."""
    clock = SystemClock()
    options = HttpOptions(
        timeout=settings.timeout, user_agent=user_agent_of(settings), ca_file=settings.ca_file
    )
    async with open_shared_http(settings, clock) as shared:
        addresses = AddressPolicy(settings.private_hosts, resolver=shared.resolver)
        http = HttpTransport(options, clock, addresses, shared.resolver)
        try:
            inner = AddressMiddleware(http, addresses)
            yield RobotsReader(inner, clock, shared.backends.robots)
        finally:
            await http.close()


@asynccontextmanager
async def open_proxy_pool(
    settings: Settings, clock: Clock, store: Store | None = None
) -> AsyncIterator[ProxyPool]:
    """Open the proxies of a home; with `store`, changes of the pool are events."""

    async def append(name: str, data: Mapping[str, Any]) -> None:
        if store is not None:
            await store.events.append(event_row(None, clock.now(), name, **data))

    credentials = CredentialFiles(settings.proxy_credentials)
    async with AsyncExitStack() as ends:
        database = store or ends.enter_context(open_store(settings.database))
        if settings.redis is not None and settings.state_backend is None:
            states = ProxyStates.open(partial(database.state_backend, clock=clock))
        else:
            opened = _open_states(settings, clock)
            ends.push_async_callback(opened.close)
            states = ProxyStates.open(opened.backend, _pool_backend(settings, clock, database))
        yield ProxyPool(states, clock, credentials, on_event=append)


@asynccontextmanager
async def open_proxy_http(settings: Settings, clock: Clock) -> AsyncIterator[HttpTransport]:
    """Open the transport of requests about proxies: for lists, and to the judge directly."""
    from longline.http.proxies.candidates import LARGEST_LIST  # noqa: PLC0415  # slow

    options = HttpOptions(
        user_agent=user_agent_of(settings),
        ca_file=settings.ca_file,
        largest_body=LARGEST_LIST,
        has_limit=False,
    )
    http = HttpTransport(options, clock)
    try:
        yield http
    finally:
        await http.close()


@asynccontextmanager
async def open_proxy_checker(
    settings: Settings, clock: Clock, options: CheckOptions
) -> AsyncIterator[ProxyChecker]:
    """Open the checker of proxies; without a judge and a page, a judge runs on this machine."""
    from longline.http.proxies.check import ProxyChecker  # noqa: PLC0415  # slow
    from longline.http.proxies.judge import judge_running  # noqa: PLC0415  # the same

    async with AsyncExitStack() as ends:
        http = await ends.enter_async_context(open_proxy_http(settings, clock))

        async def send(proxy: Proxy, request: Request) -> Page:
            return await http(replace(request, proxy=proxy), Usage())

        judge = options.judge
        if judge is None and options.page is None:
            judge = await ends.enter_async_context(judge_running())
        yield ProxyChecker(options, send, http, clock, judge=judge)


@asynccontextmanager
async def open_webhook_sender(
    settings: Settings, store: Store, clock: Clock
) -> AsyncIterator[WebhookSender]:
    """Open the sender of webhooks."""
    options = HttpOptions(
        user_agent=user_agent_of(settings), ca_file=settings.ca_file, has_limit=False
    )
    sender = WebhookSender(store, clock, options)
    try:
        yield sender
    finally:
        await sender.close()


@asynccontextmanager
async def open_event_deliveries(
    settings: Settings, store: Store, clock: Clock, on_result: OnResult = ignore_result
) -> AsyncIterator[EventDeliveries]:
    """Open what delivers events to webhooks, channels of alerts, plugins and a Redis stream.

    On a cluster, `clock` is a `SharedClock`, since processes compare the times of leases.

    Raises:
        BadOption: the URL of Redis is not valid.
        MissingExtra: Redis is configured, and its package is not installed.
    """
    async with AsyncExitStack() as ends:
        sender = await ends.enter_async_context(open_webhook_sender(settings, store, clock))
        others = [*_plugin_subscriptions()]
        if settings.redis is not None and settings.event_stream:
            others.append(
                await ends.enter_async_context(_open_stream(settings.redis, settings, store))
            )
        channels = _make_channels(settings, store, clock, sender)
        more = channels.subscriptions
        yield EventDeliveries(store, clock, sender, others, on_result, find_more=more)


@asynccontextmanager
async def open_channels(settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Channels]:
    """Open the channels of alerts."""
    async with open_webhook_sender(settings, store, clock) as sender:
        yield _make_channels(settings, store, clock, sender)


def _make_channels(
    settings: Settings, store: Store, clock: Clock, sender: WebhookSender
) -> Channels:
    from longline.monitoring.alerts.channels import Channels  # noqa: PLC0415  # the mail library
    from longline.monitoring.alerts.configuration import AlertFile  # noqa: PLC0415  # the same
    from longline.monitoring.reports.definitions import ReportFile  # noqa: PLC0415  # the same

    return Channels(store, clock, sender, AlertFile(), settings.ca_file, reports=ReportFile())


def _plugin_subscriptions() -> Iterator[Subscription]:
    for name in plugin_names(SUBSCRIBERS):
        try:
            yield plugin_subscription(name, load_plugin(SUBSCRIBERS, name))
        except ConfigError as error:
            _LOG.warning("no events are delivered to the plugin %s: %s", name, error)


@asynccontextmanager
async def _open_stream(
    redis_url: str, settings: Settings, store: Store
) -> AsyncIterator[Subscription]:
    """Open the Redis stream, which begins with as many events as it holds."""
    try:
        from longline.engine.redis_stream import RedisStream  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("cluster", "Redis") from error
    name, length = settings.event_stream_name, settings.event_stream_length
    stream = RedisStream(redis_url, name, log_id=await store.events.log_id(), length=length)
    try:
        wanted = EventFilter(settings.event_stream_types)
        start = max(0, await store.events.newest() - length)
        yield Subscription(f"redis/{name}", stream.handle, wanted, start)
    finally:
        await stream.close()


@asynccontextmanager
async def open_phase(
    settings: Settings,
    task: AnyTask,
    store: Store,
    *,
    on_progress: Callable[[PhaseProgress], None] | None = None,
) -> AsyncIterator[Phase]:
    """Open the enrichment of records by a task, with the rate limits of this home."""
    from longline.enrichment.phase import Phase  # noqa: PLC0415  # needs jsonschema
    from longline.enrichment.servers import open_enricher, task_limiter  # noqa: PLC0415

    clock = SystemClock()
    async with open_limit_backends(settings, clock, store) as backends:
        limiter = task_limiter(task, clock, backends.rate_limits, backends.limits)
        async with open_enricher(task, limiter, clock) as enricher:
            yield Phase(
                task,
                store.questions,
                enricher,
                clock,
                owner=this_run(),
                limiter=limiter,
                dead_among=dead_among,
                on_progress=on_progress,
            )


@asynccontextmanager
async def open_flow_runner(
    settings: Settings,
    store: Store,
    clock: Clock,
    *,
    run_launch: RunLaunch | None = None,
    root: str | None = None,
) -> AsyncIterator[FlowRunner]:
    """Open what performs the flows of a home, as `FlowRunner` describes."""
    from longline.enrichment.phase import queue_records  # noqa: PLC0415  # needs jsonschema
    from longline.scheduling.flow_runner import FlowRunner  # noqa: PLC0415  # the same

    async def enrich(task: AnyTask, limit: int | None) -> PhaseReport:
        async with open_phase(settings, task, store) as phase:
            await queue_records(task, store.records, store.questions, clock)
            return await phase.run(limit)

    async with (
        open_webhook_sender(settings, store, clock) as sender,
        FlowRunner(
            store,
            clock,
            settings,
            sender=sender,
            enrich=enrich,
            run_launch=run_launch,
            root=root,
        ) as runner,
    ):
        yield runner


@dataclass(frozen=True, slots=True)
class Fetching:
    """The request chain of one run, and the policies whose state is shown."""

    chain: Middleware
    limiter: RateLimiter
    breaker: CircuitBreaker
    rate: float | Literal["auto"] | None
    budgets: Budgets | None = None
    bookmarks: StateBackend[Bookmark] | None = None
    proxies: ProxySpec | None = None


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
    proxies, sessions = proxies_of(spec, source), sessions_of(spec, source)
    async with AsyncExitStack() as ends:
        if shared is None:
            store = None if proxies is None else ends.enter_context(open_store(settings.database))
            shared = await ends.enter_async_context(open_shared_http(settings, clock, store))
        backends = shared.backends
        limiter = RateLimiter(
            rate,
            spec.burst or source.burst,
            clock=clock,
            backend=backends.rate_limits,
            learned=backends.limits,
            respects_pins=spec.rate in (None, "auto"),  # a rate of this job has priority
        )
        breaker = CircuitBreaker(
            clock=clock, backend=backends.breakers, freshness=_BREAKER_FRESHNESS
        )
        budgets = None
        if not spec.budget == spec.budget_per_domain == BudgetSpec():
            budgets = Budgets(
                job,
                backends.budgets,
                clock,
                total=spec.budget,
                per_domain=spec.budget_per_domain,
                since=since,
            )
        addresses = None
        if transport is None:
            addresses = AddressPolicy(
                private_hosts_of(settings, spec, source),
                starts=backends.starts,
                job=job,
                resolver=shared.resolver,
            )
            options = HttpOptions(
                ca_file=ca_file_of(settings, spec, source),
                has_limit=rate is not None,
                timeout=spec.timeout or settings.timeout,
                user_agent=user_agent_of(settings),
            )
            http = HttpTransport(options, clock, addresses, shared.resolver)
            ends.push_async_callback(http.close)
            transport = http
            if source.transport == "impersonate":
                # Imported when used, since it needs an optional library.
                module = importlib.import_module("longline.http.impersonate")
                transport = curl = module.ImpersonatingTransport(options, clock, addresses)
                ends.push_async_callback(curl.close)
            elif source.transport != "http":
                turn = Subrequests(
                    limiter, breaker, budgets, addresses, is_remote=is_remote(settings.chromium)
                )
                transport = BrowserTransport(
                    http,
                    _browser_options(settings, spec, source, options.user_agent, addresses),
                    clock,
                    turn,
                )
                ends.push_async_callback(transport.close)
        cache, archive = None, None
        if source.cache if spec.cache is None else spec.cache:
            cache = ends.enter_context(open_cache(settings))
        if spec.archive:
            archive = await ends.enter_async_context(open_archive(settings))
        concurrency = None
        if max_in_flight := spec.max_in_flight or source.max_in_flight:
            concurrency = ConcurrencyLimiter(
                max_in_flight, clock=clock, backend=backends.concurrency
            )
        policies = Policies(
            limiter,
            breaker,
            RetryHandler(
                policy=retry_policy(spec, source), circuit_breaker_threshold=None, clock=clock
            ),
            frozenset(spec.ignore_robots),
            identity=client_identity(spec, source),
            robots=backends.robots,
            budgets=budgets,
            cache=cache,
            archive=archive,
            job=job,
            concurrency_limiter=concurrency,
            connections=shared.connections,
            refused_urls=backends.refused_urls,
            addresses=addresses,
            middlewares=load_middlewares(source),
            files=FileStorage(open_file_store(settings), backends.files, settings.largest_file),
            rotation=None if proxies is None else _rotation(proxies, backends.proxies, clock),
            per_proxy=proxies is not None and proxies.per_proxy,
            sessions=None if sessions is None else SessionPool(sessions),
            agent=robots_agent(user_agent_of(settings)),
        )
        chain = build_chain(transport, policies, clock, ends)
        yield Fetching(chain, limiter, breaker, rate, budgets, backends.bookmarks, proxies)


def _rotation(spec: ProxySpec, states: ProxyStates, clock: Clock) -> ProxyRotation:
    from longline.http.proxies.configuration import read_proxy_settings  # noqa: PLC0415  # slow

    tiers = read_proxy_settings().tiers
    known = [Tier(one.name, one.cost, one.budget) for one in tiers]
    return ProxyRotation(states, clock, Wanted(spec.tiers, spec.country, spec.minimum), tiers=known)


def proxies_of(spec: JobSpec, source: type[Source]) -> ProxySpec | None:
    """Return which proxies requests use: as the job says, else the source; None is none.

    Raises:
        BadOption: the `proxies` of the source is not valid.
    """
    own = make_spec({"source": source.name, "proxies": source.proxies}).proxies
    found = own if spec.proxies is None else spec.proxies
    return found if found is not None and found.enabled else None


def sessions_of(spec: JobSpec, source: type[Source]) -> SessionSpec | None:
    """Return the sessions of requests: as the job says, else the source; None is one for all.

    Raises:
        BadOption: the `sessions` of the source is not valid, or does not fit its login.
    """
    own = make_spec({"source": source.name, "sessions": source.sessions}).sessions
    found = own if spec.sessions is None else spec.sessions
    auth = spec.auth or make_spec({"source": source.name, "auth": source.auth}).auth
    if found is not None and found.per != "login" and auth is not None and auth.kind == "login":
        raise BadOption("sessions", "a login belongs to one session: write `sessions: login`")
    if found is not None and found.per == "uses" and source.has_own_cookies:
        problem = (
            "a spider keeps its cookies: write `sessions: item`, for one session for each of its "
            "cookie jars, or `sessions: login`"
        )
        raise BadOption("sessions", problem)
    return found


def open_file_store(settings: Settings) -> FileStore:
    """Return the store of files of records; it is created on first use."""
    if isinstance(settings.files, str):
        from longline.export.s3_files import S3Files  # noqa: PLC0415  # few homes use it

        return S3Files(settings.files, settings.files_folder)
    return FolderStore(settings.files_folder)


def _browser_options(
    settings: Settings,
    spec: JobSpec,
    source: type[Source],
    user_agent: str,
    addresses: AddressPolicy,
) -> BrowserOptions:
    values = source.with_options(spec.options).options.model_dump()
    cookies = source.cookies if spec.cookies is None else spec.cookies
    return BrowserOptions(
        spec=BrowserSpec.model_validate(source.browser or {}).filled(values),
        chromium=settings.chromium,
        failures=settings.home / "failures",
        user_agent=user_agent,
        keeps_cookies=cookies is not False,
        addresses=addresses,
    )


def client_identity(spec: JobSpec, source: type[Source]) -> ClientIdentity:
    """Return headers, cookies and authentication: those of the job, else those of the source.

    Raises:
        BadOption: a value of the source is not valid.
        UnknownSecret: a secret cannot be read.
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
            raise BadOption("cookies", "a login needs cookies: remove `cookies: false`")
    return ClientIdentity(
        headers=merge_headers(own.headers, spec.headers),
        cookies=True if cookies is None else cookies,
        auth=auth,
        expects=tuple(source.expects),
    )


def ca_file_of(settings: Settings, spec: JobSpec, source: type[Source]) -> Path | None:
    """Return the file of the certificate authorities that a run trusts besides the system's.

    Raises:
        BadOption: it cannot be used.
    """
    file = spec.ca_file or source.ca_file or settings.ca_file
    ssl_context(file)
    return None if file is None else Path(file)


def private_hosts_of(settings: Settings, spec: JobSpec, source: type[Source]) -> tuple[str, ...]:
    """Return the hosts that may be reached at private addresses: of settings, job and source.

    Raises:
        BadOption: the source lists something else.
    """
    own = make_spec({"source": source.name, "private_hosts": source.private_hosts})
    return (*settings.private_hosts, *spec.private_hosts, *own.private_hosts)


def retry_policy(spec: JobSpec, source: type[Source]) -> RetryPolicy:
    """Return how requests are retried: as the job says, else the source, else by default.

    Raises:
        BadOption: the `retry` of the source is not valid.
    """
    own = make_spec({"source": source.name, "retry": source.retry}).retry or RetrySpec()
    values = own.model_dump(exclude_none=True)
    values |= spec.retry.model_dump(exclude_none=True) if spec.retry else {}
    base = values.get("base", DEFAULT_RETRY.base_delay)
    return RetryPolicy(
        max_attempts=values.get("attempts", DEFAULT_RETRY.max_attempts),
        base_delay=base,
        max_delay=max(base, values.get("max", DEFAULT_RETRY.max_delay)),
    )


def user_agent_of(settings: Settings) -> str:
    """Return the User-Agent of all requests.

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
    """Return the class of a source and the source, if a run can use it.

    Raises:
        ConfigError: a setting, a secret or a package is missing or does not fit.
    """
    kind = load_source(spec.source, spec.manifest)
    source = kind.with_options(spec.options)
    check_needs(kind, chromium)
    client_identity(spec, kind)
    proxies_of(spec, kind)
    sessions_of(spec, kind)
    retry_policy(spec, kind)
    load_middlewares(kind)
    load_listeners(kind)
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
) -> AsyncIterator[tuple[Collector, Fetching]]:
    """Open a source with the request chain of one job, ready to collect items.

    An error of `Source.teardown` is an event of the job and a warning in the log, and ends nothing.
    """

    async def report_teardown(raised: str) -> None:
        problem = await note_teardown(store, job, clock, source=kind.name, raised=raised)
        _LOG.warning(problem, extra={"job": job})

    kind = load_source(spec.source, spec.manifest)
    source: Source = kind.with_options(spec.options)
    async with AsyncExitStack() as ends:
        if shared is None:
            shared = await ends.enter_async_context(open_shared_http(settings, clock, store))
        await ends.enter_async_context(torn_down(source, report_teardown))
        fetching = await ends.enter_async_context(
            open_fetching(
                settings, spec, kind, clock, transport, job=job, shared=shared, since=since
            )
        )
        source.bookmarks = fetching.bookmarks
        yield (
            Collector(
                source,
                fetching.chain,
                clock,
                spec.params,
                bans=lambda key: store.failures.bans(job, key),
            ),
            fetching,
        )


@asynccontextmanager
async def torn_down(
    source: Source, on_error: Callable[[str], Awaitable[None]] | None = None
) -> AsyncIterator[None]:
    """Tear the source down at the end, in any case; `on_error` is passed what that raised.

    Raises:
        LayerFailed: it raised something, and there is no `on_error`.
    """
    try:
        yield
    finally:
        raised = await tear_down(source)
        if raised is not None:
            if on_error is None:
                raise LayerFailed("teardown", raised)
            await on_error(raised)
