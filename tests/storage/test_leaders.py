"""Of many processes one leads, and the next one when it is not heard of."""

from __future__ import annotations

import asyncio

from longline.storage.store import Store, open_store
from tests.virtual import EPOCH


async def test_of_two_one_leads(store: Store, address: str) -> None:
    with open_store(address) as other:
        both = await asyncio.gather(
            store.leaders.take("sweeping", "me", EPOCH, EPOCH + 10),
            other.leaders.take("sweeping", "you", EPOCH, EPOCH + 10),
        )

    assert sorted(both) == [False, True]


async def test_a_leader_that_is_heard_of_stays_it(store: Store) -> None:
    await store.leaders.take("sweeping", "me", EPOCH, EPOCH + 10)

    assert await store.leaders.take("sweeping", "me", EPOCH + 9, EPOCH + 19)
    assert not await store.leaders.take("sweeping", "you", EPOCH + 18, EPOCH + 28)


async def test_a_silent_leader_is_followed_by_another(store: Store) -> None:
    await store.leaders.take("sweeping", "me", EPOCH, EPOCH + 10)

    assert await store.leaders.take("sweeping", "you", EPOCH + 11, EPOCH + 21)
    assert not await store.leaders.take("sweeping", "me", EPOCH + 12, EPOCH + 22)


async def test_each_thing_has_a_leader_of_its_own(store: Store) -> None:
    await store.leaders.take("sweeping", "me", EPOCH, EPOCH + 10)

    assert await store.leaders.take("scheduling", "you", EPOCH, EPOCH + 10)


async def test_who_gives_up_is_followed_at_once(store: Store) -> None:
    await store.leaders.take("sweeping", "me", EPOCH, EPOCH + 10)

    await store.leaders.give_up("sweeping", "you")
    assert not await store.leaders.take("sweeping", "you", EPOCH, EPOCH + 10)
    await store.leaders.give_up("sweeping", "me")
    assert await store.leaders.take("sweeping", "you", EPOCH, EPOCH + 10)
