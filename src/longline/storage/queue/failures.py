"""The failure ledger: every attempt that failed, and the way back into the queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from longline.core.errors import FailureKind
from longline.core.model import BANNED, OPEN_STATES, OVERRAN, ItemState, JobState, Usage
from longline.storage.bulk import BulkInsert, sanitize_text
from longline.storage.database import Database, lock_job
from longline.storage.events import append_events, event_row
from longline.storage.schema import failures, items, jobs

_BAD = (ItemState.FAILED, ItemState.QUARANTINED, ItemState.SKIPPED)
_NOTE = BulkInsert(
    failures,
    (
        *("job_id", "key", "tries", "at", "kind", "status"),
        *("step", "seconds", "url", "reason"),
    ),
)


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item that did not become a record, or not yet, with every attempt that failed."""

    key: str
    url: str
    state: str
    kind: str | None
    reason: str | None
    status: int | None
    tries: int
    requests: int
    seconds: float | None
    attempts: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class FailureQuery:
    """Which items of a job: by the kind of their failure, their state, their key."""

    job: str
    kind: FailureKind | None = None
    state: ItemState | None = None
    key: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Requeued:
    """What is to be tried again: so many items, and perhaps the rest of discovery."""

    items: int
    is_discovering: bool = False

    def __bool__(self) -> bool:
        return bool(self.items) or self.is_discovering

    def __str__(self) -> str:
        return f"{self.items} items are queued again"


class FailureLog:
    """The failures of all jobs in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unlucky(self, query: FailureQuery) -> list[FailedItem]:
        """Return the items that fit, in the order in which they were found."""
        return await self._database.read(lambda connection: _unlucky(connection, query))

    async def by_kind(self, job: str) -> dict[str, dict[str, int]]:
        """Return how many items ended or wait by each kind, and how many attempts failed by it."""
        return await self._database.read(lambda connection: _by_kind(connection, job))

    async def requeue(self, query: FailureQuery, at: float) -> Requeued:
        """Queue again exactly the finished items that fit, and open their job.

        Discovery that a spent budget has ended goes on, too, when that is what was asked for.
        """
        done: Requeued = await self._database.write(_requeue, (query, at))
        return done

    async def bans(self, job: str, key: str) -> int:
        """Return how often an item itself was answered with a ban."""
        return await self._count(job, key, BANNED)

    async def overruns(self, job: str, key: str) -> int:
        """Return how often a try at an item took longer than it may."""
        return await self._count(job, key, OVERRAN)

    async def _count(self, job: str, key: str, step: str) -> int:
        query = select(func.count()).where(
            failures.c.job_id == job, failures.c.key == key, failures.c.step == step
        )
        return await self._database.read(lambda connection: connection.scalar(query) or 0)


def note_failures(
    connection: Connection, tried: Iterable[tuple[str, str | None, int, Usage]]
) -> None:
    """Write down the failed attempts of tries: job, key (None: discovery), number and account."""
    rows = [
        {
            "job_id": job,
            "key": key,
            "tries": tries,
            "at": one.at,
            "kind": one.kind,
            "status": one.status,
            "step": one.step,
            "seconds": one.seconds,
            "url": sanitize_text(one.url),
            "reason": sanitize_text(one.reason),
        }
        for job, key, tries, usage in tried
        for one in usage.failures
    ]
    if rows:
        _NOTE.run(connection, rows)


def _fitting(query: FailureQuery, states: Sequence[ItemState]) -> list[ColumnElement[bool]]:
    wanted = [items.c.job_id == query.job, items.c.state.in_(states), items.c.kind.is_not(None)]
    if query.kind is not None:
        wanted.append(items.c.kind == query.kind)
    if query.state is not None:
        wanted.append(items.c.state == query.state)
    if query.key is not None:
        wanted.append(items.c.key == query.key)
    return wanted


def _unlucky(connection: Connection, query: FailureQuery) -> list[FailedItem]:
    found = (
        select(items)
        .where(*_fitting(query, (*_BAD, ItemState.QUEUED, ItemState.LEASED)))
        .order_by(items.c.id)
        .limit(query.limit)
    )
    return [
        FailedItem(
            key=row.key,
            url=row.url,
            state=row.state,
            kind=row.kind,
            reason=row.reason,
            status=row.status,
            tries=row.tries,
            requests=row.requests,
            seconds=row.seconds,
            attempts=_attempts(connection, query.job, row.key),
        )
        for row in connection.execute(found).all()
    ]


def _attempts(connection: Connection, job: str, key: str) -> tuple[dict[str, Any], ...]:
    names = ("tries", "at", "kind", "status", "step", "seconds", "url", "reason")
    found = (
        select(*(failures.c[name] for name in names))
        .where(failures.c.job_id == job, failures.c.key == key)
        .order_by(failures.c.id)
    )
    return tuple(dict(zip(names, row, strict=True)) for row in connection.execute(found))


def _by_kind(connection: Connection, job: str) -> dict[str, dict[str, int]]:
    ended = (
        select(items.c.kind, items.c.state, func.count())
        .where(items.c.job_id == job, items.c.kind.is_not(None))
        .group_by(items.c.kind, items.c.state)
    )
    tried = (
        select(failures.c.kind, func.count())
        .where(failures.c.job_id == job)
        .group_by(failures.c.kind)
    )
    told: dict[str, dict[str, int]] = {}
    for kind, count in connection.execute(tried):
        told.setdefault(kind, {})["attempts"] = count
    for kind, state, count in connection.execute(ended):
        told.setdefault(kind, {})[state] = count
    return dict(sorted(told.items()))


def _requeue(connection: Connection, argument: tuple[FailureQuery, float]) -> Requeued:
    query, at = argument
    lock_job(connection, query.job)
    again = connection.execute(
        update(items)
        .where(*_fitting(query, _BAD))
        .values(
            state=ItemState.QUEUED,
            due_at=0.0,
            tries=0,
            deaths=0,
            kind=None,
            reason=None,
            raw=None,
            finished_at=None,
        )
    )
    done = Requeued(again.rowcount, is_discovering=_discover_again(connection, query))
    if done:
        connection.execute(
            update(jobs)
            .where(jobs.c.id == query.job, jobs.c.state.not_in(OPEN_STATES))
            .values(state=JobState.PAUSED, reason=str(done), finished_at=None)
        )
        told = event_row(query.job, at, "job.reopened", items=done.items, failure=query.kind)
        append_events(connection, [told])
    return done


def _discover_again(connection: Connection, query: FailureQuery) -> bool:
    """Have discovery go on from its cursor if a spent budget ended it; say whether it did."""
    if query.kind not in (None, FailureKind.BUDGET) or query.state or query.key:
        return False
    opened = connection.execute(
        update(jobs)
        .where(jobs.c.id == query.job, jobs.c.shortfall.is_not(None))
        .values(is_discovered=False, shortfall=None)
    )
    return opened.rowcount == 1
