"""Restoring records gives them the content from before a job, and deletes no history."""

from __future__ import annotations

from typing import Any

from longline.storage.query import RecordQuery
from longline.storage.records import RestoredRecords
from longline.storage.store import Store
from tests.storage.given import new_job, record
from tests.virtual import EPOCH


async def write(store: Store, job: str, at: float, **prices: int) -> None:
    for key, price in prices.items():
        one = record(key, {"price": price}, fingerprint=f"price {price}", score=80.0)
        await store.records.create(one, at=at, job=job)


async def prices(store: Store) -> dict[str, int]:
    """Return the prices of the records that are there."""
    rows = await store.records.list(RecordQuery())
    return {row["key"]: row["data"]["price"] for row in rows if row["gone_at"] is None}


async def two_jobs(store: Store) -> list[str]:
    return [(await store.jobs.create(new_job(n=number))).id for number in range(2)]


async def test_changed_records_have_their_old_content_in_a_new_version(store: Store) -> None:
    first, second = await two_jobs(store)
    await write(store, first, EPOCH, a=1, b=1, c=1)
    await write(store, second, EPOCH + 1, a=2, b=2, c=1)

    restored = await store.records.restore(second, EPOCH + 2)

    row = await store.records.get("a")
    versions = await store.history.versions("a")
    assert restored == RestoredRecords(changed=2)
    assert await prices(store) == {"a": 1, "b": 1, "c": 1}
    assert [(one.version, one.data["price"]) for one in versions] == [(1, 1), (2, 2), (3, 1)]
    assert (row["fingerprint"], row["score"], row["grade"]) == ("price 1", 80.0, "Good")


async def test_records_that_a_job_created_are_gone(store: Store) -> None:
    first, second = await two_jobs(store)
    await write(store, first, EPOCH, a=1)
    await write(store, second, EPOCH + 1, b=1)

    restored = await store.records.restore(second, EPOCH + 2)

    (status,) = await store.projections.rows("sources")
    assert restored == RestoredRecords(removed=1)
    assert await prices(store) == {"a": 1}
    assert status["records"] == 1


async def test_the_second_restore_changes_nothing(store: Store) -> None:
    first, second = await two_jobs(store)
    await write(store, first, EPOCH, a=1)
    await write(store, second, EPOCH + 1, a=2, b=1)

    await store.records.restore(second, EPOCH + 2)
    again = await store.records.restore(second, EPOCH + 3)

    assert again == RestoredRecords()


async def test_later_changes_are_not_overwritten(store: Store) -> None:
    first, second = await two_jobs(store)
    await write(store, first, EPOCH, a=1, b=1)
    await write(store, second, EPOCH + 1, a=2, b=2)
    await store.records.update("a", {"price": 9}, at=EPOCH + 2)

    restored = await store.records.restore(second, EPOCH + 3)

    assert restored == RestoredRecords(changed=1)
    assert await prices(store) == {"a": 9, "b": 1}


async def test_several_versions_of_one_job_are_undone_together(store: Store) -> None:
    first, second = await two_jobs(store)
    await write(store, first, EPOCH, a=1)
    for price in (2, 3):
        await write(store, second, EPOCH + price, a=price)

    await store.records.restore(second, EPOCH + 9)

    assert await prices(store) == {"a": 1}


async def test_a_record_that_came_back_is_gone_again(store: Store) -> None:
    first, second = await two_jobs(store)
    await write(store, first, EPOCH, a=1, b=1)
    await store.records.restore(first, EPOCH + 1)  # marks them as gone
    await write(store, second, EPOCH + 2, a=1)

    restored = await store.records.restore(second, EPOCH + 3)

    assert restored == RestoredRecords(removed=1)
    assert await prices(store) == {}


async def test_many_records_are_restored_in_batches(store: Store) -> None:
    first, second = await two_jobs(store)
    keys: dict[str, Any] = {f"k{number}": 1 for number in range(600)}
    await write(store, first, EPOCH, **keys)
    await write(store, second, EPOCH + 1, **dict.fromkeys(keys, 2))

    restored = await store.records.restore(second, EPOCH + 2)

    assert restored == RestoredRecords(changed=600)
    assert set((await prices(store)).values()) == {1}
