from __future__ import annotations

import asyncio

import pytest

from longline.core.model import JobState
from longline.limits.limiter import RateLimiter
from tests.integration.conftest import Collect, Serve
from tests.virtual import VirtualClock


async def test_the_limit_is_kept_and_used_to_the_full(
    serve: Serve, collect: Collect, clock: VirtualClock
) -> None:
    options = {"transcripts": False}
    async with (
        serve(items=100, rate=2.0, burst=5) as web,
        collect(web, options=options) as longline,
    ):
        started = clock.now()

        report = await longline.execute()

        requests = web.tally.requests
        shortest = (requests - 5) / 2
    assert report.state is JobState.COMPLETE
    assert web.tally.rate_limited == 0
    assert shortest <= clock.now() - started <= shortest * 1.01 + 1  # the last answer and commit


async def test_a_server_that_enforces_exactly_our_limit_never_says_429(
    serve: Serve, collect: Collect
) -> None:
    async with (
        serve(items=80, rate=10.0, burst=3, faults=0.2, latency=0.05) as web,
        collect(web, rate=10.0, burst=3, concurrency=12, timeout=5) as longline,
    ):
        report = await longline.execute()

    assert web.tally.rate_limited == 0
    assert report.as_dict()["rate_limited"] == 0
    assert report.as_dict()["stored"] == 80


async def test_a_burst_goes_at_once_and_then_one_every_half_second(clock: VirtualClock) -> None:
    limiter = RateLimiter(rate=2.0, capacity=5, clock=clock)
    started = clock.now()

    grants = [await limiter.acquire("a") for _ in range(8)]

    waits = [grant.at - started for grant in grants]
    assert waits == pytest.approx([0, 0, 0, 0, 0, 0.6, 1.1, 1.6])


async def test_domains_do_not_wait_for_each_other(clock: VirtualClock) -> None:
    limiter = RateLimiter(rate=2.0, capacity=5, clock=clock)
    started = clock.now()

    await asyncio.gather(
        *(limiter.acquire(domain) for domain in ("a", "b", "c") for _ in range(15))
    )

    assert clock.now() - started == pytest.approx((15 - 5) / 2 + 0.1)


async def test_several_runs_on_one_home_share_a_site_s_limit(
    serve: Serve, collect: Collect
) -> None:
    # Three jobs of their own (a different limit makes a different job), one site, one home.
    async with (
        serve(items=60, rate=5.0, burst=5) as web,
        collect(web, rate=5.0, burst=5) as one,
        collect(web, rate=5.0, burst=5) as two,
        collect(web, rate=5.0, burst=5) as three,
    ):
        reports = await asyncio.gather(
            one.execute(params={"limit": 20}),
            two.execute(params={"limit": 25}),
            three.execute(params={"limit": 30}),
        )

    assert len({report.job for report in reports}) == 3
    assert [report.progress.successful for report in reports] == [20, 25, 30]
    assert web.tally.rate_limited == 0


async def test_a_limit_lower_than_ours_slows_us_down_and_loses_nothing(
    serve: Serve, collect: Collect
) -> None:
    async with serve(items=30, rate=2.0, burst=2) as web, collect(web, rate=20.0) as longline:
        report = await longline.execute()

    assert web.tally.rate_limited > 0
    assert report.as_dict()["rate_limited"] == web.tally.rate_limited
    assert report.as_dict()["failed"] + report.as_dict()["stored"] == 30
    assert report.as_dict()["stored"] >= 28


async def test_waits_are_monitored_for_each_domain(serve: Serve, collect: Collect) -> None:
    async with serve(items=20) as web, collect(web) as longline:
        report = await longline.execute()

    pace = {status.domain: status for status in report.progress.pace}
    status = pace[web.url.removeprefix("http://")]
    assert (status.rate, status.capacity) == (2.0, 5)
    assert status.requests == report.progress.statistic("requests")
    assert status.waits > 0
    assert status.waited > 0
    assert status.tokens is not None
    assert 0 <= status.tokens <= 5
