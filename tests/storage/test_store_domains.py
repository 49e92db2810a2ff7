"""Leasing by domain: each site gets its share, however many items another has queued."""

from __future__ import annotations

from collections import Counter

from longline.core.errors import FailureKind
from longline.core.model import Item, Job, OutcomeAction
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim, Waiting
from longline.storage.store import Store
from tests.storage.given import complete, ended, new_job
from tests.virtual import EPOCH


async def job_of(store: Store, **counts: int) -> Job:
    """Return a running job that has so many items of each domain, one domain after the other."""
    job = await store.jobs.create(new_job())
    await store.jobs.start(job.id, EPOCH)
    found = [
        Item(f"{host}-{number}", f"https://{host}.test/{number}")
        for host, count in counts.items()
        for number in range(count)
    ]
    await store.queue.enqueue(Discovered(job.id, found, EPOCH))
    return job


def claim(job: Job, count: int = 3, **values: object) -> Claim:
    return Claim(job.id, "me", count, EPOCH, EPOCH + 20, **values)  # type: ignore[arg-type]  # a test's shorthand


async def domains_leased(store: Store, wish: Claim) -> dict[str, int]:
    return dict(Counter(lease.domain for lease in await store.queue.lease(wish)))


async def test_every_domain_is_leased_from(store: Store) -> None:
    job = await job_of(store, a=500, b=2, c=5)

    assert await domains_leased(store, claim(job)) == {"a.test": 3, "b.test": 2, "c.test": 3}


async def test_one_domain_can_be_leased_from_alone(store: Store) -> None:
    job = await job_of(store, a=10, b=10)

    assert await domains_leased(store, claim(job, only="b.test")) == {"b.test": 3}


async def test_a_domain_can_be_left_out(store: Store) -> None:
    job = await job_of(store, a=10, b=10)

    assert await domains_leased(store, claim(job, without=frozenset({"a.test"}))) == {"b.test": 3}


async def test_with_little_room_the_domains_take_turns(store: Store) -> None:
    job = await job_of(store, a=10, b=10, c=10)

    first = await domains_leased(store, claim(job, room=3))
    second = await domains_leased(store, claim(job, room=3, last="a.test"))
    third = await domains_leased(store, claim(job, room=3, last="c.test"))

    assert [list(one) for one in (first, second, third)] == [["a.test"], ["b.test"], ["a.test"]]


async def test_priorities_count_within_a_domain(store: Store) -> None:
    job = await job_of(store, a=3)
    await store.queue.enqueue(Discovered(job.id, [Item("first", "https://a.test/x", 5)], EPOCH))

    leases = await store.queue.lease(claim(job, 2))

    assert [lease.item.key for lease in leases] == ["first", "a-0"]


async def test_waiting_items_are_counted_by_domain_with_their_ban(store: Store) -> None:
    job = await job_of(store, a=1, b=2)
    for lease in await store.queue.lease(claim(job, 1)):
        kind = FailureKind.BLOCKED
        end = ended(lease, OutcomeAction.DEFER, kind=kind, reason="banned", due=EPOCH + 900)
        await complete(store, end)

    assert await store.queue.waiting(job.id) == {
        "a.test": Waiting(1, EPOCH + 900, "banned"),
        "b.test": Waiting(2, 0.0, None),
    }
