"""The watch over a run, told by one process, while others commit as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from little import Little, LittleOptions
from longline.errors import BadOption
from longline.jobs.drifting import NOTICED, Drifting, accept
from longline.model import Item, ItemState, Job, Outcome, Record, Verdict
from longline.stores.adding import Discovered
from longline.stores.finishing import Finish
from longline.stores.jobs import NewJob
from longline.stores.leases import Claim
from longline.stores.store import Store, open_store
from virtual import VirtualClock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        yield store


@pytest.fixture
def drifting(store: Store, clock: VirtualClock) -> Drifting:
    return Drifting(store, Little(LittleOptions(site="http://x.test")), clock)


async def committed(store: Store, clock: VirtualClock, rows: list[dict[str, Any]]) -> Job:
    """Return a job whose records are these, committed by somebody."""
    now = clock.now()
    job = await store.jobs.create(NewJob("little", {}, {}, now))
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(len(rows))]
    await store.queue.add(Discovered(job.id, items, now, is_last=True))
    await store.queue.finish_all(await finishes(store, job, rows, now))
    return job


async def finishes(store: Store, job: Job, rows: list[dict[str, Any]], at: float) -> list[Finish]:
    leases = await store.queue.lease(Claim(job.id, "me", len(rows), at, at + 20))
    return [
        Finish(lease, Outcome(Verdict.STORE, record=made(lease.item, rows)), at + number)
        for number, lease in enumerate(leases)
    ]


def made(item: Item, rows: list[dict[str, Any]]) -> Record:
    return Record("little", item.key, item.url, rows[int(item.key)], fingerprint=item.key)


def rows(good: int, bad: int = 0) -> list[dict[str, Any]]:
    return [{"text": f"page {n}" if n < good else None} for n in range(good + bad)]


async def test_what_others_have_committed_decides_at_the_end(
    store: Store, clock: VirtualClock, drifting: Drifting
) -> None:
    job = await store.jobs.create(NewJob("little", {}, {"first": 1}, clock.now()))
    await drifting.begin(job)
    other = await committed(store, clock, rows(100, 50))

    await drifting.begin(other)
    ending = await drifting.ending()

    assert len(ending.drift) == 1
    assert ending.drift[0].startswith("text is filled in ")
    assert ending.drift[0].endswith("(since 100)")


async def test_what_is_told_is_noticed_and_written_down(
    store: Store, clock: VirtualClock, drifting: Drifting
) -> None:
    job = await store.jobs.create(NewJob("little", {}, {}, clock.now()))
    await drifting.begin(job)
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(150)]
    await store.queue.add(Discovered(job.id, items, clock.now(), is_last=True))
    for finish in await finishes(store, job, rows(100, 50), clock.now()):
        drifting.tell(finish, ItemState.STORED)

    await drifting.look()

    (event,) = await store.journal.events(job.id, kind=NOTICED)
    assert (event.key, event.data["field"], event.data["before"]) == ("100", "text", "in 100%")
    assert event.data["item"] <= 120


async def test_what_was_parked_or_lost_says_nothing(
    store: Store, clock: VirtualClock, drifting: Drifting
) -> None:
    job = await store.jobs.create(NewJob("little", {}, {}, clock.now()))
    await drifting.begin(job)
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(150)]
    await store.queue.add(Discovered(job.id, items, clock.now(), is_last=True))
    for finish in await finishes(store, job, rows(100, 50), clock.now()):
        drifting.tell(finish, None)

    await drifting.look()

    assert await store.journal.events(job.id, kind=NOTICED) == []


async def test_what_any_process_has_noticed_counts(
    store: Store, clock: VirtualClock, drifting: Drifting
) -> None:
    job = await committed(store, clock, rows(10))
    told = {"field": "text", "text": "text is gone"}
    await store.journal.append(
        {"job_id": job.id, "at": clock.now(), "kind": NOTICED, "key": "3", "data": told}
    )

    await drifting.begin(job)
    ending = await drifting.ending()

    assert ending.drift == ("text is gone",)


async def test_what_was_noticed_before_the_job_was_opened_again_does_not(
    store: Store, clock: VirtualClock, drifting: Drifting
) -> None:
    job = await committed(store, clock, rows(10))
    told = {"field": "text", "text": "text is gone"}
    event = {"job_id": job.id, "at": clock.now(), "kind": NOTICED, "key": "3", "data": told}
    await store.journal.append(event, {**event, "kind": "job.reopened", "data": {}})

    await drifting.begin(job)
    ending = await drifting.ending()

    assert ending.drift == ()


async def test_a_job_that_has_not_ended_cannot_be_accepted(
    store: Store, clock: VirtualClock
) -> None:
    job = await committed(store, clock, rows(10))

    with pytest.raises(BadOption, match="has left no profile: it is pending"):
        await accept(store, job.id, clock.now())
