from __future__ import annotations

import asyncio
from dataclasses import asdict
from itertools import pairwise
from typing import Never

import pytest

from longline.core.errors import BadOption
from longline.limits.backends.state import MemoryStateBackend
from longline.limits.limiter import AcquiredSlot, RateLimiter
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend, Slot
from tests.limit_backends import MemoryRateLimitBackend
from tests.virtual import EPOCH, VirtualClock

ROUNDING = 1e-5


@pytest.fixture
def limiter(clock: VirtualClock) -> RateLimiter:
    return RateLimiter(clock=clock)


async def leave(limiter: RateLimiter, clock: VirtualClock, domain: str, left: list[float]) -> None:
    await limiter.acquire(domain)
    left.append(clock.now() - EPOCH)


async def departures(
    limiter: RateLimiter, clock: VirtualClock, count: int, domain: str = "a.test"
) -> list[float]:
    """Return when each of `count` requests left, all asking at once."""
    left: list[float] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(leave(limiter, clock, domain, left))
    return left


async def test_five_go_together_and_the_sixth_after_the_margin(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    left = await departures(limiter, clock, 7)

    assert left == pytest.approx([0, 0, 0, 0, 0, 0.6, 1.1], abs=ROUNDING)


async def test_two_hundred_take_the_time_they_must_and_a_margin(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 200)

    assert clock.now() - EPOCH == pytest.approx(97.6, abs=ROUNDING)


async def test_one_after_the_other_is_as_fast_as_all_together(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    for _ in range(200):
        await limiter.acquire("a.test")

    assert clock.now() - EPOCH == pytest.approx(97.6, abs=ROUNDING)


async def test_after_a_pause_the_burst_is_there_again(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 5)
    await clock.sleep(2.6)

    left = await departures(limiter, clock, 5)

    assert left == pytest.approx([2.6] * 5, abs=ROUNDING)


async def test_domains_do_not_hold_each_other_up(clock: VirtualClock) -> None:
    limiter = RateLimiter(
        clock=clock, limits={"slow.test": RateLimit(rate=0.1, capacity=1, margin=0)}
    )

    slow, fast = await asyncio.gather(
        departures(limiter, clock, 3, "slow.test"), departures(limiter, clock, 20, "fast.test")
    )

    assert slow == pytest.approx([0, 10, 20], abs=ROUNDING)
    assert fast[-1] == pytest.approx(7.6, abs=ROUNDING)


async def test_requests_go_in_order_of_arrival(limiter: RateLimiter, clock: VirtualClock) -> None:
    order: list[int] = []

    async def go(number: int) -> None:
        await limiter.acquire("a.test")
        order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(go(number))
            await clock.sleep(0.01)

    assert order == list(range(30))


async def test_a_penalty_stops_waiting_requests_without_a_burst_after(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(departures(limiter, clock, 12))
        await clock.sleep(0.7)
        await limiter.penalise("a.test", 30)

    left = waiting.result()
    assert left[:6] == pytest.approx([0, 0, 0, 0, 0, 0.6], abs=ROUNDING)
    assert left[6] >= 30.7
    assert min(b - a for a, b in pairwise(left[6:])) >= 0.5 - ROUNDING


async def test_a_penalty_of_one_domain_leaves_the_others_alone(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await limiter.penalise("a.test", 30)

    assert await departures(limiter, clock, 1, "b.test") == [0]


async def test_a_cancelled_wait_gives_its_slot_to_the_next(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 5)
    waiting = [asyncio.create_task(limiter.acquire("a.test")) for _ in range(50)]
    await clock.sleep(0.1)

    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)

    assert all(task.cancelled() for task in waiting)
    assert await departures(limiter, clock, 2) == pytest.approx([0.6, 1.1], abs=ROUNDING)


async def test_a_cancelled_task_does_not_hold_up_those_behind_it(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 5)
    first = asyncio.create_task(limiter.acquire("a.test"))
    await clock.sleep(0.1)

    async with asyncio.TaskGroup() as group:
        behind = group.create_task(departures(limiter, clock, 1))
        await clock.sleep(0.1)
        first.cancel()

    assert behind.result() == pytest.approx([0.6], abs=ROUNDING)


async def test_a_token_is_void_once_the_bucket_has_been_full_again(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    held = [await limiter.acquire("a.test") for _ in range(6)]
    await clock.sleep(60)

    left = [await limiter.confirm(grant) for grant in held]

    # The bucket holds five; what left with it is counted like any other request.
    assert [grant.at - EPOCH - 60.6 for grant in left] == pytest.approx(
        [0, 0, 0, 0, 0, left[-1].waited], abs=ROUNDING
    )
    assert left[-1].waited > 0.5
    assert limiter.get_statistics().requests == 6


async def test_a_late_token_counts_while_the_bucket_is_in_use(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    held = await limiter.acquire("a.test")
    await departures(limiter, clock, 10)

    assert clock.now() - EPOCH > 3
    assert await limiter.confirm(held) is held


async def test_a_penalty_holds_up_a_request_that_is_late_to_leave(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    held = await limiter.acquire("a.test")
    await clock.sleep(1)
    await limiter.penalise("a.test", 7)

    left = await limiter.confirm(held)

    assert left.waited >= 7


async def test_lateness_makes_the_margin_grow(limiter: RateLimiter, clock: VirtualClock) -> None:
    held = [await limiter.acquire("a.test") for _ in range(5)]
    await clock.sleep(0.2)

    assert await limiter.confirm(held[-1]) is held[-1]

    assert await departures(limiter, clock, 2) == pytest.approx([0.8, 1.3], abs=ROUNDING)


async def test_lateness_within_the_margin_is_none(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 5)

    await limiter.confirm(AcquiredSlot("a.test", clock.now() - 0.04, 0.0, is_limited=True))

    assert await departures(limiter, clock, 1) == pytest.approx([0.6], abs=ROUNDING)


async def test_a_task_that_wakes_late_does_not_let_others_catch_up(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=SleepyClock(oversleeps=5), backend=MemoryRateLimitBackend(clock))
    await departures(limiter, clock, 5)

    left = await departures(limiter, clock, 6)

    # Woken at 5.6 instead of 0.6 the bucket is full again: five at once, this one among them.
    assert left[:5] == pytest.approx([5.6] * 5, abs=ROUNDING)
    assert left[5] > 5.6


async def test_a_task_that_wakes_late_goes_immediately_if_it_can(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=SleepyClock(oversleeps=0.3), backend=MemoryRateLimitBackend(clock))
    await departures(limiter, clock, 5)

    left = await departures(limiter, clock, 2)

    assert left == pytest.approx([0.9, 1.1], abs=ROUNDING)


async def test_a_token_says_when_it_was_due_and_how_long_it_took(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 5)

    grant = await limiter.acquire("a.test")

    assert grant.at == pytest.approx(EPOCH + 0.6, abs=ROUNDING)
    assert grant.waited == pytest.approx(0.6, abs=ROUNDING)


async def test_without_a_limit_the_backend_is_rarely_called(clock: VirtualClock) -> None:
    limiter = RateLimiter(rate=None, clock=clock, backend=SilentBackend(MemoryStateBackend(clock)))

    await departures(limiter, clock, 1000)
    await limiter.confirm(AcquiredSlot("a.test", clock.now() - 5, 0.0, is_limited=True))

    assert clock.now() == EPOCH
    assert limiter.get_statistics().requests == 1000
    assert limiter.get_statistics().domains["a.test"].tokens is None


async def test_a_penalty_stops_a_domain_without_a_limit_too_and_then_it_has_none_again(
    clock: VirtualClock,
) -> None:
    limiter = RateLimiter(rate=None, clock=clock)

    await limiter.penalise("a.test", 5)

    assert min(await departures(limiter, clock, 9)) >= 5
    assert limiter.limit("a.test") is None
    assert not (await limiter.acquire("a.test")).is_limited


async def test_one_domain_may_be_without_a_limit(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock, limits={"own.test": None})

    assert await departures(limiter, clock, 9, "own.test") == [0] * 9


async def test_statistics_count_waits_in_all_and_for_each_domain(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 7)
    await departures(limiter, clock, 1, "b.test")

    statistics = limiter.get_statistics()

    assert (statistics.requests, statistics.waits) == (8, 2)
    assert (statistics.rate, statistics.capacity) == (2.0, 5)
    assert statistics.total_wait == pytest.approx(1.7, abs=ROUNDING)
    assert statistics.mean_wait == pytest.approx(0.85, abs=ROUNDING)
    assert statistics.domains["a.test"].requests == 7
    assert statistics.domains["a.test"].tokens == pytest.approx(0.2, abs=ROUNDING)
    assert statistics.domains["b.test"].waits == 0
    assert statistics.domains["b.test"].tokens == pytest.approx(4, abs=ROUNDING)


async def test_tokens_come_back_with_time(limiter: RateLimiter, clock: VirtualClock) -> None:
    await departures(limiter, clock, 5)
    assert limiter.get_statistics().domains["a.test"].tokens == pytest.approx(0, abs=ROUNDING)

    await clock.sleep(1)

    assert limiter.get_statistics().domains["a.test"].tokens == pytest.approx(2, abs=ROUNDING)


async def test_a_reset_clears_the_statistics_and_keeps_the_buckets(
    limiter: RateLimiter, clock: VirtualClock
) -> None:
    await departures(limiter, clock, 5)

    limiter.reset_statistics()

    assert limiter.get_statistics().requests == 0
    assert await departures(limiter, clock, 1) == pytest.approx([0.6], abs=ROUNDING)


async def test_statistics_are_plain_values_for_json(limiter: RateLimiter) -> None:
    await limiter.acquire("a.test")

    figures = asdict(limiter.get_statistics())

    assert figures["requests"] == 1
    assert figures["domains"]["a.test"]["capacity"] == 5


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
async def test_a_penalty_that_makes_no_sense_is_refused(
    limiter: RateLimiter, seconds: float
) -> None:
    with pytest.raises(BadOption) as refused:
        await limiter.penalise("a.test", seconds)

    assert refused.value.option == "penalty"


def test_a_limit_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(BadOption) as refused:
        RateLimiter(rate=0)

    assert refused.value.option == "rate"


class SleepyClock(VirtualClock):
    """A clock whose first sleeper is woken too late, as on a machine that is busy."""

    def __init__(self, oversleeps: float) -> None:
        self._oversleeps = oversleeps

    async def sleep(self, seconds: float) -> None:
        late, self._oversleeps = self._oversleeps, 0.0
        await super().sleep(seconds + late)


class SilentBackend(RateLimitBackend):
    """A backend that may be read once, and must not be used otherwise."""

    is_seen = False

    async def reserve(self, domain: str, limit: RateLimit) -> Slot:
        _must_not_be_called(domain, limit)

    async def check(self, domain: str, limit: RateLimit, slot: Slot) -> float | None:
        _must_not_be_called(domain, limit, slot)

    async def penalise(self, domain: str, limit: RateLimit, seconds: float) -> BucketState:
        _must_not_be_called(domain, limit, seconds)

    async def observe_lateness(self, domain: str, limit: RateLimit, seconds: float) -> None:
        _must_not_be_called(domain, limit, seconds)

    async def cancel(self, domain: str, slot: Slot) -> None:
        _must_not_be_called(domain, slot)

    async def state(self, domain: str) -> BucketState | None:
        if self.is_seen:
            _must_not_be_called(domain)
        self.is_seen = True
        return None


def _must_not_be_called(*question: object) -> Never:
    raise AssertionError(question)
