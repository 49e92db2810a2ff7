"""Whether a job of a cluster can go on, by what the database knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Item, ItemState, Job, JobState, Lease, Outcome, OutcomeAction
from longline.engine.pause_policy import pause_if_stuck
from longline.engine.runtime import RunOptions
from longline.storage.events.events import event_row
from longline.storage.queue.chunks import DISCOVERY_FAILED
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store, open_store
from tests.storage.given import LeasedOutcome, attempt, complete, leased, queued, stored
from tests.virtual import EPOCH

PLAIN = RunOptions(patience=900)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


async def deferred(
    store: Store, job: Job, *, until: float, kind: FailureKind = FailureKind.NETWORK
) -> None:
    """Defer the next item of a job."""
    (lease,) = await leased(store, job)
    await complete(store, later(lease, until, kind))


def later(lease: Lease, until: float, kind: FailureKind) -> LeasedOutcome:
    outcome = Outcome(OutcomeAction.DEFER, kind=kind, reason="shop.test blocks longline", due=until)
    return attempt(lease, outcome, EPOCH + 1)


async def told(store: Store, job: Job, options: RunOptions = PLAIN, *, after: float = 60) -> str:
    """Return what a job is paused for, and its state."""
    reason = await pause_if_stuck(store, job.id, EPOCH + after, options)
    row = await store.jobs.get(job.id)
    assert row.reason == reason
    return f"{row.state}: {reason}"


async def test_a_job_with_something_to_do_goes_on(store: Store) -> None:
    job = await queued(store, "1", is_last=True)

    assert await told(store, job) == "running: None"


async def test_a_job_whose_items_are_all_behind_a_ban_is_paused(store: Store) -> None:
    job = await queued(store, "1", is_last=True)
    await deferred(store, job, until=EPOCH + 600, kind=FailureKind.BLOCKED)

    assert await told(store, job) == "paused: shop.test blocks longline"


async def test_a_ban_on_one_of_two_sites_pauses_nothing(store: Store) -> None:
    job = await queued(store, "1")
    await deferred(store, job, until=EPOCH + 600, kind=FailureKind.BLOCKED)
    other = Item("2", "https://other.test/2")
    await store.queue.enqueue(Discovered(job.id, [other], EPOCH, is_last=True))

    assert await told(store, job) == "running: None"


async def test_a_ban_pauses_nothing_while_more_may_be_found(store: Store) -> None:
    job = await queued(store, "1")
    await deferred(store, job, until=EPOCH + 600, kind=FailureKind.BLOCKED)

    assert await told(store, job) == "running: None"


async def test_a_job_with_leased_items_is_not_paused(store: Store) -> None:
    job = await queued(store, "1", "2", is_last=True)
    await deferred(store, job, until=EPOCH + 600, kind=FailureKind.BLOCKED)
    await leased(store, job)

    assert await told(store, job) == "running: None"


@pytest.mark.parametrize(("after", "state"), [(900, "running"), (905, "paused")])
async def test_a_site_that_does_not_answer_for_long_pauses_its_job(
    store: Store, after: float, state: str
) -> None:
    job = await queued(store, "1", "2", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, stored(lease))  # at the first second
    await deferred(store, job, until=EPOCH + 2000)

    assert (await told(store, job, after=after)).startswith(state)


async def test_a_job_that_was_resumed_is_given_its_time_again(store: Store) -> None:
    job = await queued(store, "1", is_last=True)
    await deferred(store, job, until=EPOCH + 5000)
    assert (await told(store, job, after=1000)).startswith("paused")

    await store.jobs.start(job.id, EPOCH + 1100, engine="celery")

    assert await told(store, job, after=1200) == "running: None"


async def test_what_is_parked_is_given_up_when_the_budget_of_time_is_spent(store: Store) -> None:
    job = await queued(store, "1", is_last=True)
    await deferred(store, job, until=EPOCH + 600)

    assert await told(store, job, RunOptions(seconds=50)) == "running: None"
    assert (await store.queue.counts(job.id))[ItemState.SKIPPED] == 1
    assert await store.jobs.finish(job.id, EPOCH + 60) is JobState.PARTIAL


@pytest.mark.parametrize(
    ("is_fatal", "keys", "state"),
    [(True, "", "failed"), (False, "", "paused"), (True, "1", "running")],
)
async def test_failed_discovery_ends_a_job_when_nothing_is_left_to_do(
    store: Store, state: str, keys: str, *, is_fatal: bool
) -> None:
    job = await queued(store, *keys)
    event = event_row(
        job.id, EPOCH, DISCOVERY_FAILED, reason="no way", is_fatal=is_fatal, host=None
    )
    await store.events.append(event)

    assert (await told(store, job)).startswith(state)


async def test_a_discovery_that_failed_in_this_run_is_not_repeated(store: Store) -> None:
    job = await queued(store, "1")
    before = await store.chunks.status(job.id)
    event = event_row(job.id, EPOCH, DISCOVERY_FAILED, reason="no way", is_fatal=True, host=None)
    await store.events.append(event)
    failed = await store.chunks.status(job.id)
    await store.jobs.start(job.id, EPOCH + 10, engine="celery")
    resumed = await store.chunks.status(job.id)

    assert [one.needs_discoverer(EPOCH) for one in (before, failed, resumed)] == [True, False, True]


async def test_a_dead_or_silent_discoverer_is_replaced(store: Store) -> None:
    job = await queued(store, "1")
    await store.jobs.lease_discovery(job.id, "me", at=EPOCH, until=EPOCH + 20, dead=[])

    standing = await store.chunks.status(job.id)

    assert not standing.needs_discoverer(EPOCH + 19)
    assert standing.needs_discoverer(EPOCH + 19, dead=["me"])
    assert standing.needs_discoverer(EPOCH + 21)
