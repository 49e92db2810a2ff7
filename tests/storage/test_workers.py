"""Workers are registered while they renew; each start, stop and loss is one event."""

from __future__ import annotations

import asyncio

from longline.core.model import Event
from longline.storage.events.events import EventFilter
from longline.storage.store import Store
from tests.virtual import EPOCH

FIRST, SECOND = "here~1:11:1.00:ab", "there~2:22:2.00:cd"


async def renew(store: Store, owner: str, at: float = EPOCH, name: str = "w") -> None:
    await store.workers.renew(name, owner, at, at + 30)


async def events_of(store: Store) -> list[Event]:
    return (await store.events.read(0, EventFilter(types=("worker.*",))))[0]


async def types_of(store: Store) -> list[str]:
    return [event.type for event in await events_of(store)]


async def test_a_worker_starts_once_and_stops_once(store: Store) -> None:
    await renew(store, FIRST)
    await renew(store, FIRST, EPOCH + 5)

    await store.workers.stop("w", FIRST, EPOCH + 9)
    await store.workers.stop("w", FIRST, EPOCH + 9)

    started, stopped = await events_of(store)
    assert (started.type, started.subject, started.at) == ("worker.started", "worker/w", EPOCH)
    assert started.data == {"worker": "w", "host": "here~1", "pid": 11}
    assert (stopped.type, stopped.job, stopped.at) == ("worker.stopped", None, EPOCH + 9)
    assert await store.workers.owners() == []


async def test_a_worker_that_does_not_renew_is_lost_once(store: Store) -> None:
    await renew(store, FIRST, name="a/b")
    await renew(store, SECOND, EPOCH + 20)

    found = await asyncio.gather(
        *(store.workers.remove_lost(EPOCH + 31, [], with_expired=True) for _ in range(4))
    )

    assert [name for names in found for name in names] == ["a/b"]
    *_, lost = await events_of(store)
    assert (lost.type, lost.subject, lost.data["pid"]) == ("worker.lost", "worker/a/b", 11)
    assert await store.workers.owners() == [SECOND]


async def test_a_worker_whose_process_is_dead_is_lost_immediately(store: Store) -> None:
    await renew(store, FIRST)
    await renew(store, SECOND)

    names = await store.workers.remove_lost(EPOCH + 99, [SECOND], with_expired=False)

    assert names == ["w"]
    assert await store.workers.owners() == [FIRST]
    (lost,) = [event for event in await events_of(store) if event.type == "worker.lost"]
    assert (lost.data["host"], lost.data["pid"]) == ("there~2", 22)


async def test_a_worker_that_was_presumed_lost_starts_again(store: Store) -> None:
    await renew(store, FIRST)
    await store.workers.remove_lost(EPOCH + 31, [], with_expired=True)

    await renew(store, FIRST, EPOCH + 40)

    assert await types_of(store) == ["worker.started", "worker.lost", "worker.started"]


async def test_the_leader_is_not_a_worker(store: Store) -> None:
    await store.leaders.acquire("sweeper", FIRST, EPOCH, EPOCH + 10)

    assert await store.workers.owners() == []
    assert await store.workers.remove_lost(EPOCH + 99, [FIRST], with_expired=True) == []
