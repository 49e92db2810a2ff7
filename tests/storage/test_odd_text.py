"""Lone surrogates, as broken JSON has them, in the URLs, items and reasons of a source."""

from __future__ import annotations

from longline.core.errors import FailureKind
from longline.core.model import Failure, Item, ItemState, JobState, Outcome, OutcomeAction, Usage
from longline.storage.events.events import event_row
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.failures import FailureQuery
from longline.storage.store import Store
from tests.storage.given import attempt, complete, leased, new_job, queued, record
from tests.virtual import EPOCH

HALF, KEPT = "https://shop.test/\ud83d", "https://shop.test/\\ud83d"


def an_account() -> Usage:
    """Return what a request of such an address has cost."""
    usage = Usage()
    usage.failures.append(
        Failure(EPOCH, HALF, FailureKind.NETWORK, f"{HALF} failed", "failed", 0.1, None)
    )
    usage.add_event("custom.request", url=HALF, seen=[{HALF: HALF}])
    return usage


async def test_a_failed_request_of_such_an_address_is_in_the_ledger(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    outcome = Outcome(OutcomeAction.FAIL, kind=FailureKind.NETWORK, reason="no answer")

    state = await complete(store, attempt(lease, outcome, EPOCH, usage=an_account()))

    (unlucky,) = await store.failures.failed_items(FailureQuery(job.id))
    (event,) = await store.events.list(job.id, types=["custom.request"])
    assert state is ItemState.FAILED
    assert [(one["url"], one["reason"]) for one in unlucky.attempts] == [(KEPT, f"{KEPT} failed")]
    assert event.data == {"url": KEPT, "seen": [{KEPT: KEPT}]}


async def test_a_record_next_to_such_a_request_is_quarantined_alone(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    outcome = Outcome(OutcomeAction.STORE, record=record("a", {"title": HALF}))

    state = await complete(store, attempt(lease, outcome, EPOCH, usage=an_account()))

    assert state is ItemState.QUARANTINED


async def test_an_event_never_fails_for_its_data(store: Store) -> None:
    job = await queued(store)

    await store.events.append(
        event_row(job.id, EPOCH, "custom.odd", one=[ValueError(HALF)], two={1})
    )

    (event,) = await store.events.list(job.id, types=["custom.odd"])
    assert event.data == {"one": [KEPT], "two": [1]}


async def test_discovery_that_asked_for_such_an_address_is_queued(store: Store) -> None:
    job = await queued(store)
    found = Discovered(job.id, [Item("a", "https://shop.test/a")], EPOCH, usage=an_account())

    await store.queue.enqueue(found)

    assert [lease.item.key for lease in await leased(store, job)] == ["a"]


async def test_an_item_that_was_found_with_it_is_queued_with_its_escape(store: Store) -> None:
    job = await queued(store)
    found = [Item(HALF, HALF, data={"name": HALF}), Item("a", "https://shop.test/a")]

    await store.queue.enqueue(Discovered(job.id, found, EPOCH, cursor={"next": HALF}, limit=5))
    await store.queue.enqueue(Discovered(job.id, found, EPOCH, limit=5))

    items = {lease.item.key: lease.item for lease in await leased(store, job, 5)}
    assert set(items) == {KEPT, "a"}
    assert (items[KEPT].url, items[KEPT].data) == (KEPT, {"name": KEPT})
    assert (await store.jobs.get(job.id)).cursor == {"next": KEPT}


async def test_a_job_that_ends_over_it_says_so(store: Store) -> None:
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH)

    await store.jobs.fail(job.id, EPOCH, f"{HALF} failed")

    ended = await store.jobs.get(job.id)
    assert (ended.state, ended.reason) == (JobState.FAILED, f"{KEPT} failed")


async def test_an_event_with_such_text_is_kept(store: Store) -> None:
    job = await queued(store)

    await store.events.append(event_row(job.id, EPOCH, "custom.odd", reason=HALF))

    assert [one.data for one in await store.events.list(job.id, types=["custom.odd"])] == [
        {"reason": KEPT}
    ]
