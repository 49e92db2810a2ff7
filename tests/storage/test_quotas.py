"""Quotas leave out items of a job exactly, once reported, whoever enqueues them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longline.core.model import CUT, WARNING, Item, OutcomeAction, Quota
from longline.storage.database import Database
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store
from tests.storage.given import ended, item, leased, new_job, queued
from tests.storage.test_store_queue import limit_variables
from tests.virtual import EPOCH

TWO = Quota("pages", 2, "more than 2 pages")
CHAIN = Quota("calendar", 2, "2 pages led to nothing", is_cut=False, counts_items=False)


def under(key: str, *quotas: Quota) -> Item:
    return replace(item(key), quotas=quotas)


async def reasons(store: Store, job: str, kind: str) -> list[str]:
    return [event.data["reason"] for event in await store.events.list(job, types=[kind])]


async def test_a_quota_admits_so_many_items_in_all(store: Store) -> None:
    job = await queued(store)
    known = [under("a", TWO), under("a", TWO)]

    await store.queue.enqueue(Discovered(job.id, known, EPOCH))
    await store.queue.enqueue(Discovered(job.id, [*known, under("b", TWO), under("c", TWO)], EPOCH))
    await store.queue.enqueue(Discovered(job.id, [under("d", TWO), item("e")], EPOCH))

    assert [one.item.key for one in await leased(store, job, 10)] == ["a", "b", "e"]
    assert await reasons(store, job.id, CUT) == ["more than 2 pages"]


async def test_outcomes_use_a_quota_that_new_items_refill(store: Store) -> None:
    job = await store.jobs.create(replace(new_job(), settings={}))  # without a limit
    await store.queue.enqueue(Discovered(job.id, [item(key) for key in "abcde"], EPOCH))
    leases = await leased(store, job, 5)

    async def complete(number: int, *found: Item) -> None:
        lease, outcome = ended(leases[number], OutcomeAction.SKIP)
        outcome = replace(outcome, found=found, spent=("calendar",))
        await store.queue.complete_all([(lease, outcome)])

    await complete(0)
    await complete(1, under("f", CHAIN), replace(item("g"), refills=("calendar",)))
    await complete(2)
    await complete(3, under("h", CHAIN))
    await complete(4, under("i", CHAIN))

    assert [one.item.key for one in await leased(store, job, 10)] == ["f", "g", "h"]
    assert await reasons(store, job.id, WARNING) == ["2 pages led to nothing"]


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
async def test_quotas_of_more_items_than_a_statement_has_room_for(
    database: Database, store: Store
) -> None:
    job = await queued(store)
    await database.write(limit_variables, 10_500)
    found = [under(f"k{n}", Quota(f"q{n}", 1, "one each"), TWO) for n in range(11_000)]

    total = await store.queue.enqueue(Discovered(job.id, found, EPOCH, is_last=True))

    assert total == 2
