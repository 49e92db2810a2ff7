"""The quarantine as rows: grouped by reason, read in pages, settled once and all together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longline.core.errors import BadOption, FailureKind, LeaseLost
from longline.core.model import Item, ItemState, Job, JobState, Outcome, OutcomeAction
from longline.storage.database import Database
from longline.storage.profiles import DriftResult
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.quarantine import (
    REPLAY_UNFINISHED,
    Quarantine,
    QuarantinedItem,
    ReprocessedItem,
)
from longline.storage.store import Store
from tests.storage.given import attempt, complete, leased, new_job, queued, record
from tests.virtual import EPOCH

LATER = EPOCH + 60
MISSING = "title: is missing"


@pytest.fixture
def quarantine(database: Database) -> Quarantine:
    return Quarantine(database)


async def held_job(
    store: Store, *keys: str, reason: str = f"item {{}}: {MISSING}", at: float = EPOCH
) -> Job:
    """Return a job that has ended, with all its items in quarantine."""
    job = await queued(store, *keys, is_last=True)
    for lease in await leased(store, job, len(keys)):
        outcome = Outcome(
            OutcomeAction.QUARANTINE,
            kind=FailureKind.INVALID,
            reason=reason.format(lease.item.key),
            raw={"page": {"n": lease.item.key}},
        )
        await complete(store, attempt(lease, outcome, at, seconds=2.5))
    await store.jobs.finish(job.id, at)
    return await store.jobs.get(job.id)


def mended(held: QuarantinedItem, data: dict[str, str] | None = None) -> ReprocessedItem:
    made = record(held.item.key, data, fingerprint=str(data or "first"))
    return ReprocessedItem(held, Outcome(OutcomeAction.STORE, record=made))


async def test_items_of_one_reason_are_one_group(store: Store, quarantine: Quarantine) -> None:
    job = await held_job(store, "a", "b", "c", "d")
    await held_job(store, "e", reason="https://shop.test/{}: no price")

    first, second = await quarantine.groups()

    assert (first.job, first.reason, first.count) == (job.id, MISSING, 4)
    assert first.keys == ("a", "b", "c")
    assert (second.reason, second.count) == ("no price", 1)


async def test_groups_can_be_chosen(store: Store, quarantine: Quarantine) -> None:
    job = await held_job(store, "a")
    other = await held_job(store, "b", reason="no price")

    assert [one.job for one in await quarantine.groups(other.id)] == [other.id]
    assert [one.job for one in await quarantine.groups(text="TITLE")] == [job.id]
    assert await quarantine.groups(kind=FailureKind.BUG) == []


async def test_items_are_read_in_pages(store: Store, quarantine: Quarantine) -> None:
    job = await held_job(store, "a", "b", "c")

    first = await quarantine.held(job.id, limit=2)
    rest = await quarantine.held(job.id, limit=2, after=first[-1].id)

    assert [one.item.key for one in [*first, *rest]] == ["a", "b", "c"]
    assert first[0].item.data == {"n": "a"}
    assert first[0].raw == {"page": {"n": "a"}}


async def test_an_item_that_is_not_held_is_refused(store: Store, quarantine: Quarantine) -> None:
    job = await held_job(store, "a")

    with pytest.raises(BadOption) as refused:
        await quarantine.get(job.id, "b")

    assert refused.value.option == "KEY"
    assert "'b'" in refused.value.problem
    assert job.id in refused.value.problem


async def test_what_is_mended_is_stored_with_its_event_and_its_figures(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a", "b")
    held = await quarantine.held(job.id)
    before = await store.events.statistics(job.id)

    ends = await quarantine.complete([mended(one) for one in held], LATER)
    await quarantine.finish(job.id, LATER, DriftResult({"records": 2}))

    assert ends == [ItemState.STORED, ItemState.STORED]
    assert (await store.jobs.get(job.id)).state is JobState.COMPLETE
    assert await store.records.count() == 2
    assert await store.events.statistics(job.id) == before
    row = (await store.queue.finished(job.id))[0]
    assert (row["seconds"], row["finished_at"], row["raw"]) == (2.5, LATER, None)
    assert (row["lease_owner"], row["reason"], row["kind"]) == (None, None, None)
    types = [event.type for event in await store.events.list(job.id)]
    assert types.count("record.created") == 2
    assert [name for name in types if name.startswith(("job.", "item."))][-5:] == [
        "job.reopened",
        "item.stored",
        "item.stored",
        "job.partial",
        "job.complete",
    ]


async def test_an_item_that_was_found_again_under_another_key_has_that_key(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a", "b")
    held = (await quarantine.held(job.id))[0]
    again = replace(held, item=Item("c", "https://shop.test/c", data={"n": "\x00c"}))

    ends = await quarantine.complete([mended(again)], LATER)

    row = (await store.queue.rows(job.id))[0]
    assert ends == [ItemState.STORED]
    assert (row["key"], row["url"], row["data"]) == ("c", "https://shop.test/c", {"n": "\ufffdc"})
    assert (await store.jobs.findings(job.id, job.source)).items_without_record == 0
    assert [one.item.key for one in await quarantine.held(job.id)] == ["b"]


async def test_a_mended_record_was_seen_when_its_page_was(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a")
    (held,) = await quarantine.held(job.id)

    await quarantine.complete([mended(held)], LATER)

    row = await store.records.get("a")
    assert (row["seen_at"], row["first_seen_at"], row["changed_at"]) == (EPOCH, EPOCH, LATER)


async def test_a_mended_record_keeps_a_later_sighting_of_the_same_job(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a")
    await store.records.create(record("a"), at=EPOCH + 30, job=job.id)
    (held,) = await quarantine.held(job.id)

    ends = await quarantine.complete([mended(held)], LATER)

    row = await store.records.get("a")
    assert ends == [ItemState.UNCHANGED]
    assert row["seen_at"] == EPOCH + 30


async def test_of_two_jobs_in_quarantine_the_newer_one_counts_whichever_is_mended_first(
    store: Store, quarantine: Quarantine
) -> None:
    older = await held_job(store, "a")
    newer = await held_job(store, "a", at=EPOCH + 30)
    (old,) = await quarantine.held(older.id)
    (new,) = await quarantine.held(newer.id)

    await quarantine.complete([mended(old)], LATER)
    ends = await quarantine.complete([mended(new, {"title": "newer"})], LATER + 1)

    row = await store.records.get("a")
    assert ends == [ItemState.STORED]
    assert (row["data"], row["seen_at"]) == ({"title": "newer"}, EPOCH + 30)


async def test_what_was_settled_once_is_not_settled_again(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a", "b")
    first, second = await quarantine.held(job.id)
    await quarantine.complete([mended(first)], LATER)

    ends = await quarantine.complete([mended(first), mended(second)], LATER)

    assert isinstance(ends[0], LeaseLost)
    assert ends[1] is ItemState.STORED
    assert len(await store.events.list(job.id, types=["item.stored"])) == 2


async def test_what_is_queued_again_meanwhile_is_left_alone(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a")
    (held,) = await quarantine.held(job.id)
    await store.failures.requeue(FailureQuery(job.id), LATER)

    (end,) = await quarantine.complete([mended(held)], LATER)

    assert isinstance(end, LeaseLost)
    assert (await store.queue.counts(job.id))[ItemState.QUEUED] == 1
    assert await store.records.count() == 0


async def test_an_old_lease_cannot_commit_after_a_replay(
    store: Store, quarantine: Quarantine
) -> None:
    job = await queued(store, "a", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, attempt(lease, Outcome(OutcomeAction.QUARANTINE, raw={}), EPOCH))
    (held,) = await quarantine.held(job.id)
    await quarantine.complete([mended(held)], LATER)

    with pytest.raises(LeaseLost):
        await complete(store, attempt(lease, Outcome(OutcomeAction.FAIL, reason="late"), LATER))


async def test_an_unstorable_item_does_not_affect_others(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a", "b")
    first, second = await quarantine.held(job.id)
    odd = Outcome(OutcomeAction.STORE, record=record("a", {"title": "\ud800"}), raw={"page": {}})

    ends = await quarantine.complete([ReprocessedItem(first, odd), mended(second)], LATER)

    assert ends == [ItemState.QUARANTINED, ItemState.STORED]
    held = await quarantine.get(job.id, "a")
    assert (held.kind, held.reason != first.reason) == (FailureKind.INVALID, True)


async def test_a_job_at_work_is_neither_marked_nor_ended(
    store: Store, quarantine: Quarantine
) -> None:
    job = await queued(store, "a", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, attempt(lease, Outcome(OutcomeAction.QUARANTINE, raw={}), EPOCH))

    await quarantine.complete([mended(one) for one in await quarantine.held(job.id)], LATER)
    await quarantine.finish(job.id, LATER, DriftResult({"records": 1}))

    found = await store.jobs.get(job.id)
    assert (found.state, found.reason) == (JobState.RUNNING, None)
    assert await store.events.list(job.id, types=["job.reopened"]) == []


async def test_a_job_that_gave_up_with_items_to_collect_is_not_opened_by_a_replay(
    store: Store, quarantine: Quarantine
) -> None:
    job = await queued(store, "a", "b", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, attempt(lease, Outcome(OutcomeAction.QUARANTINE, raw={}), EPOCH))
    await store.jobs.fail(job.id, EPOCH, "closed")

    await quarantine.complete([mended(one) for one in await quarantine.held(job.id)], LATER)
    await quarantine.finish(job.id, LATER, DriftResult({"records": 1}))

    found = await store.jobs.get(job.id)
    assert (found.state, found.reason) == (JobState.FAILED, "closed")


async def test_a_job_stays_ended_between_the_items_and_its_new_end(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a", "b")
    first, _ = await quarantine.held(job.id)

    await quarantine.complete([mended(first)], LATER)

    found = await store.jobs.get(job.id)
    assert (found.state, found.reason) == (JobState.PARTIAL, REPLAY_UNFINISHED)
    again, is_new = await store.jobs.find_or_create(new_job())
    assert (is_new, again.id != job.id) == (True, True)


async def test_what_stays_in_quarantine_is_as_old_as_before(
    store: Store, quarantine: Quarantine
) -> None:
    job = await held_job(store, "a")
    (held,) = await quarantine.held(job.id)
    stays = Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="no price", raw={})

    await quarantine.complete([ReprocessedItem(held, stays)], LATER)

    after = await quarantine.get(job.id, "a")
    assert (after.reason, after.finished_at) == ("no price", held.finished_at)


async def test_what_is_foreseen_is_what_comes_of_it(store: Store, quarantine: Quarantine) -> None:
    before = await held_job(store, "b")
    await quarantine.complete([mended(one) for one in await quarantine.held(before.id)], EPOCH)
    job = await held_job(store, "a", "b", "c")
    later = await held_job(store, "a", at=EPOCH + 30)
    await quarantine.complete([mended(one) for one in await quarantine.held(later.id)], LATER)
    tries = [mended(one) for one in await quarantine.held(job.id)]

    foreseen = await quarantine.preview(tries)

    assert foreseen == [ItemState.SKIPPED, ItemState.UNCHANGED, ItemState.STORED]
    assert await quarantine.complete(tries, LATER) == foreseen


async def test_a_failure_is_held_only_when_something_was_kept_of_it(
    store: Store, quarantine: Quarantine
) -> None:
    job = await queued(store, "a", "b", is_last=True)
    one, other = await leased(store, job, 2)
    bug = Outcome(
        OutcomeAction.FAIL, kind=FailureKind.BUG, reason="KeyError: 'x'", raw={"page": {}}
    )
    gone = Outcome(OutcomeAction.FAIL, kind=FailureKind.TIMEOUT, reason="too late")
    await store.queue.complete_all([attempt(one, bug, EPOCH), attempt(other, gone, EPOCH)])

    held = await quarantine.held(job.id)

    assert [(found.item.key, found.state) for found in held] == [("a", ItemState.FAILED)]
