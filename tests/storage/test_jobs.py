"""The life of a job: created once, found again while unfinished, ended once with a true verdict."""

from __future__ import annotations

import asyncio
import re

import pytest

from longline.core.errors import UnknownJob
from longline.core.model import Job, JobState, OutcomeAction
from longline.storage.jobs import NewJob
from longline.storage.store import Store, open_store
from tests.storage.given import complete, ended, leased, new_job, queued, stored
from tests.virtual import EPOCH


async def kinds(store: Store, job: Job) -> list[str]:
    return [event.type for event in await store.events.list(job.id)]


async def worked_off(store: Store, verdicts: str) -> Job:
    """Return a job whose items ended: s stored, x skipped, f failed, q quarantined."""
    job = await queued(store, *(str(n) for n in range(len(verdicts))), is_last=True)
    by_letter = {"x": OutcomeAction.SKIP, "f": OutcomeAction.FAIL, "q": OutcomeAction.QUARANTINE}
    for letter, lease in zip(verdicts, await leased(store, job, 99), strict=True):
        verdict = by_letter.get(letter)
        await complete(store, ended(lease, verdict) if verdict else stored(lease))
    return job


async def test_a_job_keeps_its_settings_and_says_that_it_was_made(store: Store) -> None:
    job = await store.jobs.create(new_job())

    assert job == await store.jobs.get(job.id)
    assert job.id.startswith("shop-20270115-080000-")
    assert (job.state, job.settings, job.created_at) == (JobState.PENDING, {"limit": 5}, EPOCH)
    assert await kinds(store, job) == ["job.created"]


async def test_jobs_made_in_the_same_second_are_different(store: Store) -> None:
    jobs = await asyncio.gather(*(store.jobs.create(new_job()) for _ in range(20)))

    assert len({job.id for job in jobs}) == 20


async def test_an_unfinished_job_of_the_same_identity_is_found_again(store: Store) -> None:
    first, is_new = await store.jobs.find_or_create(new_job(query="shoes", limit=5))

    again = await store.jobs.find_or_create(new_job(limit=5, query="shoes"))

    assert is_new
    assert again == (first, False)


async def test_another_identity_is_another_job(store: Store) -> None:
    first, _ = await store.jobs.find_or_create(new_job(query="shoes"))

    other, is_new = await store.jobs.find_or_create(new_job(query="hats"))

    assert is_new
    assert other.id != first.id


async def test_the_same_settings_of_another_source_are_another_job(store: Store) -> None:
    await store.jobs.find_or_create(new_job())

    assert (await store.jobs.find_or_create(NewJob("market", {}, {}, EPOCH)))[1]


async def test_a_complete_job_is_not_found_again(store: Store) -> None:
    job = await worked_off(store, "s")
    await store.jobs.finish(job.id, EPOCH)

    assert (await store.jobs.find_or_create(new_job()))[1]


async def test_a_failed_job_is_not_found_again(store: Store) -> None:
    job = await queued(store)
    await store.jobs.fail(job.id, EPOCH, "no sitemap")

    assert (await store.jobs.get(job.id)).state == JobState.FAILED
    assert (await store.jobs.find_or_create(new_job()))[1]


async def test_a_paused_job_is_found_again(store: Store) -> None:
    first, _ = await store.jobs.find_or_create(new_job())
    await store.jobs.start(first.id, EPOCH)
    await store.jobs.pause_if_idle(first.id, EPOCH + 1, "interrupted")

    found, is_new = await store.jobs.find_or_create(new_job())

    assert (found.id, found.state, found.reason) == (first.id, JobState.PAUSED, "interrupted")
    assert not is_new


async def test_concurrent_callers_get_one_job(store: Store, address: str) -> None:
    with open_store(address) as other:
        found = await asyncio.gather(
            *(one.jobs.find_or_create(new_job()) for one in [store, other] * 10)
        )

    assert len({job.id for job, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


async def test_a_job_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    job = await store.jobs.create(new_job())
    await store.jobs.create(NewJob("market", {}, {}, EPOCH))

    assert (await store.jobs.get(job.id[:6])).id == job.id


@pytest.mark.parametrize("name", ["shop-", "nothing", "%", "s_op"])
async def test_a_beginning_that_fits_none_or_several_is_an_unknown_job(
    store: Store, name: str
) -> None:
    await store.jobs.create(new_job())
    await store.jobs.create(new_job())

    with pytest.raises(UnknownJob, match=name):
        await store.jobs.get(name)


async def test_the_newest_jobs_come_first(store: Store) -> None:
    old = await store.jobs.create(new_job())
    new = await store.jobs.create(NewJob("shop", {}, {}, EPOCH + 1))
    await store.jobs.start(new.id, EPOCH)
    await store.jobs.fail(new.id, EPOCH, "gone")

    assert [job.id for job in await store.jobs.list()] == [new.id, old.id]
    assert [job.id for job in await store.jobs.list(limit=1)] == [new.id]
    assert [job.id for job in await store.jobs.list(is_open=True)] == [old.id]


async def test_a_job_that_goes_on_keeps_its_first_start_and_forgets_why_it_paused(
    store: Store,
) -> None:
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH + 1)
    await store.jobs.pause_if_idle(job.id, EPOCH + 2, "interrupted")

    await store.jobs.start(job.id, EPOCH + 3, concurrency=4)

    found = await store.jobs.get(job.id)
    assert (found.state, found.started_at, found.reason) == (JobState.RUNNING, EPOCH + 1, None)
    assert await kinds(store, job) == ["job.created", "job.started", "job.paused", "job.resumed"]


async def test_one_of_many_becomes_the_one_who_discovers(store: Store) -> None:
    job = await queued(store)

    taken = await asyncio.gather(
        *(
            store.jobs.lease_discovery(job.id, f"w{n}", at=EPOCH, until=EPOCH + 20, dead=[])
            for n in range(9)
        )
    )

    assert taken.count(True) == 1


@pytest.mark.parametrize(
    ("owner", "at", "dead", "is_taken"),
    [
        ("other", EPOCH + 5, [], False),
        ("first", EPOCH + 5, [], True),
        ("other", EPOCH + 21, [], True),
        ("other", EPOCH + 5, ["first"], True),
    ],
)
async def test_discovery_is_reclaimed_from_expired_and_dead_owners(
    store: Store, owner: str, at: float, dead: list[str], *, is_taken: bool
) -> None:
    job = await queued(store)
    await store.jobs.lease_discovery(job.id, "first", at=EPOCH, until=EPOCH + 20, dead=[])

    assert (
        await store.jobs.lease_discovery(job.id, owner, at=at, until=at + 20, dead=dead) is is_taken
    )


async def test_a_renewed_discovery_stays_with_its_owner(store: Store) -> None:
    job = await queued(store)
    await store.jobs.lease_discovery(job.id, "first", at=EPOCH, until=EPOCH + 20, dead=[])
    await store.queue.renew([(job.id, "first")], EPOCH, EPOCH + 60)

    assert not await store.jobs.lease_discovery(
        job.id, "other", at=EPOCH + 30, until=EPOCH + 50, dead=[]
    )


async def test_a_finished_discovery_is_not_taken_again(store: Store) -> None:
    job = await queued(store, "a", is_last=True)

    assert (await store.jobs.get(job.id)).is_discovered
    assert not await store.jobs.lease_discovery(job.id, "me", at=EPOCH, until=EPOCH + 20, dead=[])


@pytest.mark.parametrize(
    ("verdicts", "state", "data"),
    [
        ("ssx", JobState.COMPLETE, None),
        ("xx", JobState.COMPLETE, None),
        ("", JobState.COMPLETE, None),
        ("sfq", JobState.PARTIAL, ["1", "1", "3", "failed", "quarantined"]),
        ("sff", JobState.PARTIAL, ["2", "3", "failed"]),
        ("ffq", JobState.FAILED, ["1", "2", "3", "failed", "quarantined"]),
        ("sq", JobState.PARTIAL, ["1", "2", "quarantined"]),
        ("qq", JobState.FAILED, ["2", "2", "quarantined"]),
    ],
)
async def test_the_verdict_follows_from_the_items(
    store: Store, verdicts: str, state: JobState, data: list[str] | None
) -> None:
    job = await worked_off(store, verdicts)

    assert await store.jobs.finish(job.id, EPOCH + 9) == state

    found = await store.jobs.get(job.id)
    words = found.reason and sorted(re.findall(r"\d+|failed|quarantined", found.reason))
    assert (found.state, words, found.finished_at) == (state, data, EPOCH + 9)
    assert (await kinds(store, job))[-1] == f"job.{state}"


async def test_of_many_who_finish_a_job_one_does(store: Store, address: str) -> None:
    job = await worked_off(store, "ss")
    with open_store(address) as other:
        answers = await asyncio.gather(
            *(one.jobs.finish(job.id, EPOCH) for one in [store, other] * 5)
        )

    assert [answer for answer in answers if answer] == [JobState.COMPLETE]
    assert (await kinds(store, job)).count("job.complete") == 1


async def test_a_job_is_not_finished_while_discovery_goes_on(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    await complete(store, stored(lease))

    assert await store.jobs.finish(job.id, EPOCH) is None
    assert (await store.jobs.get(job.id)).state == JobState.RUNNING


async def test_a_job_is_not_finished_while_an_item_is_leased(store: Store) -> None:
    job = await queued(store, "a", "b", is_last=True)
    first, _ = await leased(store, job, 2)
    await complete(store, stored(first))

    assert await store.jobs.finish(job.id, EPOCH) is None


async def test_a_job_is_not_finished_while_an_item_is_parked(store: Store) -> None:
    job = await queued(store, "a", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.DEFER, due=EPOCH + 60))

    assert await store.jobs.finish(job.id, EPOCH) is None


async def test_a_job_that_others_still_work_on_is_not_paused(store: Store) -> None:
    job = await queued(store, "a", "b")
    await leased(store, job, owner="other")

    await store.jobs.pause_if_idle(job.id, EPOCH, "interrupted")

    assert (await store.jobs.get(job.id)).state == JobState.RUNNING


async def test_a_paused_job_lets_go_of_its_discovery(store: Store) -> None:
    job = await queued(store)
    await store.jobs.lease_discovery(job.id, "me", at=EPOCH, until=EPOCH + 20, dead=[])

    await store.jobs.pause_if_idle(job.id, EPOCH + 1, "interrupted")

    found = await store.jobs.get(job.id)
    assert (found.state, found.finished_at) == (JobState.PAUSED, None)
    assert await store.jobs.lease_discovery(
        job.id, "other", at=EPOCH + 2, until=EPOCH + 22, dead=[]
    )


async def test_an_ended_job_stays_as_it_ended(store: Store) -> None:
    job = await worked_off(store, "s")
    await store.jobs.finish(job.id, EPOCH + 5)

    await store.jobs.pause_if_idle(job.id, EPOCH + 6, "interrupted")
    await store.jobs.fail(job.id, EPOCH + 7, "too late")
    await store.jobs.start(job.id, EPOCH + 8)

    found = await store.jobs.get(job.id)
    assert (found.state, found.reason, found.finished_at) == (JobState.COMPLETE, None, EPOCH + 5)
