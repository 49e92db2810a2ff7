"""What one process does at a time: suspects that nobody comes for, and jobs that end slowly."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.model import Item, Job
from longline.distributed.open_jobs import OpenJobs
from longline.distributed.processes import Drain, Reports
from longline.distributed.task_runner import TaskRunner
from longline.distributed.worker import Multiplexer
from longline.engine.runtime import Runtime
from longline.storage.jobs import NewJob
from longline.storage.queue.chunks import Chunk, ChunkClaim
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Reclaim
from longline.storage.store import Store, open_store
from longline.wiring import open_shared_http
from tests.virtual import VirtualClock

_LONG = 700.0  # seconds: longer than a message may take


class Hands:
    """What a crew is given to do, noted; a suspect takes a minute."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self.taken: list[tuple[str, bool]] = []
        self.ended: list[str] = []

    async def work(self, taken: Chunk, _seconds: float) -> None:
        (lease,) = taken.leases
        self.taken.append((lease.item.key, taken.is_alone))
        await self._clock.sleep(60)
        await self._store.chunks.complete([(taken.id, taken.owner)], self._clock.now())

    async def end(self, job: str) -> None:
        self.ended.append(job)
        await self._clock.sleep(2 * _LONG)
        await self._store.jobs.finish(job, self._clock.now())

    async def nothing(self, _job: str) -> None:
        """Nobody is to discover anything here."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
def hands(store: Store, clock: VirtualClock) -> Hands:
    return Hands(store, clock)


@pytest.fixture
async def crew(
    store: Store, clock: VirtualClock, hands: Hands, tmp_path: Path
) -> AsyncIterator[Multiplexer]:
    settings = Settings(home=tmp_path)
    reading, writing = os.pipe()
    async with open_shared_http(settings, clock) as http, Runtime(store, clock) as runtime:
        reports = Reports(writing)
        jobs = OpenJobs(settings, runtime, http, reports)
        yield Multiplexer(
            store,
            jobs,
            clock,
            settings,
            drain=Drain(),
            reports=reports,
            tasks=TaskRunner(store, jobs, clock, limit=settings.soft_limit),
            queues=("fetch", "process", "output"),
            work=hands.work,
            discover=hands.nothing,
            finish=hands.end,
        )
    os.close(reading)
    os.close(writing)


async def found(store: Store, clock: VirtualClock, key: str) -> Job:
    """Return a job that runs and has one item, which is offered."""
    job = await store.jobs.create(NewJob("shop", {}, {"key": key}, clock.now()))
    await store.jobs.start(job.id, clock.now(), engine="celery")
    items = [Item(key, f"http://{key}.test/")]
    await store.queue.enqueue(Discovered(job.id, items, clock.now(), is_last=True))
    await store.chunks.publish(job.id, clock.now(), size=1)
    return job


@pytest.fixture
async def suspect(store: Store, clock: VirtualClock) -> Job:
    """A job whose one item was in hand of a worker that died, and is offered again."""
    now = clock.now()
    job = await found(store, clock, "suspect")
    (chunk,) = await store.chunks.unanswered(job.id, now + 1)
    await store.chunks.claim(chunk, ChunkClaim("the dead", now, now + 20, 1))
    await store.queue.reclaim(Reclaim(job.id, now, killed=["the dead"]))
    await store.chunks.publish(job.id, now, size=1)
    return job


@pytest.mark.usefixtures("suspect")
async def test_a_process_that_only_discovers_claims_an_old_suspect(
    crew: Multiplexer, hands: Hands, clock: VirtualClock
) -> None:
    async with crew.multiplexing(has_limit=False, is_discovery=True):
        await clock.sleep(50)
        soon = list(hands.taken)
        await clock.sleep(20)
        later = list(hands.taken)

    assert (soon, later) == ([], [("suspect", True)])


@pytest.mark.usefixtures("suspect")
async def test_nothing_is_claimed_while_a_suspect_runs(
    crew: Multiplexer, hands: Hands, store: Store, clock: VirtualClock
) -> None:
    async with crew.multiplexing(has_limit=False, is_discovery=True):
        await clock.sleep(70)
        await found(store, clock, "ordinary")
        await clock.sleep(30)
        meanwhile = list(hands.taken)
        await clock.sleep(40)

    assert meanwhile == [("suspect", True)]
    assert hands.taken == [("suspect", True), ("ordinary", False)]


@pytest.mark.usefixtures("suspect")
async def test_a_process_with_other_work_claims_no_suspect(
    crew: Multiplexer, hands: Hands, clock: VirtualClock
) -> None:
    async with crew.multiplexing(has_limit=False):
        await clock.sleep(200)
        meanwhile = list(hands.taken)

    assert meanwhile == []


async def test_a_job_that_ends_slowly_delays_no_other(
    crew: Multiplexer, hands: Hands, store: Store, clock: VirtualClock
) -> None:
    slow = await store.jobs.create(NewJob("slow", {}, {}, clock.now()))
    await store.jobs.start(slow.id, clock.now(), engine="celery")
    await store.queue.enqueue(Discovered(slow.id, [], clock.now(), is_last=True))

    async with crew.multiplexing():
        await clock.sleep(_LONG)
        await found(store, clock, "ordinary")
        await clock.sleep(10)
        meanwhile = list(hands.taken)

    assert meanwhile == [("ordinary", False)]
    assert hands.ended == [slow.id]  # once, however often it was seen


async def test_a_message_is_not_done_before_the_end_of_its_job(
    crew: Multiplexer, hands: Hands, store: Store, clock: VirtualClock
) -> None:
    job = await found(store, clock, "last")
    begun = clock.now()

    async with crew.multiplexing():
        crew.finish(job.id)
        crew.finish(job.id)

    assert clock.now() - begun >= 2 * _LONG
    assert hands.ended == [job.id]
