from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from longline.core.model import Usage
from longline.http.chain import Policies, build_chain
from longline.http.messages import Middleware, Page, Request
from longline.limits.breaker import CircuitBreaker
from longline.limits.concurrency import ConcurrencyLimiter
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from tests.limit_backends import MemoryConcurrencyBackend, MemoryRateLimitBackend
from tests.virtual import VirtualClock

DOMAIN = "a.test"


class SlowSite(Middleware):
    """A slow site that counts concurrent requests."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.inside = 0
        self.most = 0
        self.moments: list[float] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        usage.requests += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.moments.append(self._clock.now())
        await self._clock.sleep(self._seconds)
        self.inside -= 1
        return Page(request.url, 200, {}, b"")


def chain(
    site: Middleware, clock: VirtualClock, *, max_in_flight: int | None, rate: float | None
) -> Middleware:
    concurrency_limiter = ConcurrencyLimiter(max_in_flight, clock=clock) if max_in_flight else None
    return build_chain(
        site,
        Policies(
            RateLimiter(rate, 1, clock=clock, margin=0.0),
            CircuitBreaker(clock=clock),
            RetryHandler(circuit_breaker_threshold=None, clock=clock, jitter=0.0),
            ignored_robots=frozenset({DOMAIN}),
            concurrency_limiter=concurrency_limiter,
        ),
        clock,
        AsyncExitStack(),
    )


async def ask(middleware: Middleware, times: int) -> list[Usage]:
    usages = [Usage() for _ in range(times)]
    asking = (middleware(Request(f"http://{DOMAIN}/{n}"), usage) for n, usage in enumerate(usages))
    await asyncio.gather(*asking)
    return usages


@pytest.mark.parametrize(("max_in_flight", "most"), [(2, 2), (None, 8)])
async def test_a_limit_holds_when_it_is_set(
    clock: VirtualClock, max_in_flight: int | None, most: int
) -> None:
    site = SlowSite(clock, 1.0)

    usages = await ask(chain(site, clock, max_in_flight=max_in_flight, rate=None), 8)

    assert site.most == most
    assert sum(usage.waits for usage in usages) == 8 - most


async def test_the_rate_limit_is_acquired_after_the_concurrency_limit(
    clock: VirtualClock,
) -> None:
    site, begun = SlowSite(clock, 1.5), clock.now()

    await ask(chain(site, clock, max_in_flight=1, rate=1.0), 4)

    moments = [moment - begun for moment in site.moments]
    assert moments == pytest.approx([0.0, 1.5, 3.0, 4.5], abs=0.01)


async def test_processes_share_pace_and_room(clock: VirtualClock) -> None:
    site = SlowSite(clock, 3.0)
    paces, rooms = MemoryRateLimitBackend(clock), MemoryConcurrencyBackend(clock)
    middlewares = [
        build_chain(
            site,
            Policies(
                RateLimiter(1.0, 1, clock=clock, backend=paces),
                CircuitBreaker(clock=clock),
                RetryHandler(circuit_breaker_threshold=None, clock=clock, jitter=0.0),
                ignored_robots=frozenset({DOMAIN}),
                concurrency_limiter=ConcurrencyLimiter(2, clock=clock, backend=rooms),
            ),
            clock,
            AsyncExitStack(),
        )
        for _ in range(3)
    ]

    await asyncio.gather(*(ask(middleware, 3) for middleware in middlewares))

    assert (site.most, len(site.moments)) == (2, 9)
