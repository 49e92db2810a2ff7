"""Chunks: offered for what is due, taken by one, done or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from longline.core.model import Item, ItemState, Job, JobState, OutcomeAction
from longline.storage.queue.chunks import Chunk, ChunkClaim, ChunkProgress
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Reclaim
from longline.storage.store import Store, open_store
from tests.storage.given import complete, ended, item, leased, new_job, queued, stored
from tests.virtual import EPOCH

TEN = [str(number) for number in range(10)]


@pytest.fixture
def other(address: str, store: Store) -> Iterator[Store]:
    """What another process has open."""
    del store
    with open_store(address) as other:
        yield other


async def running(store: Store, *found: Item) -> Job:
    """Return a job of a cluster that has these items."""
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH, engine="celery")
    await store.queue.enqueue(Discovered(job.id, list(found), EPOCH))
    return job


async def take(
    store: Store, chunk: int, owner: str = "me", *, at: float = EPOCH, size: int = 4
) -> Chunk | None:
    return await store.chunks.claim(chunk, ChunkClaim(owner, at, at + 20, size))


def keys(taken: Chunk | None) -> list[str]:
    return [lease.item.key for lease in taken.leases] if taken else []


async def died(store: Store, job: Job, owner: str) -> None:
    await store.queue.reclaim(Reclaim(job.id, EPOCH, killed=[owner]))


async def test_all_due_items_are_published_once(store: Store) -> None:
    job = await queued(store, *TEN)

    offered = await store.chunks.publish(job.id, EPOCH, size=4)

    assert len(set(offered)) == 3
    assert await store.chunks.publish(job.id, EPOCH, size=4) == []


async def test_each_domain_has_chunks_of_its_own(store: Store) -> None:
    elsewhere = [Item(f"b{number}", f"https://b.test/{number}") for number in range(2)]
    job = await running(store, *map(item, "123"), *elsewhere)

    assert len(await store.chunks.publish(job.id, EPOCH, size=10)) == 2


async def test_no_more_than_the_most_are_open_and_half_of_them_gone_are_made_up_for(
    store: Store,
) -> None:
    job = await queued(store, *TEN)

    first = await store.chunks.publish(job.id, EPOCH, size=1, most=4)
    await take(store, first[0], size=1)
    second = await store.chunks.publish(job.id, EPOCH, size=1, most=4)
    await take(store, first[1], size=1)
    third = await store.chunks.publish(job.id, EPOCH, size=1, most=4)

    assert (len(first), len(second), len(third)) == (4, 0, 2)


async def test_deferred_items_are_published_when_due(store: Store) -> None:
    job = await queued(store, "1")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.DEFER, due=EPOCH + 60))

    assert await store.chunks.publish(job.id, EPOCH + 59, size=4) == []
    assert len(await store.chunks.publish(job.id, EPOCH + 60, size=4)) == 1


async def test_nothing_of_a_paused_job_is_published_or_claimed(store: Store) -> None:
    job = await queued(store, *TEN)
    chunk, *_ = await store.chunks.publish(job.id, EPOCH, size=4)
    await store.jobs.pause(job.id, EPOCH, "stopped")

    assert await store.chunks.publish(job.id, EPOCH, size=4) == []
    assert await take(store, chunk) is None
    assert await store.chunks.unanswered(job.id, EPOCH + 60) == []


async def test_a_resumed_job_is_published_again(store: Store) -> None:
    job = await queued(store, *TEN)
    await store.chunks.publish(job.id, EPOCH, size=4)
    await store.jobs.pause(job.id, EPOCH, "stopped")
    await store.jobs.start(job.id, EPOCH, engine="celery")

    assert len(await store.chunks.publish(job.id, EPOCH, size=4)) == 3


async def test_an_unanswered_message_is_known(store: Store) -> None:
    job = await queued(store, *TEN)
    first, second, third = await store.chunks.publish(job.id, EPOCH, size=4)
    await store.chunks.sent([first, second], EPOCH + 1)
    await store.chunks.sent([second], EPOCH + 9)
    await take(store, third)

    assert await store.chunks.unanswered(job.id, EPOCH + 5) == [first]
    assert await store.chunks.unanswered(job.id, EPOCH + 10) == [first, second]


async def test_the_items_of_the_highest_priority_are_leased_first(store: Store) -> None:
    job = await running(store, item("low"), item("high", 5), item("middle", 2))
    (chunk,) = await store.chunks.publish(job.id, EPOCH, size=4)

    assert keys(await take(store, chunk, size=2)) == ["high", "middle"]


async def test_a_chunk_is_of_one_domain(store: Store) -> None:
    elsewhere = [Item(f"b{number}", f"https://b.test/{number}") for number in range(3)]
    job = await running(store, *map(item, "123"), *elsewhere)
    first, second = await store.chunks.publish(job.id, EPOCH, size=4)

    taken = [keys(await take(store, chunk)) for chunk in (first, second)]

    assert sorted(taken) == [["1", "2", "3"], ["b0", "b1", "b2"]]


async def test_a_busy_process_claims_chunks_of_other_domains_only(store: Store) -> None:
    job = await running(store, item("1"), Item("b", "https://b.test/b"))
    await store.chunks.publish(job.id, EPOCH, size=4)
    wish = ChunkClaim(
        "me", EPOCH, EPOCH + 20, 4, before=EPOCH, busy=frozenset({(job.id, "shop.test")})
    )

    assert keys(await store.chunks.claim_any(wish)) == ["b"]
    assert await store.chunks.claim_any(replace(wish, owner="me again")) is None


async def test_a_new_chunk_is_left_to_idle_processes(store: Store) -> None:
    job = await running(store, item("1"))
    await store.chunks.publish(job.id, EPOCH, size=4)

    wish = ChunkClaim("me", EPOCH, EPOCH + 20, 4, before=EPOCH - 0.4)

    assert await store.chunks.claim_any(wish) is None


async def test_claim_next_completes_one_chunk_and_claims_the_next(store: Store) -> None:
    job = await queued(store, *TEN)
    first, *_ = await store.chunks.publish(job.id, EPOCH, size=4)
    await take(store, first, "me")
    then = ChunkClaim("next", EPOCH, EPOCH + 20, 4, before=EPOCH)

    (another,) = await store.chunks.claim_next(job.id, "shop.test", then, done=[(first, "me")])

    assert len(keys(another)) == 4
    assert (await store.chunks.progress(job.id)).completed == 1
    assert not await store.chunks.complete([(first, "me")], EPOCH)


async def test_claim_next_claims_only_chunks_that_have_items(store: Store) -> None:
    job = await queued(store, *TEN)
    offered = await store.chunks.publish(job.id, EPOCH, size=2)
    then = ChunkClaim("me", EPOCH, EPOCH + 20, 4, before=EPOCH)

    taken = await store.chunks.claim_next(job.id, "shop.test", then, count=4)

    assert [(one.id, len(keys(one))) for one in taken] == list(
        zip(offered[:3], [4, 4, 2], strict=True)
    )
    assert sorted(key for one in taken for key in keys(one)) == TEN
    assert (await store.chunks.progress(job.id)).offered == 2


async def test_a_chunk_is_claimed_once(store: Store, other: Store) -> None:
    job = await queued(store, *TEN)
    chunk, *_ = await store.chunks.publish(job.id, EPOCH, size=4)

    both = await asyncio.gather(take(store, chunk), take(other, chunk, "you"))

    assert sorted(len(keys(one)) for one in both) == [0, 4]


async def test_concurrent_claims_share_no_item(store: Store, other: Store) -> None:
    job = await queued(store, *TEN)
    first, second, third = await store.chunks.publish(job.id, EPOCH, size=4)

    taken = await asyncio.gather(
        take(store, first), take(other, second, "you"), take(store, third, "me again")
    )

    assert sorted(key for one in taken for key in keys(one)) == TEN


async def test_concurrent_publishers_publish_once(store: Store, other: Store) -> None:
    job = await queued(store, *TEN)

    both = await asyncio.gather(
        store.chunks.publish(job.id, EPOCH, size=2), other.chunks.publish(job.id, EPOCH, size=2)
    )

    assert sorted(len(one) for one in both) == [0, 5]


async def test_a_chunk_with_nothing_left_to_do_is_used_up(store: Store) -> None:
    job = await queued(store, "1")
    (chunk,) = await store.chunks.publish(job.id, EPOCH, size=4)
    await leased(store, job)

    assert await take(store, chunk) is None
    assert await store.chunks.unanswered(job.id, EPOCH + 60) == []
    assert await store.chunks.progress(job.id) == ChunkProgress(0, 0, 0, 0)


async def test_progress_counts_chunks_by_where_they_stand(store: Store) -> None:
    job = await queued(store, *TEN)
    first, second, _ = await store.chunks.publish(job.id, EPOCH, size=4)
    await take(store, first)
    await take(store, second)

    assert await store.chunks.complete([(first, "me")], EPOCH)
    assert await store.chunks.progress(job.id) == ChunkProgress(3, 1, 1, 1)


async def test_only_its_owner_completes_a_chunk_and_only_once(store: Store) -> None:
    job = await queued(store, "1")
    (chunk,) = await store.chunks.publish(job.id, EPOCH, size=4)
    await take(store, chunk)

    assert not await store.chunks.complete([(chunk, "you")], EPOCH)
    assert await store.chunks.complete([(chunk, "me")], EPOCH)
    assert not await store.chunks.complete([(chunk, "me")], EPOCH)


async def test_suspects_come_last_and_alone(store: Store) -> None:
    job = await queued(store, *TEN)
    first, *_ = await store.chunks.publish(job.id, EPOCH, size=4)
    suspects = keys(await take(store, first))
    await died(store, job, "me")

    new = await store.chunks.publish(job.id, EPOCH, size=4)
    unanswered = await store.chunks.unanswered(job.id, EPOCH + 60)
    taken = [await take(store, chunk, f"me {chunk}") for chunk in unanswered]

    assert (len(new), len(unanswered)) == (4, 6)  # two of the ten's three were open still
    assert [len(keys(one)) for one in taken] == [4, 2, 1, 1, 1, 1]
    assert [one.is_alone for one in taken if one] == [False, False, True, True, True, True]
    assert sorted(key for one in taken[2:] for key in keys(one)) == sorted(suspects)


async def test_an_old_suspect_is_claimed_alone_on_request(
    store: Store,
) -> None:
    job = await queued(store, "1")
    (chunk,) = await store.chunks.publish(job.id, EPOCH, size=4)
    await take(store, chunk)
    await died(store, job, "me")
    await store.chunks.publish(job.id, EPOCH, size=4)
    later = EPOCH + 90
    wish = ChunkClaim("me too", later, later + 20, 4, before=later)

    unsaid = await store.chunks.claim_any(wish)
    too_soon = await store.chunks.claim_any(replace(wish, suspects_before=EPOCH - 1))
    taken = await store.chunks.claim_any(replace(wish, suspects_before=EPOCH))

    assert (unsaid, too_soon) == (None, None)
    assert keys(taken) == ["1"]
    assert taken is not None
    assert taken.is_alone


async def test_suspects_wait_for_what_is_not_suspected(store: Store) -> None:
    job = await queued(store, "1", "2")
    (chunk,) = await store.chunks.publish(job.id, EPOCH, size=1, most=1)
    await take(store, chunk, size=1)
    await died(store, job, "me")
    await store.chunks.publish(job.id, EPOCH, size=4)

    wish = ChunkClaim("me too", EPOCH, EPOCH + 20, 4, before=EPOCH, suspects_before=EPOCH)
    taken = await store.chunks.claim_any(wish)

    assert keys(taken) == ["2"]
    assert taken is not None
    assert not taken.is_alone


async def test_a_parked_domain_defers_all_its_items(store: Store) -> None:
    job = await queued(store, "1", "2", "3")
    (lease,) = await leased(store, job)
    await complete(store, ended(lease, OutcomeAction.DEFER, due=EPOCH + 900))

    deferred = await store.queue.defer_domain(
        job.id, "shop.test", EPOCH + 60, kind="blocked", reason="shop.test blocks longline"
    )

    assert deferred == 2
    assert await store.chunks.publish(job.id, EPOCH + 59, size=4) == []
    (chunk,) = await store.chunks.publish(job.id, EPOCH + 60, size=4)
    others = {"1", "2", "3"} - {lease.item.key}  # which comes first of its equals is open
    assert set(keys(await take(store, chunk, at=EPOCH + 60))) == others


async def test_concurrent_finishers_finish_a_job_once(store: Store, other: Store) -> None:
    job = await queued(store, "1", is_last=True)
    (lease,) = await leased(store, job)
    await complete(store, stored(lease))

    ends = await asyncio.gather(store.jobs.finish(job.id, EPOCH), other.jobs.finish(job.id, EPOCH))

    assert sorted(map(str, ends)) == ["None", "complete"]
    assert len(await store.events.list(job.id, types=["job.complete"])) == 1


async def test_a_job_knows_what_works_on_it(store: Store) -> None:
    job = await running(store, item("1"))

    assert (await store.jobs.get(job.id)).engine == "celery"


async def test_a_beating_worker_of_a_cluster_goes_on_with_no_paused_job(store: Store) -> None:
    job = await running(store, item("1"))
    await leased(store, job)

    assert await store.jobs.pause(job.id, EPOCH, "stopped")
    await store.queue.renew([(job.id, "me")], EPOCH, EPOCH + 20)

    row = await store.jobs.get(job.id)
    assert (row.state, row.reason) == (JobState.PAUSED, "stopped")
    assert not await store.jobs.pause(job.id, EPOCH, "another reason")


async def test_a_cancelled_job_is_over_and_stays_so(store: Store) -> None:
    job = await running(store, item("1"))

    assert await store.jobs.cancel(job.id, EPOCH + 1, "unwanted")
    assert not await store.jobs.cancel(job.id, EPOCH + 2, "once more")
    await store.jobs.start(job.id, EPOCH + 3, engine="celery")

    row = await store.jobs.get(job.id)
    assert (row.state, row.finished_at) == (JobState.CANCELLED, EPOCH + 1)
    assert (await store.queue.counts(job.id))[ItemState.QUEUED] == 1
