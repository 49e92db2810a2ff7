"""What pages read about the present: domains in trouble, recent changes, rows of projections."""

from __future__ import annotations

from typing import Any

from longline.core.model import Outcome, OutcomeAction
from longline.storage.events.events import event_row
from longline.storage.store import Store
from tests.storage.given import leased, new_job, queued
from tests.virtual import EPOCH

HOUR = 3600.0


async def append(store: Store, at: float, name: str, **data: Any) -> None:
    await store.events.append(event_row(None, at, name, **data))


async def troubled(store: Store, since: float, most: int | None = None) -> list[str]:
    latest = await store.attention.latest(since=since, domains=most)
    return [row["domain"] for row in latest.domains]


async def test_domains_that_do_not_work_are_in_trouble(store: Store) -> None:
    until = EPOCH + HOUR
    await append(store, EPOCH, "breaker.opened", domain="a.test", reason="errors", until=until)
    await append(store, EPOCH, "breaker.opened", domain="b.test", reason="errors", until=until)
    await append(store, EPOCH + 1, "breaker.closed", domain="b.test", reason="probe")
    await append(
        store, EPOCH + 2, "robots.unreachable", host="c.test", reason="timeout", until=until
    )
    await append(store, EPOCH + 3, "limit.learned", domain="d.test", rate=1.0)

    assert await troubled(store, EPOCH + HOUR) == ["c.test", "a.test"]


async def test_a_refusal_is_trouble_for_some_time(store: Store) -> None:
    await append(store, EPOCH, "limit.refused", domain="a.test", status=429, pause=5.0, rate=None)

    assert await troubled(store, EPOCH) == ["a.test"]
    assert await troubled(store, EPOCH + 1) == []


async def test_the_last_domains_in_trouble_are_read(store: Store) -> None:
    for number in range(3):
        at, domain = EPOCH + number, f"{number}.test"
        await append(store, at, "domain.blocked", domain=domain, evidence="x", until=at)

    assert await troubled(store, EPOCH, 2) == ["2.test", "1.test"]


async def test_changed_records_are_counted_from_an_hour_on(store: Store) -> None:
    start = EPOCH // HOUR * HOUR
    changes = ("created", "changed", "returned", "gone")
    for place, change in enumerate(changes):
        data = {"source": "shop", "version": 1, "key": str(place)}
        await append(store, start + place, f"record.{change}", **data)

    assert await store.run_history.changes_since(start + 10) == 3
    assert await store.run_history.changes_since(start + HOUR) == 0


async def test_rows_of_given_keys_are_the_newest_first(store: Store) -> None:
    jobs = [await store.jobs.create(new_job(number=number)) for number in range(3)]
    names = sorted(one.id for one in jobs)

    rows = await store.projections.rows("runs", keys=[names[2], names[0]], limit=1)
    both = await store.projections.rows("runs", keys=[names[2], names[0]])

    assert [row["job"] for row in both] == [names[0], names[2]]
    assert rows == both[:1]


async def test_a_job_waits_while_none_of_its_items_is_due(store: Store) -> None:
    job = await queued(store, "1")
    [lease] = await leased(store, job)
    later = Outcome(OutcomeAction.DEFER, due=EPOCH + HOUR, at=EPOCH)
    await store.queue.complete_all([(lease, later)])

    assert await store.queue.deferred_among([job.id], EPOCH + 1) == {job.id}
    assert await store.queue.deferred_among([job.id], EPOCH + HOUR) == set()


async def test_owners_of_several_jobs_are_read_together(store: Store) -> None:
    first, second = await queued(store, "1"), await queued(store, "2")
    await leased(store, first, owner="me")

    owners = await store.queue.owners_of([first.id, second.id], EPOCH)

    assert owners == {first.id: ["me"], second.id: []}


async def test_runs_of_sources_are_listed_oldest_first(store: Store) -> None:
    jobs = [await store.jobs.create(new_job(number=number)) for number in range(3)]
    names = sorted(job.id for job in jobs)

    [strip] = await store.run_history.strips(runs=2, sources=5)

    assert [job for job, _ in strip.runs] == names[1:]
