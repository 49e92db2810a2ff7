"""The items of a job: queued once, leased to one worker at a time, finished exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, case, exists, func, select, update
from sqlalchemy.exc import StatementError

from longline.core.errors import FailureKind
from longline.core.model import FINAL_STATES, ItemState, JobState, Lease
from longline.storage.database import Database
from longline.storage.errors import LeaseLost
from longline.storage.queue.enqueue import Discovered, add
from longline.storage.queue.leases import (
    Claim,
    Holder,
    Reclaim,
    Reclaimed,
    holders,
    lease,
    owners,
    reclaim,
    release,
    renew,
)
from longline.storage.queue.outcomes import Completion, complete_all, unstorable
from longline.storage.schema import items, jobs, statistics


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queued items of one domain: how many, when the first is due, what holds them up.

    `block` is the reason of a ban, when each of them is parked because of one.
    """

    count: int
    due: float
    block: str | None = None


@dataclass(frozen=True, slots=True)
class JobCounts:
    """How far a job is: its items by state, its statistics, and the key that was finished last."""

    job: str
    source: str
    state: JobState
    is_discovered: bool
    counts: Mapping[ItemState, int]
    statistics: Mapping[str, float]
    last_key: str | None


class Queue:
    """The items of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, discovered: Discovered) -> int | None:
        """Queue what is new of these items, with the cursor; return how many the job has now.

        None, uncounted, when neither a limit nor the end asks for it.
        """
        total: int | None = await self._database.write(add, discovered)
        return total

    async def lease(self, claim: Claim) -> list[Lease]:
        """Give items that are due to a worker, of each domain the highest priority first.

        None is given to two workers.
        """
        leases: list[Lease] = await self._database.write(lease, claim)
        return leases

    async def finish(self, finish: Completion) -> ItemState:
        """Commit the end of one try: item, record, new items, statistics, event.

        Raises:
            LeaseLost: another worker has the item; nothing was committed.
        """
        (end,) = await self.complete_all([finish])
        if isinstance(end, LeaseLost):
            raise end
        return end

    async def complete_all(self, finishes: list[Completion]) -> list[ItemState | LeaseLost]:
        """Commit the ends of several tries together; say of each the new state, or LeaseLost.

        What no database can hold (half a surrogate pair, say) is quarantined with the reason, and
        takes none of the others along.
        """
        try:
            ends: list[ItemState | LeaseLost] = await self._database.write(complete_all, finishes)
        except (StatementError, ValueError, TypeError, OverflowError) as error:
            if len(finishes) > 1:
                return [end for one in finishes for end in await self.complete_all([one])]
            ends = await self._database.write(complete_all, [unstorable(finishes[0], error)])
        return ends

    async def release(self, leases: Sequence[Lease]) -> None:
        """Put back items nobody has begun to work on."""
        await self._database.write(release, leases)

    async def renew(self, owners: Sequence[tuple[str, str]], until: float) -> None:
        """Keep all leases and discoveries of living workers, given as pairs of job and owner."""
        if owners:
            await self._database.write(renew, (owners, until))

    async def reclaim(self, wanted: Reclaim) -> Reclaimed:
        """Reclaim what dead owners held, and what has expired; see `Reclaim`."""
        reclaimed: Reclaimed = await self._database.write(reclaim, wanted)
        return reclaimed

    async def holders(self, jobs: Sequence[str]) -> list[Holder]:
        """Return who holds leases of items of these jobs."""
        return await self._database.read(lambda connection: holders(connection, jobs))

    async def job_states(self, ids: Sequence[str]) -> dict[str, tuple[JobState, str | None]]:
        """Return the state of each of these jobs and its reason; deleted ones are missing."""
        query = select(jobs.c.id, jobs.c.state, jobs.c.reason).where(jobs.c.id.in_(ids))
        return await self._database.read(
            lambda connection: {
                row.id: (JobState(row.state), row.reason) for row in connection.execute(query)
            }
        )

    async def owners(self, job: str, at: float | None = None) -> list[str]:
        """Return who holds leases of this job, or its discovery; those who still do `at` then."""
        return await self._database.read(lambda connection: owners(connection, job, at))

    async def counts(self, job: str) -> dict[ItemState, int]:
        """Return how many items are in each state; the truth that all progress is read from."""
        return await self._database.read(lambda connection: counts(connection, job))

    async def progress(self, ids: Sequence[str]) -> dict[str, JobCounts]:
        """Return how far each of these jobs is, with one query for all; deleted ones are missing.

        Jobs are given by their whole ids.
        """
        return await self._database.read(lambda connection: _progress(connection, ids))

    async def next_due(self, job: str) -> float | None:
        """Return when the next queued item is due; None when none is queued."""
        query = select(func.min(items.c.due_at)).where(
            items.c.job_id == job, items.c.state == ItemState.QUEUED
        )
        due: float | None = await self._database.read(lambda connection: connection.scalar(query))
        return due

    async def is_due(self, job: str, at: float) -> bool:
        """Say whether a queued item can be begun at that moment: found without counting others."""
        query = select(
            exists().where(
                items.c.job_id == job, items.c.state == ItemState.QUEUED, items.c.due_at <= at
            )
        )
        return await self._database.read(lambda connection: bool(connection.scalar(query)))

    async def park(self, job: str, domain: str, until: float, *, kind: str, reason: str) -> int:
        """Defer the queued items of a domain; return how many. Those that wait longer do so."""
        count: int = await self._database.write(_park, (job, domain, until, kind, reason))
        return count

    async def hurry(self, domain: str) -> int:
        """Make the parked items of a domain due now, in every job; return how many."""
        count: int = await self._database.write(_hurry, domain)
        return count

    async def give_up(self, job: str, kind: FailureKind, reason: str, at: float) -> int:
        """Skip all that is queued; return how many."""
        count: int = await self._database.write(_give_up, (job, kind, reason, at))
        return count

    async def waiting(self, job: str) -> dict[str, Waiting]:
        """Return what is queued, by domain."""
        return await self._database.read(lambda connection: _waiting(connection, job))

    async def skip_before(self, job: str, key: str, reason: str) -> int | None:
        """Skip what is unfinished and was found before `key`; None when there is no such item."""
        count: int | None = await self._database.write(_skip_before, (job, key, reason))
        return count

    async def rows(self, job: str) -> list[dict[str, Any]]:
        """Return all items as rows, in the order in which they were found."""
        query = select(items).where(items.c.job_id == job).order_by(items.c.id)
        return await self._database.read(
            lambda connection: [dict(row) for row in connection.execute(query).mappings()]
        )

    async def finished(self, job: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the finished items as rows, in the order in which they were found."""
        query = (
            select(items)
            .where(items.c.job_id == job, items.c.state.in_(FINAL_STATES))
            .order_by(items.c.id)
            .limit(limit)
        )
        return await self._database.read(
            lambda connection: [dict(row) for row in connection.execute(query).mappings()]
        )


def _progress(connection: Connection, ids: Sequence[str]) -> dict[str, JobCounts]:
    counted: dict[str, dict[ItemState, int]] = {job: dict.fromkeys(ItemState, 0) for job in ids}
    by_state = (
        select(items.c.job_id, items.c.state, func.count())
        .where(items.c.job_id.in_(ids))
        .group_by(items.c.job_id, items.c.state)
    )
    for job, state, count in connection.execute(by_state):
        counted[job][ItemState(state)] = count
    figures: dict[str, dict[str, float]] = {job: {} for job in ids}
    for row in connection.execute(select(statistics).where(statistics.c.job_id.in_(ids))):
        figures[row.job_id][row.name] = row.value
    rows = connection.execute(
        select(jobs.c.id, jobs.c.source, jobs.c.state, jobs.c.is_discovered).where(
            jobs.c.id.in_(ids)
        )
    )
    return {
        row.id: JobCounts(
            row.id,
            row.source,
            JobState(row.state),
            row.is_discovered,
            counted[row.id],
            figures[row.id],
            connection.scalar(_LAST_KEY, {"b_job": row.id}),
        )
        for row in rows.all()
    }


_LAST_KEY = (
    select(items.c.key)
    .where(items.c.job_id == bindparam("b_job"), items.c.finished_at.is_not(None))
    .order_by(items.c.finished_at.desc())
    .limit(1)
)


def counts(connection: Connection, job: str) -> dict[ItemState, int]:
    """Return how many items of a job are in each state, zeros included."""
    query = select(items.c.state, func.count()).where(items.c.job_id == job).group_by(items.c.state)
    found = {ItemState(state): count for state, count in connection.execute(query)}
    return {state: found.get(state, 0) for state in ItemState}


def _give_up(connection: Connection, argument: tuple[str, FailureKind, str, float]) -> int:
    job, kind, reason, at = argument
    given_up = connection.execute(
        update(items)
        .where(items.c.job_id == job, items.c.state == ItemState.QUEUED)
        .values(state=ItemState.SKIPPED, kind=kind, reason=reason, finished_at=at)
    )
    return given_up.rowcount


def _park(connection: Connection, argument: tuple[str, str, float, str, str]) -> int:
    job, domain, until, kind, reason = argument
    parked = connection.execute(
        update(items)
        .where(
            items.c.job_id == job,
            items.c.state == ItemState.QUEUED,
            items.c.domain == domain,
            items.c.due_at < until,
        )
        .values(due_at=until, kind=kind, reason=reason)
    )
    return parked.rowcount


def _hurry(connection: Connection, domain: str) -> int:
    parked = (items.c.state == ItemState.QUEUED) & (items.c.due_at > 0)
    hurried = connection.execute(
        update(items).where(parked, items.c.domain == domain).values(due_at=0.0)
    )
    return hurried.rowcount


def _waiting(connection: Connection, job: str) -> dict[str, Waiting]:
    blocked = func.sum(case((items.c.kind == FailureKind.BLOCKED, 1), else_=0))
    query = (
        select(
            items.c.domain,
            func.count(),
            func.min(items.c.due_at),
            blocked,
            func.max(items.c.reason),
        )
        .where(items.c.job_id == job, items.c.state == ItemState.QUEUED)
        .group_by(items.c.domain)
    )
    return {
        domain: Waiting(count, due, reason if bans == count else None)
        for domain, count, due, bans, reason in connection.execute(query)
    }


def _skip_before(connection: Connection, argument: tuple[str, str, str]) -> int | None:
    job, key, reason = argument
    place = connection.scalar(select(items.c.id).where(items.c.job_id == job, items.c.key == key))
    if place is None:
        return None
    skipped = connection.execute(
        update(items)
        .where(
            items.c.job_id == job,
            items.c.state.not_in(FINAL_STATES),  # leased too: a killed worker leaves such behind
            items.c.id < place,
        )
        .values(state=ItemState.SKIPPED, reason=reason, lease_owner=None, lease_until=None)
    )
    return skipped.rowcount
