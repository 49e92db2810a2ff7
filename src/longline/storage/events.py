"""The event log and the statistics of jobs, written in the transactions of what they describe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from longline.core.model import Event, Usage
from longline.storage.bulk import BulkInsert, BulkUpsert, as_sanitized_json
from longline.storage.database import Repository, defer_write, reads, writes
from longline.storage.schema import events, statistics

EventRow = dict[str, Any]
EventList = list[Event]  # spelled out here: `EventLog.list` hides the builtin below it


class EventLog(Repository):
    """Events and statistics of all jobs."""

    @writes
    def append(self, connection: Connection, *rows: EventRow) -> None:
        """Append events in their own transaction."""
        append_events(connection, rows)

    @writes
    def add_statistics(self, connection: Connection, job: str, counts: Mapping[str, float]) -> None:
        """Add to the statistics of a job in their own transaction."""
        add_statistics(connection, [(job, counts)])

    @reads
    def statistics(self, connection: Connection, job: str) -> dict[str, float]:
        """Return the statistics of a job by name; zero ones may be absent."""
        query = select(statistics.c.name, statistics.c.value).where(statistics.c.job_id == job)
        return {row.name: row.value for row in connection.execute(query)}

    @reads
    def list(
        self,
        connection: Connection,
        job: str,
        *,
        kind: str | None = None,
        limit: int = 1000,
        with_items: bool = True,
    ) -> EventList:
        """Return the events of a job, oldest first; `with_items` includes those of single items."""
        query = select(events).where(events.c.job_id == job).order_by(events.c.id).limit(limit)
        if kind:
            query = query.where(events.c.kind == kind)
        if not with_items:
            query = query.where(events.c.key.is_(None))
        return [Event(*row) for row in connection.execute(query)]


def event_row(job: str, at: float, kind: str, *, key: str | None = None, **data: Any) -> EventRow:
    """Return an event as a row for `append_events`."""
    return {"job_id": job, "at": at, "kind": kind, "key": key, "data": data}


def usage_events(job: str, key: str | None, at: float, usage: Usage) -> list[EventRow]:
    """Return the events that the request chain recorded in one attempt, as rows."""
    return [event_row(job, at, one.kind, key=key, **one.data) for one in usage.events]


_APPEND = BulkInsert(events, ("job_id", "at", "kind", "key", "data"))


def append_events(connection: Connection, rows: Sequence[EventRow]) -> None:
    """Append events in the caller's transaction."""
    if rows:
        _APPEND.run(connection, [{**row, "data": as_sanitized_json(row["data"])} for row in rows])


def add_statistics(
    connection: Connection, amounts: Iterable[tuple[str, Mapping[str, float]]]
) -> None:
    """Add amounts to the statistics of jobs, at the end of the caller's transaction."""
    for amount in amounts:
        defer_write(connection, _add_sums, amount)


def _add_sums(connection: Connection, amounts: Sequence[tuple[str, Mapping[str, float]]]) -> None:
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for job, counts in amounts:
        for name, value in counts.items():
            sums[job, name] += value
    # In the same order everywhere, so that two transactions cannot deadlock.
    rows = [{"job_id": job, "name": name, "value": sums[job, name]} for job, name in sorted(sums)]
    _ADD.run(connection, rows)


_ADD = BulkUpsert(
    statistics,
    ("job_id", "name", "value"),
    key=("job_id", "name"),
    update=lambda row: {"value": statistics.c.value + row.excluded.value},
)
