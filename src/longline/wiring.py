"""Settings in, objects out: the one place that names a concrete backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Literal

from longline.clock import Clock
from longline.config.identity import check_cookies, merge_headers
from longline.config.manifests.browser import BrowserSpec
from longline.config.settings import Settings
from longline.config.spec import BudgetSpec, JobSpec, make_spec
from longline.errors import BadOption
from longline.fetching.archives.base import Archive
from longline.fetching.archives.warc import open_warc
from longline.fetching.cache.base import HttpCache
from longline.fetching.cache.sqlite import SqliteCache
from longline.fetching.chain import Manners, Policies, build_chain
from longline.fetching.identity import user_agent
from longline.fetching.link import Link
from longline.fetching.robots_rules import RobotsText
from longline.fetching.subrequests import Subrequests
from longline.fetching.transports.browser import BrowserTransport
from longline.fetching.transports.browser_options import BrowserOptions
from longline.fetching.transports.choosing import Choosing
from longline.fetching.transports.http import HttpOptions, HttpTransport
from longline.resilience.budget import Budget, Budgets, Spent
from longline.resilience.circuit import CircuitBreaker
from longline.resilience.handler import RetryHandler
from longline.resilience.keepers.base import BreakerKeeper, PaceKeeper
from longline.resilience.keepers.cells import Cells
from longline.resilience.keepers.sqlite import SqliteBreakerKeeper, SqliteCells, SqlitePaceKeeper
from longline.resilience.learning import Learned
from longline.resilience.limiter import RateLimiter
from longline.sources.adapters.api_bookmarks import Bookmark, Bookmarks, CellBookmarks
from longline.sources.base import Source
from longline.sources.load import load_source
from longline.sources.needs import check_needs


@dataclass(frozen=True, slots=True)
class Keepers:
    """Where the processes of one home share what they know of sites; unused ones cost nothing."""

    paces: PaceKeeper
    breakers: BreakerKeeper
    limits: Cells[Learned]
    robots: Cells[RobotsText]
    budgets: Cells[Spent]
    bookmarks: Cells[Bookmark]


@asynccontextmanager
async def open_keepers(settings: Settings, clock: Clock) -> AsyncIterator[Keepers]:
    """Open what the processes of a home share."""
    file = settings.pace_file
    async with AsyncExitStack() as ends:
        paces = SqlitePaceKeeper(file, clock)
        breakers = SqliteBreakerKeeper(file, clock)
        limits = SqliteCells(file, "limits", Learned, clock)
        robots = SqliteCells(file, "robots", RobotsText, clock)
        budgets = SqliteCells(file, "budget", Spent, clock)
        bookmarks = SqliteCells(file, "bookmarks", Bookmark, clock)
        for one in (paces, breakers, limits, robots, budgets, bookmarks):
            ends.push_async_callback(one.close)
        yield Keepers(paces, breakers, limits, robots, budgets, bookmarks)


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

    link: Link
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
    transport: Link | None = None,
    *,
    job: str = "",
) -> AsyncIterator[Fetching]:
    """Build the request chain for one run of a job; `transport` replaces HTTP in simulations."""
    rate = source.rate if spec.rate is None else None if spec.rate == "unlimited" else spec.rate
    async with open_keepers(settings, clock) as keepers, AsyncExitStack() as ends:
        limiter = RateLimiter(
            rate,
            spec.burst or source.burst,
            clock=clock,
            keeper=keepers.paces,
            learned=keepers.limits,
            heeds_pins=spec.rate in (None, "auto"),  # what is said for this job counts more
        )
        breaker = CircuitBreaker(clock=clock, keeper=keepers.breakers)
        budgets = _budgets(spec, job, keepers, clock)
        if transport is None:
            options = _http_options(settings, spec, is_timed=rate is not None)
            http = HttpTransport(options, clock)
            ends.push_async_callback(http.close)
            transport = http
            if source.transport != "http":
                values = source.with_options(spec.options).options.model_dump()
                wanted = BrowserSpec.model_validate(source.browser or {}).filled(values)
                browser = _browser(
                    settings,
                    wanted,
                    options=options,
                    turn=Subrequests(limiter, breaker, budgets),
                    clock=clock,
                    keeps_cookies=(source.cookies if spec.cookies is None else spec.cookies)
                    is not False,
                )
                ends.push_async_callback(browser.close)
                transport = Choosing(http, browser)
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
            manners=manners_of(spec, source),
            robots=keepers.robots,
            budgets=budgets,
            cache=cache,
            archive=archive,
            job=job,
        )
        link = build_chain(transport, policies, clock, ends)
        bookmarks = CellBookmarks(keepers.bookmarks)
        yield Fetching(link, limiter, breaker, rate, budgets, bookmarks)


def _browser(
    settings: Settings,
    wanted: BrowserSpec,
    *,
    options: HttpOptions,
    turn: Subrequests,
    clock: Clock,
    keeps_cookies: bool,
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
        ),
        clock,
        turn,
    )


def manners_of(spec: JobSpec, source: type[Source]) -> Manners:
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
    return Manners(
        headers=merge_headers(own.headers, spec.headers),
        cookies=True if cookies is None else cookies,
        auth=auth,
        expects=tuple(source.expects),
    )


def _budgets(spec: JobSpec, job: str, keepers: Keepers, clock: Clock) -> Budgets | None:
    total, per_domain = _budget(spec.budget), _budget(spec.budget_per_domain)
    if total.is_empty and per_domain.is_empty:
        return None
    return Budgets(job, keepers.budgets, clock, total=total, per_domain=per_domain)


def _budget(spec: BudgetSpec) -> Budget:
    return Budget(spec.requests, spec.bytes, spec.seconds)


def _http_options(settings: Settings, spec: JobSpec, *, is_timed: bool) -> HttpOptions:
    return HttpOptions(
        is_timed=is_timed,
        timeout=spec.timeout or settings.timeout,
        user_agent=user_agent_of(settings),
        connections=max(100, 2 * (spec.concurrency or settings.concurrency)),
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
    manners_of(spec, kind)
    return kind, source


@asynccontextmanager
async def torn_down(source: Source) -> AsyncIterator[None]:
    """Tear the source down at the end, whatever the end is."""
    try:
        yield
    finally:
        await source.teardown()
