"""Cells in the database keep what the keepers' cells promise, for many who change them at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from longline.limits.budget import Spent
from longline.storage.store import Store
from tests.virtual import VirtualClock


def one_more(value: Spent | None, _now: float) -> tuple[Spent, int]:
    before = value or Spent()
    return replace(before, requests=before.requests + 1), before.requests


async def test_a_value_is_made_changed_read_and_forgotten(
    store: Store, clock: VirtualClock
) -> None:
    cells = store.cells("budget", Spent, clock)

    assert await cells.change("job", one_more) == 0
    assert await cells.change("job", one_more) == 1
    assert (await cells.read("job"))[0] == Spent(2)
    assert await cells.forget("job")
    assert not await cells.forget("job")
    assert (await cells.read("job"))[0] is None


async def test_of_many_changes_at_once_none_is_lost(store: Store, clock: VirtualClock) -> None:
    cells = store.cells("budget", Spent, clock)

    before = await asyncio.gather(*(cells.change("job", one_more) for _ in range(50)))

    assert sorted(before) == list(range(50))


async def test_rooms_do_not_see_each_other(store: Store, clock: VirtualClock) -> None:
    await store.cells("one", Spent, clock).change("job", one_more)

    assert await store.cells("other", Spent, clock).all() == {}
    assert await store.cells("one", Spent, clock).all() == {"job": Spent(1)}


async def test_a_step_is_told_the_time_of_the_clock(store: Store, clock: VirtualClock) -> None:
    await clock.sleep(60)

    now = await store.cells("one", Spent, clock).change("job", lambda _, now: (None, now))

    assert abs(now - clock.now()) < 1
