"""State that processes share through the database: leaders and small values."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from longline.core.errors import CircuitOpen, ConnectFailed
from longline.limits.breaker import BreakerPolicy, BreakerState, CircuitBreaker
from longline.limits.budget import BudgetUsage
from longline.storage.store import Store, open_store
from tests.virtual import EPOCH, VirtualClock


async def test_only_one_process_leads(store: Store, address: str) -> None:
    with open_store(address) as other:
        both = await asyncio.gather(
            store.leaders.acquire("sweeping", "me", EPOCH, EPOCH + 10),
            other.leaders.acquire("sweeping", "you", EPOCH, EPOCH + 10),
        )

    assert sorted(both) == [False, True]


async def test_a_leader_that_renews_stays_leader(store: Store) -> None:
    await store.leaders.acquire("sweeping", "me", EPOCH, EPOCH + 10)

    assert await store.leaders.acquire("sweeping", "me", EPOCH + 9, EPOCH + 19)
    assert not await store.leaders.acquire("sweeping", "you", EPOCH + 18, EPOCH + 28)


async def test_an_expired_leader_is_replaced(store: Store) -> None:
    await store.leaders.acquire("sweeping", "me", EPOCH, EPOCH + 10)

    assert await store.leaders.acquire("sweeping", "you", EPOCH + 11, EPOCH + 21)
    assert not await store.leaders.acquire("sweeping", "me", EPOCH + 12, EPOCH + 22)


async def test_each_name_has_its_own_leader(store: Store) -> None:
    await store.leaders.acquire("sweeping", "me", EPOCH, EPOCH + 10)

    assert await store.leaders.acquire("scheduling", "you", EPOCH, EPOCH + 10)


async def test_a_released_name_can_be_taken_immediately(store: Store) -> None:
    await store.leaders.acquire("sweeping", "me", EPOCH, EPOCH + 10)

    await store.leaders.release("sweeping", "you")
    assert not await store.leaders.acquire("sweeping", "you", EPOCH, EPOCH + 10)
    await store.leaders.release("sweeping", "me")
    assert await store.leaders.acquire("sweeping", "you", EPOCH, EPOCH + 10)


# ---------------- Small values


def one_more(value: BudgetUsage | None, _now: float) -> tuple[BudgetUsage, int]:
    before = value or BudgetUsage()
    return replace(before, requests=before.requests + 1), before.requests


async def test_a_value_is_made_changed_read_and_forgotten(
    store: Store, clock: VirtualClock
) -> None:
    cells = store.state_backend("budget", BudgetUsage, clock)

    assert await cells.change("job", one_more) == 0
    assert await cells.change("job", one_more) == 1
    assert (await cells.read("job"))[0] == BudgetUsage(2)
    assert await cells.forget("job")
    assert not await cells.forget("job")
    assert (await cells.read("job"))[0] is None


async def test_no_concurrent_change_is_lost(store: Store, clock: VirtualClock) -> None:
    cells = store.state_backend("budget", BudgetUsage, clock)

    before = await asyncio.gather(*(cells.change("job", one_more) for _ in range(50)))

    assert sorted(before) == list(range(50))


async def test_kinds_of_values_are_separate(store: Store, clock: VirtualClock) -> None:
    await store.state_backend("one", BudgetUsage, clock).change("job", one_more)

    assert await store.state_backend("other", BudgetUsage, clock).all() == {}
    assert await store.state_backend("one", BudgetUsage, clock).all() == {"job": BudgetUsage(1)}


async def test_an_update_gets_the_time_of_the_clock(store: Store, clock: VirtualClock) -> None:
    await clock.sleep(60)

    now = await store.state_backend("one", BudgetUsage, clock).change(
        "job", lambda _, now: (None, now)
    )

    assert abs(now - clock.now()) < 1


async def test_of_many_processes_one_sends_the_probe_of_a_breaker(
    store: Store, address: str, clock: VirtualClock
) -> None:
    policy = BreakerPolicy(threshold=1, recovery=600.0)
    with open_store(address) as other:
        breakers = [
            CircuitBreaker(
                policy=policy,
                clock=clock,
                backend=one.state_backend("breaker", BreakerState, clock),
            )
            for one in (store, other)
        ]
        await breakers[0].record("a.test", ConnectFailed("http://a.test/", "reset"))
        await clock.sleep(601)

        results = await asyncio.gather(
            *(one.admit("a.test") for one in breakers * 5), return_exceptions=True
        )

    assert results.count(None) == 1
    assert sum(isinstance(one, CircuitOpen) for one in results) == 9
