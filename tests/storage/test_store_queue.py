"""Items are queued once, leased in order to one worker each, and counted truly."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest
from sqlalchemy import Connection

from longline.core.errors import LeaseLost, StoreUnreachable
from longline.core.model import Item, ItemState, Outcome, OutcomeAction, Usage
from longline.storage.database import Database
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store
from tests.storage.given import (
    attempt,
    complete,
    ended,
    item,
    leased,
    new_job,
    queued,
    record,
    stored,
)
from tests.virtual import EPOCH


async def keys_leased(store: Store, job: str, count: int, at: float = EPOCH) -> list[str]:
    leases = await store.queue.lease(Claim(job, "me", count, at, at + 20))
    return [lease.item.key for lease in leases]


def limit_variables(connection: Connection, most: int) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, most)


async def test_an_item_found_twice_is_queued_once(store: Store) -> None:
    job = await queued(store, "a", "b")

    await store.queue.enqueue(Discovered(job.id, [item("b"), item("c"), item("c")], EPOCH))
    total = await store.queue.enqueue(Discovered(job.id, [], EPOCH, is_last=True))

    assert total == 3
    assert await keys_leased(store, job.id, 10) == ["a", "b", "c"]


async def test_the_same_key_in_another_job_is_another_item(store: Store) -> None:
    first, second = await queued(store, "a"), await queued(store, "a")

    assert await keys_leased(store, first.id, 10) == ["a"]
    assert await keys_leased(store, second.id, 10) == ["a"]


async def test_a_limit_cuts_exactly_wherever_it_falls(store: Store) -> None:
    job = await queued(store, "a", "b")
    more = [item(key) for key in "bcdef"]

    total = await store.queue.enqueue(Discovered(job.id, more, EPOCH, limit=4))
    again = await store.queue.enqueue(Discovered(job.id, more, EPOCH, limit=4))

    assert (total, again) == (4, 4)
    assert await keys_leased(store, job.id, 10) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
@pytest.mark.parametrize("limit", [None, 40_000])
async def test_more_items_than_a_statement_has_room_for_are_queued(
    database: Database, store: Store, limit: int | None
) -> None:
    job = await queued(store, "0")
    await database.write(limit_variables, 32_766)  # as in an SQLite that nobody has tuned
    found = [Item(str(n), "https://shop.test") for n in range(33_000)]

    total = await store.queue.enqueue(Discovered(job.id, found, EPOCH, is_last=True, limit=limit))

    assert total == 33_000


async def test_a_cursor_is_stored_with_its_items(store: Store) -> None:
    job = await queued(store)

    await store.queue.enqueue(Discovered(job.id, [item("a")], EPOCH, cursor={"page": 2}))
    await store.queue.enqueue(Discovered(job.id, [item("b")], EPOCH))

    assert (await store.jobs.get(job.id)).cursor == {"page": 2}


async def test_what_discovery_spent_is_counted(store: Store) -> None:
    job = await queued(store)

    await store.queue.enqueue(Discovered(job.id, [], EPOCH, usage=Usage(requests=2, retries=1)))

    assert await store.events.statistics(job.id) == {"requests": 2, "retries": 1}


async def test_items_of_an_unknown_job_are_refused(store: Store) -> None:
    with pytest.raises(StoreUnreachable, match=r"(?i)foreign key"):
        await store.queue.enqueue(Discovered("nobody", [item("a")], EPOCH))


async def test_items_are_leased_by_priority_and_then_by_discovery(store: Store) -> None:
    job = await store.jobs.create(new_job())
    found = [item("a"), item("b", 5), item("c", -1), item("d", 5)]
    await store.queue.enqueue(Discovered(job.id, found, EPOCH))

    keys = [await keys_leased(store, job.id, 1) for _ in found]

    assert keys == [["b"], ["d"], ["a"], ["c"]]


async def test_a_lease_holds_all_of_its_item(store: Store) -> None:
    job = await store.jobs.create(new_job())
    odd = Item("ключ/1?", "https://shop.test/ü", 3, {"deep": [1, {"a": None}], "text": "naïve 😀"})
    await store.queue.enqueue(Discovered(job.id, [odd], EPOCH))

    (lease,) = await leased(store, job)

    assert lease.item == odd
    assert (lease.job, lease.token, lease.tries) == (job.id, 1, 1)


async def test_a_parked_item_is_not_leased_before_it_is_due(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.DEFER, due=EPOCH + 100))

    early = await keys_leased(store, job.id, 5, EPOCH + 99)
    due = await store.queue.next_due(job.id)
    late = await leased(store, job, at=EPOCH + 100)

    assert early == []
    assert due == EPOCH + 100
    assert [(one.item.key, one.token, one.tries) for one in late] == [("a", 2, 2)]


async def test_a_parked_item_that_is_due_does_not_overtake_fresh_ones(store: Store) -> None:
    job = await queued(store, "a", "b")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.DEFER, due=EPOCH + 1))

    assert await keys_leased(store, job.id, 1, EPOCH + 2) == ["b"]
    assert await keys_leased(store, job.id, 1, EPOCH + 2) == ["a"]


async def test_nothing_is_due_when_nothing_is_queued(store: Store) -> None:
    job = await queued(store, "a")
    await leased(store, job)

    assert await store.queue.next_due(job.id) is None


async def test_no_item_goes_to_two_of_many_workers(store: Store) -> None:
    job = await queued(store, *(str(number) for number in range(100)))
    claims = (Claim(job.id, f"worker {n}", 7, EPOCH, EPOCH + 20) for n in range(20))

    leases = await asyncio.gather(*(store.queue.lease(claim) for claim in claims))

    keys = [lease.item.key for some in leases for lease in some]
    assert sorted(keys, key=int) == [str(number) for number in range(100)]


async def test_no_item_goes_to_two_stores_on_one_file(store: Store, address: str) -> None:
    job = await queued(store, *(str(number) for number in range(60)))
    with open_store(address) as other:
        leases = await asyncio.gather(
            *(
                one.queue.lease(Claim(job.id, "me", 5, EPOCH, EPOCH + 20))
                for one in [store, other] * 6
            )
        )

    keys = [lease.item.key for some in leases for lease in some]
    assert sorted(keys, key=int) == [str(number) for number in range(60)]


async def test_found_items_are_queued_with_the_outcome_that_found_them(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)

    await complete(store, stored(lease, found=[item("a"), item("b"), item("c")]))

    assert await keys_leased(store, job.id, 10) == ["b", "c"]


async def test_found_items_do_not_break_the_limit(store: Store) -> None:
    job = await queued(store, "a")
    (lease,) = await leased(store, job)

    await complete(store, stored(lease, found=[item(key) for key in "bcdefg"]))

    assert await keys_leased(store, job.id, 10) == ["b", "c", "d", "e"]


async def test_an_item_that_two_outcomes_found_is_queued_once(store: Store) -> None:
    job = await queued(store, "a", "b")
    leases = await leased(store, job, 2)

    await asyncio.gather(*(complete(store, stored(one, found=[item("c")])) for one in leases))

    assert await keys_leased(store, job.id, 10) == ["c"]


async def test_counts_add_up_whatever_the_outcomes(store: Store) -> None:
    job = await queued(store, *"abcdefgh")
    stays, again, new, gone, bad, odd, later = await leased(store, job, 7)
    await store.records.create(record(again.item.key), at=EPOCH)
    finishes = [
        stored(again),
        stored(new),
        ended(gone, OutcomeAction.SKIP, reason="404"),
        ended(bad, OutcomeAction.FAIL, reason="500"),
        ended(odd, OutcomeAction.QUARANTINE, reason="no title", raw={"page": {}}),
        ended(later, OutcomeAction.DEFER, due=EPOCH + 60),
    ]

    states = await asyncio.gather(*(complete(store, one) for one in finishes))

    assert states == ["unchanged", "stored", "skipped", "failed", "quarantined", "queued"]
    counts = await store.queue.counts(job.id)
    assert stays.item.key == "a"
    assert counts.pop(ItemState.QUEUED) == 2
    assert set(counts.values()) == {1}
    assert len(counts) == 6


async def test_counts_of_an_unknown_job_are_zero(store: Store) -> None:
    assert set((await store.queue.counts("nobody")).values()) == {0}


async def test_finished_items_are_listed_in_the_order_of_discovery(store: Store) -> None:
    job = await queued(store, "a", "b", "c")
    first, second, _third = await leased(store, job, 3)
    await complete(store, ended(second, OutcomeAction.FAIL, reason="500"))
    await complete(store, stored(first, seconds=2.5))

    rows = await store.queue.finished(job.id)

    assert [(row["key"], row["state"], row["reason"]) for row in rows] == [
        ("a", "stored", None),
        ("b", "failed", "500"),
    ]
    assert rows[0]["seconds"] == 2.5
    assert rows[0]["finished_at"] == EPOCH + 1


async def test_the_item_that_was_finished_last_is_known_and_when(store: Store) -> None:
    job = await queued(store, "a", "b", "c")
    first, second, third = await leased(store, job, 3)
    await complete(store, attempt(second, stored(second)[1], EPOCH + 5))
    await complete(store, ended(first, OutcomeAction.FAIL, reason="500"))
    await complete(store, attempt(third, Outcome(OutcomeAction.DEFER, due=EPOCH + 60), EPOCH + 9))

    assert (await store.queue.progress([job.id]))[job.id].last_key == "b"
    assert await store.chunks.last_completion(job.id) == EPOCH + 5


async def test_of_a_job_that_has_finished_nothing_no_item_was_last(store: Store) -> None:
    job = await queued(store, "a")
    other = await queued(store, "b")
    await complete(store, stored((await leased(store, other))[0]))

    assert (await store.queue.progress([job.id]))[job.id].last_key is None
    assert await store.chunks.last_completion(job.id) is None


async def test_what_was_found_before_a_key_can_be_skipped(store: Store) -> None:
    job = await queued(store, "a", "b", "c", "d")
    (first,) = await leased(store, job)
    await complete(store, stored(first))

    skipped = await store.queue.skip_before(job.id, "c", "resumed from c", EPOCH + 2)

    assert skipped == 1
    rows = await store.queue.finished(job.id)
    assert [(row["key"], row["state"], row["reason"]) for row in rows] == [
        ("a", "stored", None),
        ("b", "skipped", "resumed from c"),
    ]
    assert await keys_leased(store, job.id, 10) == ["c", "d"]


async def test_what_a_killed_worker_held_can_be_skipped_too(store: Store) -> None:
    job = await queued(store, "a", "b")
    (stale,) = await leased(store, job, owner="killed")

    assert await store.queue.skip_before(job.id, "b", "resumed from b", EPOCH + 2) == 1

    with pytest.raises(LeaseLost):
        await complete(store, stored(stale))
    assert await store.queue.owners(job.id) == []
    assert await keys_leased(store, job.id, 10) == ["b"]


async def test_skipping_before_an_unknown_key_skips_nothing(store: Store) -> None:
    job = await queued(store, "a", "b")

    assert await store.queue.skip_before(job.id, "z", "resumed", EPOCH + 2) is None
    assert (await store.queue.counts(job.id))[ItemState.QUEUED] == 2


async def test_a_finish_adds_to_the_statistics_and_the_events(store: Store) -> None:
    job = await queued(store, "a", "b")
    first, second = await leased(store, job, 2)
    spent = Usage(requests=3, retries=1, waited=0.5)

    await complete(store, stored(first, seconds=1.5, usage=spent))
    await complete(
        store,
        attempt(second, Outcome(OutcomeAction.DEFER, due=EPOCH + 9), EPOCH, 4.0, spent),
    )

    # A deferred item is not finished, so its seconds do not count towards the mean.
    assert await store.events.statistics(job.id) == {
        "requests": 6,
        "retries": 2,
        "waited": 1.0,
        "item_requests": 6,
        "item_seconds": 1.5,
    }
    kinds = [event.type for event in await store.events.list(job.id)]
    assert kinds[-2:] == ["item.stored", "item.deferred"]
