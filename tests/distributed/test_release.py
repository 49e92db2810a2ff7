"""What a child gives back after an error: all that it held, what it had begun as suspects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.model import Item, ItemState, Job, JobState
from longline.distributed.processes import Reports
from longline.distributed.worker import release_after_error, release_of
from longline.engine.owner import this_child
from longline.storage.jobs import NewJob
from longline.storage.queue.chunks import Chunk, ChunkClaim
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store, open_store
from tests.virtual import VirtualClock

ANOTHER = "vm~12ab:77:1.00:word:70:1.00"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
def reports() -> Iterator[Reports]:
    reading, writing = os.pipe()
    yield Reports(writing)
    os.close(reading)
    os.close(writing)


async def a_job(store: Store, clock: VirtualClock, count: int) -> Job:
    job = await store.jobs.create(NewJob("pages", {}, {}, clock.now()))
    await store.jobs.start(job.id, clock.now(), engine="celery")
    items = [Item(str(number), "http://site.test") for number in range(count)]
    await store.queue.enqueue(Discovered(job.id, items, clock.now()))
    return job


async def in_hand(store: Store, job: Job, clock: VirtualClock, owner: str) -> Chunk:
    now = clock.now()
    await store.chunks.publish(job.id, now, size=2)
    chunk = (await store.chunks.unanswered(job.id, now + 1))[0]
    taken = await store.chunks.claim(chunk, ChunkClaim(owner, now, now + 20, 2))
    assert taken is not None
    return taken


async def discovering(store: Store, job: Job, clock: VirtualClock) -> None:
    now = clock.now()
    assert await store.jobs.lease_discovery(job.id, this_child(), at=now, until=now + 20, dead=[])


async def broken_off(store: Store, job: Job, clock: VirtualClock) -> bool:
    """Have an item begun and given back; say whether it was tried alone."""
    taken = await in_hand(store, job, clock, this_child())
    await release_after_error(store, clock.now(), [lease.id for lease in taken.leases])
    return taken.is_alone


async def test_begun_items_become_suspects_and_others_continue(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, clock, 2)
    begun, unbegun = (await in_hand(store, job, clock, this_child())).leases

    await release_after_error(store, clock.now(), [begun.id])

    first = await in_hand(store, job, clock, ANOTHER)
    second = await in_hand(store, job, clock, ANOTHER)
    assert ([lease.id for lease in first.leases], first.is_alone) == ([unbegun.id], False)
    assert ([lease.id for lease in second.leases], second.is_alone) == ([begun.id], True)


async def test_an_item_that_ends_the_work_every_time_is_quarantined(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, clock, 1)

    alone = [await broken_off(store, job, clock) for _ in range(3)]

    assert alone == [False, True, True]
    assert (await store.queue.counts(job.id))[ItemState.QUARANTINED] == 1


async def test_what_others_hold_stays_theirs(store: Store, clock: VirtualClock) -> None:
    job = await a_job(store, clock, 4)
    await in_hand(store, job, clock, ANOTHER)
    await in_hand(store, job, clock, this_child())

    await release_after_error(store, clock.now(), [])

    assert await store.chunks.owners(job.id) == [ANOTHER]
    assert (await store.queue.counts(job.id))[ItemState.LEASED] == 2


async def test_a_discovery_that_breaks_off_three_times_pauses_the_job(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, clock, 0)
    await discovering(store, job, clock)
    await release_after_error(store, clock.now(), [])
    await discovering(store, job, clock)
    await release_after_error(store, clock.now(), [])
    assert (await store.jobs.get(job.id)).state is JobState.RUNNING
    await discovering(store, job, clock)

    await release_after_error(store, clock.now(), [])

    left = await store.jobs.get(job.id)
    assert left.state is JobState.PAUSED
    assert "3" in (left.reason or "")


async def test_a_discovery_with_items_in_flight_is_not_the_cause(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, clock, 1)
    await discovering(store, job, clock)
    await in_hand(store, job, clock, this_child())

    await release_after_error(store, clock.now(), [])

    assert await store.chunks.owners(job.id) == []
    assert await store.events.list(job.id, types=["discovery.killed"]) == []


async def test_what_is_handed_back_for_an_error_of_its_job_is_no_suspect(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, clock, 6)
    first = await in_hand(store, job, clock, this_child())
    second = await in_hand(store, job, clock, this_child())
    other = await in_hand(store, job, clock, this_child())

    await release_of(store, job.id, {first.owner, second.owner}, clock.now())

    assert await store.chunks.owners(job.id) == [other.owner]
    (event,) = await store.events.list(job.id, types=["leases.reclaimed"])
    assert event.data == {"items": 4}


async def test_an_item_that_is_held_again_is_not_begun(reports: Reports) -> None:
    for item in (1, 2):
        reports.item_begun(item)
        reports.item_ended(item)

    reports.items_claimed([1, 3])

    assert reports.begun_last() == {2}


async def test_an_item_that_was_broken_off_counts_as_begun(reports: Reports) -> None:
    reports.message_started()
    reports.items_claimed([1])

    reports.item_begun(1)
    reports.item_ended(1)

    assert reports.begun_last() == {1}


async def test_what_was_begun_for_an_earlier_message_is_forgotten(reports: Reports) -> None:
    reports.message_started()
    reports.item_begun(1)

    reports.message_started()

    assert reports.begun_last() == set()
