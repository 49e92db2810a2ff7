"""The drift monitor of one process, while others commit as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longline.core.errors import BadOption, FailureKind
from longline.core.model import Item, ItemState, Job, JobState, Outcome, OutcomeAction, Record
from longline.drift.monitor import NOTICED, UNJUDGED, DriftMonitor, accept_profile
from longline.storage.events.events import event_row
from longline.storage.jobs import NewJob
from longline.storage.profiles import DriftResult
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.quarantine import ReprocessedItem
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store
from tests.sample_sources import PageOptions, PageSource
from tests.storage.given import LeasedOutcome, attempt
from tests.virtual import VirtualClock

WRONG = Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="text: is missing")


def noticed(field: str) -> dict[str, Any]:
    """The data of an event that a field has drifted."""
    text = f"{field} is gone"
    return {"field": field, "before": "97%", "now": "is gone", "item": 3, "text": text}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/longline.sqlite") as store:
        yield store


@pytest.fixture
def drifting(store: Store, clock: VirtualClock) -> DriftMonitor:
    return DriftMonitor(store, PageSource(PageOptions(site="http://x.test")), clock)


async def committed(
    store: Store, clock: VirtualClock, rows: list[dict[str, Any]], **settings: Any
) -> Job:
    """Return a job whose records are these, committed by some process."""
    now = clock.now()
    job = await store.jobs.create(NewJob("pages", settings, {}, now))
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(len(rows))]
    await store.queue.enqueue(Discovered(job.id, items, now, is_last=True))
    await store.queue.complete_all(await finishes(store, job, rows, now))
    return job


async def finishes(
    store: Store, job: Job, rows: list[dict[str, Any]], at: float
) -> list[LeasedOutcome]:
    leases = await store.queue.lease(Claim(job.id, "me", len(rows), at, at + 20))
    return [
        attempt(lease, Outcome(OutcomeAction.STORE, record=made(lease.item, rows)), at + number)
        for number, lease in enumerate(leases)
    ]


def made(item: Item, rows: list[dict[str, Any]]) -> Record:
    return Record("pages", item.key, item.url, rows[int(item.key)], fingerprint=item.key)


def rows(good: int, bad: int = 0) -> list[dict[str, Any]]:
    return [{"text": f"page {n}" if n < good else None} for n in range(good + bad)]


async def test_items_of_other_processes_count_at_the_end(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job = await store.jobs.create(NewJob("pages", {}, {"first": 1}, clock.now()))
    await drifting.begin(job)
    other = await committed(store, clock, rows(100, 50))

    await drifting.begin(other)
    ending = await drifting.result()

    assert list(ending.profile["drift"]) == ["text"]
    (notice,) = ending.drift
    assert "since item 100" in notice


async def test_noticed_drift_is_an_event(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job = await store.jobs.create(NewJob("pages", {}, {}, clock.now()))
    await drifting.begin(job)
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(150)]
    await store.queue.enqueue(Discovered(job.id, items, clock.now(), is_last=True))
    for lease, outcome in await finishes(store, job, rows(100, 50), clock.now()):
        drifting.on_commit(lease, outcome, ItemState.STORED)

    await drifting.check()

    (event,) = await store.events.list(job.id, types=[NOTICED])
    assert (event.key, event.data["field"], event.data["before"]) == ("100", "text", "100%")
    assert event.data["item"] <= 120


async def test_deferred_and_lost_items_do_not_count(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job = await store.jobs.create(NewJob("pages", {}, {}, clock.now()))
    await drifting.begin(job)
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(150)]
    await store.queue.enqueue(Discovered(job.id, items, clock.now(), is_last=True))
    for lease, outcome in await finishes(store, job, rows(100, 50), clock.now()):
        drifting.on_commit(lease, outcome, None)

    await drifting.check()

    assert await store.events.list(job.id, types=[NOTICED]) == []


async def test_what_any_process_noticed_counts(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job = await committed(store, clock, rows(10))
    notice = noticed("text")
    await store.events.append(event_row(job.id, clock.now(), NOTICED, key="3", **notice))

    await drifting.begin(job)
    ending = await drifting.result()

    assert ending.drift == (notice["text"],)


async def test_what_was_noticed_before_a_reopening_does_not_count(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job = await committed(store, clock, rows(10))
    notice = noticed("text")
    event = event_row(job.id, clock.now(), NOTICED, key="3", **notice)
    await store.events.append(event, event_row(job.id, clock.now(), "job.reopened", items=1))

    await drifting.begin(job)
    ending = await drifting.result()

    assert ending.drift == ()


async def test_a_job_that_has_not_ended_cannot_be_accepted(
    store: Store, clock: VirtualClock
) -> None:
    job = await committed(store, clock, rows(10))

    with pytest.raises(BadOption) as refused:
        await accept_profile(store, job.id, clock.now())

    assert refused.value.option == "JOB"
    assert job.id in refused.value.problem
    assert "pending" in refused.value.problem


async def ended(
    drifting: DriftMonitor,
    clock: VirtualClock,
    store: Store,
    rows: list[dict[str, Any]],
    **spec: Any,
) -> tuple[Job, DriftResult]:
    """Return a job with these records that has ended, and what its end said."""
    job = await committed(store, clock, rows, **spec)
    await drifting.begin(job)
    ending = await drifting.result()
    await store.jobs.finish(job.id, clock.now(), ending)
    await clock.sleep(3600)
    return job, ending


async def test_a_run_is_compared_with_runs_of_the_same_parameters(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await ended(drifting, clock, store, rows(60), params={"region": "north"})

    _, other = await ended(drifting, clock, store, rows(0, 60), params={"region": "south"})
    _, same = await ended(drifting, clock, store, rows(0, 60), params={"region": "north"})

    assert other.drift == ()
    assert list(same.profile["drift"]) == ["text"]


async def test_a_run_is_compared_with_runs_of_the_same_options(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await ended(drifting, clock, store, rows(60))
    other = DriftMonitor(store, PageSource(PageOptions(site="http://x.test", count=3)), clock)

    _, ending = await ended(other, clock, store, rows(0, 60))

    assert ending.drift == ()


async def test_a_limited_run_is_not_a_baseline_of_whole_ones(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await ended(drifting, clock, store, rows(20), limit=20)

    second, ending = await ended(drifting, clock, store, rows(20, 280))
    _, third = await ended(drifting, clock, store, rows(20, 280))

    assert (ending.drift, third.drift) == ((), ())
    assert third.profile["measured_by"] == (second.id,)


async def test_a_limited_run_is_compared_with_runs_of_as_many_items(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    trial, _ = await ended(drifting, clock, store, rows(60), limit=60)

    _, more = await ended(drifting, clock, store, rows(60, 40), limit=100)
    _, same = await ended(drifting, clock, store, rows(0, 60), limit=60)

    assert trial.id not in more.profile["measured_by"]
    assert list(same.profile["drift"]) == ["text"]


async def test_a_run_with_far_fewer_items_is_not_a_baseline(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await ended(drifting, clock, store, rows(100))

    job, few = await ended(drifting, clock, store, rows(20))
    _, again = await ended(drifting, clock, store, rows(20))

    (notice,) = few.drift
    assert list(few.profile["drift"]) == list(again.profile["drift"]) == ["@items"]
    assert {"20", "100"} <= set(re.findall(r"\d+", notice))
    assert again.drift == few.drift
    assert notice in ((await store.jobs.get(job.id)).reason or "")


async def test_a_run_that_was_cut_may_find_fewer_items(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await ended(drifting, clock, store, rows(100))

    _, ending = await ended(drifting, clock, store, rows(20), limit=20)

    assert ending.drift == ()


async def test_a_source_that_may_be_empty_may_find_fewer_items(
    store: Store, clock: VirtualClock
) -> None:
    source = PageSource(PageOptions(site="http://x.test"))
    vars(source)["manifest"] = SimpleNamespace(may_be_empty=True)
    drifting = DriftMonitor(store, source, clock)
    await ended(drifting, clock, store, rows(100))

    _, ending = await ended(drifting, clock, store, rows(20))

    assert ending.drift == ()


async def test_nothing_found_is_drift_after_a_good_run(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    _, first = await ended(drifting, clock, store, [])
    await ended(drifting, clock, store, rows(10))

    _, last = await ended(drifting, clock, store, [])

    assert (first.drift, len(first.warnings)) == ((), 1)
    assert list(last.profile["drift"]) == ["@records"]
    assert len(last.drift) == 1


async def test_a_redefined_field_is_not_compared(store: Store, clock: VirtualClock) -> None:
    source = PageSource(PageOptions(site="http://x.test"))
    drifting = DriftMonitor(store, source, clock)
    vars(source)["manifest"] = SimpleNamespace(fields={"text": ".old", "name": "h1"})
    wholes = [{"text": f"page {n}", "name": f"thing {n}"} for n in range(60)]
    await ended(drifting, clock, store, wholes)
    vars(source)["manifest"] = SimpleNamespace(fields={"text": ".new", "name": "h1"})

    _, ending = await ended(drifting, clock, store, [{"text": n, "name": None} for n in range(60)])

    assert list(ending.profile["drift"]) == ["name"]


async def test_a_job_whose_records_a_later_job_stored_keeps_its_drift(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job, notice = await ended(drifting, clock, store, rows(100, 50))
    await ended(drifting, clock, store, rows(150))

    await drifting.begin(job)
    again = await drifting.result()

    assert len(notice.drift) == 1
    assert (again.drift, again.profile["records"]) == (notice.drift, 150)


async def test_a_job_whose_records_are_still_its_own_is_judged_by_them(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    job, _ = await ended(drifting, clock, store, rows(100, 50))
    notice = noticed("other")
    event = event_row(job.id, clock.now(), NOTICED, key="3", **notice)
    await store.events.append(event)

    await drifting.begin(job)
    ending = await drifting.result()

    assert list(ending.profile["drift"]) == ["text", "other"]


async def test_accepted_drift_stays_accepted_when_a_job_ends_again(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await ended(drifting, clock, store, rows(60))
    job, notice = await ended(drifting, clock, store, rows(0, 60))
    await accept_profile(store, job.id, clock.now())

    await drifting.begin(job)
    await store.quarantine.finish(job.id, clock.now(), await drifting.result())

    kept, again = await store.profiles.find(job.id), await store.jobs.get(job.id)
    assert notice.drift != ()
    assert (again.state, again.reason) == (JobState.COMPLETE, None)
    assert kept is not None
    assert (kept.is_sound, kept.is_accepted, kept.profile["quiet"]) == (True, True, ["text"])


async def test_reprocessed_items_are_judged_at_their_position(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    data = [{"text": f"page {n}" if n % 4 else None, "name": f"thing {n}"} for n in range(200)]
    job = await store.jobs.create(NewJob("pages", {}, {}, clock.now()))
    items = [Item(f"{number:03}", f"http://x.test/{number}") for number in range(200)]
    await store.queue.enqueue(Discovered(job.id, items, clock.now(), is_last=True))
    await store.queue.complete_all(
        [
            (one[0], WRONG) if made(one[0].item, data).data["text"] is None else one
            for one in await finishes(store, job, data, clock.now())
        ]
    )
    held = await store.quarantine.held(job.id)
    fixed = [Outcome(OutcomeAction.STORE, record=made(one.item, data)) for one in held]
    await store.quarantine.complete(list(map(ReprocessedItem, held, fixed)), clock.now() + 9_999)

    await drifting.begin(job)
    ending = await drifting.result()

    assert (len(held), ending.profile["records"], ending.drift) == (50, 200, ())


async def left_unreadable(store: Store, clock: VirtualClock, drifting: DriftMonitor) -> None:
    """Leave a profile that cannot be read."""
    job = await committed(store, clock, rows(10))
    await drifting.begin(job)
    profile = dict((await drifting.result()).profile)
    del profile["fields"]
    await store.jobs.finish(job.id, clock.now(), DriftResult(profile))


async def test_a_bug_in_the_drift_check_is_a_warning(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await left_unreadable(store, clock, drifting)
    job = await committed(store, clock, rows(10))

    await drifting.begin(job)
    ending = await drifting.result()
    await store.jobs.finish(job.id, clock.now(), ending)

    over, kept = await store.jobs.get(job.id), await store.profiles.find(job.id)
    (event,) = await store.events.list(job.id, types=[UNJUDGED])
    assert over.state is JobState.COMPLETE
    assert "KeyError: 'fields'" in (over.reason or "")
    assert event.data == {"error": "KeyError: 'fields'"}
    assert kept is not None
    assert not kept.is_sound


async def test_noticed_drift_counts_if_the_run_cannot_be_judged(
    store: Store, clock: VirtualClock, drifting: DriftMonitor
) -> None:
    await left_unreadable(store, clock, drifting)
    job = await committed(store, clock, rows(10))
    notice = noticed("text")
    event = event_row(job.id, clock.now(), NOTICED, key="3", **notice)
    await store.events.append(event)

    await drifting.begin(job)
    ending = await drifting.result()

    assert ending.drift == (notice["text"],)


@pytest.mark.parametrize("name", ["", ".", "text.", "text.size"])
async def test_a_field_of_any_name_is_judged(
    store: Store, clock: VirtualClock, drifting: DriftMonitor, name: str
) -> None:
    both = [{"text": f"page {n}", name: f"{n}"} for n in range(60)]
    await ended(drifting, clock, store, both)

    _, same = await ended(drifting, clock, store, both)
    _, without = await ended(drifting, clock, store, rows(60))

    assert (same.drift, same.warnings) == ((), ())
    assert list(without.profile["drift"]) == [name]
