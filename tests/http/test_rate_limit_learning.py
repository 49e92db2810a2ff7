from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import pytest
from aiohttp import web

from longline.core.model import Usage
from longline.http.messages import Middleware, Request
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.status import StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.learning import Learned
from longline.limits.limiter import RateLimiter
from longline.limits.rate_limit import RateLimitBackend
from longline.limits.retry import RetryHandler
from longline.sandbox.limits import TokenBucket
from tests.limit_backends import MemoryRateLimitBackend, SqliteRateLimitBackend, SqliteStates
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

PAGES = 150
CONCURRENCY = 8


class Bucket(Protocol):
    """Says 0 when a request may pass, or how many seconds are missing."""

    def take(self, now: float) -> float: ...


class FixedWindow:
    """A number of requests in each second of the clock; refused ones count too."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._second = -1
        self._count = 0

    def take(self, now: float) -> float:
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        self._count += 1
        return 0.0 if self._count <= self._size else 1.0


@dataclass(slots=True)
class Keepers:
    """Where the runs of a test share what they know."""

    rate_limits: RateLimitBackend
    limits: StateBackend[Learned]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: pages that came, answers of 429, seconds from the first to the last."""

    pages: int
    refused: int
    seconds: float
    usage: Usage = field(compare=False)


@pytest.fixture(params=["memory", "sqlite"])
async def backends(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Keepers]:
    if request.param == "memory":
        yield Keepers(MemoryRateLimitBackend(clock), MemoryStateBackend[Learned](clock))
        return
    file = tmp_path / "pace.sqlite"
    rate_limits = SqliteRateLimitBackend(file, clock)
    limits = SqliteStates(file, "limits", Learned, clock)
    yield Keepers(rate_limits, limits)
    await rate_limits.close()
    await limits.close()


def limit(
    site: ScriptedSite, clock: VirtualClock, bucket: Bucket, *, latency: float = 0.0
) -> list[int]:
    """Let a site answer 429 with Retry-After: 1 beyond its limit; return its statuses to come."""
    statuses: list[int] = []

    async def answer(_request: web.Request) -> web.StreamResponse:
        await clock.sleep(latency / 2)
        is_refused = bucket.take(clock.now()) > 0
        status, headers = (429, {"Retry-After": "1"}) if is_refused else (200, {})
        statuses.append(status)
        await clock.sleep(latency / 2)
        return web.Response(status=status, headers=headers, text="x")

    site.answers["/page"] = answer
    return statuses


@asynccontextmanager
async def chain(
    backends: Keepers, clock: VirtualClock, rate: float | Literal["auto"]
) -> AsyncIterator[Middleware]:
    """Build what a process of its own would: only the keepers are shared."""
    limiter = RateLimiter(
        rate, 10, clock=clock, backend=backends.rate_limits, learned=backends.limits
    )
    transport = HttpTransport(HttpOptions(timeout=30), clock)
    retry = RetryHandler(circuit_breaker_threshold=None, clock=clock, jitter=0.0)
    yield RetryMiddleware(
        StatusMiddleware(RateLimitMiddleware(transport, limiter, clock), clock), retry, clock
    )
    await transport.close()


async def run(
    site: ScriptedSite,
    backends: Keepers,
    clock: VirtualClock,
    rate: float | Literal["auto"] = "auto",
    *,
    pages: int = PAGES,
) -> Outcome:
    """Fetch all pages with eight workers."""
    usage, numbers, fetched = Usage(), iter(range(pages)), []

    async def work(middleware: Middleware) -> None:
        for number in numbers:
            await middleware(Request(f"{site.url}/page?{number}"), usage)
            fetched.append(number)

    site.log.clear()
    async with chain(backends, clock, rate) as middleware, asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(work(middleware))
    seconds = site.moments[-1] - site.moments[0]
    return Outcome(len(set(fetched)), usage.rate_limited, seconds, usage)


async def test_an_undeclared_limit_is_learned_at_the_price_of_a_few_refusals_and_then_kept(
    site: ScriptedSite, clock: VirtualClock, backends: Keepers
) -> None:
    statuses = limit(site, clock, TokenBucket(10.0, 10, clock.now()))
    ideal = (PAGES - 10) / 10

    first = await run(site, backends, clock)
    second = await run(site, backends, clock)

    assert statuses.count(200) == 2 * PAGES
    assert (first.pages, second.pages) == (PAGES, PAGES)
    assert 1 <= first.refused <= 3  # the bar is 10
    assert second.refused == 0
    assert first.seconds <= 1.3 * ideal
    assert second.seconds <= 1.3 * ideal


async def test_a_declared_limit_is_never_refused(
    site: ScriptedSite, clock: VirtualClock, backends: Keepers
) -> None:
    limit(site, clock, TokenBucket(10.0, 10, clock.now()))

    only = await run(site, backends, clock, 10.0)

    assert (only.pages, only.refused) == (PAGES, 0)
    assert only.seconds <= 1.05 * (PAGES - 10) / 10


@pytest.mark.parametrize(
    ("make", "latency"),
    [
        (lambda now: TokenBucket(5.0, 1, now), 0.0),
        (lambda now: TokenBucket(20.0, 40, now), 0.0),
        (lambda now: TokenBucket(100.0, 10, now), 0.0),
        (lambda now: TokenBucket(1.0, 1, now), 0.0),
        (lambda _now: FixedWindow(3), 0.0),
        (lambda now: TokenBucket(10.0, 10, now), 0.3),
        (lambda now: TokenBucket(5.0, 1, now), 0.3),
    ],
    ids=["5/s", "20/s by 40", "100/s", "1/s", "3 a second", "10/s, slow", "5/s, slow"],
)
async def test_other_limits_are_learned_as_well(
    site: ScriptedSite,
    clock: VirtualClock,
    make: Callable[[float], Bucket],
    latency: float,
) -> None:
    backends = Keepers(MemoryRateLimitBackend(clock), MemoryStateBackend[Learned](clock))
    limit(site, clock, make(clock.now()), latency=latency)

    first = await run(site, backends, clock)
    second = await run(site, backends, clock)

    assert (first.pages, second.pages) == (PAGES, PAGES)
    assert first.refused <= 10
    assert second.refused <= 1


async def test_concurrent_processes_learn_together(
    site: ScriptedSite, clock: VirtualClock, backends: Keepers
) -> None:
    statuses = limit(site, clock, TokenBucket(10.0, 10, clock.now()))

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(run(site, backends, clock, pages=100))
    refused = statuses.count(429)
    again = await run(site, backends, clock)

    assert statuses.count(200) == 300 + PAGES
    assert refused <= 10
    assert again.refused == 0


async def test_a_learned_limit_is_an_event(site: ScriptedSite, clock: VirtualClock) -> None:
    backends = Keepers(MemoryRateLimitBackend(clock), MemoryStateBackend[Learned](clock))
    limit(site, clock, TokenBucket(5.0, 2, clock.now()))

    outcome = await run(site, backends, clock)

    reported = [one for one in outcome.usage.events if one.type == "limit.learned"]
    refusal = next(one for one in outcome.usage.events if one.type == "limit.refused")
    assert reported[0].data["rate"] >= 2.0 * 1.2
    assert (refusal.data["status"], refusal.data["pause"]) == (429, 1.0)
    assert 2.0 < refusal.data["rate"] < 5.0
    assert refusal.data["domain"] == site.url.removeprefix("http://")
