from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from longline.core.errors import BadOption
from longline.limits.backends.memory import MemoryConcurrencyKeeper
from longline.limits.concurrency import LEASE, Entry
from longline.limits.in_flight import Doorman
from tests.virtual import VirtualClock

DOMAIN = "a.test"


@dataclass
class Visits:
    """How many were inside at once, and in which order they came."""

    inside: int = 0
    most: int = 0
    order: list[int] = field(default_factory=list)

    async def make(
        self, doorman: Doorman, clock: VirtualClock, number: int, seconds: float
    ) -> None:
        async with doorman.room(DOMAIN):
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.order.append(number)
            await clock.sleep(seconds)
            self.inside -= 1


class Counting(MemoryConcurrencyKeeper):
    """Counts how often it is asked."""

    asked = 0
    renewed = 0

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> Entry:
        self.asked += 1
        return await super().acquire(domain, limit, lease)

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        self.renewed += 1
        await super().renew(domain, tokens, lease)


async def test_only_so_many_are_inside_and_all_have_their_turn(clock: VirtualClock) -> None:
    doorman, visits, begun = Doorman(2, clock=clock), Visits(), clock.now()

    await asyncio.gather(*(visits.make(doorman, clock, n, 1.0) for n in range(10)))

    assert (visits.most, visits.order) == (2, list(range(10)))
    assert clock.now() - begun == pytest.approx(5.0, abs=0.01)


async def test_who_waits_for_his_own_process_does_not_bother_the_keeper(
    clock: VirtualClock,
) -> None:
    keeper = Counting(clock)
    doorman, visits = Doorman(1, clock=clock, keeper=keeper), Visits()

    await asyncio.gather(*(visits.make(doorman, clock, n, 5.0) for n in range(4)))

    assert keeper.asked == 4


async def test_processes_share_the_room(clock: VirtualClock) -> None:
    keeper, visits = MemoryConcurrencyKeeper(clock), Visits()
    doormen = [Doorman(3, clock=clock, keeper=keeper) for _ in range(5)]

    await asyncio.gather(*(visits.make(one, clock, n, 1.0) for n, one in enumerate(doormen * 4)))

    assert (visits.most, len(visits.order)) == (3, 20)


async def test_a_long_stay_is_renewed(clock: VirtualClock) -> None:
    keeper, visits = MemoryConcurrencyKeeper(clock), Visits()
    long, short = (Doorman(1, clock=clock, keeper=keeper) for _ in range(2))

    async with asyncio.TaskGroup() as group:
        group.create_task(visits.make(long, clock, 0, 10 * LEASE))
        await clock.sleep(1)
        group.create_task(visits.make(short, clock, 1, 1.0))

    assert visits.most == 1


async def test_nothing_is_renewed_when_nobody_is_inside(clock: VirtualClock) -> None:
    keeper = Counting(clock)
    doorman = Doorman(1, clock=clock, keeper=keeper)
    async with doorman.room(DOMAIN):
        pass
    await clock.sleep(10 * LEASE)

    assert keeper.renewed == 0
    await doorman.close()


async def test_one_who_fails_or_is_cancelled_leaves(clock: VirtualClock) -> None:
    keeper = MemoryConcurrencyKeeper(clock)
    doorman, visits = Doorman(1, clock=clock, keeper=keeper), Visits()
    cancelled = asyncio.create_task(visits.make(doorman, clock, 0, 100))
    waiting = asyncio.create_task(visits.make(doorman, clock, 1, 1))
    await clock.sleep(1)

    cancelled.cancel()
    await waiting
    with pytest.raises(ZeroDivisionError):
        async with doorman.room(DOMAIN):
            raise ZeroDivisionError

    assert (await keeper.acquire(DOMAIN, 1)).token is not None
    await doorman.close()


async def test_the_wait_is_told(clock: VirtualClock) -> None:
    doorman, visits = Doorman(1, clock=clock), Visits()
    visit = asyncio.create_task(visits.make(doorman, clock, 0, 3.0))
    await clock.sleep(1)

    async with doorman.room(DOMAIN) as waited:
        assert waited == pytest.approx(2.0, abs=0.01)
    await visit


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_limit_that_makes_no_sense_is_refused(limit: int) -> None:
    with pytest.raises(BadOption) as refused:
        Doorman(limit)

    assert refused.value.option == "at_once"
