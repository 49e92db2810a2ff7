"""Cursors and leases of subscribers, on both databases."""

from __future__ import annotations

from typing import Any

import pytest

from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.subscribers import UnknownSubscriber
from longline.storage.store import Store
from tests.virtual import EPOCH


async def appended(store: Store, *times: float) -> list[int]:
    """Append an event at each of these times; return their ids."""
    start = await store.events.newest()
    await store.events.append(*(event_row("job", at, "custom.a") for at in times))
    events, _ = await store.events.read(start, EventFilter())
    return [event.id for event in events]


async def test_a_lease_is_taken_from_the_dead_and_when_it_has_expired(store: Store) -> None:
    await store.subscribers.add("mail", EventFilter(), EPOCH, None)
    await appended(store, EPOCH)
    times: dict[str, Any] = {"at": EPOCH, "until": EPOCH + 60}

    claims = [
        await store.subscribers.claim("mail", "a", **times),
        await store.subscribers.claim("mail", "a", **times),
        await store.subscribers.claim("mail", "b", **times),
        await store.subscribers.claim("mail", "b", **times, dead=["c"]),
        await store.subscribers.claim("mail", "b", **times, dead=["a"]),
        await store.subscribers.claim("mail", "c", at=EPOCH + 61, until=EPOCH + 90),
    ]

    assert [claim and claim.owner for claim in claims] == ["a", "a", None, None, "b", "c"]


async def test_only_the_owner_of_the_lease_moves_the_cursor(store: Store) -> None:
    first, second = await appended(store, EPOCH, EPOCH)
    await store.subscribers.add("mail", EventFilter(), EPOCH, first - 1)
    times: dict[str, Any] = {"at": EPOCH, "until": EPOCH + 60}
    await store.subscribers.claim("mail", "a", **times)

    is_moved = await store.subscribers.advance("mail", "a", cursor=first, **times)
    is_stolen = await store.subscribers.advance("mail", "b", cursor=second, **times)
    await store.subscribers.replay("mail", first - 1)
    is_late = await store.subscribers.advance("mail", "a", cursor=second, **times)

    assert (is_moved, is_stolen, is_late) == (True, False, False)
    assert (await store.subscribers.get("mail")).cursor == first - 1


async def test_a_subscriber_is_due_when_it_has_events_and_its_wait_is_over(store: Store) -> None:
    await store.subscribers.add("mail", EventFilter(), EPOCH, None)
    is_idle = await store.subscribers.find_due("mail", EPOCH) is None
    (event,) = await appended(store, EPOCH)
    await store.subscribers.claim("mail", "a", at=EPOCH, until=EPOCH + 60)

    await store.subscribers.fail(
        "mail", "a", cursor=event - 1, failures=1, due_at=EPOCH + 5, error="no"
    )

    assert is_idle
    assert await store.subscribers.find_due("mail", EPOCH + 4) is None
    assert await store.subscribers.find_due("mail", EPOCH + 5) is not None
    with pytest.raises(UnknownSubscriber):
        await store.subscribers.find_due("other", EPOCH)


async def test_the_slowest_subscriber_is_the_one_that_keeps_old_events(store: Store) -> None:
    first, *_ = await appended(store, EPOCH, EPOCH + 1, EPOCH + 2)
    before = await store.subscribers.slowest(before=EPOCH + 9)
    await store.subscribers.add("fast", EventFilter(), EPOCH, None)
    await store.subscribers.add("slow", EventFilter(), EPOCH, first)

    by_age = [await store.subscribers.slowest(before=EPOCH + age) for age in (1, 2)]
    by_count = [await store.subscribers.slowest(max_count=most) for most in (2, 1)]

    assert before is None
    assert [one and (one.name, one.cursor) for one in by_age] == [None, ("slow", first)]
    assert [one and one.name for one in by_count] == [None, "slow"]
