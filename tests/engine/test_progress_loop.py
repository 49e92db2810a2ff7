"""Whoever looks at a job with very many items looks more rarely, and sees its end at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from longline.core.model import ItemState, Job, JobState
from longline.engine.progress import ProgressCache, ProgressTracker, rest_after
from longline.engine.runtime import Runtime
from longline.engine.watch import Checkpoints, Watch
from longline.storage.database import Database, open_database
from longline.storage.queue.queue import JobCounts, Queue
from longline.storage.store import Store
from tests.storage.given import complete, leased, queued, stored
from tests.virtual import VirtualClock


class SlowQueue(Queue):
    """Counts as if there were very many items: it takes its time."""

    def __init__(self, database: Database, clock: VirtualClock, seconds: float) -> None:
        super().__init__(database)
        self._clock = clock
        self._seconds = seconds
        self.counted: list[str] = []

    async def counts(self, job: str) -> dict[ItemState, int]:
        self.counted.append(job)
        await self._clock.sleep(self._seconds)
        return await super().counts(job)

    async def progress(self, ids: Sequence[str]) -> dict[str, JobCounts]:
        await self._clock.sleep(self._seconds)
        return await super().progress(ids)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(f"sqlite:///{tmp_path / 'longline.sqlite'}")
    yield database
    database.close()


@pytest.fixture
def queue(database: Database, clock: VirtualClock) -> SlowQueue:
    return SlowQueue(database, clock, 0.4)


@pytest.fixture
def store(database: Database, queue: SlowQueue) -> Store:
    store = Store(database)
    store.queue = queue
    return store


async def moments_of_looks(
    store: Store, job: Job, folder: Path, clock: VirtualClock
) -> list[float]:
    """Return when the progress of a job was shown in the first half minute."""
    moments: list[float] = []
    tracker = ProgressTracker(store, job.id, clock)
    watch = Watch(
        tracker,
        Checkpoints(folder),
        store.events,
        clock,
        on_progress=lambda _: moments.append(clock.now()),
    )
    async with Runtime(store, clock) as runtime:
        with runtime.progress.serving(watch):
            await asyncio.sleep(30)
    return moments


async def swept(pictures: ProgressCache, jobs: list[Job]) -> None:
    for job in jobs:
        await pictures.of(job)


@pytest.mark.parametrize(
    ("took", "rest"), [(0.001, 0.5), (0.15, 0.5), (0.2, 0.6), (2.0, 6.0), (3600.0, 15.0)]
)
def test_a_rest_is_three_times_as_long_as_the_look_and_not_too_long(
    took: float, rest: float
) -> None:
    assert rest_after(took, every=0.5) == pytest.approx(rest)


async def test_progress_that_takes_long_to_count_is_shown_more_rarely(
    store: Store, clock: VirtualClock, tmp_path: Path
) -> None:
    job = await queued(store, "a")

    moments = await moments_of_looks(store, job, tmp_path, clock)

    assert min(later - sooner for sooner, later in pairwise(moments)) >= 1.2


async def test_a_big_job_is_shown_as_it_was_until_it_is_counted_again(
    store: Store, clock: VirtualClock
) -> None:
    job = await queued(store, "a", "b")
    pictures = ProgressCache(store)
    first = await pictures.of(job)
    await complete(store, stored((await leased(store, job))[0]))

    max_in_flight = await pictures.of(job)
    await clock.sleep(60)
    later = await pictures.of(job)

    assert max_in_flight == first
    assert (first.completed_items, later.completed_items) == (0, 1)


async def test_a_large_job_that_has_ended_is_counted_immediately(
    store: Store, clock: VirtualClock
) -> None:
    job = await queued(store, "a", is_last=True)
    pictures = ProgressCache(store)
    await pictures.of(await store.jobs.get(job.id))
    await complete(store, stored((await leased(store, job))[0]))
    await store.jobs.finish(job.id, clock.now())

    ended = await pictures.of(await store.jobs.get(job.id))

    assert (ended.state, ended.completed_items) == (JobState.COMPLETE, 1)


async def test_many_big_jobs_are_counted_for_a_tenth_of_the_time_together(
    store: Store, queue: SlowQueue, clock: VirtualClock
) -> None:
    jobs = [await queued(store, "a") for _ in range(100)]
    pictures = ProgressCache(store)
    await swept(pictures, jobs)
    begun = clock.now()
    queue.counted.clear()

    while clock.now() < begun + 1000:
        await clock.sleep(2)
        await swept(pictures, jobs)

    assert 0.05 <= len(queue.counted) * 0.4 / (clock.now() - begun) <= 0.1
    assert set(queue.counted) == {job.id for job in jobs}


async def test_jobs_that_have_gone_do_not_keep_the_others_waiting(
    store: Store, queue: SlowQueue, clock: VirtualClock
) -> None:
    first, *gone = [await queued(store, "a") for _ in range(20)]
    pictures = ProgressCache(store)
    await swept(pictures, [first, *gone])
    await clock.sleep(100)
    queue.counted.clear()

    for _ in range(10):  # sweeps, as of twenty seconds
        await clock.sleep(2)
        await swept(pictures, [first])

    assert len(queue.counted) >= 4


async def test_jobs_that_are_counted_quickly_are_counted_at_every_look(
    store: Store, database: Database, clock: VirtualClock
) -> None:
    store.queue = quick = SlowQueue(database, clock, 0.0)
    jobs = [await queued(store, "a") for _ in range(5)]
    pictures = ProgressCache(store)

    for _ in range(3):
        await clock.sleep(2)
        await swept(pictures, jobs)

    assert len(quick.counted) == 15
