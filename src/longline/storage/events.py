"""The event log and the statistics of jobs, written in the transactions of what they describe.

Events are numbered in the order of their commits, so that a reader who remembers the last number it
has seen misses none. On PostgreSQL a number is given before the commit, and a later number may be
committed first; so the writers take turns for the last step of a transaction, in which its events
are inserted. SQLite has only one writer at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, or_, select, text

from longline.core.errors import BadOption
from longline.core.event_types import event_type, match_types
from longline.core.model import OPEN_STATES, Event, Usage
from longline.storage.bulk import BulkInsert, BulkUpsert, as_sanitized_json
from longline.storage.database import Repository, defer_write, reads, writes
from longline.storage.schema import events, jobs, statistics, subscribers

EventRow = dict[str, Any]
EventList = list[Event]  # spelled out here: `EventLog.list` hides the builtin below it


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are wanted: of these types (names, or patterns such as `job.*`), job, source.

    `subject` is such as `domain/HOST`; None or empty is any.
    """

    types: tuple[str, ...] = ()
    job: str | None = None
    source: str | None = None
    subject: str | None = None

    def clauses(self) -> Iterator[ColumnElement[bool]]:
        """Yield it as conditions.

        Raises:
            BadOption: there is no such type.
        """
        if self.types:
            yield events.c.type.in_(match_types(self.types))
        if self.job is not None:
            yield events.c.job_id == self.job
        if self.source is not None:
            of_source = select(jobs.c.id).where(jobs.c.source == self.source)
            yield or_(events.c.job_id.in_(of_source), events.c.subject == f"source/{self.source}")
        kind, _, name = (self.subject or "").partition("/")
        if kind == "job":
            yield events.c.job_id == name
        elif self.subject:
            yield events.c.subject == self.subject


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
        types: Sequence[str] = (),
        limit: int = 1000,
        with_items: bool = True,
    ) -> EventList:
        """Return the events of a job, oldest first; `with_items` includes those of single items."""
        query = select(*_COLUMNS).where(events.c.job_id == job).order_by(events.c.id).limit(limit)
        if types:
            query = query.where(events.c.type.in_(types))
        if not with_items:
            query = query.where(events.c.key.is_(None))
        return [_event_of(row) for row in connection.execute(query).all()]

    @reads
    def read(
        self, connection: Connection, after: int, wanted: EventFilter, *, limit: int = 500
    ) -> tuple[EventList, int]:
        """Return the events after a cursor, in the order of their commits, and the next cursor.

        The next cursor is past the events that are not wanted, too.

        Raises:
            BadOption: there is no such type, or the cursor is past the last event.
        """
        newest = newest_event(connection)
        if after > newest:
            raise BadOption("cursor", f"{after} is past the newest event, which is {newest}")
        query = select(*_COLUMNS).where(events.c.id > after, *wanted.clauses())
        rows = connection.execute(query.order_by(events.c.id).limit(limit)).all()
        is_all = len(rows) < limit
        return [_event_of(row) for row in rows], newest if is_all else rows[-1].id

    @reads
    def get(self, connection: Connection, event: int) -> Event:
        """Return one event by its id.

        Raises:
            BadOption: there is no such event.
        """
        row = connection.execute(select(*_COLUMNS).where(events.c.id == event)).one_or_none()
        if row is None:
            raise BadOption(
                "event", f"there is no event {event}; `longline events list` lists them"
            )
        return _event_of(row)

    @reads
    def last(self, connection: Connection, wanted: EventFilter, *, limit: int) -> EventList:
        """Return the newest events that are wanted, oldest first.

        Raises:
            BadOption: there is no such type.
        """
        query = select(*_COLUMNS).where(*wanted.clauses()).order_by(events.c.id.desc()).limit(limit)
        return [_event_of(row) for row in reversed(connection.execute(query).all())]

    @reads
    def newest(self, connection: Connection) -> int:
        """Return the cursor after all events."""
        return newest_event(connection)

    @reads
    def before(self, connection: Connection, at: float) -> int:
        """Return the cursor before the first event that happened at this time or later."""
        first = connection.scalar(select(func.min(events.c.id)).where(events.c.at >= at))
        return newest_event(connection) if first is None else first - 1

    @writes
    def prune(
        self, connection: Connection, *, before: float, keep: int = 0, most: int = 5000
    ) -> int:
        """Delete up to `most` events of items and records from before a time; return how many.

        The newest `keep` events stay, and so do those that a subscriber has not handled yet, those
        since the first event of an open job, and events of jobs and domains, which are few.
        """
        last = [newest_event(connection) - keep]
        last += connection.scalars(select(subscribers.c.cursor)).all()
        is_open = events.c.job_id.in_(select(jobs.c.id).where(jobs.c.state.in_(OPEN_STATES)))
        first_open = connection.scalar(select(func.min(events.c.id)).where(is_open))
        last += [] if first_open is None else [first_open - 1]
        chosen = (
            select(events.c.id)
            .where(
                events.c.id <= min(last),
                events.c.at < before,
                or_(*(events.c.type.startswith(kind) for kind in _PRUNED)),
            )
            .order_by(events.c.id)
            .limit(most)
        )
        return connection.execute(delete(events).where(events.c.id.in_(chosen))).rowcount


_PRUNED = ("item.", "record.")
_COLUMNS = (
    *(events.c.id, events.c.job_id, events.c.at, events.c.type, events.c.key, events.c.data),
    *(events.c.version, events.c.subject),
)


def _event_of(row: Any) -> Event:
    known = event_type(row.type)
    data = known.upcast(row.data, row.version)
    subject = row.subject or f"job/{row.job_id}"
    return Event(row.id, row.job_id, row.at, row.type, row.key, data, known.version, subject)


def newest_event(connection: Connection) -> int:
    """Return the number of the newest event, also of a deleted one."""
    newest = connection.scalar(select(func.max(events.c.id))) or 0
    if connection.dialect.name == "sqlite":
        used = connection.scalar(text("SELECT seq FROM sqlite_sequence WHERE name = 'events'"))
        return max(newest, used or 0)
    return newest


def event_row(
    job: str | None, at: float, name: str, *, key: str | None = None, **data: Any
) -> EventRow:
    """Return an event of the type `name` as a row for `append_events`.

    Raises:
        BadOption: there is no such type.
    """
    known = event_type(name)
    subject = None if known.about == "job" else known.subject(job, data)
    return {
        "job_id": job,
        "at": at,
        "type": name,
        "version": known.version,
        "subject": subject,
        "key": key,
        "data": data,
    }


def usage_events(job: str, key: str | None, at: float, usage: Usage) -> list[EventRow]:
    """Return the events that the request chain recorded in one attempt, as rows."""
    return [event_row(job, at, one.type, key=key, **one.data) for one in usage.events]


_APPEND = BulkInsert(events, ("job_id", "at", "type", "version", "subject", "key", "data"))
_TURN = text("SELECT pg_advisory_xact_lock(:key)")
_TURN_KEY = int.from_bytes(b"llevents")


def append_events(connection: Connection, rows: Sequence[EventRow]) -> None:
    """Append events in the caller's transaction; they are inserted last, just before its commit."""
    if rows:
        defer_write(connection, _insert_events, rows, is_last=True)


def _insert_events(connection: Connection, several: Sequence[Sequence[EventRow]]) -> None:
    wait_for_turn(connection)
    _APPEND.run(
        connection,
        [{**row, "data": as_sanitized_json(row["data"])} for rows in several for row in rows],
    )


def wait_for_turn(connection: Connection) -> None:
    """Wait until no other transaction is between its first event and its commit."""
    if connection.dialect.name == "postgresql":
        connection.execute(_TURN, {"key": _TURN_KEY})


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
