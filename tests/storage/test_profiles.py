"""Profiles of runs, and the evidence they are made of, as the database keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Job, JobState, Outcome, OutcomeAction
from longline.storage.profiles import DriftResult, Profiles
from longline.storage.store import Store
from tests.storage.given import attempt, leased, queued, record
from tests.virtual import EPOCH


@pytest.fixture
def profiles(store: Store) -> Profiles:
    return store.profiles


async def ended_job(store: Store, at: float, **ending: Any) -> Job:
    """Return a job that has ended at this time, with the profile it left."""
    job = await queued(store, is_last=True)
    await store.jobs.finish(job.id, at, DriftResult({"records": 1}, **ending))
    return job


async def test_a_profile_is_kept_with_the_end_of_its_job(store: Store, profiles: Profiles) -> None:
    job = await ended_job(store, EPOCH + 5)

    kept = await profiles.find(job.id)

    assert kept is not None
    assert (kept.source, kept.at, kept.is_sound, kept.is_accepted) == (
        "shop",
        EPOCH + 5,
        True,
        False,
    )
    assert kept.profile == {"records": 1}


async def test_drift_makes_a_job_partial_and_its_profile_unsound(
    store: Store, profiles: Profiles
) -> None:
    job = await ended_job(store, EPOCH, drift=("price", "title"), warnings=("late",))

    ended, kept = await store.jobs.get(job.id), await profiles.find(job.id)

    assert ended.state is JobState.PARTIAL
    reason = ended.reason or ""
    assert reason.startswith("drift")
    assert reason.index("price") < reason.index("title") < reason.index("late")
    assert kept is not None
    assert not kept.is_sound


async def test_a_profile_is_an_event_of_the_source(store: Store) -> None:
    job = await queued(store, is_last=True)
    fields = {"title": {"filled": 3}, "price": {"filled": 1}, "@score": {"filled": 3}}
    profile = {"records": 3, "invalid": 1, "fields": fields}

    await store.jobs.finish(job.id, EPOCH, DriftResult(profile, drift=("price is lost",)))

    (event,) = await store.events.list(job.id, types=["source.profiled"])
    assert (event.subject, event.at) == ("source/shop", EPOCH)
    assert event.data == {
        "source": "shop",
        "records": 3,
        "invalid": 1,
        "coverage": {"price": 0.3333, "title": 1.0},
        "is_sound": False,
        "drift": ["price is lost"],
    }


async def test_a_job_without_records_covers_no_field(store: Store) -> None:
    job = await queued(store, is_last=True)

    await store.jobs.finish(job.id, EPOCH, DriftResult({"records": 0, "fields": {}}))

    (event,) = await store.events.list(job.id, types=["source.profiled"])
    assert (event.data["coverage"], event.data["is_sound"]) == ({}, False)


async def test_a_warning_is_reported_and_changes_nothing(store: Store) -> None:
    job = await ended_job(store, EPOCH, warnings=("empty",))

    ended = await store.jobs.get(job.id)

    assert (ended.state, ended.reason) == (JobState.COMPLETE, "empty")


async def test_baselines_are_sound_profiles_newest_first(store: Store, profiles: Profiles) -> None:
    first = await ended_job(store, EPOCH + 1)
    await ended_job(store, EPOCH + 2, drift=("price",))
    last = await ended_job(store, EPOCH + 3)

    assert [one.job for one in await profiles.baselines("shop")] == [last.id, first.id]
    assert [one.job for one in await profiles.baselines("shop", but=last.id)] == [first.id]
    assert await profiles.baselines("other") == []


async def test_an_accepted_profile_replaces_all_before_it(store: Store, profiles: Profiles) -> None:
    await ended_job(store, EPOCH + 1)
    drifted = await ended_job(store, EPOCH + 2, drift=("price",))
    last = await ended_job(store, EPOCH + 3)

    await profiles.accept(drifted.id, {"records": 2}, EPOCH + 4)

    found = await profiles.baselines("shop")
    events = await store.events.list(drifted.id, types=["drift.accepted"])
    assert [one.job for one in found] == [last.id, drifted.id]
    assert found[1].profile == {"records": 2, "accepted": True}
    assert len(events) == 1


async def test_the_end_of_a_job_that_has_items_left_keeps_nothing(
    store: Store, profiles: Profiles
) -> None:
    job = await queued(store, "a", is_last=True)

    assert not await store.jobs.is_over(job.id)
    assert await store.jobs.finish(job.id, EPOCH, DriftResult({"records": 1})) is None
    assert await profiles.find(job.id) is None


async def committed(store: Store, count: int) -> Job:
    """Return a job with `count` records, and a tenth as many items that became none."""
    keys = [f"{number:04}" for number in range(count + count // 10)]
    job = await queued(store, *keys, is_last=True)
    finishes = [
        attempt(
            lease,
            Outcome(OutcomeAction.QUARANTINE, kind=FailureKind.INVALID, reason="price: missing")
            if lease.item.key >= f"{count:04}"
            else Outcome(OutcomeAction.STORE, record=record(lease.item.key, score=70)),
            EPOCH + int(lease.item.key),
        )
        for lease in await leased(store, job, len(keys))
    ]
    await store.queue.complete_all(finishes)
    return job


async def test_committed_items_are_in_their_order(store: Store, profiles: Profiles) -> None:
    job = await committed(store, 10)

    found = await profiles.committed(job.id, lambda one: one, most=100)

    assert [one.key for one in found] == [f"{number:04}" for number in range(11)]
    assert (found[0].data, found[0].score, found[0].site) == (
        {"title": "Thing 0000"},
        70,
        "shop.test",
    )
    assert (found[-1].data, found[-1].reason) == (None, "price: missing")


async def test_records_stored_late_have_the_position_of_their_item(
    store: Store, profiles: Profiles
) -> None:
    job = await queued(store, "a", "b", "c")
    await store.records.create(record("b"), at=EPOCH + 9, job=job.id)
    await store.records.create(record("c"), at=EPOCH + 5, job=job.id)
    await store.records.create(record("a"), at=EPOCH + 7, job=job.id)
    await store.records.create(record("itemless"), at=EPOCH, job=job.id)

    found = await profiles.committed(job.id, lambda one: one, most=100)

    assert [one.key for one in found] == ["a", "b", "c", "itemless"]


async def test_many_committed_items_are_sampled_evenly(store: Store, profiles: Profiles) -> None:
    job = await committed(store, 200)

    found = await profiles.committed(job.id, lambda one: one, most=44)

    bad = sum(one.data is None for one in found)
    assert (len(found), bad) == (44, 4)
    assert await store.jobs.is_over(job.id)


@pytest.mark.parametrize("profile", [{"records": 23, "invalid": 77}, {"records": 0, "invalid": 0}])
async def test_a_run_of_mostly_invalid_items_is_not_a_baseline(
    store: Store, profiles: Profiles, profile: dict[str, int]
) -> None:
    job = await queued(store, is_last=True)

    await store.jobs.finish(job.id, EPOCH, DriftResult(profile))

    assert await profiles.baselines("shop") == []


async def test_baselines_are_of_one_scope_and_comparable(store: Store, profiles: Profiles) -> None:
    scopes: list[dict[str, Any]] = [
        {},
        {"scope": "a"},
        {"scope": "a", "is_cut": True},
        {"scope": "b"},
    ]
    jobs = [await queued(store, is_last=True) for _ in scopes]
    for number, (job, scope) in enumerate(zip(jobs, scopes, strict=True)):
        await store.jobs.finish(job.id, EPOCH + number, DriftResult({"records": 1, **scope}))

    plain = await profiles.baselines("shop")
    fitting = await profiles.baselines(
        "shop", scope="a", is_comparable=lambda one: not one.get("is_cut")
    )

    assert [one.job for one in plain] == [jobs[0].id]
    assert [one.job for one in fitting] == [jobs[1].id]
