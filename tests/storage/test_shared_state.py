"""The state backend in the database: many tasks change the same value."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from longline.limits.budget import BudgetUsage
from longline.storage.store import Store
from tests.virtual import VirtualClock


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


async def test_of_many_changes_at_once_none_is_lost(store: Store, clock: VirtualClock) -> None:
    cells = store.state_backend("budget", BudgetUsage, clock)

    before = await asyncio.gather(*(cells.change("job", one_more) for _ in range(50)))

    assert sorted(before) == list(range(50))


async def test_rooms_do_not_see_each_other(store: Store, clock: VirtualClock) -> None:
    await store.state_backend("one", BudgetUsage, clock).change("job", one_more)

    assert await store.state_backend("other", BudgetUsage, clock).all() == {}
    assert await store.state_backend("one", BudgetUsage, clock).all() == {"job": BudgetUsage(1)}


async def test_a_step_is_told_the_time_of_the_clock(store: Store, clock: VirtualClock) -> None:
    await clock.sleep(60)

    now = await store.state_backend("one", BudgetUsage, clock).change(
        "job", lambda _, now: (None, now)
    )

    assert abs(now - clock.now()) < 1
