"""The items of a job: queued once, leased to one worker at a time, finished exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, exists, func, select, update
from sqlalchemy.exc import StatementError

from longline.core.errors import FailureKind
from longline.core.model import FINAL_STATES, ItemState, Lease
from longline.storage.database import Database
from longline.storage.errors import LeaseLost
from longline.storage.queue.enqueue import Discovered, add
from longline.storage.queue.leases import Claim, lease, owners, reclaim, release, renew
from longline.storage.queue.outcomes import Completion, complete_all, unstorable
from longline.storage.schema import items


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queued items of one domain: how many, when the first is due, what holds them up.

    `block` is the reason of a ban, when each of them is parked because of one.
    """

    count: int
    due: float
    block: str | None = None


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

    async def renew(self, job: str, owner: str, until: float) -> None:
        """Keep all leases of a living worker."""
        await self._database.write(renew, (job, owner, until))

    async def reclaim(self, job: str, at: float, dead: Sequence[str] = ()) -> int:
        """Take back expired leases, and at once those of owners known to be dead."""
        count: int = await self._database.write(reclaim, (job, at, dead))
        return count

    async def owners(self, job: str, at: float | None = None) -> list[str]:
        """Return who holds leases of this job, or its discovery; those who still do `at` then."""
        return await self._database.read(lambda connection: owners(connection, job, at))

    async def counts(self, job: str) -> dict[ItemState, int]:
        """Return how many items are in each state; the truth that all progress is read from."""
        return await self._database.read(lambda connection: counts(connection, job))

    async def last_key(self, job: str) -> str | None:
        """Return the key of the item that was finished last; None when none was."""
        query = (
            select(items.c.key)
            .where(items.c.job_id == job, items.c.finished_at.is_not(None))
            .order_by(items.c.finished_at.desc())
            .limit(1)
        )
        key: str | None = await self._database.read(lambda connection: connection.scalar(query))
        return key

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
