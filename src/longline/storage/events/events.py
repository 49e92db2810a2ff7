"""The event log, its projections and the statistics of jobs, written with what they describe.

Events are numbered in the order of their commits, so that a reader who remembers the last number it
has seen misses none. On PostgreSQL a number is given before the commit, and a later number may be
committed first; so the writers take turns for the last step of a transaction, in which its events
are inserted. SQLite has only one writer at a time.

Each event is applied to the projections (`projections.py`) in the same step. A rebuild
replays the events into new rows next to the old ones, and replaces these at its end. Old events may
be deleted: what the projections were then is kept as their base, from which a replay starts.
"""

from __future__ import annotations

import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, text, update

from longline.core.errors import BadOption, LonglineError
from longline.core.event_types import CUSTOM, event_type, match_types
from longline.core.model import OPEN_STATES, Event, Usage
from longline.storage.backends import BulkInsert, BulkUpsert, as_sanitized_json, upsert
from longline.storage.database import Repository, defer_write, lock_name, reads, writes
from longline.storage.events.projections import (
    PROJECTIONS,
    ProjectionRow,
    Stage,
    apply_events,
    consumed_types,
    copy_stage,
    drop_stage,
    is_consumed,
    move_stage,
    read_rows,
    sources_of,
)
from longline.storage.schema import (
    cells,
    events,
    jobs,
    projection_rows,
    projections,
    source_statistics,
    statistics,
    subscribers,
)

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
            # The names of custom types are not known, so their patterns are left to the database.
            custom = [one for one in self.types if one.startswith(CUSTOM) and "*" in one]
            names = match_types([one for one in self.types if one not in custom])
            likes = [
                events.c.type.like(one.replace("_", "/_").replace("*", "%"), escape="/")
                for one in custom
            ]
            yield or_(events.c.type.in_(names), *likes)
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

    def test(self) -> Callable[[Event, str | None], bool]:
        """Return a function that tests an event, given the source of its job, as `clauses` do.

        Raises:
            BadOption: there is no such type.
        """
        custom = [one for one in self.types if one.startswith(CUSTOM) and "*" in one]
        names = frozenset(match_types([one for one in self.types if one not in custom]))
        patterns = [re.compile(re.escape(one).replace(r"\*", ".*"), re.DOTALL) for one in custom]
        kind, _, name = (self.subject or "").partition("/")

        def is_wanted(event: Event, source: str | None) -> bool:
            is_of_type = not self.types or event.type in names
            if not is_of_type and not any(one.fullmatch(event.type) for one in patterns):
                return False
            if self.job is not None and event.job != self.job:
                return False
            is_of_source = self.source is None or source == self.source
            if not is_of_source and event.subject != f"source/{self.source}":
                return False
            if kind == "job":
                return event.job == name
            return not self.subject or event.subject == self.subject

        return is_wanted


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
        self,
        connection: Connection,
        after: int,
        wanted: EventFilter,
        *,
        limit: int = 500,
        span: int | None = None,
    ) -> tuple[EventList, int]:
        """Return the events after a cursor, in the order of their commits, and the next cursor.

        The next cursor is past the events that are not wanted, too. At most `span` numbers are
        searched, so that a rare type does not cost more than that.

        Raises:
            BadOption: there is no such type, or the cursor is past the last event.
        """
        newest = newest_event(connection)
        if after > newest:
            raise BadOption("cursor", f"{after} is past the newest event, which is {newest}")
        query = select(*_COLUMNS).where(events.c.id > after, *wanted.clauses())
        end = newest if span is None else min(after + span, newest)
        if end < newest:
            query = query.where(events.c.id <= end)
        rows = connection.execute(query.order_by(events.c.id).limit(limit)).all()
        is_all = len(rows) < limit
        return [_event_of(row) for row in rows], end if is_all else rows[-1].id

    @reads
    def sources(self, connection: Connection, names: Collection[str]) -> dict[str | None, str]:
        """Return the sources of jobs; a job that does not exist is left out."""
        return sources_of(connection, names)

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
    def page(
        self,
        connection: Connection,
        wanted: EventFilter,
        *,
        before: int | None = None,
        limit: int = 100,
        span: int = 100_000,
        is_jobless: bool = False,
    ) -> tuple[EventList, int | None]:
        """Return the newest events before a cursor, newest first, and the next cursor.

        Without a job or subject, which have indexes, at most `span` numbers are searched, so that a
        rare type does not cost more than that. With `is_jobless`, only events that belong to no
        job are wanted, which have an index, too. The next cursor is None after the oldest event.

        Raises:
            BadOption: there is no such type.
        """
        newest = newest_event(connection)
        oldest = connection.scalar(select(func.min(events.c.id))) or 0
        end = newest + 1 if before is None else min(before, newest + 1)
        start = 0 if wanted.job or wanted.subject or is_jobless else end - span
        query = select(*_COLUMNS).where(events.c.id < end, events.c.id >= start, *wanted.clauses())
        if is_jobless:
            query = query.where(events.c.job_id.is_(None))
        rows = connection.execute(query.order_by(events.c.id.desc()).limit(limit)).all()
        after = rows[-1].id if len(rows) == limit else start
        return [_event_of(row) for row in rows], after if after > oldest else None

    @reads
    def newest(self, connection: Connection) -> int:
        """Return the cursor after all events."""
        return newest_event(connection)

    @writes
    def log_id(self, connection: Connection) -> str:
        """Return the random id of this log, since another database has events of the same ids."""
        cell = {"room": "events", "name": "log_id"}
        row = {**cell, "state": secrets.token_hex(6)}
        connection.execute(upsert(connection, cells).values(row).on_conflict_do_nothing())
        found: str = connection.scalars(select(cells.c.state).filter_by(**cell)).one()
        return found

    @reads
    def before(self, connection: Connection, at: float) -> int:
        """Return the cursor before the first event that happened at this time or later."""
        first = connection.scalar(select(func.min(events.c.id)).where(events.c.at >= at))
        return newest_event(connection) if first is None else first - 1

    @writes
    def prune(
        self,
        connection: Connection,
        *,
        before: float | None = None,
        max_count: int | None = None,
        most: int = 5000,
    ) -> Pruned:
        """Delete old events of items, records and occurrences.

        It is a step over at most `most` events of the log.

        Old is what happened before a time, and what is not among the newest `max_count`. Events
        stay that a subscriber has not handled yet, those since the first event of an open job, and
        events of jobs and domains, which are few.
        """
        lock_name(connection, "events prune")
        base = _base(connection)
        last = _last_to_prune(connection, base, before, max_count)
        step = select(events.c.id).where(events.c.id > base, events.c.id <= last)
        end = connection.scalar(step.order_by(events.c.id).offset(most - 1).limit(1))
        is_done, end = end is None, last if end is None else end
        if end <= base:
            return Pruned(0, is_done=True)
        apply_events(
            connection, _read_between(connection, base, end, PROJECTIONS), stage=Stage.BASE
        )
        connection.execute(update(projections).values(base=end))
        is_old = or_(*(events.c.type.startswith(kind) for kind in _PRUNED))
        deleted = connection.execute(delete(events).where(events.c.id <= end, is_old))
        return Pruned(deleted.rowcount, is_done=is_done)

    async def prune_old(
        self, now: float, *, max_days: float | None, max_count: int | None, steps: int = 10
    ) -> int:
        """Delete events beyond their retention, as `prune` does; return how many.

        None is no limit. A large backlog is left to the next calls: it takes at most `steps`.
        """
        if max_days is None and max_count is None:
            return 0
        before = None if max_days is None else now - max_days * _DAY
        deleted = 0
        for _ in range(steps):
            step = await self.prune(before=before, max_count=max_count)
            deleted += step.deleted
            if step.is_done:
                break
        return deleted


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many events one step deleted, and whether it was the last one."""

    deleted: int
    is_done: bool


def _last_to_prune(
    connection: Connection, base: int, before: float | None, max_count: int | None
) -> int:
    """Return the last event that may be deleted; `base` is that of earlier calls."""
    newest = newest_event(connection)
    old = [base]
    if before is not None:
        is_young = (events.c.id > base) & (events.c.at >= before)
        first = connection.scalar(select(func.min(events.c.id)).where(is_young))
        old.append(newest if first is None else first - 1)
    if max_count is not None:
        old.append(newest - max_count)
    limits: list[int] = [*connection.scalars(select(subscribers.c.cursor))]
    is_open = events.c.job_id.in_(select(jobs.c.id).where(jobs.c.state.in_(OPEN_STATES)))
    created = select(func.min(events.c.id)).where(is_open, events.c.type == "job.created")
    if (first_open := connection.scalar(created)) is not None:
        limits.append(first_open - 1)
    return min([max(old), *limits])


_PRUNED = ("item.", "record.", "occurrence.")
_DAY = 86400.0
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
    appended: list[EventRow] = []
    consumed: list[Event] = []
    for rows in several:
        for row in rows:
            text = as_sanitized_json(row["data"])
            appended.append({**row, "data": text})
            if is_consumed(row["type"]):
                # As it is read back: a replay of these events gives the same rows.
                data = orjson.loads(text)
                consumed.append(Event(0, row["job_id"], row["at"], row["type"], row["key"], data))
    _APPEND.run(connection, appended)
    if consumed:
        apply_events(connection, consumed)


def wait_for_turn(connection: Connection) -> None:
    """Wait until no other transaction is between its first event and its commit."""
    if connection.dialect.name == "postgresql":
        connection.execute(_TURN, {"key": _TURN_KEY})


# ---------------- Projections

_REPLAY_BATCH = 5000  # events per transaction of a rebuild


class RebuildTakenOver(LonglineError):
    """Another process has begun to rebuild the same projections."""

    message = "another process is rebuilding the projections"
    hint = "Wait until it has finished; `longline events projections` shows its position."


@dataclass(frozen=True, slots=True)
class ProjectionStatus:
    """A projection, and what its rows are computed from.

    `starts_after` is the last event that is not counted, since it was deleted before this version
    of the projection existed; 0: all events are counted. `position` is that of a running rebuild.
    """

    name: str
    meaning: str
    version: int
    rows: int
    starts_after: int
    rebuilt_at: float | None
    position: int | None


class Projections(Repository):
    """The projections of the events; `append_events` keeps them up to date."""

    @reads
    def list(self, connection: Connection) -> list[ProjectionStatus]:
        """Return all projections."""
        is_live = projection_rows.c.stage == Stage.LIVE
        counted = (
            select(projection_rows.c.projection, func.count())
            .where(is_live)
            .group_by(projection_rows.c.projection)
        )
        rows: dict[str, int] = dict(connection.execute(counted).all())
        stored = {row.name: row for row in connection.execute(select(projections))}
        return [
            ProjectionStatus(
                one.name,
                one.meaning,
                one.version,
                rows.get(one.name, 0),
                stored[one.name].starts_after,
                stored[one.name].rebuilt_at,
                stored[one.name].position,
            )
            for one in PROJECTIONS.values()
        ]

    @reads
    def rows(
        self,
        connection: Connection,
        name: str,
        *,
        keys: Collection[str] | None = None,
        since: float | None = None,
        limit: int | None = None,
    ) -> ProjectionRows:
        """Return rows of a projection, the newest first; by `keys`, or from a time on.

        Raises:
            BadOption: there is no such projection.
        """
        _check_names([name])
        return read_rows(connection, name, keys=keys, since=since, limit=limit)

    async def rebuild(self, names: Sequence[str], at: float) -> int:
        """Replay the events into these projections; return how many events were applied.

        Meanwhile the old rows are read and updated as usual. A rebuild that is killed leaves them
        as they are; running it again starts from the beginning.

        Raises:
            BadOption: there is no such projection.
            RebuildTakenOver: another process has begun to rebuild one of them.
        """
        _check_names(names)
        token, applied = secrets.token_hex(8), 0
        await self._database.write(_begin_rebuild, names, token)
        is_done = False
        while not is_done:
            count, is_done = await self._database.write(_rebuild_step, names, token, at)
            applied += count
        return applied


ProjectionRows = list[ProjectionRow]  # spelled out here: `Projections.list` hides the builtin


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in PROJECTIONS:
            known = ", ".join(PROJECTIONS)
            raise BadOption("projection", f"there is no {name!r}; known projections: {known}")


def _begin_rebuild(connection: Connection, names: Collection[str], token: str) -> None:
    base = _base(connection)
    for name in names:
        copy_stage(connection, name, source=Stage.BASE, target=Stage.NEW)
    _change_projections(connection, names, rebuild=token, position=base)


def _rebuild_step(
    connection: Connection, names: Collection[str], token: str, at: float
) -> tuple[int, bool]:
    """Apply the next events; return how many, and whether the new rows are in place."""
    chosen = select(projections).where(projections.c.name.in_(names))
    states = connection.execute(chosen.with_for_update()).all()
    if any(row.rebuild != token for row in states):
        raise RebuildTakenOver
    position = min(row.position for row in states)
    if _base(connection) > position:  # events that were not applied yet have been deleted
        _begin_rebuild(connection, names, token)
        return 0, False
    found = _read_after(connection, position, names)
    applied = len(found)
    is_last = applied < _REPLAY_BATCH
    apply_events(connection, found, stage=Stage.NEW, only=names)
    if is_last:
        wait_for_turn(connection)  # from here to the commit, no event is appended
        while found:
            found = _read_after(connection, found[-1].id, names)
            apply_events(connection, found, stage=Stage.NEW, only=names)
            applied += len(found)
        for name in names:
            move_stage(connection, name, source=Stage.NEW, target=Stage.LIVE)
        _change_projections(connection, names, rebuild=None, position=None, rebuilt_at=at)
    else:
        _change_projections(connection, names, position=found[-1].id)
    return applied, is_last


def update_projections(connection: Connection) -> None:
    """Replay the events for projections that are new, or whose version has changed.

    It is part of opening a database, before any event is appended.
    """
    stored = dict(connection.execute(select(projections.c.name, projections.c.version)).all())
    outdated = [one for one in PROJECTIONS.values() if stored.get(one.name) != one.version]
    if not outdated:
        return
    base = _base(connection)
    names = [one.name for one in outdated]
    # Rows of deleted events are those of another version, or do not exist.
    drop_stage(connection, names, Stage.BASE)
    drop_stage(connection, names, Stage.LIVE)
    connection.execute(delete(projections).where(projections.c.name.in_(names)))
    rows = [
        {"name": one.name, "version": one.version, "base": base, "starts_after": base}
        for one in outdated
    ]
    connection.execute(insert(projections), rows)
    while found := _read_after(connection, base, names):
        apply_events(connection, found, only=names)
        base = found[-1].id


def _base(connection: Connection) -> int:
    return connection.scalar(select(func.max(projections.c.base))) or 0


def _change_projections(connection: Connection, names: Collection[str], **values: Any) -> None:
    connection.execute(update(projections).where(projections.c.name.in_(names)).values(**values))


def _read_after(connection: Connection, cursor: int, names: Collection[str]) -> EventList:
    query = select(*_COLUMNS).where(events.c.id > cursor, events.c.type.in_(consumed_types(names)))
    rows = connection.execute(query.order_by(events.c.id).limit(_REPLAY_BATCH)).all()
    return [_event_of(row) for row in rows]


def _read_between(
    connection: Connection, cursor: int, end: int, names: Collection[str]
) -> EventList:
    query = select(*_COLUMNS).where(
        events.c.id > cursor, events.c.id <= end, events.c.type.in_(consumed_types(names))
    )
    return [_event_of(row) for row in connection.execute(query.order_by(events.c.id)).all()]


# ---------------- Statistics


def add_statistics(
    connection: Connection, amounts: Sequence[tuple[str, Mapping[str, float]]]
) -> None:
    """Add amounts to the statistics of jobs and sources, at the end of the caller's transaction.

    Those whose name has a slash, such as `status/2xx`, are kept for sources only.
    """
    defer_write(connection, _add_sums, amounts)


def _add_sums(
    connection: Connection, several: Sequence[Sequence[tuple[str, Mapping[str, float]]]]
) -> None:
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for amounts in several:
        for job, counts in amounts:
            of_job = sums[job]
            for name, value in counts.items():
                of_job[name] += value
    # In the same order everywhere, so that two transactions cannot deadlock.
    of_jobs = [
        {"job_id": job, "name": name, "value": sums[job][name]}
        for job in sorted(sums)
        for name in sorted(sums[job])
        if "/" not in name
    ]
    _ADD.run(connection, of_jobs)
    of_sources: dict[tuple[str, str], float] = defaultdict(float)
    sources = sources_of(connection, sums)
    for job, counts in sums.items():
        for name, value in counts.items() if job in sources else ():
            of_sources[sources[job], name] += value
    rows = [
        {"source": source, "name": name, "value": of_sources[source, name]}
        for source, name in sorted(of_sources)
    ]
    _ADD_TO_SOURCES.run(connection, rows)


_ADD = BulkUpsert(
    statistics,
    ("job_id", "name", "value"),
    key=("job_id", "name"),
    update=lambda row: {"value": statistics.c.value + row.excluded.value},
)
_ADD_TO_SOURCES = BulkUpsert(
    source_statistics,
    ("source", "name", "value"),
    key=("source", "name"),
    update=lambda row: {"value": source_statistics.c.value + row.excluded.value},
)
