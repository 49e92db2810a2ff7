"""Events are appended in order, and statistics of all writers are added up."""

from __future__ import annotations

import asyncio

from longline.storage.events import event_row
from longline.storage.store import Store
from tests.virtual import EPOCH


async def test_events_are_listed_in_the_order_of_their_commits(store: Store) -> None:
    await store.events.append(
        event_row("job", EPOCH, "a.b", key="1", text="naïve"), event_row("job", 1, "c")
    )
    await store.events.append(event_row("job", EPOCH, "a.b"))
    await store.events.append(event_row("other", EPOCH, "a.b"))

    events = await store.events.list("job")

    assert [(event.kind, event.key, event.at) for event in events] == [
        ("a.b", "1", EPOCH),
        ("c", None, 1),
        ("a.b", None, EPOCH),
    ]
    assert events[0].data == {"text": "naïve"}
    assert [event.id for event in events] == sorted(event.id for event in events)


async def test_events_of_one_kind(store: Store) -> None:
    await store.events.append(*(event_row("job", n, kind) for n, kind in enumerate("abab")))

    assert [event.at for event in await store.events.list("job", kind="b")] == [1, 3]
    assert [event.at for event in await store.events.list("job", limit=3)] == [0, 1, 2]


async def test_appending_nothing_adds_nothing(store: Store) -> None:
    await store.events.append()

    assert await store.events.list("job") == []


async def test_statistics_of_many_writers_add_up(store: Store) -> None:
    await asyncio.gather(
        *(store.events.add_statistics("job", {"requests": 1, "waited": 0.25}) for _ in range(40))
    )
    await store.events.add_statistics("other", {"requests": 5})
    await store.events.add_statistics("job", {})

    assert await store.events.statistics("job") == {"requests": 40, "waited": 10.0}
    assert await store.events.statistics("unknown") == {}
