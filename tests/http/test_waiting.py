"""The part of an attempt that was spent waiting."""

from __future__ import annotations

import asyncio

import pytest

from longline.core.errors import ServerFailed
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.coalescing import CoalescingMiddleware
from longline.http.middleware.rate_limit import ConcurrencyMiddleware, RateLimitMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.robots import RobotsMiddleware
from longline.limits.concurrency import ConcurrencyLimiter
from longline.limits.limiter import RateLimiter
from longline.limits.retry import RetryHandler
from tests.virtual import VirtualClock

URL = "http://a.test/"


class TenSeconds(Middleware):
    """A site that responds after ten seconds, following a number of failures."""

    def __init__(self, failures: int = 0) -> None:
        self._failures = failures

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        if self._failures:
            self._failures -= 1
            raise ServerFailed(request.url, 500)
        await asyncio.sleep(10)
        return Page(request.url, 404 if request.url.endswith("robots.txt") else 200, {}, b"")


async def ask(middleware: Middleware, *, times: int = 1) -> list[float]:
    """Send concurrent requests; return how long each waited."""
    usages = [Usage() for _ in range(times)]
    await asyncio.gather(*(middleware(Request(URL), usage) for usage in usages))
    return [usage.waiting.seconds() for usage in usages]


def waited(*seconds: float) -> object:
    return pytest.approx(list(seconds), abs=0.1)


async def test_one_waits_for_the_pace(clock: VirtualClock) -> None:
    middleware = RateLimitMiddleware(
        TenSeconds(), RateLimiter(0.01, 1, margin=0.0, clock=clock), clock
    )

    assert await ask(middleware, times=3) == waited(0, 100, 200)


async def test_one_waits_for_room_at_a_site(clock: VirtualClock) -> None:
    concurrency_limiter = ConcurrencyLimiter(1, clock=clock)

    assert await ask(ConcurrencyMiddleware(TenSeconds(), concurrency_limiter), times=3) == waited(
        0, 10, 20
    )

    await concurrency_limiter.close()


async def test_one_waits_before_each_retry(clock: VirtualClock) -> None:
    retry = RetryHandler(3, 10.0, circuit_breaker_threshold=None, clock=clock, jitter=0.0)

    assert await ask(RetryMiddleware(TenSeconds(failures=2), retry, clock)) == waited(30)


async def test_waiting_for_the_response_of_another_request_counts() -> None:
    assert await ask(CoalescingMiddleware(TenSeconds()), times=2) == waited(0, 10)


async def test_waiting_for_robots_txt_of_another_request_counts(clock: VirtualClock) -> None:
    assert await ask(RobotsMiddleware(TenSeconds(), clock), times=2) == waited(0, 10)


async def test_waits_that_overlap_count_once(clock: VirtualClock) -> None:
    middleware = RateLimitMiddleware(
        TenSeconds(), RateLimiter(0.01, 1, margin=0.0, clock=clock), clock
    )
    usage = Usage()

    await asyncio.gather(*(middleware(Request(URL), usage) for _ in range(3)))

    assert usage.waiting.seconds() == pytest.approx(200, abs=0.1)
    assert usage.waited == pytest.approx(300, abs=0.1)


async def test_a_wait_that_is_under_way_counts_up_to_now(clock: VirtualClock) -> None:
    middleware = RateLimitMiddleware(
        TenSeconds(), RateLimiter(0.01, 1, margin=0.0, clock=clock), clock
    )
    usage = Usage()
    asking = asyncio.gather(*(middleware(Request(URL), usage) for _ in range(2)))

    await asyncio.sleep(60)

    assert usage.waiting.seconds() == pytest.approx(60, abs=0.1)
    await asking


async def test_a_wait_that_is_broken_off_is_over(clock: VirtualClock) -> None:
    retry = RetryHandler(3, 10.0, circuit_breaker_threshold=None, clock=clock, jitter=0.0)
    middleware, usage = RetryMiddleware(TenSeconds(failures=2), retry, clock), Usage()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await middleware(Request(URL), usage)
    await asyncio.sleep(1000)

    assert usage.waiting.seconds() == pytest.approx(5, abs=0.1)
