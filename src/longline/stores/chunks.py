"""Chunks: the work that a cluster is told of, taken by one process at a time.

A chunk is a right to some items that are due, not a list of them: which ones is decided when it is
taken. So a message that is lost, late or doubled changes nothing but time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, case, func, insert, or_, select, update

from longline.model import ChunkState, ItemState, JobState
from longline.stores.database import Database
from longline.stores.reclaiming import Reclaim, Reclaimed, holders, reclaim_all
from longline.stores.schema import chunks, items, jobs
from longline.stores.standing import (
    Standing,
    bury_finder,
    last_finish,
    look_at,
    over,
    park,
    without_finder,
)
from longline.stores.taking import (
    Take,
    TakeMore,
    Taken,
    Turn,
    end,
    take,
    take_more,
    turn,
    waiting_chunks,
)


@dataclass(frozen=True, slots=True)
class ChunkProgress:
    """How many chunks a job has had so far, and where they stand; empty ones are not counted."""

    total: int
    completed: int
    offered: int
    taken: int


class Chunks:
    """The chunks of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def offer(self, job: str, at: float, *, size: int, most: int = 64) -> list[int]:
        """Return new chunks, so that all that is due is covered; no more than `most` are open.

        While more than half of `most` are open, nothing is missing yet, and none is offered.
        Nothing is offered of a job that does not run. Of many callers at once none offers what
        another does.
        """
        offered: list[int] = await self._database.write(_offer, (job, at, size, most))
        return offered

    async def sent(self, ids: Sequence[int], at: float) -> None:
        """Note that a message was sent for each of these chunks."""
        if ids:
            await self._database.write(_sent, (ids, at))

    async def unanswered(self, job: str, before: float) -> list[int]:
        """Return the offered chunks for which a message was sent before that moment, or never."""
        query = (
            select(chunks.c.id)
            .where(
                chunks.c.job_id == job,
                chunks.c.state == ChunkState.OFFERED,
                or_(chunks.c.sent_at.is_(None), chunks.c.sent_at < before),
            )
            .order_by(chunks.c.id)
        )
        return await self._database.read(lambda connection: list(connection.scalars(query)))

    async def take(self, wish: Take) -> Taken | None:
        """Lease the items of a chunk; None when there is nothing to do, and nothing to be done.

        It was taken before, its job does not run, or nothing of it is due any more: a chunk is
        used up by that. Of a random domain the highest priority comes first; suspects, which a
        worker has died with, come last and alone.
        """
        taken: Taken | None = await self._database.write(take, wish)
        return taken

    async def take_more(self, wish: TakeMore) -> Taken | None:
        """Lease the items of a chunk that nobody has taken; None when there is none to be had.

        Suspects only if the wish says so: what is in hand beside them would die with them.
        """
        query = waiting_chunks(wish.before)
        if not await self._database.read(lambda connection: connection.execute(query).first()):
            return None
        taken: Taken | None = await self._database.write(take_more, wish)
        return taken

    async def turn(self, wish: Turn) -> list[Taken]:
        """Mark chunks as done, and take others of the same job at once; none: there are none.

        So nobody waits for a message while there is more to do.
        """
        taken: list[Taken] = await self._database.write(turn, wish)
        return taken

    async def finish(self, chunk: int, owner: str, at: float) -> bool:
        """Mark a chunk as done; False when it is not this owner's any more."""
        is_done: bool = await self._database.write(end, (chunk, owner, at))
        return is_done

    async def reclaim(self, reclaim: Reclaim) -> Reclaimed:
        """Take back what dead owners held, and what has expired; see `Reclaim`."""
        reclaimed: Reclaimed = await self._database.write(reclaim_all, reclaim)
        return reclaimed

    async def owners(self, job: str) -> list[str]:
        """Return who holds chunks or leases of a job, or its discovery."""
        return await self._database.read(lambda connection: holders(connection, job))

    async def progress(self, job: str) -> ChunkProgress:
        """Return how many chunks of a job stand where."""
        return await self._database.read(lambda connection: _progress(connection, job))

    async def standing(self, job: str) -> Standing:
        """Return what has to be known to say whether a job can go on.

        Raises:
            UnknownJob: there is no such job.
        """
        return await self._database.read(lambda connection: look_at(connection, job))

    async def without_finder(self, at: float, before: float) -> list[str]:
        """Return the jobs that run, began before a moment, and nobody finds items for."""
        return await self._database.read(lambda connection: without_finder(connection, at, before))

    async def bury_finder(self, job: str, owner: str, at: float, *, is_of_it: bool) -> int:
        """Let another discover after one that was killed; `is_of_it`: by that, as far as is known.

        Returns how many have died of it in this run; 0 when it was not this one who discovered.
        """
        deaths: int = await self._database.write(bury_finder, (job, owner, at, is_of_it))
        return deaths

    async def over(self) -> list[str]:
        """Return the jobs that run although all their items are found and finished."""
        return await self._database.read(over)

    async def last_finish(self, job: str) -> float | None:
        """Return when an item of a job was finished last; None when none was."""
        return await self._database.read(lambda connection: last_finish(connection, job))

    async def park(self, job: str, domain: str, until: float, *, kind: str, reason: str) -> int:
        """Have the queued items of a domain wait until a moment; return how many."""
        count: int = await self._database.write(park, (job, domain, until, kind, reason))
        return count


# ---------------------------------------------------------------- offering

_DUE = (
    select(items.c.domain, items.c.deaths)
    .where(
        items.c.job_id == bindparam("b_job"),
        items.c.state == ItemState.QUEUED,
        items.c.due_at <= bindparam("b_at"),
    )
    .limit(bindparam("b_most"))  # more than the chunks that may be open need not be counted
    .subquery()
)
_NEEDS = select(
    _DUE.c.domain,
    func.sum(case((_DUE.c.deaths == 0, 1), else_=0)),
    func.sum(case((_DUE.c.deaths > 0, 1), else_=0)),
).group_by(_DUE.c.domain)


def _offer(connection: Connection, argument: tuple[str, float, int, int]) -> list[int]:
    job, at, size, most = argument
    # Whoever holds the job's row counts alone: two would both offer what is missing.
    state = connection.scalar(
        select(jobs.c.state).where(jobs.c.id == job).with_for_update(key_share=True)
    )
    if state != JobState.RUNNING:
        return []
    is_open = (chunks.c.job_id == job) & (chunks.c.state == ChunkState.OFFERED)
    offered = connection.scalar(select(func.count()).where(is_open)) or 0
    if offered > most // 2:
        return []
    wish = {"b_job": job, "b_at": at, "b_most": most * size}
    due = connection.execute(_NEEDS, wish).all()
    needed = sum(-(-ordinary // size) + suspects for _, ordinary, suspects in due)
    missing = min(needed, most) - offered
    # Sent in a moment; a message that is not is noticed as any that is lost.
    rows = [{"job_id": job, "state": ChunkState.OFFERED, "offered_at": at, "sent_at": at}] * missing
    if not rows:
        return []
    return sorted(connection.scalars(insert(chunks).values(rows).returning(chunks.c.id)))


def _sent(connection: Connection, argument: tuple[Sequence[int], float]) -> None:
    ids, at = argument
    connection.execute(update(chunks).where(chunks.c.id.in_(list(ids))).values(sent_at=at))


def _progress(connection: Connection, job: str) -> ChunkProgress:
    is_empty = (chunks.c.state == ChunkState.DONE) & (chunks.c["items"] == 0)
    query = (
        select(chunks.c.state, func.count().label("number"))
        .where(chunks.c.job_id == job, ~is_empty)
        .group_by(chunks.c.state)
    )
    found = {row.state: row.number for row in connection.execute(query)}
    done, offered, taken = (
        found.get(state, 0) for state in (ChunkState.DONE, ChunkState.OFFERED, ChunkState.TAKEN)
    )
    return ChunkProgress(done + offered + taken, done, offered, taken)
