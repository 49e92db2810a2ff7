from __future__ import annotations

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Failure, ItemState, Job, JobState, Outcome, OutcomeAction, Usage
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.failures import FailureQuery
from longline.storage.store import Store
from tests.storage.given import attempt, complete, ended, leased, queued, stored
from tests.virtual import EPOCH

URL = "https://shop.test/a"


def failure(kind: FailureKind, step: str = "given up", status: int | None = None) -> Failure:
    return Failure(EPOCH, URL, kind, f"it was {kind}", step, 0.5, status)


async def failed_by(store: Store, *kinds: FailureKind) -> Job:
    """Return a finished job with an item for each kind of failure, and one that is stored."""
    keys = [f"{kind}-{place}" for place, kind in enumerate(kinds)]
    job = await queued(store, *keys, "good", is_last=True)
    for lease in await leased(store, job, 10):
        kind = next((one for one in kinds if lease.item.key.startswith(one)), None)
        if kind is None:
            await complete(store, stored(lease))
            continue
        usage = Usage(
            requests=2,
            status=500,
            failures=[failure(kind, "retried after 1 s", 500), failure(kind, status=500)],
        )
        failed = Outcome(OutcomeAction.FAIL, kind=kind, reason="no")
        await complete(store, attempt(lease, failed, EPOCH + 1, 1.5, usage))
    await store.jobs.finish(job.id, EPOCH + 2)
    return job


async def test_every_failed_attempt_is_kept_with_its_item(store: Store) -> None:
    job = await failed_by(store, FailureKind.TIMEOUT)

    (one,) = await store.failures.failed_items(FailureQuery(job.id))

    assert (one.key, one.state, one.kind) == ("timeout-0", "failed", "timeout")
    assert (one.tries, one.requests, one.status, one.seconds) == (1, 2, 500, 1.5)
    assert [attempt["step"] for attempt in one.attempts] == ["retried after 1 s", "given up"]
    assert one.attempts[0]["url"] == URL


async def test_failures_are_found_by_kind_state_and_key(store: Store) -> None:
    job = await failed_by(store, FailureKind.TIMEOUT, FailureKind.SERVER)

    by_kind = await store.failures.failed_items(FailureQuery(job.id, kind=FailureKind.SERVER))
    by_state = await store.failures.failed_items(FailureQuery(job.id, state=ItemState.QUARANTINED))
    by_key = await store.failures.failed_items(FailureQuery(job.id, key="timeout-0"))

    assert [one.key for one in by_kind] == ["server-1"]
    assert by_state == []
    assert [one.kind for one in by_key] == ["timeout"]


async def test_kinds_are_counted_by_item_and_by_attempt(store: Store) -> None:
    job = await failed_by(store, FailureKind.TIMEOUT, FailureKind.TIMEOUT, FailureKind.SERVER)

    assert await store.failures.by_kind(job.id) == {
        "server": {"attempts": 2, "failed": 1},
        "timeout": {"attempts": 4, "failed": 2},
    }


async def test_exactly_the_items_that_fit_are_queued_again(store: Store) -> None:
    job = await failed_by(store, FailureKind.TIMEOUT, FailureKind.TIMEOUT, FailureKind.SERVER)

    count = await store.failures.requeue(FailureQuery(job.id, kind=FailureKind.TIMEOUT), EPOCH + 3)

    counts = await store.queue.counts(job.id)
    assert count.items == 2
    assert (counts[ItemState.QUEUED], counts[ItemState.FAILED], counts[ItemState.STORED]) == (
        2,
        1,
        1,
    )
    assert (await store.jobs.get(job.id)).state is JobState.PAUSED


async def test_a_requeued_item_starts_again_but_keeps_its_failures(store: Store) -> None:
    job = await failed_by(store, FailureKind.TIMEOUT)
    await store.failures.requeue(FailureQuery(job.id), EPOCH + 3)

    (lease,) = await leased(store, job, at=EPOCH + 4)
    await complete(
        store,
        attempt(
            lease,
            Outcome(OutcomeAction.FAIL, kind=FailureKind.SERVER),
            EPOCH,
            1.5,
            Usage(requests=3),
        ),
    )

    (one,) = await store.failures.failed_items(FailureQuery(job.id))
    assert lease.tries == 1
    assert one.requests == 5
    assert len(one.attempts) == 2


async def test_without_a_fitting_item_the_job_stays_closed(store: Store) -> None:
    job = await failed_by(store, FailureKind.TIMEOUT)

    count = await store.failures.requeue(FailureQuery(job.id, kind=FailureKind.BUG), EPOCH + 3)

    assert not count
    assert (await store.jobs.get(job.id)).state is JobState.PARTIAL


async def test_what_a_link_tells_becomes_an_event_of_the_item(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    usage = Usage()
    opened = {"domain": "shop.test", "reason": "down", "until": EPOCH}
    usage.add_event("breaker.opened", **opened)

    await complete(store, stored(lease, usage=usage))

    (event,) = await store.events.list(job.id, types=["breaker.opened"])
    assert (event.key, event.data, event.subject) == ("a", opened, "domain/shop.test")


@pytest.mark.parametrize("verdict", [OutcomeAction.FAIL, OutcomeAction.SKIP])
async def test_a_job_with_items_over_budget_is_partial_and_says_so(
    store: Store, verdict: OutcomeAction
) -> None:
    job = await queued(store, "a", "b", is_last=True)
    first, second = await leased(store, job, 2)
    reason = "not asked: the budget of 1 requests is spent"
    await complete(store, stored(first))
    await complete(store, ended(second, verdict, kind=FailureKind.BUDGET, reason=reason))

    state = await store.jobs.finish(job.id, EPOCH + 2)

    told = (await store.jobs.get(job.id)).reason
    assert state is JobState.PARTIAL
    assert reason in (told or "")


@pytest.mark.parametrize("kind", [None, FailureKind.BUDGET])
async def test_discovery_that_a_budget_has_ended_goes_on(
    store: Store, kind: FailureKind | None
) -> None:
    job = await queued(store, "a")
    cut = Discovered(job.id, [], EPOCH, cursor={"next": 2}, is_last=True, shortfall="cut short")
    await store.queue.enqueue(cut)
    (lease,) = await leased(store, job)
    await complete(store, stored(lease))
    await store.jobs.finish(job.id, EPOCH + 1)

    done = await store.failures.requeue(FailureQuery(job.id, kind=kind), EPOCH + 2)

    opened = await store.jobs.get(job.id)
    assert (done.items, done.is_discovering) == (0, True)
    assert (opened.state, opened.is_discovered, opened.shortfall) == (JobState.PAUSED, False, None)
    assert opened.cursor == {"next": 2}


async def test_a_job_that_is_running_goes_on_running_when_items_are_queued_again(
    store: Store,
) -> None:
    job = await queued(store, "a", "b")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.FAIL, kind=FailureKind.TIMEOUT, reason="late"))

    await store.failures.requeue(FailureQuery(job.id), EPOCH + 2)

    assert (await store.jobs.get(job.id)).state is JobState.RUNNING
