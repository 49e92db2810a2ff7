"""Records that their source no longer has are marked by the end of a job, and return when seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Event, Job, Outcome, OutcomeAction, Usage
from longline.storage.events.events import event_row
from longline.storage.jobs import NewJob
from longline.storage.profiles import DriftResult
from longline.storage.query import RecordQuery, parse_condition
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.quarantine import ReprocessedItem
from longline.storage.store import Store
from tests.storage.given import attempt, complete, item, leased, record
from tests.virtual import EPOCH

DAY = 86_400.0
GONE = Outcome(OutcomeAction.SKIP, kind=FailureKind.GONE, reason="404")
FAILED = Outcome(OutcomeAction.FAIL, kind=FailureKind.SERVER, reason="500")
HELD = Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="odd", raw={"page": 1})


@dataclass
class Runs:
    """Runs of one source, one per day."""

    store: Store
    days: int = 0
    identity: dict[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> float:
        return EPOCH + self.days * DAY

    async def start(
        self, *keys: str, settings: Mapping[str, Any] | None = None, is_last: bool = True
    ) -> Job:
        """Return a job of a new day that has found these items."""
        self.days += 1
        new = NewJob("shop", settings or {}, self.identity, self.at)
        job = await self.store.jobs.create(new)
        await self.store.jobs.start(job.id, self.at)
        await self.find(job, *keys, is_last=is_last)
        return job

    async def find(self, job: Job, *keys: str, is_last: bool = True, **more: Any) -> None:
        found = [item(key) for key in keys]
        await self.store.queue.enqueue(Discovered(job.id, found, self.at, is_last=is_last, **more))

    async def collect(
        self,
        job: Job,
        others: Mapping[str, Outcome] | None = None,
        fingerprint: str = "first",
        found: Sequence[str] = (),
    ) -> None:
        """Store the due items, but those with another outcome; the first leads to `found`."""
        more = [item(key) for key in found]
        for lease in await leased(self.store, job, 10, at=self.at + 1):
            key = lease.item.key
            made = record(key, fingerprint=fingerprint)
            outcome = (others or {}).get(key) or Outcome(OutcomeAction.STORE, record=made)
            usage = Usage(status=404 if outcome is GONE else 200)
            await complete(
                self.store, attempt(lease, outcome, self.at + 2, usage=usage, found=more)
            )
            more = []

    async def run(self, *keys: str, **options: Any) -> Job:
        """Run a job that finds and stores these items, to its end."""
        settings = options.pop("settings", None)
        drift = options.pop("drift", None)
        job = await self.start(*keys, settings=settings)
        await self.collect(job, **options)
        await self.store.jobs.finish(job.id, self.at + 3, drift)
        return job

    async def gone(self) -> list[str]:
        rows = await self.store.records.list(RecordQuery(where=(parse_condition("@gone_at?"),)))
        return sorted(row["key"] for row in rows)

    async def events(self, job: Job, name: str = "record.gone") -> list[Event]:
        return await self.store.events.list(job.id, types=[name])


@pytest.fixture
def runs(store: Store) -> Runs:
    return Runs(store)


async def test_a_record_that_is_no_longer_listed_is_gone(runs: Runs) -> None:
    await runs.run("a", "b", "c")

    job = await runs.run("b")

    assert await runs.gone() == ["a", "c"]
    first, second = await runs.events(job)
    assert (first.key, second.key) == ("a", "c")
    assert (first.subject, first.data) == ("source/shop", {"source": "shop", "version": 1})
    (row,) = await runs.store.records.list(RecordQuery(key="a"))
    assert row["gone_at"] == first.at == runs.at + 3
    (ended,) = await runs.events(job, "job.complete")
    assert ended.data["found_all"]


async def test_a_record_is_gone_once(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.run("b", others={"b": FAILED})
    await runs.store.failures.requeue(FailureQuery(job.id), runs.at + 4)
    await runs.store.jobs.start(job.id, runs.at + 4)
    runs.days += 1
    await runs.collect(job)
    await runs.store.jobs.finish(job.id, runs.at + 5)

    last = await runs.run("b")

    assert [event.key for event in await runs.events(job)] == ["a"]
    assert await runs.events(last) == []
    assert await runs.gone() == ["a"]


@pytest.mark.parametrize(("fingerprint", "version"), [("first", 1), ("second", 2)])
async def test_a_record_that_is_seen_again_has_returned(
    runs: Runs, fingerprint: str, version: int
) -> None:
    await runs.run("a", "b")
    await runs.run("b")

    job = await runs.run("a", "b", fingerprint=fingerprint)

    (event,) = await runs.events(job, "record.returned")
    assert (event.key, event.subject) == ("a", "source/shop")
    assert event.data == {"source": "shop", "version": version}
    assert await runs.gone() == []
    assert [event.key for event in await runs.events(await runs.run("b"))] == ["a"]


async def test_the_first_run_of_another_identity_marks_nothing(runs: Runs) -> None:
    await runs.run("a", "b")

    job = await Runs(runs.store, runs.days, {"query": "shoes"}).run("b")

    assert await runs.events(job) == []


async def test_an_item_that_failed_is_not_gone(runs: Runs) -> None:
    await runs.run("a", "b", "c")

    await runs.run("a", "b", "c", others={"a": FAILED, "b": HELD})

    assert await runs.gone() == []


async def test_a_record_whose_page_does_not_exist_is_gone(runs: Runs) -> None:
    await runs.run("a", "b")

    job = await runs.run("a", "b", others={"a": GONE}, settings={"limit": 2})
    again = await runs.run("a", "b", others={"a": GONE})

    (event,) = await runs.events(job)
    assert (event.key, event.data["status"]) == ("a", 404)
    assert await runs.events(again) == []


# ---------------- Jobs that have not found everything


async def test_a_limited_job_marks_nothing(runs: Runs) -> None:
    await runs.run("a", "b", "c")

    await runs.run("b", settings={"limit": 1})

    assert await runs.gone() == []


async def test_a_job_whose_list_was_cut_marks_nothing(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.start("b")
    await runs.store.events.append(event_row(job.id, runs.at, "discovery.cut", reason="a page"))
    await runs.collect(job)
    await runs.store.jobs.finish(job.id, runs.at + 3)

    assert await runs.gone() == []
    (ended,) = await runs.events(job, "job.partial")
    assert not ended.data["found_all"]


async def test_a_job_with_a_shortfall_marks_nothing(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.start("b", is_last=False)
    await runs.find(job, shortfall="discovery ended early")
    await runs.collect(job)
    await runs.store.jobs.finish(job.id, runs.at + 3)

    assert await runs.gone() == []


async def test_a_job_that_was_skipped_for_its_budget_marks_nothing(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.start("b")
    await runs.store.queue.skip_queued(job.id, FailureKind.BUDGET, "no time", runs.at + 1)
    await runs.store.jobs.finish(job.id, runs.at + 3)

    assert await runs.gone() == []


async def test_a_job_that_was_given_its_items_marks_nothing(runs: Runs) -> None:
    await runs.run("a", "b")
    runs.days += 1
    job = await runs.store.jobs.create(NewJob("shop", {}, runs.identity, runs.at))
    await runs.find(job, "b")
    await runs.store.jobs.start(job.id, runs.at)
    await runs.collect(job)
    await runs.store.jobs.finish(job.id, runs.at + 3)

    assert await runs.gone() == []


async def test_an_incremental_job_marks_nothing(runs: Runs) -> None:
    manifest = {"endpoints": {"things": {"incremental": {"field": "updated_at"}}}}
    await runs.run("a", "b", settings={"manifest": manifest})

    await runs.run("b", settings={"manifest": manifest})

    assert await runs.gone() == []


@pytest.mark.parametrize(
    ("field", "gone"), [("@items", []), ("@records", []), ("price", ["a"]), ("@score", ["a"])]
)
async def test_a_job_with_far_fewer_items_marks_nothing(
    runs: Runs, field: str, gone: list[str]
) -> None:
    await runs.run("a", "b")

    await runs.run(
        "b", drift=DriftResult({"records": 1, "drift": {field: "drifted"}}, ("drifted",))
    )

    assert await runs.gone() == gone


async def test_items_of_a_page_that_could_not_be_read_are_not_gone(runs: Runs) -> None:
    first = await runs.start("list")
    await runs.collect(first, found=["a", "b"])
    await runs.collect(first)
    await runs.store.jobs.finish(first.id, runs.at + 3)

    await runs.run("list", others={"list": FAILED})
    before = await runs.gone()
    await runs.run("list")

    assert (before, await runs.gone()) == ([], ["a", "b"])


async def test_items_after_those_that_a_person_left_out_are_not_gone(runs: Runs) -> None:
    first = await runs.start("list", "z")
    await runs.collect(first, found=["a"])
    await runs.collect(first)
    await runs.store.jobs.finish(first.id, runs.at + 3)
    second = await runs.start("list", "z")
    await runs.store.queue.skip_before(second.id, "z", "resumed from z", runs.at + 1)
    await runs.collect(second)
    await runs.store.jobs.finish(second.id, runs.at + 3)

    assert await runs.gone() == []


async def test_a_run_is_compared_with_the_last_one_that_found_everything(runs: Runs) -> None:
    await runs.run("a", "b")
    await runs.run("b", settings={"limit": 1})
    cancelled = await runs.start("b")
    await runs.store.jobs.cancel(cancelled.id, runs.at + 1, "no")

    job = await runs.run("b")

    assert [event.key for event in await runs.events(job)] == ["a"]


# ---------------- What is not a sighting, and what is


async def test_a_record_that_another_job_saw_meanwhile_is_not_gone(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.start("b")
    await Runs(runs.store, runs.days, {"query": "shoes"}).run("a")

    await runs.collect(job)
    await runs.store.jobs.finish(job.id, runs.at + 3)

    assert await runs.gone() == []


async def test_a_job_that_ends_again_later_does_not_undo_a_sighting(runs: Runs) -> None:
    await runs.run("a", "b")
    old = await runs.run("b", others={"b": HELD})
    await runs.run("a", "b")
    (held,) = await runs.store.quarantine.held(old.id)
    await runs.store.quarantine.complete([ReprocessedItem(held, HELD)], runs.at + 10)

    await runs.store.quarantine.finish(old.id, runs.at + 11, DriftResult({"records": 1}))

    assert await runs.gone() == []


async def test_what_is_made_of_stored_pages_has_not_returned(runs: Runs) -> None:
    await runs.run("a", "b")
    old = await runs.run("a", "b", others={"a": HELD})
    await runs.run("b")
    (held,) = await runs.store.quarantine.held(old.id)
    again = Outcome(OutcomeAction.STORE, record=record("a", fingerprint="second"))

    await runs.store.quarantine.complete([ReprocessedItem(held, again)], runs.at + 10)
    await runs.store.records.create(
        record("a", fingerprint="third"), at=runs.at + 11, job=old.id, is_seen=False
    )

    assert await runs.events(old, "record.returned") == []
    assert await runs.gone() == ["a"]


async def test_a_manual_edit_does_not_bring_a_record_back(runs: Runs) -> None:
    await runs.run("a", "b")
    await runs.run("b")

    row = await runs.store.records.update("a", {"title": "Edited"}, at=runs.at + 10)

    assert row["gone_at"] is not None


async def test_an_earlier_time_shows_a_record_that_was_not_gone_yet(runs: Runs) -> None:
    await runs.run("a", "b")
    first = runs.at + 5
    await runs.run("b")
    await runs.run("a", "b", fingerprint="second")
    await runs.run("b", fingerprint="second")

    ends = [first, runs.at + 5]
    found = [await runs.store.records.list(RecordQuery(key="a", as_of=at)) for at in ends]

    assert [rows[0]["gone_at"] is None for rows in found] == [True, False]


async def test_restoring_a_job_undoes_its_marks(store: Store) -> None:
    runs = Runs(store)
    await runs.run("a", "b")
    second = await runs.run("a")

    restored = await store.records.restore(second.id, runs.at + 1)

    assert restored.returned == 1
    assert (await store.records.get("b"))["gone_at"] is None


async def changes(runs: Runs, job: Job) -> list[Mapping[str, Any]]:
    return [one.data for one in await runs.events(job, "source.changed")]


async def test_the_first_run_of_a_source_is_not_a_change(runs: Runs) -> None:
    job = await runs.run("a", "b")

    assert await changes(runs, job) == []


async def test_a_run_without_changes_has_no_event(runs: Runs) -> None:
    await runs.run("a", "b")

    job = await runs.run("b", "a")

    assert await changes(runs, job) == []


async def test_a_run_lists_new_changed_and_gone_records(runs: Runs) -> None:
    await runs.run("a", "b")

    job = await runs.run("a", "c", fingerprint="second")

    (data,) = await changes(runs, job)
    counts = {name: data[name] for name in ("new", "changed", "gone", "returned", "unlisted")}
    assert counts == {"new": 1, "changed": 1, "gone": 1, "returned": 0, "unlisted": 0}
    assert {(one["key"], one["change"]) for one in data["records"]} == {
        ("a", "changed"),
        ("b", "gone"),
        ("c", "new"),
    }


async def test_a_record_that_is_there_again_is_listed(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.run("a")
    (gone,) = await changes(runs, job)

    job = await runs.run("a", "b")

    (returned,) = await changes(runs, job)
    assert (gone["gone"], returned["returned"]) == (1, 1)
    assert [one["key"] for one in returned["records"]] == ["b"]


async def test_a_job_that_ends_again_lists_only_what_is_new(runs: Runs) -> None:
    await runs.run("a", "b")
    job = await runs.start("a", "b", "c")
    await runs.collect(job, {"c": FAILED}, fingerprint="second")
    await runs.store.jobs.finish(job.id, runs.at + 3)
    await runs.store.failures.requeue(FailureQuery(job.id), runs.at + 4)
    await runs.collect(job, fingerprint="second")

    await runs.store.jobs.finish(job.id, runs.at + 5)

    first, second = await changes(runs, job)
    assert (first["changed"], first["new"]) == (2, 0)
    assert (second["changed"], second["new"]) == (0, 1)
