"""Orders: placed once, held by one at a time, carried out when it is time, gone when done."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from longline.core.model import Job, JobState
from longline.storage.copy import CopyEnd, DatabaseCopy
from longline.storage.database import Database, open_database
from longline.storage.events.events import event_row
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store
from tests.storage.given import queued
from tests.virtual import EPOCH


def an_export(job: Job, *, is_after_end: bool = False, output: str = "/tmp/a.csv") -> Task:  # noqa: S108  # never written
    return Task(job.id, TaskKind.EXPORT, EPOCH, {"output": output}, is_after_end=is_after_end)


async def claim(
    store: Store, task: Task, owner: str = "one", at: float = EPOCH, **owners: list[str]
) -> Task | None:
    return await store.tasks.claim(task, owner, at, at + 20, **owners)


async def kinds(store: Store, job: Job) -> list[str]:
    return [event.type for event in await store.events.list(job.id)]


async def test_a_task_has_one_owner(store: Store) -> None:
    order = an_export(await queued(store))
    await store.tasks.place(order)

    taken = await asyncio.gather(*(claim(store, order, name) for name in ("one", "two", "three")))

    assert [one is None for one in taken].count(False) == 1


async def test_equal_tasks_are_one(store: Store) -> None:
    order = an_export(await queued(store))

    await store.tasks.place(order)
    await store.tasks.place(replace(order, placed_at=EPOCH + 1))

    assert await store.tasks.ready(EPOCH + 1) == [replace(order, placed_at=EPOCH + 1)]


async def test_a_completed_task_is_removed_with_an_event(store: Store) -> None:
    job = await queued(store)
    await store.tasks.place(an_export(job))
    taken = await claim(store, an_export(job))
    assert taken is not None

    assert await store.tasks.complete(
        taken, event_row(job.id, EPOCH, "export.written", output="a.csv", records=1)
    )

    assert await store.tasks.ready(EPOCH) == []
    assert (await kinds(store, job))[-1] == "export.written"


async def test_a_former_owner_neither_completes_nor_renews_a_task(store: Store) -> None:
    job = await queued(store)
    await store.tasks.place(an_export(job))
    first = await claim(store, an_export(job), "one")
    assert first is not None
    second = await claim(store, an_export(job), "two", EPOCH + 21)

    assert not await store.tasks.renew(first, EPOCH + 100)
    assert not await store.tasks.complete(
        first, event_row(job.id, EPOCH, "export.written", output="a.csv", records=1)
    )

    assert second is not None
    assert await store.tasks.ready(EPOCH) == [second]
    assert "export.written" not in await kinds(store, job)


async def test_a_renewed_task_stays_claimed(store: Store) -> None:
    order = an_export(await queued(store))
    await store.tasks.place(order)
    first = await claim(store, order, "one")
    assert first is not None

    assert await store.tasks.renew(first, EPOCH + 40)

    assert await claim(store, order, "two", EPOCH + 21) is None


async def test_a_task_of_a_dead_owner_is_claimed_immediately(store: Store) -> None:
    order = an_export(await queued(store))
    await store.tasks.place(order)
    await claim(store, order, "one")

    taken = await claim(store, order, "two", dead=["one"])

    assert taken is not None
    assert (taken.owner, taken.deaths) == ("two", 0)


async def test_a_task_that_kills_three_workers_is_given_up(store: Store) -> None:
    job = await queued(store)
    order = an_export(job)
    await store.tasks.place(order)
    await claim(store, order, "one")
    await claim(store, order, "two", dead=["one"], killed=["one"])
    await claim(store, order, "three", dead=["two"], killed=["two"])

    taken = await claim(store, order, "four", dead=["three"], killed=["three"])

    assert taken is None
    assert await store.tasks.ready(EPOCH) == []
    last = (await store.events.list(job.id))[-1]
    assert last.type == "export.failed"
    assert "3 workers" in last.data["reason"]


async def test_a_task_for_after_the_end_waits_for_it(store: Store) -> None:
    job = await queued(store, "1")
    await store.tasks.place(an_export(job, is_after_end=True))
    before = await store.tasks.ready(EPOCH + 100)
    await store.jobs.pause_if_idle(job.id, EPOCH + 4, "enough for now")
    paused = await store.tasks.ready(EPOCH + 100)

    await store.jobs.cancel(job.id, EPOCH + 5, "enough")

    assert (before, paused) == ([], [])
    assert await store.tasks.ready(EPOCH + 4) == []
    assert [one.job for one in await store.tasks.ready(EPOCH + 5)] == [job.id]


async def test_the_end_of_a_cluster_job_enqueues_the_notification_of_its_source(
    store: Store,
) -> None:
    job = await _over(store, engine="celery")

    assert await store.jobs.finish(job.id, EPOCH) is JobState.COMPLETE

    (order,) = await store.tasks.ready(EPOCH)
    assert (order.job, order.kind) == (job.id, TaskKind.FINISHED)


async def test_a_local_or_limited_job_enqueues_no_task(store: Store) -> None:
    local = await _over(store, engine="local")
    limited = await _over(store, engine="celery", limit=5)

    await store.jobs.finish(local.id, EPOCH)
    await store.jobs.finish(limited.id, EPOCH)

    assert await store.tasks.ready(EPOCH) == []


async def test_all_tasks_of_a_job_are_listed(store: Store) -> None:
    job, other = await queued(store, "1"), await queued(store, "1")
    late = an_export(job, is_after_end=True)
    early = replace(an_export(job), placed_at=EPOCH - 1)
    for order in (late, early, an_export(other)):
        await store.tasks.place(order)

    assert await store.tasks.of_job(job.id) == [early, late]


async def test_a_dropped_task_cannot_be_claimed(store: Store) -> None:
    job = await queued(store)
    await store.tasks.place(an_export(job))

    assert await store.tasks.drop(an_export(job), EPOCH, [])

    assert await claim(store, an_export(job)) is None
    last = (await store.events.list(job.id))[-1]
    assert (last.type, last.data) == ("export.dropped", {"output": "/tmp/a.csv"})  # noqa: S108


async def test_a_claimed_task_is_not_dropped(store: Store) -> None:
    job = await queued(store)
    await store.tasks.place(an_export(job))
    taken = await claim(store, an_export(job), "one")

    assert not await store.tasks.drop(an_export(job), EPOCH + 1, [])

    assert await store.tasks.of_job(job.id) == [taken]
    assert "export.dropped" not in await kinds(store, job)


async def test_a_task_of_a_dead_owner_can_be_dropped(store: Store) -> None:
    job = await queued(store)
    await store.tasks.place(an_export(job))
    first = await claim(store, an_export(job), "one")
    assert first is not None

    assert await store.tasks.drop(an_export(job), EPOCH + 1, ["one"])

    assert not await store.tasks.complete(
        first, event_row(job.id, EPOCH, "export.written", output="a.csv", records=1)
    )


async def test_a_completed_task_cannot_be_dropped(store: Store) -> None:
    job = await queued(store)

    assert not await store.tasks.drop(an_export(job), EPOCH, [])

    assert "export.dropped" not in await kinds(store, job)


async def test_tasks_move_with_a_home(store: Store, database: Database, tmp_path: Path) -> None:
    order = an_export(await queued(store))
    await store.tasks.place(order)
    target = open_database(f"sqlite:///{tmp_path / 'target.sqlite'}")

    await DatabaseCopy(CopyEnd(database), CopyEnd(target), dead_among=list).run(force=True)

    assert await Store(target).tasks.ready(EPOCH) == [order]
    target.close()


async def _over(store: Store, *, engine: str, **settings: int) -> Job:
    """Return a job without items that is found to its end."""
    job = await store.jobs.create(NewJob("shop", settings, {"engine": engine}, EPOCH))
    await store.jobs.start(job.id, EPOCH, engine=engine)
    await store.queue.enqueue(Discovered(job.id, [], EPOCH, is_last=True))
    return job
