"""What a child holds when an error ends its work: given back at once, for others to go on with.

It is not held to be innocent: what was in flight may have brought the error about, and would do so
again and again. So it is taken back as from a process that was killed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from longline.engine.owner import own_among
from longline.storage.errors import UnknownJob
from longline.storage.queue.leases import MOST_DEATHS, Reclaim
from longline.storage.store import Store


async def give_back(store: Store, at: float, begun: Collection[int]) -> None:
    """Give back all items, chunks and discoveries that this process holds.

    Of the items, those that were `begun`, by their ids, become suspects. A discovery is one if no
    item was in hand beside it: after the third time, its job is paused.

    Raises:
        StoreError: the database does not answer; what is held expires.
    """
    running = [job.id for job in await store.jobs.list(limit=None, is_open=True)]
    owned = {job: own_among(await store.chunks.owners(job)) for job in running}
    held = {job: own for job, own in owned.items() if own}
    finders = {job: await _finder(store, job) for job in held}
    is_of_finding = all(owner == finders[job] for job, own in held.items() for owner in own)
    for job, own in held.items():
        finder = finders[job]
        if finder in own:
            await _leave_discovery(store, job, finder, at, is_of_it=is_of_finding)
        await store.queue.reclaim(_all_of(job, own, at, begun))


async def hand_back(store: Store, job: str, owners: Collection[str], at: float) -> None:
    """Give back what these owners hold of a job; nothing of it becomes a suspect.

    Raises:
        StoreError: the database does not answer; what is held expires.
    """
    held = [owner for owner in await store.chunks.owners(job) if owner in owners]
    await store.queue.reclaim(Reclaim(job, at, dead=held))


async def _finder(store: Store, job: str) -> str | None:
    try:
        return (await store.chunks.standing(job)).finder
    except UnknownJob:  # it is gone since, and all that was held of it
        return None


def _all_of(job: str, owners: Sequence[str], at: float, begun: Collection[int]) -> Reclaim:
    return Reclaim(job, at, killed=owners, in_flight=dict.fromkeys(owners, begun))


async def _leave_discovery(
    store: Store, job: str, finder: str, at: float, *, is_of_it: bool
) -> None:
    times = await store.chunks.release_dead_discoverer(job, finder, at, is_of_it=is_of_it)
    if times >= MOST_DEATHS:
        reason = f"discovery broke off {times} times by an error: the worker's log shows it"
        await store.jobs.halt(job, at, reason)
