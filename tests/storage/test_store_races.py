"""Ten who do the same at the same moment: the answers are those of one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from longline.core.errors import LeaseLost
from longline.core.model import ItemState, JobState
from longline.storage.query import RecordQuery
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store
from tests.storage.given import complete, item, leased, new_job, queued, record, stored
from tests.virtual import EPOCH

KEYS = [str(number) for number in range(40)]


@pytest.fixture
def stores(address: str) -> Iterator[list[Store]]:
    """Ten stores on one database, each with a writer of its own, as ten processes have."""
    with ExitStack() as opened:
        yield [opened.enter_context(open_store(address)) for _ in range(10)]


async def test_ten_processes_find_or_create_one_job(stores: list[Store]) -> None:
    found = await asyncio.gather(*(store.jobs.find_or_create(new_job(a=1)) for store in stores))

    assert len({job.id for job, _ in found}) == 1
    assert [is_new for _, is_new in found].count(True) == 1


async def test_ten_processes_enqueue_the_same_items_once(stores: list[Store]) -> None:
    job = await queued(stores[0])
    found = Discovered(job.id, [item(key) for key in KEYS], EPOCH)

    await asyncio.gather(*(store.queue.enqueue(found) for store in stores))

    assert (await stores[0].queue.counts(job.id))[ItemState.QUEUED] == len(KEYS)


async def test_ten_processes_do_not_exceed_the_limit(stores: list[Store]) -> None:
    job = await queued(stores[0])

    totals = await asyncio.gather(
        *(
            store.queue.enqueue(
                Discovered(job.id, [item(f"{n}-{key}") for key in KEYS[:7]], EPOCH, limit=25)
            )
            for n, store in enumerate(stores)
        )
    )

    assert max(total or 0 for total in totals) == 25
    assert (await stores[0].queue.counts(job.id))[ItemState.QUEUED] == 25


async def test_no_item_goes_to_two_of_ten_and_none_is_left(stores: list[Store]) -> None:
    job = await queued(stores[0], *KEYS)

    given = await asyncio.gather(
        *(
            store.queue.lease(Claim(job.id, f"worker {n}", 4, EPOCH, EPOCH + 20))
            for n, store in enumerate(stores)
        )
    )

    assert [len(leases) for leases in given] == [4] * 10
    assert sorted(lease.item.key for leases in given for lease in leases) == sorted(KEYS)


async def test_one_of_ten_processes_completes_a_lease(stores: list[Store]) -> None:
    job = await queued(stores[0], "a")
    (lease,) = await leased(stores[0], job)

    ends = await asyncio.gather(*(store.queue.complete_all([stored(lease)]) for store in stores))

    assert [end for (end,) in ends].count(ItemState.STORED) == 1
    assert sum(isinstance(end, LeaseLost) for (end,) in ends) == 9
    assert len(await stores[0].events.list(job.id, types=["item.stored"])) == 1


async def test_one_of_ten_processes_finishes_a_job(stores: list[Store]) -> None:
    job = await queued(stores[0], "a", is_last=True)
    (lease,) = await leased(stores[0], job)
    await complete(stores[0], stored(lease))

    states = await asyncio.gather(*(store.jobs.finish(job.id, EPOCH + 2) for store in stores))

    assert sorted(states, key=str) == [None] * 9 + [JobState.COMPLETE]
    assert len(await stores[0].events.list(job.id, types=["job.complete"])) == 1


async def test_the_same_new_record_of_ten_is_one(stores: list[Store]) -> None:
    made = await asyncio.gather(*(store.records.create(record("a"), at=EPOCH) for store in stores))

    assert made.count(True) == 1
    assert await stores[0].records.count() == 1


async def test_changes_of_ten_to_one_record_are_versions_without_a_gap(stores: list[Store]) -> None:
    await stores[0].records.create(record("a"), at=EPOCH)

    await asyncio.gather(
        *(
            store.records.create(record("a", {"n": n}, fingerprint=str(n)), at=EPOCH + n)
            for n, store in enumerate(stores)
        )
    )

    (row,) = await stores[0].records.list(RecordQuery())
    assert row["version"] == 11
    versions = await stores[0].history.versions("a", source="shop")
    assert [one.version for one in versions] == list(range(1, 12))


async def test_edits_of_ten_to_one_record_are_all_kept(stores: list[Store]) -> None:
    await stores[0].records.create(record("a"), at=EPOCH)

    await asyncio.gather(
        *(
            store.records.update("a", {f"field {n}": n}, at=EPOCH + 1)
            for n, store in enumerate(stores)
        )
    )

    (row,) = await stores[0].records.list(RecordQuery())
    assert row["version"] == 11
    assert row["data"] == {"title": "Thing a", **{f"field {n}": n for n in range(10)}}


async def test_what_ten_add_up_is_the_sum(stores: list[Store]) -> None:
    amounts = {"requests": 1.0, "bytes": 10.0, "retries": 2.0}
    backwards = dict(reversed(amounts.items()))

    await asyncio.gather(
        *(
            store.events.add_statistics("job", names)
            for store in stores
            for names in (amounts, backwards, amounts)
        )
    )

    assert await stores[0].events.statistics("job") == {
        "requests": 30,
        "bytes": 300,
        "retries": 60,
    }
