"""The token bucket: what it grants, and what it never does."""

from __future__ import annotations

from itertools import combinations

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from longline.sandbox.limits import Limits, TokenBucket
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.virtual import VirtualClock

gaps = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=40)
rates = st.floats(0.1, 50.0)
bursts = st.integers(1, 10)


def granted_moments(bucket: TokenBucket, waits: list[float]) -> list[float]:
    moments = [sum(waits[: place + 1]) for place in range(len(waits))]
    return [moment for moment in moments if bucket.take(moment) == 0.0]


@given(gaps, rates, bursts)
def test_no_window_grants_more_than_the_burst_and_the_refill(
    waits: list[float], rate: float, burst: int
) -> None:
    moments = granted_moments(TokenBucket(rate, burst, 0.0), waits)

    windows = combinations(range(len(moments)), 2)
    excess = [
        (last - first + 1) - burst - rate * (moments[last] - moments[first])
        for first, last in windows
    ]
    assert max(excess, default=0.0) <= 1e-6


@given(gaps, rates, bursts)
def test_whoever_waits_as_told_is_let_through(waits: list[float], rate: float, burst: int) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    granted_moments(bucket, [*waits, *[0.0] * burst])
    now = sum(waits)

    wait = bucket.take(now)

    assert wait > 0.0
    assert bucket.take(now + wait + 1e-6) == 0.0


def test_a_bucket_starts_full_and_then_keeps_the_rate() -> None:
    bucket = TokenBucket(rate=2.0, burst=3, now=0.0)

    waits = [bucket.take(0.0) for _ in range(4)]

    assert waits == [0.0, 0.0, 0.0, 0.5]


def test_a_clock_that_is_set_back_earns_nothing() -> None:
    bucket = TokenBucket(rate=1.0, burst=1, now=100.0)
    bucket.take(100.0)

    assert bucket.take(50.0) == 1.0


def test_clients_do_not_share_a_bucket() -> None:
    limits = Limits(1.0, 1)
    limits.take("one", 0.0)

    assert limits.take("two", 0.0) == 0.0


async def test_one_request_too_many_is_told_how_long_to_wait(
    client: ClientSession, clock: VirtualClock
) -> None:
    options = WebOptions(items=5, rate=0.4, burst=2)
    async with PracticeWeb(options, clock=clock) as web:
        await client.get(f"{web.api_url}/health")
        await client.get(f"{web.api_url}/health")
        answer = await client.get(f"{web.api_url}/health")

        assert answer.status == 429
        assert answer.headers["Retry-After"] == "3"  # 2.5 s, rounded up
        body = await answer.json()
        assert body.keys() == {"error", "retryAfter"}
        assert body["retryAfter"] == 3
        assert web.tally.rate_limited == 1


async def test_after_the_wait_the_next_request_passes(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=5, rate=0.5, burst=1), clock=clock) as web:
        await client.get(f"{web.api_url}/health")
        await clock.sleep(2.01)
        answer = await client.get(f"{web.api_url}/health")

        assert answer.status == 200


@pytest.mark.parametrize("path", ["/robots.txt", "/sitemap_index.xml", "/", "/images/1.png", "/x"])
async def test_every_address_of_the_site_is_limited(
    client: ClientSession, clock: VirtualClock, path: str
) -> None:
    async with PracticeWeb(WebOptions(items=5, rate=0.1, burst=1), clock=clock) as web:
        await client.get(f"{web.api_url}/health")

        assert (await client.get(f"{web.url}{path}")).status == 429


@pytest.mark.parametrize("path", ["/__practice__/tally", "/youtube/watch?v=practice000"])
async def test_bookkeeping_and_videos_have_no_limit(
    client: ClientSession, clock: VirtualClock, path: str
) -> None:
    async with PracticeWeb(WebOptions(items=5, rate=0.1, burst=1), clock=clock) as web:
        await client.get(f"{web.api_url}/health")

        assert (await client.get(f"{web.url}{path}")).status != 429


async def test_every_answer_waits_for_the_latency(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=5, latency=3.0), clock=clock) as web:
        before = clock.now()
        await client.get(f"{web.api_url}/health")

        assert clock.now() - before == pytest.approx(3.0, abs=0.1)
