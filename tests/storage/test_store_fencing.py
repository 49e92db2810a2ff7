"""Leases: who lost one can commit nothing, and what a dead worker held is taken over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from longline.core.errors import FailureKind, LeaseLost
from longline.core.model import ItemState, Job, Outcome, OutcomeAction, Record, Usage
from longline.pipeline.pipeline import Material, unpack_material
from longline.storage.queue.queue import Reclaim, Reclaimed
from longline.storage.store import Store
from tests.storage.given import attempt, complete, ended, item, leased, queued, record, stored
from tests.virtual import EPOCH

_ENDS = {OutcomeAction.QUARANTINE: "quarantined", OutcomeAction.FAIL: "failed"}


async def everything(store: Store, job: Job) -> tuple[Any, ...]:
    return (
        await store.queue.counts(job.id),
        await store.records.count(),
        await store.events.statistics(job.id),
        len(await store.events.list(job.id)),
    )


async def test_of_a_stale_lease_nothing_is_committed(store: Store) -> None:
    job = await queued(store, "a")
    (stale,) = await leased(store, job, owner="slow")
    await store.queue.reclaim(Reclaim(job.id, EPOCH + 21))
    await leased(store, job, owner="quick", at=EPOCH + 21)
    before = await everything(store, job)

    with pytest.raises(LeaseLost) as told:
        await complete(
            store, stored(stale, found=[item("b")], usage=Usage(requests=1), seconds=1.0)
        )

    assert (told.value.key, told.value.token) == ("a", 1)
    assert await everything(store, job) == before


async def test_a_reclaimed_lease_is_stale_before_the_next_lease(
    store: Store,
) -> None:
    job = await queued(store, "a")
    (stale,) = await leased(store, job)
    await store.queue.reclaim(Reclaim(job.id, EPOCH + 21))

    with pytest.raises(LeaseLost):
        await complete(store, stored(stale))

    assert (await store.queue.counts(job.id))[ItemState.QUEUED] == 1


async def test_a_stale_lease_does_not_affect_a_valid_one(store: Store) -> None:
    job = await queued(store, "a", "b")
    stale, _ = await leased(store, job, 2, owner="slow")
    await store.queue.reclaim(Reclaim(job.id, EPOCH + 21))
    valid, other = await leased(store, job, 2, owner="quick", at=EPOCH + 21)

    answers = await asyncio.gather(
        *(complete(store, stored(lease)) for lease in (stale, valid, other)),
        return_exceptions=True,
    )

    assert isinstance(answers[0], LeaseLost)
    assert answers[1:] == [ItemState.STORED, ItemState.STORED]
    assert await store.records.count() == 2


async def test_a_lease_can_be_used_once_even_within_one_transaction(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    finish = stored(lease, usage=Usage(requests=1))

    answers = await asyncio.gather(
        *(complete(store, finish) for _ in range(3)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [ItemState, LeaseLost, LeaseLost]
    assert answers[0] == ItemState.STORED
    assert (await store.events.statistics(job.id))["requests"] == 1


async def test_a_released_item_goes_back_as_if_never_tried(store: Store) -> None:
    job = await queued(store, "a", "b")
    first, second = await leased(store, job, 2)

    await store.queue.release([first])

    (again,) = await leased(store, job, 5)
    assert (again.item.key, again.tries, again.token) == ("a", 1, 2)
    assert await complete(store, stored(second)) == ItemState.STORED


async def test_a_stale_release_does_not_take_the_item_from_its_new_holder(store: Store) -> None:
    job = await queued(store, "a")
    (stale,) = await leased(store, job)
    await store.queue.reclaim(Reclaim(job.id, EPOCH + 21))
    (valid,) = await leased(store, job, at=EPOCH + 21)

    await store.queue.release([stale])

    assert await complete(store, stored(valid)) == ItemState.STORED


async def test_a_released_lease_can_commit_nothing(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    await store.queue.release([lease])

    with pytest.raises(LeaseLost):
        await complete(store, stored(lease))


async def test_an_expired_lease_is_reclaimed_and_a_valid_one_is_not(store: Store) -> None:
    job = await queued(store, "a", "b")
    await leased(store, job, owner="early", at=EPOCH)
    await leased(store, job, owner="late", at=EPOCH + 10)

    freed = await store.queue.reclaim(Reclaim(job.id, EPOCH + 25))

    assert freed.items == 1
    assert await store.queue.owners(job.id) == ["late"]
    (event,) = await store.events.list(job.id, types=["leases.reclaimed"])
    assert event.data == {"items": 1}


async def test_a_worker_that_renews_keeps_its_items(store: Store) -> None:
    job = await queued(store, "a", "b")
    mine = await leased(store, job, owner="me")
    await leased(store, job, owner="silent")

    await store.queue.renew([(job.id, "me")], EPOCH, EPOCH + 60)
    freed = await store.queue.reclaim(Reclaim(job.id, EPOCH + 30))

    assert freed.items == 1
    assert await complete(store, stored(mine[0])) == ItemState.STORED


async def test_leases_of_a_dead_owner_are_reclaimed_immediately(store: Store) -> None:
    job = await queued(store, "a", "b", "c")
    await leased(store, job, 2, owner="dead")
    await leased(store, job, 1, owner="alive")

    freed = await store.queue.reclaim(Reclaim(job.id, EPOCH, dead=["dead", "unheard of"]))

    assert freed.items == 2
    assert await store.queue.owners(job.id) == ["alive"]
    assert [lease.tries for lease in await leased(store, job, 5)] == [2, 2]


async def test_taking_back_nothing_is_no_event(store: Store) -> None:
    job = await queued(store, "a")

    assert await store.queue.reclaim(Reclaim(job.id, EPOCH + 1000)) == Reclaimed()
    assert await store.events.list(job.id, types=["leases.reclaimed"]) == []


async def test_a_discoverer_is_an_owner_too(store: Store) -> None:
    job = await queued(store, "a")
    await store.jobs.lease_discovery(job.id, "finder", at=EPOCH, until=EPOCH + 20, dead=[])
    await leased(store, job, owner="worker")

    assert sorted(await store.queue.owners(job.id)) == ["finder", "worker"]


async def test_leases_of_one_job_are_not_those_of_another(store: Store) -> None:
    one, other = await queued(store, "a"), await queued(store, "a")
    await leased(store, one, owner="dead")
    await leased(store, other, owner="dead")

    await store.queue.reclaim(Reclaim(one.id, EPOCH, dead=["dead"]))

    assert await store.queue.owners(one.id) == []
    assert await store.queue.owners(other.id) == ["dead"]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(OutcomeAction.FAIL, reason="half a pair: \ud800"),
        Outcome(OutcomeAction.STORE, record=record("a", {"title": "half a pair: \ud800"})),
        Outcome(OutcomeAction.STORE, record=record("a", {"views": 2**70})),
        Outcome(OutcomeAction.STORE, record=record("a", {"image": b"\xff"})),
    ],
)
async def test_what_no_database_can_hold_is_quarantined_alone(
    store: Store, outcome: Outcome
) -> None:
    job = await queued(store, "a", "b")
    odd, good = await leased(store, job, 2)

    states = await asyncio.gather(
        complete(store, attempt(odd, outcome, EPOCH)), complete(store, stored(good))
    )

    assert list(states) == [ItemState.QUARANTINED, ItemState.STORED]
    (row, _) = await store.queue.finished(job.id)
    assert (row["kind"], bool(row["reason"])) == (FailureKind.INVALID, True)


@pytest.mark.parametrize(
    "value", ["half a pair: \ud800", 2**70, ["half a pair: \ud800", {"views": 2**70}]]
)
@pytest.mark.parametrize("verdict", [OutcomeAction.QUARANTINE, OutcomeAction.FAIL])
async def test_what_a_try_was_made_of_is_kept_whole_and_changes_no_reason(
    store: Store, verdict: OutcomeAction, value: Any
) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    raw = Material({"page": {"odd": value}}).as_raw()

    await complete(store, attempt(lease, Outcome(verdict, reason="its price", raw=raw), EPOCH))

    (held,) = await store.quarantine.held(job.id)
    assert (held.state.value, held.reason) == (_ENDS[verdict], "its price")
    assert unpack_material(held.raw).results == {"page": {"odd": value}}


async def test_a_changed_record_that_is_no_data_keeps_the_one_before(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    await store.records.create(record("a"), at=EPOCH)
    odd = record("a", {"image": b"\xff"}, fingerprint="second")

    state = await complete(store, attempt(lease, Outcome(OutcomeAction.STORE, record=odd), EPOCH))

    (row,) = await store.queue.finished(job.id)
    assert (state, row["kind"]) == (ItemState.QUARANTINED, FailureKind.INVALID)
    assert {"image", "bytes"} <= set(row["reason"].replace(",", " ").split())
    assert (await store.records.get("a"))["data"] == {"title": "Thing a"}


async def test_data_with_keys_that_are_no_text_is_stored(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    sizes: Record = record("a", {"sizes": {42: "L", True: "yes"}})

    await complete(store, attempt(lease, Outcome(OutcomeAction.STORE, record=sizes), EPOCH))

    assert (await store.records.get("a"))["data"] == {"sizes": {"42": "L", "true": "yes"}}


async def test_a_lost_lease_is_lost_for_every_verdict(store: Store) -> None:
    job = await queued(store, "a")
    (stale,) = await leased(store, job)
    await store.queue.reclaim(Reclaim(job.id, EPOCH + 21))

    with pytest.raises(LeaseLost):
        await complete(store, ended(stale, OutcomeAction.DEFER, due=EPOCH + 60))

    assert await store.queue.next_due(job.id) == 0.0
