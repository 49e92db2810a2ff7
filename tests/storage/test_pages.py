"""Lists that are read page by page, in the order of an index."""

from __future__ import annotations

from typing import Any

import pytest

from longline.core.errors import FailureKind, UnknownJob, UnknownRecord
from longline.core.model import Failure, ItemState, Outcome, OutcomeAction, Usage
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.failures import AttemptPlace, FailedAttempt
from longline.storage.scheduling.launches import NewLaunch
from longline.storage.store import Store
from tests.storage.given import attempt, complete, leased, queued, record, stored
from tests.virtual import EPOCH


async def failed_job(store: Store) -> str:
    """Return a job whose discovery failed 3 times; 4 of 6 items failed after two attempts each."""
    job = await queued(store, *"abcdef")
    usage = Usage(failures=[failure(f"list{number}") for number in range(3)])
    await store.queue.enqueue(Discovered(job.id, [], EPOCH, is_last=True, usage=usage))
    leases = {one.item.key: one for one in await leased(store, job, 6)}
    for key in "abcd":
        usage = Usage(failures=[failure(f"{key}{number}") for number in range(2)])
        outcome = Outcome(OutcomeAction.FAIL, kind=FailureKind.SERVER, reason="503")
        await complete(store, attempt(leases[key], outcome, EPOCH + 1, usage=usage))
    await complete(store, stored(leases["e"]))
    await complete(store, stored(leases["f"]))
    return job.id


def failure(url: str, kind: FailureKind = FailureKind.SERVER) -> Failure:
    return Failure(EPOCH, f"https://shop.test/{url}", kind, "503", "retried", 0.5, 503)


async def all_attempts(store: Store, job: str, limit: int, **query: Any) -> list[FailedAttempt]:
    found: list[FailedAttempt] = []
    place: AttemptPlace | None = None
    is_first = True
    while is_first or place is not None:
        some, place = await store.failures.attempts(job, after=place, limit=limit, **query)
        found, is_first = found + some, False
    return found


@pytest.mark.parametrize("limit", [1, 3, 8, 50])
async def test_pages_of_attempts_have_each_once(store: Store, limit: int) -> None:
    job = await failed_job(store)

    found = await all_attempts(store, job, limit)

    keys = [one.key for one in found]
    assert keys == [None] * 3 + [key for key in "abcd" for _ in range(2)]
    assert len({one.id for one in found}) == 11


async def test_attempts_of_a_kind_are_read(store: Store) -> None:
    job = await failed_job(store)

    assert len(await all_attempts(store, job, 2, kind=FailureKind.SERVER)) == 11
    assert await all_attempts(store, job, 2, kind=FailureKind.GONE) == []


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ({}, "abcdef"),
        ({"state": ItemState.FAILED}, "abcd"),
        ({"state": ItemState.STORED}, "ef"),
        ({"kind": FailureKind.SERVER}, "abcd"),
        ({"state": ItemState.STORED, "kind": FailureKind.SERVER}, ""),
    ],
)
async def test_pages_of_items_have_each_once(
    store: Store, query: dict[str, Any], keys: str
) -> None:
    job = await failed_job(store)
    found, after = await store.job_items.by_key(job, limit=2, **query)

    while after is not None:
        some, after = await store.job_items.by_key(job, after=after, limit=2, **query)
        found += some

    assert [one.key for one in found] == [*keys]


async def test_versions_are_read_newest_first(store: Store) -> None:
    for number in range(1, 5):
        data = {"price": number}
        await store.records.create(record("a", data, fingerprint=str(number)), at=EPOCH + number)
    row = await store.records.get("a")

    first = await store.history.page(row["id"], limit=2)
    rest = await store.history.page(row["id"], before=first[-1].version, limit=50)

    assert [one.version for one in (*first, *rest)] == [4, 3, 2, 1]
    assert [one.data["price"] for one in (*first, *rest)] == [4, 3, 2, 1]
    assert await store.records.by_id(row["id"]) == row


async def test_an_unknown_number_of_a_record_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownRecord):
        await store.records.by_id(99)
    with pytest.raises(UnknownRecord):
        await store.history.page(99, limit=1)


async def test_launches_are_read_before_an_id(store: Store) -> None:
    first, second, third = [
        await store.launches.place(NewLaunch("source", name, {}, "command", EPOCH))
        for name in ("a", "b", "c")
    ]
    await store.launches.cancel(second, EPOCH, "test")

    older = await store.launches.list(before=third)
    still_open = await store.launches.list(before=third, is_open=True)

    assert [one.id for one in older] == [second, first]
    assert [one.id for one in still_open] == [first]


async def test_a_prefix_of_several_jobs_is_ambiguous(store: Store) -> None:
    jobs = [await queued(store), await queued(store)]

    with pytest.raises(UnknownJob) as raised:
        await store.jobs.get("shop-")

    assert raised.value.fitting == len(jobs)
