"""Requests that a page makes by itself: paced, out of the budget, and not of a host that rests."""

from __future__ import annotations

from pathlib import Path

import pytest

from longline.config.job_spec import BudgetSpec
from longline.core.clock import SystemClock
from longline.core.errors import BudgetSpent, CircuitOpen, ConnectFailed, FailureKind
from longline.core.model import Usage
from longline.http.browser.transport import Subrequests
from longline.http.messages import Request
from longline.limits.backends.state import MemoryStateBackend
from longline.limits.breaker import BreakerPolicy, CircuitBreaker
from longline.limits.budget import Budgets
from longline.limits.limiter import RateLimiter
from tests.http.browsing import browsing, open_shop
from tests.scripted_site import ScriptedSite
from tests.virtual import EPOCH, VirtualClock

URL = "https://cdn.test/app.js"


def budgets(clock: VirtualClock | SystemClock, requests: int) -> Budgets:
    total = BudgetSpec(requests=requests)
    return Budgets("job", MemoryStateBackend(clock), clock, total=total, per_domain=BudgetSpec())


async def test_they_keep_the_pace_of_their_host(clock: VirtualClock) -> None:
    limiter = RateLimiter(2.0, 1, clock=clock)
    turn = Subrequests(limiter, CircuitBreaker(clock=clock))

    for _ in range(3):
        await turn(URL)

    assert clock.now() - EPOCH >= 1.0


async def test_they_are_taken_out_of_the_budget_until_there_is_none(clock: VirtualClock) -> None:
    limiter = RateLimiter(None, 1, clock=clock)
    turn = Subrequests(limiter, CircuitBreaker(clock=clock), budgets(clock, 2))
    await turn(URL)
    await turn(URL)

    with pytest.raises(BudgetSpent) as spent:
        await turn(URL)

    assert "2 requests" in spent.value.limit


async def test_a_host_that_rests_is_not_asked_and_asked_again_later(clock: VirtualClock) -> None:
    policy = BreakerPolicy(threshold=1, recovery=30.0)
    breaker = CircuitBreaker(policy=policy, clock=clock)
    turn = Subrequests(RateLimiter(None, 1, clock=clock), breaker)
    await breaker.admit("cdn.test")
    await breaker.record("cdn.test", ConnectFailed(URL, "refused"))

    with pytest.raises(CircuitOpen) as rests:
        await turn(URL)
    assert "cdn.test" in rests.value.url
    assert rests.value.kind is FailureKind.NETWORK
    await turn("https://other.test/")
    await clock.sleep(31)
    await turn(URL)


@pytest.mark.real_time
async def test_a_page_whose_parts_are_over_the_budget_is_not_had(
    site: ScriptedSite, tmp_path: Path
) -> None:
    clock = SystemClock()
    spent = budgets(clock, 1)
    await spent.spend("elsewhere.test", "https://elsewhere.test/")
    turn = Subrequests(RateLimiter(None, 1, clock=clock), CircuitBreaker(clock=clock), spent)
    spec = {"wait": {"selector": ".item", "timeout": 0.5}}

    async with browsing(tmp_path, spec, before=turn) as transport:
        with pytest.raises(BudgetSpent):
            await transport(Request(open_shop(site)), Usage())

    assert site.hits["/api/items"] == 0
