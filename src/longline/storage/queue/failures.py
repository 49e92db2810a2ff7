"""The failure log: every failed attempt, and how failed items are queued again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select, update

from longline.core.errors import FailureKind
from longline.core.model import BANNED, OPEN_STATES, OVERRAN, ItemState, JobState, Usage
from longline.storage.backends import BulkInsert, sanitize_text
from longline.storage.database import Repository, lock_job, plain_rows, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.scanning import Scan, scan_page
from longline.storage.schema import failures, items, jobs

_FINISHED = (ItemState.FAILED, ItemState.QUARANTINED, ItemState.SKIPPED)
_COLUMNS = ("tries", "at", "kind", "status", "step", "seconds", "url", "reason")
_INSERT = BulkInsert(failures, ("job_id", "key", *_COLUMNS))


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An item that did not become a record, or not yet, with every failed attempt."""

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


AttemptPlace = tuple[str | None, int]
"""Item and number of an attempt in a list of them."""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """One failed attempt; `key` is None for discovery."""

    id: int
    key: str | None
    tries: int
    at: float
    kind: str
    status: int | None
    step: str
    seconds: float
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class FailureQuery:
    """Selects items of a job by the kind of their failure, their state and their key."""

    job: str
    kind: FailureKind | None = None
    state: ItemState | None = None
    key: str | None = None
    limit: int | None = None

    def conditions(self, states: Sequence[ItemState]) -> list[ColumnElement[bool]]:
        """Return the WHERE conditions for items in these states."""
        found = [items.c.job_id == self.job, items.c.state.in_(states), items.c.kind.is_not(None)]
        if self.kind is not None:
            found.append(items.c.kind == self.kind)
        if self.state is not None:
            found.append(items.c.state == self.state)
        if self.key is not None:
            found.append(items.c.key == self.key)
        return found


@dataclass(frozen=True, slots=True)
class Requeued:
    """How many items were queued again, and whether discovery continues."""

    items: int
    is_discovering: bool = False

    def __bool__(self) -> bool:
        return bool(self.items) or self.is_discovering


class FailureLog(Repository):
    """The failures of all jobs in one database."""

    @reads
    def failed_items(self, connection: Connection, query: FailureQuery) -> list[FailedItem]:
        """Return the items of a query, in the order of discovery."""
        found = (
            select(items)
            .where(*query.conditions((*_FINISHED, ItemState.QUEUED, ItemState.LEASED)))
            .order_by(items.c.id)
            .limit(query.limit)
        )
        attempts = select(*(failures.c[name] for name in _COLUMNS)).order_by(failures.c.id)
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
                attempts=tuple(
                    plain_rows(
                        connection.execute(
                            attempts.where(
                                failures.c.job_id == query.job, failures.c.key == row.key
                            )
                        ).mappings()
                    )
                ),
            )
            for row in connection.execute(found).all()
        ]

    @reads
    def attempts(
        self,
        connection: Connection,
        job: str,
        *,
        kind: FailureKind | None = None,
        after: AttemptPlace | None = None,
        limit: int = 50,
        seconds: float = 0.2,
    ) -> tuple[list[FailedAttempt], AttemptPlace | None]:
        """Return failed attempts of a job, those of discovery first, then by item.

        Also returns where the next page starts; None: there is none. A page may have fewer than
        `limit` attempts, even none, if no more were found within about `seconds`.

        Args:
            connection: the transaction.
            job: the id of the job.
            kind: only failures of this kind.
            after: the place of the last known attempt.
            limit: how many.
            seconds: about how long to search.
        """
        of_job = failures.c.job_id == job
        query = select(failures.c.id, failures.c.key, *(failures.c[name] for name in _COLUMNS))
        query = query if kind is None else query.where(failures.c.kind == kind)
        found: list[FailedAttempt] = []
        if after is None or after[0] is None:
            discovery = Scan((failures.c.id,), (of_job, failures.c.key.is_(None)))
            start = None if after is None else after[1:]
            page = scan_page(connection, discovery, query, after=start, size=limit, seconds=seconds)
            found = [FailedAttempt(**row) for row in page.rows]
            if page.position is not None:
                return found, (None, page.position[0])
            if len(found) == limit:
                return found, ("", 0)
            after = ("", 0)
        by_item = Scan((failures.c.key, failures.c.id), (of_job, failures.c.key.is_not(None)))
        page = scan_page(
            connection, by_item, query, after=after, size=limit - len(found), seconds=seconds
        )
        place = None if page.position is None else (page.position[0], page.position[1])
        return [*found, *(FailedAttempt(**row) for row in page.rows)], place

    @reads
    def by_kind(self, connection: Connection, job: str) -> dict[str, dict[str, int]]:
        """Return the number of items by kind and state, and of failed attempts by kind."""
        by_state = (
            select(items.c.kind, items.c.state, func.count())
            .where(items.c.job_id == job, items.c.kind.is_not(None))
            .group_by(items.c.kind, items.c.state)
        )
        attempts = (
            select(failures.c.kind, func.count())
            .where(failures.c.job_id == job)
            .group_by(failures.c.kind)
        )
        found: dict[str, dict[str, int]] = {}
        for kind, count in connection.execute(attempts):
            found.setdefault(kind, {})["attempts"] = count
        for kind, state, count in connection.execute(by_state):
            found.setdefault(kind, {})[state] = count
        return dict(sorted(found.items()))

    @writes
    def requeue(self, connection: Connection, query: FailureQuery, at: float) -> Requeued:
        """Queue the finished items of a query again, and reopen their job.

        Discovery that ended early because the budget was exhausted continues, when the query
        includes failures of that kind.
        """
        lock_job(connection, query.job)
        queue_again = update(items).values(
            state=ItemState.QUEUED,
            due_at=0.0,
            tries=0,
            deaths=0,
            kind=None,
            reason=None,
            raw=None,
            finished_at=None,
        )
        # One statement per state: a count beforehand could differ from what is changed.
        states = {
            state.value: connection.execute(queue_again.where(*query.conditions((state,)))).rowcount
            for state in _FINISHED
        }
        is_discovering = False
        if query.kind in (None, FailureKind.BUDGET) and not (query.state or query.key):
            reopened = connection.execute(
                update(jobs)
                .where(jobs.c.id == query.job, jobs.c.shortfall.is_not(None))
                .values(is_discovered=False, shortfall=None)
            )
            is_discovering = reopened.rowcount == 1
        requeued = Requeued(sum(states.values()), is_discovering)
        if requeued:
            reason = f"{requeued.items} items are queued again"
            reopened = connection.execute(
                update(jobs)
                .where(jobs.c.id == query.job, jobs.c.state.not_in(OPEN_STATES))
                .values(state=JobState.PAUSED, reason=reason, finished_at=None)
            )
            data: dict[str, Any] = {
                "items": requeued.items,
                "failure": query.kind,
                "states": {state: count for state, count in states.items() if count},
            }
            if reopened.rowcount:
                data["reason"] = reason
            if is_discovering:
                data["is_discovering"] = True
            append_events(connection, [event_row(query.job, at, "job.reopened", **data)])
        return requeued

    @reads
    def bans(self, connection: Connection, job: str, key: str) -> int:
        """Return how often an item itself was answered with a ban."""
        return _count_steps(connection, job, key, BANNED)

    @reads
    def overruns(self, connection: Connection, job: str, key: str) -> int:
        """Return how often an attempt at an item exceeded its time limit."""
        return _count_steps(connection, job, key, OVERRAN)


def note_failures(
    connection: Connection, attempts: Iterable[tuple[str, str | None, int, Usage]]
) -> None:
    """Log the failures of attempts, given as job, key (None: discovery), number and usage."""
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
        for job, key, tries, usage in attempts
        for one in usage.failures
    ]
    _INSERT.run(connection, rows)


def _count_steps(connection: Connection, job: str, key: str, step: str) -> int:
    is_step = (failures.c.job_id == job) & (failures.c.key == key) & (failures.c.step == step)
    return connection.scalar(select(func.count()).where(is_step)) or 0
