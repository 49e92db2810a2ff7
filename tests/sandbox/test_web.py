"""The options of the practice web, its addresses, and its rate limit."""

from __future__ import annotations

import errno
from itertools import combinations
from typing import Any

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import BadOption
from longline.sandbox.limits import Limits, TokenBucket
from longline.sandbox.web import PracticeWeb, WebOptions
from tests.virtual import VirtualClock


@pytest.mark.parametrize(
    "options",
    [
        {"items": -1},
        {"rate": 0.0},
        {"burst": 0},
        {"faults": 1.5},
        {"missing": -0.1},
        {"latency": -1.0},
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(BadOption) as caught:
        WebOptions(**options)

    assert [caught.value.option] == list(options)


async def test_the_urls_are_known_once_it_listens(web: PracticeWeb) -> None:
    assert not web.url.endswith(":0")
    assert web.site_url == web.url
    assert web.api_url == f"{web.url}/api"
    assert web.youtube_url == f"{web.url}/youtube"


async def test_it_can_be_stopped_twice(clock: VirtualClock) -> None:
    web = PracticeWeb(WebOptions(items=1), clock=clock)
    await web.start()

    await web.stop()
    await web.stop()


async def test_a_port_that_is_taken_is_an_error(web: PracticeWeb, clock: VirtualClock) -> None:
    port = int(web.url.rpartition(":")[2])
    second = PracticeWeb(WebOptions(items=1), clock=clock, port=port)

    with pytest.raises(OSError, match=str(port)) as failed:
        await second.start()

    assert failed.value.errno == errno.EADDRINUSE
    await second.stop()


gaps = st.lists(st.floats(0.0, 5.0), min_size=1, max_size=40)
rates = st.floats(0.1, 50.0)
bursts = st.integers(1, 10)


def granted_moments(bucket: TokenBucket, waits: list[float]) -> list[float]:
    moments = [sum(waits[: place + 1]) for place in range(len(waits))]
    return [moment for moment in moments if bucket.take(moment) == 0.0]


@given(gaps, rates, bursts)
def test_no_window_grants_more_than_burst_and_refill(
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
def test_a_client_that_waits_retry_after_is_granted(
    waits: list[float], rate: float, burst: int
) -> None:
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


def test_a_clock_set_back_adds_no_tokens() -> None:
    bucket = TokenBucket(rate=1.0, burst=1, now=100.0)
    bucket.take(100.0)

    assert bucket.take(50.0) == 1.0


def test_clients_do_not_share_a_bucket() -> None:
    limits = Limits(1.0, 1)
    limits.take("one", 0.0)

    assert limits.take("two", 0.0) == 0.0


async def test_a_request_over_the_limit_gets_retry_after(
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


async def test_after_retry_after_the_next_request_is_granted(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=5, rate=0.5, burst=1), clock=clock) as web:
        await client.get(f"{web.api_url}/health")
        await clock.sleep(2.01)
        answer = await client.get(f"{web.api_url}/health")

        assert answer.status == 200


@pytest.mark.parametrize("path", ["/robots.txt", "/sitemap_index.xml", "/", "/images/1.png", "/x"])
async def test_every_url_of_the_site_is_limited(
    client: ClientSession, clock: VirtualClock, path: str
) -> None:
    async with PracticeWeb(WebOptions(items=5, rate=0.1, burst=1), clock=clock) as web:
        await client.get(f"{web.api_url}/health")

        assert (await client.get(f"{web.url}{path}")).status == 429


@pytest.mark.parametrize("path", ["/__practice__/tally", "/youtube/watch?v=practice000"])
async def test_the_tally_and_videos_have_no_limit(
    client: ClientSession, clock: VirtualClock, path: str
) -> None:
    async with PracticeWeb(WebOptions(items=5, rate=0.1, burst=1), clock=clock) as web:
        await client.get(f"{web.api_url}/health")

        assert (await client.get(f"{web.url}{path}")).status != 429


async def test_every_response_has_the_configured_latency(
    client: ClientSession, clock: VirtualClock
) -> None:
    async with PracticeWeb(WebOptions(items=5, latency=3.0), clock=clock) as web:
        before = clock.now()
        await client.get(f"{web.api_url}/health")

        assert clock.now() - before == pytest.approx(3.0, abs=0.1)
