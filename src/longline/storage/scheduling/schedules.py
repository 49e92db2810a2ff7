"""Schedules and their occurrences: what is defined, what was decided, and what it started.

An occurrence is a row with the primary key (schedule, nominal time), so its fate is decided once,
over any number of executors. A decision locks the row of the schedule, reads what is queued and
running, and stores the fate, the launch and the event in one transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import (
    Connection,
    Double,
    Text,
    delete,
    func,
    insert,
    select,
    tuple_,
    update,
)

from longline.core.clock import utc_datetime
from longline.core.errors import ConflictError, NotFoundError
from longline.core.model import JobState
from longline.storage.backends import BulkChange, BulkInsert, sanitize_text, upsert
from longline.storage.database import Repository, lock_name, reads, writes
from longline.storage.events.events import EventRow, append_events, event_row, newest_event
from longline.storage.scheduling.launches import (
    LaunchState,
    NewLaunch,
    cancel_launches,
    place_launches,
    schedule_origin,
)
from longline.storage.schema import (
    cells,
    events,
    jobs,
    launches,
    occurrences,
    schedules,
    subscribers,
)

COMMAND = "command"
"""The origin of schedules that no file defines."""
SUBSCRIBER = "schedules"
"""The subscriber whose cursor is the last event that has triggered what it had to trigger."""
_TIMES = (  # of a definition; when one changes, occurrences are counted from then on
    *("enabled", "cron", "every", "calendar", "at", "after", "on", "fresh"),
    *("timezone", "start", "end"),
)
_FRESHNESS = "freshness"  # room of the cells with the state of each source that has a limit
_OPEN = (LaunchState.QUEUED, LaunchState.RUNNING)
_WITH_DATA = (JobState.COMPLETE, JobState.PARTIAL)
_STEP = 0.001  # seconds between two manual occurrences at the same time


class UnknownSchedule(NotFoundError):
    """There is no schedule of this name."""

    name: str
    known: tuple[str, ...] = ()
    message = "there is no schedule {name!r}"

    @property
    def hint(self) -> str:  # type: ignore[override]  # depends on the fields
        """The names that exist."""
        return f"Known schedules: {', '.join(self.known)}." if self.known else ""


class ScheduleTaken(ConflictError):
    """Another file, or a command, has defined a schedule of this name."""

    name: str
    origin: str
    message = "the schedule {name!r} is already defined {by}"
    hint = "Choose another name, or remove that one."

    @property
    def by(self) -> str:
        """Where it is defined."""
        return "on the command line" if self.origin == COMMAND else f"in {self.origin}"


class ScheduleOfFile(ConflictError):
    """A file defines the schedule, so a command cannot change it."""

    name: str
    origin: str
    message = "the schedule {name!r} is defined in {origin}"
    hint = "Edit that file; `longline schedule pause {name}` stops it meanwhile."


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule as it is stored.

    `origin` is the file that defines it, or `command`. Occurrences up to `decided_until` have their
    fate. `failures` counts the runs that have failed in a row.
    """

    name: str
    definition: Mapping[str, Any]
    origin: str
    created_at: float
    decided_until: float
    paused_at: float | None = None
    pause_reason: str | None = None
    failures: int = 0
    removed_at: float | None = None


@dataclass(frozen=True, slots=True)
class StoredOccurrence:
    """An occurrence with its fate, and the state of the run that it has started."""

    schedule: str
    nominal_at: float
    kind: str
    fate: str
    reason: str | None
    decided_at: float
    launch_id: int | None
    target: str | None = None
    state: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A launch of a schedule that has not ended; `target` is its job or flow run, once begun."""

    launch: int
    target: str | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a decision needs to know beyond the row of its schedule.

    `triggered` has the nominal times of other triggers, `back` the seconds before `decided_until`
    whose occurrences are wanted, and `source` the source whose last data is.
    """

    triggered: Sequence[float] = ()
    back: float = 0.0
    source: str | None = None


_NOTHING = Wanted()


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """What is stored about a schedule when its occurrences are decided."""

    row: StoredSchedule
    wanted: Wanted
    queued: Sequence[float] = ()
    running: Sequence[OpenRun] = ()
    occurrences: Mapping[float, str] = field(default_factory=dict)
    """The fates of later occurrences, of triggered ones, and of those that are `back`."""
    data_at: float | None = None


@dataclass(frozen=True, slots=True)
class DecidedOccurrence:
    """The fate of one occurrence; a fired one has its launch, which has a key."""

    nominal_at: float
    kind: str
    fate: str
    reason: str | None = None
    launch: NewLaunch | None = None
    cancels: Sequence[int] = ()


Plan = Callable[[ScheduleState], Iterable[DecidedOccurrence]]


@dataclass(frozen=True, slots=True)
class PollResult:
    """What a scheduler looks for: the newest event, and queued occurrences that nothing blocks."""

    newest_event: int
    released: Sequence[str]


ScheduleList = list[StoredSchedule]  # spelled out here: `Schedules.list` hides the builtin below it
OccurrenceList = list[StoredOccurrence]


class Schedules(Repository):
    """The schedules of a home."""

    # ---------------- Definitions

    @writes
    def save(
        self, connection: Connection, name: str, definition: Mapping[str, Any], at: float
    ) -> StoredSchedule:
        """Add or change the schedule of a command.

        Raises:
            ScheduleOfFile: a file defines it.
        """
        lock_name(connection, "schedules")
        known = _find_schedule(connection, name)
        if known is not None and known.removed_at is None and known.origin != COMMAND:
            raise ScheduleOfFile(name, known.origin)
        _save(connection, known, StoredSchedule(name, definition, COMMAND, at, at))
        return _get(connection, name)

    @writes
    def sync(
        self,
        connection: Connection,
        origin: str,
        definitions: Mapping[str, Mapping[str, Any]],
        at: float,
    ) -> None:
        """Store the schedules that a file defines, by name, and remove those that it had before.

        Raises:
            ScheduleTaken: another file, or a command, has a schedule of one of these names; nothing
                was changed.
        """
        lock_name(connection, "schedules")
        found = {name: _find_schedule(connection, name) for name in definitions}
        for name, known in found.items():
            if known is not None and known.removed_at is None and known.origin != origin:
                raise ScheduleTaken(name, known.origin)
        for name, definition in definitions.items():
            _save(connection, found[name], StoredSchedule(name, definition, origin, at, at))
        mine = select(schedules).where(
            schedules.c.origin == origin, schedules.c.removed_at.is_(None)
        )
        for row in connection.execute(mine).all():
            if row.name not in definitions:
                _remove(connection, _schedule_of(row), at)

    @reads
    def origins(self, connection: Connection) -> OriginList:
        """Return the files that define schedules."""
        query = select(schedules.c.origin).where(
            schedules.c.removed_at.is_(None), schedules.c.origin != COMMAND
        )
        return list(connection.scalars(query.distinct().order_by(schedules.c.origin)))

    @writes
    def remove(self, connection: Connection, name: str, at: float) -> None:
        """Remove the schedule of a command; its occurrences stay.

        Raises:
            UnknownSchedule: there is none of this name.
            ScheduleOfFile: a file defines it.
        """
        known = _get(connection, name)
        if known.origin != COMMAND:
            raise ScheduleOfFile(name, known.origin)
        _remove(connection, known, at)

    @writes
    def pause(self, connection: Connection, name: str, at: float, reason: str) -> StoredSchedule:
        """Pause a schedule: its occurrences are skipped.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        _get(connection, name)
        reason = sanitize_text(reason)
        _change_schedule(connection, name, paused_at=at, pause_reason=reason)
        append_events(
            connection, [event_row(None, at, "schedule.paused", schedule=name, reason=reason)]
        )
        return _get(connection, name)

    @writes
    def resume(self, connection: Connection, name: str, at: float) -> StoredSchedule:
        """Resume a paused schedule; its failures are counted from 0 again.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        known = _get(connection, name)
        if known.paused_at is not None:
            _change_schedule(connection, name, paused_at=None, pause_reason=None, failures=0)
            append_events(connection, [event_row(None, at, "schedule.resumed", schedule=name)])
        return _get(connection, name)

    @reads
    def get(self, connection: Connection, name: str) -> StoredSchedule:
        """Return a schedule.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        return _get(connection, name)

    @reads
    def list(self, connection: Connection, *, names: Sequence[str] | None = None) -> ScheduleList:
        """Return all schedules in use, or those of these names, by name."""
        query = select(schedules).where(schedules.c.removed_at.is_(None)).order_by(schedules.c.name)
        if names is not None:
            query = query.where(schedules.c.name.in_(names))
        return [_schedule_of(row) for row in connection.execute(query)]

    @reads
    def decided_until(self, connection: Connection, names: Sequence[str]) -> Mapping[str, float]:
        """Return until when the occurrences of schedules in use are decided."""
        query = select(schedules.c.name, schedules.c.decided_until)
        is_wanted = schedules.c.name.in_(names) & schedules.c.removed_at.is_(None)
        return dict(connection.execute(query.where(is_wanted)).all())

    # ---------------- Occurrences

    @writes
    def decide(
        self,
        connection: Connection,
        wanted: Mapping[str, Wanted],
        plan: Plan,
        at: float,
    ) -> ScheduleList:
        """Decide occurrences of the schedules of these names; return them as they are then.

        Args:
            connection: given by the repository.
            wanted: the schedules, and what `plan` needs to know.
            plan: returns the decisions about one schedule; it runs in the thread of the writer, and
                again if the transaction is repeated.
            at: the time of the decisions.
        """
        rows = _lock_schedules(connection, wanted)
        states = _read_states(connection, rows, wanted)
        decided = {one.row.name: [*plan(one)] for one in states}
        _store_decisions(connection, decided, at, {one.row.name: one.queued for one in states})
        until = {
            row.name: max([row.decided_until, *(one.nominal_at for one in decided[row.name])])
            for row in rows
        }
        moved = [row.name for row in rows if until[row.name] > row.decided_until]
        _MOVE.run(connection, [{"b_name": name, "b_until": until[name]} for name in moved])
        return [
            row
            if until[row.name] == row.decided_until
            else replace(row, decided_until=until[row.name])
            for row in rows
        ]

    @writes
    def start(
        self,
        connection: Connection,
        name: str,
        at: float,
        make_launch: Callable[[float], NewLaunch],
        nominals: Sequence[float] | None = None,
    ) -> OccurrenceList:
        """Start a schedule now, or its occurrences of these nominal times that were never fired.

        Whether it is paused or runs already does not matter.

        Raises:
            UnknownSchedule: there is none of this name.
        """
        if not _lock_schedules(connection, [name]):
            raise UnknownSchedule(name, _schedule_names(connection))
        mine = occurrences.c.schedule == name
        if nominals is None:
            kind, nominals = "manual", [_free_nominal(connection, name, at)]
        else:
            kind = "backfill"
        found = {
            row.nominal_at: row.fate
            for row in connection.execute(
                select(occurrences).where(mine, occurrences.c.nominal_at.in_(nominals))
            )
        }
        chosen = [one for one in nominals if found.get(one) not in ("fired", "queued")]
        is_old = mine & occurrences.c.nominal_at.in_([one for one in chosen if one in found])
        connection.execute(delete(occurrences).where(is_old))
        decisions = [
            DecidedOccurrence(
                one,
                kind,
                "fired",
                f"was {found[one]} before" if one in found else None,
                make_launch(one),
            )
            for one in chosen
        ]
        _store_decisions(connection, {name: decisions}, at, {})
        return [
            one
            for one in _history(connection, name, at_times=chosen, limit=None)
            if one.fate == "fired"
        ]

    @reads
    def fates(
        self, connection: Connection, name: str, start: float, end: float
    ) -> Mapping[float, str]:
        """Return the fates of the occurrences of a schedule from `start` to `end`."""
        query = select(occurrences.c.nominal_at, occurrences.c.fate).where(
            occurrences.c.schedule == name, occurrences.c.nominal_at.between(start, end)
        )
        return {row.nominal_at: row.fate for row in connection.execute(query)}

    @reads
    def history(
        self,
        connection: Connection,
        name: str | None = None,
        *,
        limit: int | None = 50,
        before: float | None = None,
    ) -> OccurrenceList:
        """Return the newest occurrences first, of one schedule or of all.

        Only those with a nominal time before `before`; None: all.

        Raises:
            UnknownSchedule: no schedule ever had this name.
        """
        if name is not None and _find_schedule(connection, name) is None:
            raise UnknownSchedule(name, _schedule_names(connection))
        return _history(connection, name, limit=limit, before=before)

    @reads
    def page(
        self,
        connection: Connection,
        *,
        name: str | None = None,
        fate: str | None = None,
        before: tuple[float, str, float] | None = None,
        limit: int = 100,
    ) -> OccurrenceList:
        """Return occurrences, the one that was decided last first, of one schedule or of all.

        `before` is the time of the decision, the schedule and the nominal time of the last known.

        Raises:
            UnknownSchedule: no schedule ever had this name.
        """
        if name is not None and _find_schedule(connection, name) is None:
            raise UnknownSchedule(name, _schedule_names(connection))
        order = (occurrences.c.decided_at, occurrences.c.schedule, occurrences.c.nominal_at)
        query = _WITH_RUNS.order_by(*(column.desc() for column in order))
        if name is not None:
            query = query.where(occurrences.c.schedule == name)
        if fate is not None:
            query = query.where(occurrences.c.fate == fate)
        if before is not None:
            # The first condition is for the index.
            query = query.where(occurrences.c.decided_at <= before[0], tuple_(*order) < before)
        return [StoredOccurrence(**row._asdict()) for row in connection.execute(query.limit(limit))]

    @reads
    def last_occurrences(
        self, connection: Connection, names: Sequence[str]
    ) -> Mapping[str, StoredOccurrence]:
        """Return the newest occurrence of each of these schedules that has one."""
        newest = select(func.max(occurrences.c.nominal_at)).where(
            occurrences.c.schedule == schedules.c.name
        )
        query = select(schedules.c.name, newest.scalar_subquery().label("at"))
        rows = connection.execute(query.where(schedules.c.name.in_(names))).all()
        keys = [(row.name, row.at) for row in rows if row.at is not None]
        chosen = _WITH_RUNS.where(
            tuple_(occurrences.c.schedule, occurrences.c.nominal_at).in_(keys)
        )
        found = [StoredOccurrence(**row._asdict()) for row in connection.execute(chosen)]
        return {one.schedule: one for one in found}

    @reads
    def poll(self, connection: Connection) -> PollResult:
        """Return what may need a decision although no time has come."""
        is_queued = occurrences.c.fate == "queued"
        waiting = connection.scalars(
            select(occurrences.c.schedule).where(is_queued).distinct()
        ).all()
        running = _open_runs(connection, waiting) if waiting else {}
        released = [name for name in waiting if name not in running]
        return PollResult(newest_event(connection), released)

    # ---------------- Other triggers

    @writes
    def open_cursor(
        self, connection: Connection, types: Sequence[str], at: float, since: float
    ) -> int:
        """Return the last event that was handled; a new cursor starts with those from `since` on.

        `types` are those that it reads.
        """
        lock_name(connection, "schedules")
        values = {"types": [*types], "filter": {}}
        mine = subscribers.c.name == SUBSCRIBER
        cursor: int | None = connection.scalar(select(subscribers.c.cursor).where(mine))
        if cursor is not None:
            connection.execute(update(subscribers).where(mine).values(**values))
            return cursor
        first = connection.scalar(select(func.min(events.c.id)).where(events.c.at >= since))
        start = newest_event(connection) if first is None else first - 1
        row = {"name": SUBSCRIBER, "cursor": start, "is_enabled": True, "created_at": at}
        connection.execute(insert(subscribers), {**row, "failures": 0, "due_at": 0.0, **values})
        return start

    @reads
    def cursor(self, connection: Connection) -> int | None:
        """Return the last event that was handled; None: there is no cursor."""
        query = select(subscribers.c.cursor).where(subscribers.c.name == SUBSCRIBER)
        found: int | None = connection.scalar(query)
        return found

    @writes
    def move_cursor(self, connection: Connection, cursor: int, at: float) -> None:
        """Note that the events up to `cursor` have triggered what they had to."""
        is_behind = (subscribers.c.name == SUBSCRIBER) & (subscribers.c.cursor < cursor)
        connection.execute(update(subscribers).where(is_behind).values(cursor=cursor, moved_at=at))

    @writes
    def close_cursor(self, connection: Connection) -> None:
        """Delete the cursor, so that it does not keep events that no schedule waits for."""
        connection.execute(delete(subscribers).where(subscribers.c.name == SUBSCRIBER))

    @reads
    def nominal_of(self, connection: Connection, target: str) -> float | None:
        """Return when the run `target` was due; None: no schedule by time has started it."""
        query = (
            select(occurrences.c.nominal_at)
            .join(launches, launches.c.id == occurrences.c.launch_id)
            .where(launches.c.target == target, occurrences.c.kind == "scheduled")
        )
        found: float | None = connection.scalar(query)
        return found

    @reads
    def data_times(self, connection: Connection, sources: Sequence[str]) -> Mapping[str, float]:
        """Return when the last job of each source that has data has ended."""
        return _data_times(connection, sources)

    @writes
    def judge_freshness(
        self, connection: Connection, source: str, limit: float, at: float
    ) -> float | None:
        """Append an event if the data of a source has become too old, or is fresh again.

        Without any data, its age is counted from the first call. Return from when on it is late;
        None: it is late now.
        """
        lock_name(connection, _FRESHNESS)
        cell = (cells.c.room == _FRESHNESS) & (cells.c.name == source)
        state: dict[str, Any] = connection.scalar(select(cells.c.state).where(cell)) or {
            "since": at,
            "is_late": False,
        }
        data_at = _data_times(connection, [source]).get(source)
        late_from = (state["since"] if data_at is None else data_at) + limit
        is_late = at > late_from
        if is_late != state["is_late"]:
            name = "source.late" if is_late else "source.fresh"
            data: dict[str, Any] = {"source": source, "limit": limit, "data_at": data_at}
            append_events(connection, [event_row(None, at, name, **data)])
        changed = {**state, "is_late": is_late}
        statement = upsert(connection, cells).values(room=_FRESHNESS, name=source, state=changed)
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["room", "name"], set_={"state": statement.excluded.state}
            )
        )
        return None if is_late else float(late_from)

    @writes
    def forget_freshness(self, connection: Connection, keep: Sequence[str]) -> None:
        """Delete the state of sources without a limit: all but those of these names."""
        is_of_others = (cells.c.room == _FRESHNESS) & cells.c.name.not_in(keep)
        connection.execute(delete(cells).where(is_of_others))


OriginList = list[str]
_WITH_RUNS = select(occurrences, launches.c.target, launches.c.state, launches.c.result).outerjoin(
    launches, launches.c.id == occurrences.c.launch_id
)


def late_sources(connection: Connection) -> dict[str, Mapping[str, Any]]:
    """Return the sources whose data is older than its limit, with the event that reported it."""
    is_late = [
        name
        for name, state in connection.execute(
            select(cells.c.name, cells.c.state).where(cells.c.room == _FRESHNESS)
        )
        if state["is_late"]
    ]
    found: dict[str, Mapping[str, Any]] = {}
    for name in is_late:
        reported = (
            select(events.c.data)
            .where(events.c.subject == f"source/{name}", events.c.type == "source.late")
            .order_by(events.c.id.desc())
            .limit(1)
        )
        found[name] = connection.scalar(reported) or {}
    return found


# ---------------- Definitions


def _find_schedule(connection: Connection, name: str) -> StoredSchedule | None:
    query = select(schedules).where(schedules.c.name == name)
    row = connection.execute(query).one_or_none()
    return None if row is None else _schedule_of(row)


def _get(connection: Connection, name: str) -> StoredSchedule:
    found = _find_schedule(connection, name)
    if found is None or found.removed_at is not None:
        raise UnknownSchedule(name, _schedule_names(connection))
    return found


def _schedule_names(connection: Connection) -> tuple[str, ...]:
    query = select(schedules.c.name).where(schedules.c.removed_at.is_(None))
    return tuple(connection.scalars(query.order_by(schedules.c.name).limit(20)))


def _save(connection: Connection, known: StoredSchedule | None, new: StoredSchedule) -> None:
    """Insert a schedule, or change the one that is known."""
    definition, at = dict(new.definition), new.created_at
    row: dict[str, Any] = {"definition": definition, "origin": new.origin}
    is_new = known is None or known.removed_at is not None
    if known is not None and not is_new:
        if known.definition == definition and known.origin == new.origin:
            return
        if any(known.definition.get(one) != definition.get(one) for one in _TIMES):
            row["decided_until"] = max(known.decided_until, at)
    else:
        row |= {"created_at": at, "decided_until": at, "failures": 0, "removed_at": None}
        # A file may be renamed, or gone for a while; a person resumes what a person has paused.
        if known is None or COMMAND in (known.origin, new.origin):
            row |= {"paused_at": None, "pause_reason": None}
    if known is None:
        connection.execute(insert(schedules), {"name": new.name, **row})
    else:
        _change_schedule(connection, new.name, **row)
    type_ = "schedule.added" if is_new else "schedule.changed"
    data: dict[str, Any] = {"schedule": new.name, "origin": new.origin, "definition": definition}
    append_events(connection, [event_row(None, at, type_, **data)])


def _remove(connection: Connection, known: StoredSchedule, at: float) -> None:
    _change_schedule(connection, known.name, removed_at=at)
    is_queued = (occurrences.c.schedule == known.name) & (occurrences.c.fate == "queued")
    found = connection.execute(
        update(occurrences)
        .where(is_queued)
        .values(fate="skipped", reason="removed", decided_at=at)
        .returning(occurrences.c.nominal_at, occurrences.c.kind)
    )
    skipped = [
        _event_of(
            known.name, DecidedOccurrence(row.nominal_at, row.kind, "skipped", "removed"), None, at
        )
        for row in found
    ]
    data = {"schedule": known.name, "origin": known.origin}
    append_events(connection, [*skipped, event_row(None, at, "schedule.removed", **data)])


def _change_schedule(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(update(schedules).where(schedules.c.name == name).values(**values))


def _schedule_of(row: Sequence[Any]) -> StoredSchedule:
    return StoredSchedule(*row)  # the fields are in the order of the columns


# ---------------- Decisions

_INSERT = BulkInsert(
    occurrences,
    ("schedule", "nominal_at", "kind", "fate", "reason", "decided_at", "launch_id"),
)
_RELEASE = BulkChange(  # of queued ones, which keep their kind
    {
        name: occurrences.c[name].type
        for name in ("schedule", "nominal_at", "fate", "reason", "decided_at", "launch_id")
    },
    lambda given: (
        update(occurrences)
        .where(
            occurrences.c.schedule == given.schedule, occurrences.c.nominal_at == given.nominal_at
        )
        .values(
            fate=given.fate,
            reason=given.reason,
            decided_at=given.decided_at,
            launch_id=given.launch_id,
        )
    ),
)
_MOVE = BulkChange(
    {"b_name": Text(), "b_until": Double()},
    lambda given: (
        update(schedules)
        .where(schedules.c.name == given.b_name)
        .values(decided_until=given.b_until)
    ),
)


def _lock_schedules(connection: Connection, names: Iterable[str]) -> ScheduleList:
    query = (
        select(schedules)
        .where(schedules.c.name.in_([*names]), schedules.c.removed_at.is_(None))
        .order_by(schedules.c.name)  # in the same order everywhere: no deadlock
        .with_for_update()
    )
    return [_schedule_of(row) for row in connection.execute(query)]


def _read_states(
    connection: Connection, rows: Sequence[StoredSchedule], wanted: Mapping[str, Wanted]
) -> list[ScheduleState]:
    names = [row.name for row in rows]
    queued: dict[str, list[float]] = defaultdict(list)
    is_queued = (occurrences.c.fate == "queued") & occurrences.c.schedule.in_(names)
    columns = (occurrences.c.schedule, occurrences.c.nominal_at)
    waiting = select(*columns).where(is_queued).order_by(occurrences.c.nominal_at)
    for name, nominal in connection.execute(waiting):
        queued[name].append(nominal)
    running = _open_runs(connection, names)
    fates = _read_fates(connection, rows, wanted)
    sources = {one.source for one in wanted.values() if one.source is not None}
    data = _data_times(connection, sorted(sources)) if sources else {}
    return [
        ScheduleState(
            row,
            wanted.get(row.name, _NOTHING),
            queued=queued[row.name],
            running=running.get(row.name, ()),
            occurrences=fates[row.name],
            data_at=data.get(wanted.get(row.name, _NOTHING).source or ""),
        )
        for row in rows
    ]


def _read_fates(
    connection: Connection, rows: Sequence[StoredSchedule], wanted: Mapping[str, Wanted]
) -> Mapping[str, dict[float, str]]:
    fates: dict[str, dict[float, str]] = defaultdict(dict)
    columns = (occurrences.c.schedule, occurrences.c.nominal_at, occurrences.c.fate)
    later = (
        select(*columns)
        .join(schedules, schedules.c.name == occurrences.c.schedule)
        .where(
            schedules.c.name.in_([row.name for row in rows]),
            occurrences.c.nominal_at > schedules.c.decided_until,
        )
    )
    queries = [later]
    for row in rows:
        one = wanted.get(row.name, _NOTHING)
        if one.back:
            since = occurrences.c.nominal_at > row.decided_until - one.back
            queries.append(select(*columns).where(occurrences.c.schedule == row.name, since))
        if one.triggered:
            keys = [(row.name, nominal) for nominal in one.triggered]
            is_one = tuple_(occurrences.c.schedule, occurrences.c.nominal_at).in_(keys)
            queries.append(select(*columns).where(is_one))
    for query in queries:
        for name, nominal, fate in connection.execute(query):
            fates[name][nominal] = fate
    return fates


def _open_runs(connection: Connection, names: Iterable[str]) -> Mapping[str, list[OpenRun]]:
    """Return the launches of these schedules that have not ended, by schedule."""
    found: dict[str, list[OpenRun]] = defaultdict(list)
    origins = {schedule_origin(name): name for name in names}
    # Not by the index of origins, which has all launches that ever were.
    is_wanted = launches.c.state.in_(_OPEN) & (launches.c.origin + "").in_([*origins])
    query = select(launches.c.id, launches.c.origin, launches.c.target).where(is_wanted)
    for launch, origin, target in connection.execute(query.order_by("id")):
        found[origins[origin]].append(OpenRun(launch, target))
    return found


def _store_decisions(
    connection: Connection,
    decided: Mapping[str, Sequence[DecidedOccurrence]],
    at: float,
    queued: Mapping[str, Collection[float]],
) -> None:
    rows: list[dict[str, Any]] = []
    released: list[dict[str, Any]] = []
    appended: list[EventRow] = []
    cancelled = {
        launch: f"the next run of {name} is due"
        for name, several in decided.items()
        for one in several
        for launch in one.cancels
    }
    cancel_launches(connection, cancelled, at)
    placed = place_launches(
        connection, [one.launch for several in decided.values() for one in several if one.launch]
    )
    for name, several in decided.items():
        for one in several:
            launched = None if one.launch is None else placed[str(one.launch.key)]
            row = {
                "schedule": name,
                "nominal_at": one.nominal_at,
                "kind": one.kind,
                "fate": one.fate,
                "reason": None if one.reason is None else sanitize_text(one.reason),
                "decided_at": at,
                "launch_id": launched,
            }
            is_queued = one.nominal_at in queued.get(name, ())
            (released if is_queued else rows).append(row)
            appended.append(_event_of(name, one, launched, at))
    _RELEASE.run(connection, released)
    _INSERT.run(connection, rows)  # a second row of an occurrence fails, and all of it is undone
    append_events(connection, appended)


def _event_of(name: str, one: DecidedOccurrence, launch: int | None, at: float) -> EventRow:
    data: dict[str, Any] = {"schedule": name, "nominal_at": one.nominal_at, "kind": one.kind}
    if one.reason is not None:
        data["reason"] = one.reason
    if launch is not None:
        data["launch"] = launch
    return event_row(None, at, f"occurrence.{one.fate}", **data)


def _free_nominal(connection: Connection, name: str, at: float) -> float:
    """Return a nominal time for a manual run that no scheduled one has."""
    nominal = utc_datetime(at).timestamp()
    if nominal.is_integer():
        nominal += _STEP
    while True:
        is_taken = (occurrences.c.schedule == name) & (occurrences.c.nominal_at == nominal)
        if connection.scalar(select(func.count()).where(is_taken)) == 0:
            return nominal
        nominal = utc_datetime(nominal + _STEP).timestamp()


def _history(
    connection: Connection,
    name: str | None,
    *,
    limit: int | None,
    at_times: Sequence[float] | None = None,
    before: float | None = None,
) -> OccurrenceList:
    query = _WITH_RUNS
    if name is None:
        query = query.order_by(occurrences.c.decided_at.desc(), occurrences.c.nominal_at.desc())
    else:
        query = query.where(occurrences.c.schedule == name)
        query = query.order_by(occurrences.c.nominal_at.desc())
    if at_times is not None:
        query = query.where(occurrences.c.nominal_at.in_(at_times))
    if before is not None:
        query = query.where(occurrences.c.nominal_at < before)
    return [StoredOccurrence(**row._asdict()) for row in connection.execute(query.limit(limit))]


def _data_times(connection: Connection, sources: Sequence[str]) -> Mapping[str, float]:
    query = (
        select(jobs.c.source, func.max(jobs.c.finished_at))
        .where(jobs.c.source.in_(sources), jobs.c.state.in_(_WITH_DATA))
        .group_by(jobs.c.source)
    )
    return {source: at for source, at in connection.execute(query) if at is not None}
