from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from longline.core.errors import BadOption
from longline.limits import learning
from longline.limits.backends.state import MemoryStateBackend, Result, StateBackend, Update
from longline.limits.learning import Learned
from longline.limits.limiter import AcquiredSlot, RateLimiter
from longline.limits.rate_limit import RateLimit
from tests.limit_backends import MemoryRateLimitBackend, SqliteStates
from tests.virtual import EPOCH, VirtualClock

SITE = "a.test"


@pytest.fixture(params=["memory", "sqlite"])
async def states(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[StateBackend[Learned]]:
    if request.param == "memory":
        yield MemoryStateBackend[Learned](clock)
        return
    kept = SqliteStates(tmp_path / "pace.sqlite", "limits", Learned, clock)
    yield kept
    await kept.close()


class CountingCells(MemoryStateBackend[Learned]):
    """StateBackend that count how often they are asked."""

    asked = 0

    async def change(self, name: str, step: Update[Learned, Result]) -> Result:
        self.asked += 1
        return await super().change(name, step)

    async def read(self, name: str) -> tuple[Learned | None, float]:
        self.asked += 1
        return await super().read(name)


async def take(limiter: RateLimiter, count: int) -> list[AcquiredSlot]:
    """Accept this many requests, one after the other; the first two leave together."""
    grants = []
    for _ in range(count):
        grants.append(await limiter.acquire(SITE))
        await limiter.record_accepted(grants[-1])
    return grants


def smallest_gap(grants: list[AcquiredSlot]) -> float:
    return min(after.at - before.at for before, after in pairwise(grants))


async def test_an_unknown_limit_is_approached_from_below(
    states: StateBackend[Learned], clock: VirtualClock
) -> None:
    limiter = RateLimiter("auto", clock=clock, learned=states)

    first, second, third, *_, last = await take(limiter, 40)

    assert second.at == first.at
    assert third.at - second.at == pytest.approx(0.5, abs=0.15)
    assert last.at - EPOCH < 39 / 4
    assert limiter.get_statistics().domains[SITE].rate == limiter.rate(SITE)
    assert 10 < (limiter.rate(SITE) or 0) < 20


async def test_a_refusal_stops_and_slows_every_process(
    states: StateBackend[Learned], clock: VirtualClock
) -> None:
    backend = MemoryRateLimitBackend(clock)
    one = RateLimiter("auto", clock=clock, backend=backend, learned=states)
    other = RateLimiter("auto", clock=clock, backend=backend, learned=states)
    await take(one, 2)
    await other.acquire(SITE)
    *_, last = await take(one, 40)
    rate = one.rate(SITE)

    await one.record_refused(last, 7.0)
    stopped = clock.now()
    grant = await other.acquire(SITE)

    assert grant.at >= stopped + 7
    assert other.rate(SITE) == one.rate(SITE) == pytest.approx(0.6 * (rate or 0), rel=0.01)


async def test_a_learned_limit_is_used_next_time(
    states: StateBackend[Learned], clock: VirtualClock
) -> None:
    first = RateLimiter("auto", clock=clock, learned=states)
    await take(first, 60)
    await first.record_refused(await first.acquire(SITE), 1.0)
    await take(first, 40)
    known, _now = await states.read(SITE)
    assert known is not None

    second = RateLimiter("auto", clock=clock, learned=states)
    grants = await take(second, 10)

    assert known.proven > learning.START
    assert second.rate(SITE) == pytest.approx(known.proven, rel=0.05)
    assert smallest_gap(grants[2:]) >= 0.95 / known.proven


async def test_the_shared_state_is_asked_twice_a_second_at_most(clock: VirtualClock) -> None:
    states = CountingCells(clock)
    limiter = RateLimiter("auto", clock=clock, learned=states)
    await states.change(SITE, lambda _state, now: (Learned(proven=100.0, rate=100.0), now))
    started = clock.now()

    await take(limiter, 1000)

    assert states.asked <= 2 * (clock.now() - started) + 3


async def test_a_pinned_domain_keeps_exactly_its_rate(
    states: StateBackend[Learned], clock: VirtualClock
) -> None:
    await states.change(SITE, lambda state, now: (learning.pin(state, 4.0, 1, now), None))
    limiter = RateLimiter("auto", clock=clock, learned=states)

    grants = await take(limiter, 40)
    await limiter.record_refused(grants[-1], 1.0)

    assert grants[-1].at - grants[0].at == pytest.approx(39 / 4, abs=0.01)
    assert limiter.rate(SITE) == 4.0


@pytest.mark.parametrize("rate", [20.0, None])
async def test_a_pin_is_kept_whatever_a_source_declares(
    states: StateBackend[Learned], clock: VirtualClock, rate: float | None
) -> None:
    await states.change(SITE, lambda state, now: (learning.pin(state, 1.0, 3, now), None))
    limiter = RateLimiter(rate, clock=clock, learned=states)

    await limiter.acquire(SITE)

    assert limiter.limit(SITE) == RateLimit(1.0, 3)


@pytest.mark.parametrize("rate", [20.0, None, "auto"])
async def test_a_cap_applies_whatever_the_limit_is(
    states: StateBackend[Learned], clock: VirtualClock, rate: float | None
) -> None:
    limiter = RateLimiter(rate, clock=clock, learned=states)

    limiter.cap_rate(SITE, 0.1)
    grants = await take(limiter, 5)

    assert smallest_gap(grants) >= 10
    assert limiter.rate(SITE) == pytest.approx(0.1)
    known = (await states.all())[SITE]
    assert (known.restraint, known.origin) == (0.1, "robots")


async def test_a_restraint_that_comes_late_counts_from_the_next_request(
    clock: VirtualClock,
) -> None:
    limiter = RateLimiter(None, clock=clock)
    assert not (await limiter.acquire(SITE)).is_limited

    limiter.cap_rate(SITE, 1.0)

    assert smallest_gap(await take(limiter, 3)) >= 1
    assert limiter.limit("b.test") is None


async def test_of_two_restraints_the_slower_one_holds(clock: VirtualClock) -> None:
    limiter = RateLimiter(None, clock=clock)

    limiter.cap_rate(SITE, 0.5)
    limiter.cap_rate(SITE, 2.0)

    assert limiter.rate(SITE) == 0.5


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
async def test_a_restraint_that_makes_no_sense_is_refused(clock: VirtualClock, rate: float) -> None:
    with pytest.raises(BadOption) as refused:
        RateLimiter(clock=clock).cap_rate(SITE, rate)

    assert refused.value.option == "rate"


@pytest.mark.parametrize(
    ("rate", "published", "kept"),
    [(10.0, 2.0, 1.9), (10.0, 50.0, 10.0), (None, 2.0, 1.9), ("auto", 40.0, 38.0)],
)
async def test_a_published_limit_slows_down_and_ends_learning(
    states: StateBackend[Learned],
    clock: VirtualClock,
    rate: float | None,
    published: float,
    kept: float,
) -> None:
    limiter = RateLimiter(rate, clock=clock, learned=states)
    await limiter.acquire(SITE)

    is_new = await limiter.set_published(SITE, published)

    assert is_new
    assert not await limiter.set_published(SITE, published)
    assert limiter.rate(SITE) == pytest.approx(kept)


async def test_a_limit_may_be_forgotten_while_a_run_goes_on(
    states: StateBackend[Learned], clock: VirtualClock
) -> None:
    limiter = RateLimiter("auto", clock=clock, learned=states)
    await take(limiter, 80)
    before = limiter.rate(SITE) or 0.0

    await states.forget(SITE)
    await take(limiter, 20)

    assert 2.0 <= (limiter.rate(SITE) or 0.0) < before / 1.5


async def test_concurrent_requests_load_a_domain_once(clock: VirtualClock) -> None:
    states = CountingCells(clock)
    limiter = RateLimiter(None, clock=clock, learned=states)

    await asyncio.gather(*(limiter.acquire(SITE) for _ in range(50)))

    assert states.asked == 1


async def test_a_rate_changed_by_a_fifth_is_reported(clock: VirtualClock) -> None:
    limiter = RateLimiter("auto", clock=clock)
    await limiter.acquire(SITE)
    assert limiter.changed_rate(SITE) is None

    await take(limiter, 10)

    assert limiter.changed_rate(SITE) == limiter.rate(SITE)
    assert limiter.changed_rate(SITE) is None


async def test_of_several_published_limits_the_slowest_is_kept_until_the_next_run(
    clock: VirtualClock,
) -> None:
    states = CountingCells(clock)
    limiter = RateLimiter(None, clock=clock, learned=states)
    await limiter.acquire(SITE)

    for rate in (5.0, 2.0, 8.0, 2.0, 8.0):
        await limiter.set_published(SITE, rate)

    assert limiter.rate(SITE) == pytest.approx(1.9)
    assert states.asked == 3  # to look it up, and for each that was slower
    later = RateLimiter(None, clock=clock, learned=states)
    await later.acquire(SITE)
    assert not await later.set_published(SITE, 8.0)
    assert later.rate(SITE) == pytest.approx(7.6)


async def test_a_pin_does_not_override_the_rate_of_a_job(clock: VirtualClock) -> None:
    states = MemoryStateBackend[Learned](clock)
    await states.change(SITE, lambda state, now: (learning.pin(state, 50.0, 10, now), None))
    limiter = RateLimiter(1.0, 1, clock=clock, learned=states, respects_pins=False)
    await limiter.acquire(SITE)

    assert limiter.rate(SITE) == 1.0
