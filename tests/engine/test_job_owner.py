"""Whether anybody works on a job that says it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.model import Job, Outcome, OutcomeAction
from longline.engine.owner import dead_among, is_abandoned, this_host, this_run
from longline.storage.store import Store, open_store
from tests.storage.given import attempt, complete, ended, leased, queued
from tests.virtual import EPOCH

DEAD = f"{this_host()}:999999999:1.00"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


async def is_left_alone(store: Store, job: Job, at: float = EPOCH) -> bool:
    return await is_abandoned(store, await store.jobs.get(job.id), at)


async def test_a_job_whose_worker_lives_is_worked_on(store: Store) -> None:
    job = await queued(store, "1", "2")
    await leased(store, job, owner=this_run())

    assert not await is_left_alone(store, job)


@pytest.mark.parametrize("owner", [DEAD, "elsewhere:1:1.00"])
async def test_only_a_worker_that_is_surely_dead_leaves_its_job_alone(
    store: Store, owner: str
) -> None:
    job = await queued(store, "1", "2")
    await leased(store, job, owner=owner)

    assert await is_left_alone(store, job) is (owner == DEAD)


async def test_a_job_whose_worker_was_not_heard_of_in_time_is_left_alone(store: Store) -> None:
    job = await queued(store, "1", "2")
    await leased(store, job, owner="elsewhere:1:1.00")

    assert await is_left_alone(store, job, EPOCH + 3600)


async def test_a_running_job_without_owners_is_abandoned(store: Store) -> None:
    assert await is_left_alone(store, await queued(store, "1"), EPOCH + 3600)


async def test_a_job_that_has_just_started_is_not_called_abandoned(store: Store) -> None:
    assert not await is_left_alone(store, await queued(store, "1"), EPOCH + 2)


async def test_a_job_that_is_about_to_end_is_not_called_abandoned(store: Store) -> None:
    job = await queued(store, "1", is_last=True)
    (lease,) = await leased(store, job, at=EPOCH + 3600)
    await complete(store, attempt(lease, Outcome(OutcomeAction.SKIP), EPOCH + 3600))

    assert not await is_left_alone(store, job, EPOCH + 3602)
    assert await is_left_alone(store, job, EPOCH + 7200)


async def test_a_killed_job_is_abandoned_also_after_its_leases(store: Store) -> None:
    job = await queued(store, "1", "2", is_last=True)
    first, _ = await leased(store, job, 2, owner=DEAD, at=EPOCH + 3600)
    await complete(store, attempt(first, Outcome(OutcomeAction.SKIP), EPOCH + 3601))

    assert [await is_left_alone(store, job, EPOCH + 3600 + one) for one in (2, 30, 90)] == [
        True
    ] * 3


async def test_a_paused_job_is_not_called_abandoned(store: Store) -> None:
    job = await queued(store, "1")
    await store.jobs.pause_if_idle(job.id, EPOCH, "interrupted")

    assert not await is_left_alone(store, job)


async def test_a_job_that_waits_for_parked_items_is_given_the_benefit_of_the_doubt(
    store: Store,
) -> None:
    job = await queued(store, "1")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.DEFER, due=EPOCH + 60))

    assert not await is_left_alone(store, job, EPOCH + 30)
    assert await is_left_alone(store, job, EPOCH + 90)


@pytest.mark.parametrize(("seconds", "is_dead"), [(0.0, False), (1.0, False), (60.0, True)])
def test_a_clock_that_is_set_a_little_changes_no_owner(seconds: float, *, is_dead: bool) -> None:
    host, pid, started, word = this_run().split(":")
    owner = f"{host}:{pid}:{float(started) + seconds:.2f}:{word}"

    assert dead_among([owner]) == ([owner] if is_dead else [])


async def test_a_job_of_a_cluster_is_never_called_abandoned(store: Store) -> None:
    job = await queued(store, "1")
    await store.jobs.start(job.id, EPOCH, engine="celery")

    assert not await is_left_alone(store, job)
