from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from longline.core.errors import BadOption
from longline.limits.concurrency import LEASE, ConcurrencyLimiter, InFlightSlot
from tests.limit_backends import MemoryConcurrencyBackend
from tests.virtual import VirtualClock

DOMAIN = "a.test"


@dataclass
class Visits:
    """How many were inside at once, and in which order they came."""

    inside: int = 0
    most: int = 0
    order: list[int] = field(default_factory=list)

    async def make(
        self,
        concurrency_limiter: ConcurrencyLimiter,
        clock: VirtualClock,
        number: int,
        seconds: float,
    ) -> None:
        async with concurrency_limiter.slot(DOMAIN):
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(number)
            await clock.sleep(seconds)
            self.inside -= 1


class Counting(MemoryConcurrencyBackend):
    """Counts how often it is asked."""

    asked = 0
    renewed = 0

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> InFlightSlot:
        self.asked += 1
        return await super().acquire(domain, limit, lease)

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        self.renewed += 1
        await super().renew(domain, tokens, lease)


async def test_only_so_many_are_inside_and_all_have_their_turn(clock: VirtualClock) -> None:
    concurrency_limiter, visits, begun = ConcurrencyLimiter(2, clock=clock), Visits(), clock.now()

    await asyncio.gather(*(visits.make(concurrency_limiter, clock, n, 1.0) for n in range(10)))

    assert (visits.most, visits.order) == (2, list(range(10)))
    assert clock.now() - begun == pytest.approx(5.0, abs=0.01)


async def test_waiting_for_the_own_process_does_not_call_the_backend(
    clock: VirtualClock,
) -> None:
    backend = Counting(clock)
    concurrency_limiter, visits = ConcurrencyLimiter(1, clock=clock, backend=backend), Visits()

    await asyncio.gather(*(visits.make(concurrency_limiter, clock, n, 5.0) for n in range(4)))

    assert backend.asked == 4


async def test_processes_share_the_room(clock: VirtualClock) -> None:
    backend, visits = MemoryConcurrencyBackend(clock), Visits()
    limiters = [ConcurrencyLimiter(3, clock=clock, backend=backend) for _ in range(5)]

    await asyncio.gather(*(visits.make(one, clock, n, 1.0) for n, one in enumerate(limiters * 4)))

    assert (visits.most, len(visits.order)) == (3, 20)


async def test_a_long_stay_is_renewed(clock: VirtualClock) -> None:
    backend, visits = MemoryConcurrencyBackend(clock), Visits()
    long, short = (ConcurrencyLimiter(1, clock=clock, backend=backend) for _ in range(2))

    async with asyncio.TaskGroup() as group:
        group.create_task(visits.make(long, clock, 0, 10 * LEASE))
        await clock.sleep(1)
        group.create_task(visits.make(short, clock, 1, 1.0))

    assert visits.most == 1


async def test_nothing_is_renewed_without_requests_in_flight(clock: VirtualClock) -> None:
    backend = Counting(clock)
    concurrency_limiter = ConcurrencyLimiter(1, clock=clock, backend=backend)
    async with concurrency_limiter.slot(DOMAIN):
        pass
    await clock.sleep(10 * LEASE)

    assert backend.renewed == 0
    await concurrency_limiter.close()


async def test_a_failed_or_cancelled_request_frees_its_slot(clock: VirtualClock) -> None:
    backend = MemoryConcurrencyBackend(clock)
    concurrency_limiter, visits = ConcurrencyLimiter(1, clock=clock, backend=backend), Visits()
    cancelled = asyncio.create_task(visits.make(concurrency_limiter, clock, 0, 100))
    waiting = asyncio.create_task(visits.make(concurrency_limiter, clock, 1, 1))
    await clock.sleep(1)

    cancelled.cancel()
    await waiting
    with pytest.raises(ZeroDivisionError):
        async with concurrency_limiter.slot(DOMAIN):
            raise ZeroDivisionError

    assert (await backend.acquire(DOMAIN, 1)).token is not None
    await concurrency_limiter.close()


async def test_the_wait_is_returned(clock: VirtualClock) -> None:
    concurrency_limiter, visits = ConcurrencyLimiter(1, clock=clock), Visits()
    visit = asyncio.create_task(visits.make(concurrency_limiter, clock, 0, 3.0))
    await clock.sleep(1)

    async with concurrency_limiter.slot(DOMAIN) as waited:
        assert waited == pytest.approx(2.0, abs=0.01)
    await visit


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_limit_that_makes_no_sense_is_refused(limit: int) -> None:
    with pytest.raises(BadOption) as refused:
        ConcurrencyLimiter(limit)

    assert refused.value.option == "max_in_flight"
