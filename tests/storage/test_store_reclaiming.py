"""What the dead held is taken back, and what killed them is kept apart."""

from __future__ import annotations

import pytest

from longline.core.model import ItemState, Job, OutcomeAction
from longline.storage.queue.chunks import Chunk, ChunkClaim
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.queue import Reclaim, Reclaimed
from longline.storage.store import Store
from tests.storage.given import complete, ended, queued, stored
from tests.virtual import EPOCH


async def given_to(store: Store, job: Job, owner: str, *, size: int = 4) -> Chunk:
    """Return a chunk of a job that this owner has."""
    await store.chunks.publish(job.id, EPOCH, size=size)
    chunk, *_ = await store.chunks.unanswered(job.id, EPOCH + 60)
    taken = await store.chunks.claim(chunk, ChunkClaim(owner, EPOCH, EPOCH + 20, size))
    assert taken is not None
    return taken


async def killed(store: Store, job: Job, *owners: str) -> Reclaimed:
    return await store.queue.reclaim(Reclaim(job.id, EPOCH, killed=owners))


async def lethal(store: Store) -> Job:
    """Return a job with an item that has killed three workers, the first in company."""
    job = await queued(store, "1", "2")
    first = await given_to(store, job, "a")
    await complete(store, stored(first.leases[1]))
    await killed(store, job, "a")
    await given_to(store, job, "b")
    await killed(store, job, "b")
    await given_to(store, job, "c")
    await killed(store, job, "c")
    return job


@pytest.mark.parametrize(("dead", "killed"), [(["me"], []), ([], ["me"])])
async def test_items_of_a_dead_owner_are_queued_again_immediately(
    store: Store, dead: list[str], killed: list[str]
) -> None:
    job = await queued(store, "1", "2", "3")
    first, *_ = (await given_to(store, job, "me")).leases
    await complete(store, stored(first))

    reclaimed = await store.queue.reclaim(Reclaim(job.id, EPOCH, dead, killed))

    assert reclaimed == Reclaimed(items=2, quarantined=0, chunks=1)
    assert (await store.queue.counts(job.id))[ItemState.QUEUED] == 2
    assert (await store.chunks.progress(job.id)).taken == 0


async def test_a_living_owner_keeps_what_it_has(store: Store) -> None:
    job = await queued(store, "1", "2")
    await given_to(store, job, "me", size=1)
    taken = await given_to(store, job, "you", size=1)

    reclaimed = await killed(store, job, "me")

    assert reclaimed == Reclaimed(items=1, quarantined=0, chunks=1)
    assert await store.chunks.owners(job.id) == ["you"]
    assert await store.chunks.complete([(taken.id, "you")], EPOCH)


async def test_expired_leases_are_reclaimed_without_suspects(store: Store) -> None:
    job = await queued(store, "1", "2")
    await given_to(store, job, "me")

    assert await store.queue.reclaim(Reclaim(job.id, EPOCH + 20)) == Reclaimed()
    reclaimed = await store.queue.reclaim(Reclaim(job.id, EPOCH + 21))

    assert reclaimed == Reclaimed(items=2, quarantined=0, chunks=1)
    assert len((await given_to(store, job, "you")).leases) == 2


async def test_the_death_of_a_whole_worker_makes_no_suspects(store: Store) -> None:
    job = await queued(store, "1", "2")
    await given_to(store, job, "me")

    await store.queue.reclaim(Reclaim(job.id, EPOCH, dead=["me"]))

    assert not (await given_to(store, job, "you")).is_alone


async def test_a_chunk_whose_owner_died_after_its_last_item_is_lost_in_the_end(
    store: Store,
) -> None:
    job = await queued(store, "1")
    taken = await given_to(store, job, "me")
    await complete(store, stored(taken.leases[0]))

    assert await store.chunks.owners(job.id) == ["me"]
    assert await store.queue.reclaim(Reclaim(job.id, EPOCH + 59)) == Reclaimed()
    assert await store.queue.reclaim(Reclaim(job.id, EPOCH + 61)) == Reclaimed(chunks=1)


async def test_the_third_death_with_an_item_quarantines_it(
    store: Store,
) -> None:
    job = await lethal(store)

    counts = await store.queue.counts(job.id)
    rows = {row["key"]: row for row in await store.queue.finished(job.id)}
    assert (counts[ItemState.QUARANTINED], counts[ItemState.STORED]) == (1, 1)
    assert (rows["1"]["kind"], rows["1"]["finished_at"]) == ("bug", EPOCH)
    assert "3 workers" in rows["1"]["reason"]


async def test_a_quarantined_item_leaves_an_event_and_its_line_in_the_ledger(store: Store) -> None:
    job = await lethal(store)

    (event,) = await store.events.list(job.id, types=["item.quarantined"])
    (unlucky,) = await store.failures.failed_items(FailureQuery(job.id))
    assert (event.key, event.data["failure"], event.data["deaths"]) == ("1", "bug", 3)
    assert "3 workers" in event.data["reason"]
    assert [attempt["step"] for attempt in unlucky.attempts] == ["quarantine"]


async def test_an_innocent_item_that_was_in_bad_company_goes_its_way(store: Store) -> None:
    job = await queued(store, "1", "2", "3", is_last=True)
    await given_to(store, job, "a")
    await killed(store, job, "a")

    first = await given_to(store, job, "b")
    await complete(store, stored(first.leases[0]))
    second = await given_to(store, job, "c")
    await complete(store, ended(second.leases[0], OutcomeAction.SKIP, reason="empty"))
    third = await given_to(store, job, "d")
    await complete(store, stored(third.leases[0]))

    assert (first.is_alone, second.is_alone, third.is_alone) == (True, True, True)
    assert await store.jobs.finish(job.id, EPOCH) == "complete"


async def test_a_token_from_before_the_death_commits_nothing(store: Store) -> None:
    job = await queued(store, "1")
    taken = await given_to(store, job, "me")
    await killed(store, job, "me")
    await given_to(store, job, "you")

    (end,) = await store.queue.complete_all([stored(taken.leases[0])])

    assert not isinstance(end, ItemState)


async def test_only_what_a_killed_owner_had_begun_is_suspect(store: Store) -> None:
    job = await queued(store, "1", "2", "3")
    taken = await given_to(store, job, "me")
    begun = taken.leases[0]

    await store.queue.reclaim(
        Reclaim(job.id, EPOCH + 1, killed=["me"], in_flight={"me": {begun.id}})
    )

    again = await given_to(store, job, "you")
    alone = await given_to(store, job, "they")
    assert [lease.id for lease in again.leases] == [lease.id for lease in taken.leases[1:]]
    assert (alone.is_alone, [lease.id for lease in alone.leases]) == (True, [begun.id])
