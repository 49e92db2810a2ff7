"""Launches: runs of sources and flows that an executor starts, and keeps alive until they end.

A schedule, a step of a flow or a command places a launch. An executor leases it and runs it; when
the executor or the process of the run dies, another attempt is made, up to a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, Select, exists, or_, select, update

from longline.core.model import JobState
from longline.core.output import count_text
from longline.storage.backends import BulkChange, BulkInsert, as_json, sanitize_text, upsert
from longline.storage.database import Repository, lock_name, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.jobs import cancel_job
from longline.storage.scheduling.flows import cancel_flow
from longline.storage.schema import jobs, launches, schedules

SOURCE, FLOW = "source", "flow"
"""The kinds of launches."""
_CANCELLED = "cancelled"  # a result
MOST_DEATHS = 3
"""Processes of a launch that may die before it is given up."""


class LaunchState(StrEnum):
    """The state of a launch; how the run itself ended is its result."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


_OPEN = (LaunchState.QUEUED, LaunchState.RUNNING)  # not "not ended": the index has these


@dataclass(frozen=True, slots=True)
class NewLaunch:
    """A launch to place.

    `spec` is what to run: for a source the settings of a job (`JobSpec.snapshot`), for a flow its
    file or name with parameters. With a `key`, it is placed once, however often it is requested.
    `target` is the job to continue; None starts a new one, or continues one with the same settings.
    """

    kind: str
    name: str
    spec: Mapping[str, Any]
    origin: str
    at: float
    key: str | None = None
    priority: int = 0
    due_at: float = 0.0
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch as it is stored; `target` is the id of its job or flow run, None before it began."""

    id: int
    key: str | None
    kind: str
    name: str
    spec: Mapping[str, Any]
    origin: str
    priority: int
    state: LaunchState
    due_at: float
    created_at: float
    started_at: float | None
    ended_at: float | None
    target: str | None
    owner: str | None
    until: float | None
    deaths: int
    result: str | None
    reason: str | None


def no_domain(_spec: Mapping[str, Any]) -> str | None:
    """Return the domain of no launch."""
    return None


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """How many launches may run together, over all executors on one database.

    A flow waits for the sources that it runs, so only sources count for `total` and `per_domain`.
    `domain_of` returns the domain of a source by its spec, None if unknown.
    """

    total: int = 4
    per_name: int = 1
    by_name: Mapping[str, int] = field(default_factory=dict)
    per_domain: int | None = None
    domain_of: Callable[[Mapping[str, Any]], str | None] = no_domain


LaunchList = list[Launch]  # spelled out here: `Launches.list` hides the builtin below it
OwnerList = list[str]


class Launches(Repository):
    """The launches of all executors on one database."""

    @writes
    def place(self, connection: Connection, new: NewLaunch) -> int:
        """Place a launch; return its id, or that of the launch with the same key.

        For a job that a queued launch is going to continue, return that launch.
        """
        if new.target is not None:
            lock_name(connection, f"launch of {new.target}")
            is_same = (launches.c.target == new.target) & (launches.c.state == LaunchState.QUEUED)
            queued: int | None = connection.scalar(select(launches.c.id).where(is_same).limit(1))
            if queued is not None:
                return queued
        return place_launch(connection, new)

    @writes
    def lease(
        self, connection: Connection, owner: str, at: float, until: float, limits: LaunchLimits
    ) -> LaunchList:
        """Lease queued launches that are due and within the limits, highest priority first."""
        lock_name(connection, "launches")  # the limits are counted by one executor at a time
        _end_cancelled(connection, at)
        shown: Select[Any] = select(launches.c.id, launches.c.kind, launches.c.name)
        if limits.per_domain is not None:
            shown = shown.add_columns(launches.c.spec)
        counts = _Counts(limits)
        for row in connection.execute(shown.where(launches.c.state == LaunchState.RUNNING)):
            counts.add(row)
        due = shown.where(launches.c.state == LaunchState.QUEUED, launches.c.due_at <= at)
        chosen: list[int] = []
        for row in connection.execute(due.order_by(launches.c.priority.desc(), launches.c.id)):
            if counts.has_room(row):
                counts.add(row)
                chosen.append(row.id)
        leased = {
            "state": LaunchState.RUNNING,
            "owner": owner,
            "until": until,
            "started_at": at,
        }
        connection.execute(update(launches).where(launches.c.id.in_(chosen)).values(**leased))
        query = select(launches).where(launches.c.id.in_(chosen))
        found = {row.id: _launch_of(row) for row in connection.execute(query)}
        return [found[one] for one in chosen]

    @writes
    def lease_one(
        self, connection: Connection, launch: int, owner: str, at: float, until: float
    ) -> Launch | None:
        """Lease one queued launch, without regard to limits; None if it is not queued."""
        _end_cancelled(connection, at)
        is_queued = (launches.c.id == launch) & (launches.c.state == LaunchState.QUEUED)
        leased = {"state": LaunchState.RUNNING, "owner": owner, "until": until, "started_at": at}
        changed = update(launches).where(is_queued).values(**leased).returning(launches)
        row = connection.execute(changed).one_or_none()
        return None if row is None else _launch_of(row)

    @writes
    def renew(self, connection: Connection, owner: str, until: float) -> frozenset[int]:
        """Renew all leases of an executor; return the launches that it still has."""
        mine = (launches.c.owner == owner) & (launches.c.state == LaunchState.RUNNING)
        renewed = update(launches).where(mine).values(until=until).returning(launches.c.id)
        return frozenset(connection.scalars(renewed))

    @writes
    def attach(
        self, connection: Connection, launch: int, owner: str, target: str, at: float
    ) -> bool:
        """Note the job or flow run that a launch has started; False: it is not to be run.

        Then the lease was lost, or the launch was cancelled meanwhile and others use the job. If
        the launch was cancelled and no other uses its target, the target is cancelled here.
        """
        mine = (launches.c.id == launch) & (launches.c.owner == owner)
        row = connection.execute(select(launches).where(mine).with_for_update()).one_or_none()
        is_cancelled = row is not None and row.result == _CANCELLED
        if row is None or (is_cancelled and _is_used(connection, row, target)):
            return False
        connection.execute(update(launches).where(mine).values(target=target))
        if is_cancelled:
            _cancel_target(connection, row.kind, target, row.reason, at)
        return True

    @writes
    def finish(
        self,
        connection: Connection,
        launch: int,
        owner: str,
        at: float,
        *,
        result: str,
        reason: str | None,
    ) -> bool:
        """End a launch with the state in which its run ended; False: the lease was lost."""
        text = None if reason is None else sanitize_text(reason)
        ended = {"state": LaunchState.ENDED, "ended_at": at, "result": result, "reason": text}
        is_mine = _change(connection, launch, owner, owner=None, until=None, **ended)
        if is_mine:
            _count_result(connection, launch, result, at)
        return is_mine

    @writes
    def release(self, connection: Connection, launch: int, owner: str, due_at: float = 0.0) -> bool:
        """Queue a launch again that was not finished: at a shutdown, or until `due_at`."""
        queued = {"state": LaunchState.QUEUED, "due_at": due_at}
        return _change(connection, launch, owner, owner=None, until=None, **queued)

    @writes
    def reclaim(self, connection: Connection, at: float, dead: Sequence[str] = ()) -> LaunchList:
        """Queue the launches of dead executors, and expired ones, again; return them.

        The end of an executor is not counted as a death of the run (`count_death`).
        """
        is_lost = or_(launches.c.owner.in_([*dead]), launches.c.until < at)
        lost = (launches.c.state == LaunchState.RUNNING) & is_lost
        queued = {"state": LaunchState.QUEUED, "owner": None, "until": None}
        found = connection.execute(
            update(launches).where(lost).values(**queued).returning(launches)
        )
        return [_launch_of(row) for row in found]

    @writes
    def count_death(
        self, connection: Connection, launch: int, owner: str, at: float, *, due_at: float, how: str
    ) -> bool:
        """Note that the process of a launch died; True when it is given up after the third death.

        Otherwise it is queued again until `due_at`.
        """
        mine = (launches.c.id == launch) & (launches.c.owner == owner)
        deaths: int | None = connection.scalar(select(launches.c.deaths).where(mine))
        if deaths is None:
            return False
        is_over = deaths + 1 >= MOST_DEATHS
        end: dict[str, Any] = {"state": LaunchState.QUEUED, "due_at": due_at}
        if is_over:
            reason = death_reason(deaths + 1, how)
            end = {"state": LaunchState.ENDED, "ended_at": at, "result": "failed", "reason": reason}
        _change(connection, launch, owner, owner=None, until=None, deaths=deaths + 1, **end)
        if is_over:
            _count_result(connection, launch, "failed", at)
        return is_over

    @writes
    def cancel(self, connection: Connection, launch: int, at: float, reason: str) -> bool:
        """End a launch that is queued; False when it runs already, or has ended.

        If it runs but has no target yet, the target is cancelled when it is attached.
        """
        # Locked, so that it is not queued again in between.
        connection.execute(select(launches.c.id).where(launches.c.id == launch).with_for_update())
        is_ended = _cancel_queued(connection, launch, at, reason)
        if not is_ended:
            _cancel_starting(connection, launch, reason)
        return is_ended

    @reads
    def get(self, connection: Connection, launch: int) -> Launch | None:
        """Return a launch by its id."""
        row = connection.execute(select(launches).where(launches.c.id == launch)).one_or_none()
        return None if row is None else _launch_of(row)

    @reads
    def list(
        self,
        connection: Connection,
        *,
        origin: str | None = None,
        is_open: bool = False,
        before: int | None = None,
        limit: int | None = 50,
    ) -> LaunchList:
        """Return the newest launches first; with `before`, only those with a lower id."""
        query = select(launches).order_by(launches.c.id.desc()).limit(limit)
        if origin is not None:
            query = query.where(launches.c.origin == origin)
        if is_open:
            query = query.where(launches.c.state.in_(_OPEN))
        if before is not None:
            query = query.where(launches.c.id < before)
        return [_launch_of(row) for row in connection.execute(query)]

    @reads
    def of_target(self, connection: Connection, target: str, *, limit: int = 10) -> LaunchList:
        """Return the launches of a job or flow run, the newest first."""
        query = select(launches).where(launches.c.target == target)
        rows = connection.execute(query.order_by(launches.c.id.desc()).limit(limit))
        return [_launch_of(row) for row in rows]

    @reads
    def is_due(self, connection: Connection, at: float) -> bool:
        """Return whether a queued launch is due."""
        is_queued = launches.c.state == LaunchState.QUEUED
        due = select(launches.c.id).where(is_queued, launches.c.due_at <= at).limit(1)
        return connection.scalar(due) is not None

    @reads
    def owners(self, connection: Connection) -> OwnerList:
        """Return the executors that have launches leased."""
        running = launches.c.state == LaunchState.RUNNING
        found = connection.scalars(select(launches.c.owner).where(running).distinct())
        return [owner for owner in found if owner is not None]


class _Counts:
    """The launches that run, by what the limits count."""

    def __init__(self, limits: LaunchLimits) -> None:
        self._limits = limits
        self._names: Counter[tuple[str, str]] = Counter()
        self._domains: Counter[str] = Counter()
        self._sources = 0

    def add(self, row: Row[Any]) -> None:
        self._names[row.kind, row.name] += 1
        self._sources += row.kind == SOURCE
        if domain := self._domain(row):
            self._domains[domain] += 1

    def has_room(self, row: Row[Any]) -> bool:
        limits = self._limits
        if self._names[row.kind, row.name] >= limits.by_name.get(row.name, limits.per_name):
            return False
        if row.kind != SOURCE:
            return True
        domain = self._domain(row)
        is_full = (
            limits.per_domain is not None
            and domain is not None
            and self._domains[domain] >= limits.per_domain
        )
        return not is_full and self._sources < limits.total

    def _domain(self, row: Row[Any]) -> str | None:
        is_limited = self._limits.per_domain is not None and row.kind == SOURCE
        return self._limits.domain_of(row.spec) if is_limited else None


def death_reason(deaths: int, how: str) -> str:
    """Return why a launch, and its job, are given up."""
    return f"its process died {deaths} times; the last time: {sanitize_text(how)}"


def place_launch(connection: Connection, new: NewLaunch) -> int:
    """Place a launch in the caller's transaction, as `Launches.place` does."""
    row = _row_of(new)
    placed = upsert(connection, launches).values(row).on_conflict_do_nothing(index_elements=["key"])
    launch: int | None = connection.scalar(placed.returning(launches.c.id))
    if launch is None:
        launch = connection.scalar(select(launches.c.id).where(launches.c.key == new.key))
    assert launch is not None  # noqa: S101  # inserted, or found by its key
    return launch


def place_launches(connection: Connection, several: Sequence[NewLaunch]) -> Mapping[str, int]:
    """Place launches with keys in the caller's transaction; return their ids by key."""
    _PLACE.run(
        connection, [{**(row := _row_of(one)), "spec": as_json(row["spec"])} for one in several]
    )
    keys = [one.key for one in several]
    found = select(launches.c.key, launches.c.id)
    return {
        key: launch
        for some in range(0, len(keys), _KEYS_PER_QUERY)
        for key, launch in connection.execute(
            found.where(launches.c.key.in_(keys[some : some + _KEYS_PER_QUERY]))
        )
    }


def _row_of(new: NewLaunch) -> dict[str, Any]:
    return {
        "key": new.key,
        "kind": new.kind,
        "name": new.name,
        "spec": dict(new.spec),
        "origin": new.origin,
        "priority": new.priority,
        "state": LaunchState.QUEUED.value,
        "due_at": new.due_at,
        "created_at": new.at,
        "target": new.target,
        "deaths": 0,
    }


_KEYS_PER_QUERY = 500
_PLACE = BulkInsert(
    launches,
    (
        *("key", "kind", "name", "spec", "origin", "priority"),
        *("state", "due_at", "created_at", "target", "deaths"),
    ),
    finish=lambda statement: statement.on_conflict_do_nothing(index_elements=["key"]),
)


def cancel_launches(connection: Connection, reasons: Mapping[int, str], at: float) -> None:
    """Cancel launches in the caller's transaction: queued ones, and what running ones run."""
    if not reasons:
        return
    chosen = select(launches).where(launches.c.id.in_([*reasons]))
    rows = connection.execute(chosen.order_by(launches.c.id).with_for_update()).all()
    ended = {"state": LaunchState.ENDED.value, "result": _CANCELLED, "ended_at": at}
    _CANCEL.run(
        connection,
        [
            {"id": row.id, "reason": sanitize_text(reasons[row.id]), **ended}
            for row in rows
            if row.state == LaunchState.QUEUED
        ],
    )
    for row in rows:
        if row.state == LaunchState.RUNNING and row.target is None:
            _cancel_starting(connection, row.id, reasons[row.id])
        elif row.state == LaunchState.RUNNING:
            _cancel_target(connection, row.kind, row.target, reasons[row.id], at)


def _cancel_starting(connection: Connection, launch: int, reason: str) -> None:
    """Note that a launch is cancelled whose target is not known yet.

    `Launches.attach` then cancels the target. Without one, `_end_cancelled` ends the launch.
    """
    is_starting = (launches.c.id == launch) & (launches.c.state == LaunchState.RUNNING)
    noted = {"result": _CANCELLED, "reason": sanitize_text(reason)}
    connection.execute(
        update(launches).where(is_starting, launches.c.target.is_(None)).values(**noted)
    )


def _end_cancelled(connection: Connection, at: float) -> None:
    """End launches that were cancelled while they started, and were queued again."""
    is_queued = (launches.c.state == LaunchState.QUEUED) & (launches.c.result == _CANCELLED)
    ended = {"state": LaunchState.ENDED, "ended_at": at}
    connection.execute(update(launches).where(is_queued).values(**ended))


def _is_used(connection: Connection, row: Row[Any], target: str) -> bool:
    """Return whether a target is not only that of this launch, but a job that others run."""
    if row.kind != SOURCE:
        return False  # a launch of a flow starts a run of its own
    is_new = (jobs.c.id == target) & (jobs.c.state == JobState.PENDING)
    is_other = (launches.c.target == target) & (launches.c.id != row.id)
    others = exists().where(is_other, launches.c.state.in_(_OPEN))
    return connection.scalar(select(jobs.c.id).where(is_new, ~others)) is None


def _cancel_target(connection: Connection, kind: str, target: str, reason: str, at: float) -> None:
    if kind == SOURCE:
        cancel_job(connection, target, at, reason)
    else:
        cancel_flow(connection, target, reason, at)


_CANCEL = BulkChange(
    {name: launches.c[name].type for name in ("id", "state", "result", "ended_at", "reason")},
    lambda given: (
        update(launches)
        .where(launches.c.id == given.id)
        .values(
            state=given.state,
            result=given.result,
            ended_at=given.ended_at,
            reason=given.reason,
        )
    ),
)


def schedule_origin(name: str) -> str:
    """Return the origin of the launches of a schedule."""
    return f"schedule/{name}"


_GOOD_RESULTS = ("complete", "partial")
_NEUTRAL_RESULTS = ("cancelled", "paused")


def _count_result(connection: Connection, launch: int, result: str, at: float) -> None:
    """Count failures in a row of the schedule of a launch, which may pause it."""
    origin = connection.scalar(select(launches.c.origin).where(launches.c.id == launch))
    name = (origin or "").removeprefix(schedule_origin(""))
    if name == origin or result in _NEUTRAL_RESULTS:
        return
    mine = (schedules.c.name == name) & schedules.c.removed_at.is_(None)
    row = connection.execute(select(schedules).where(mine).with_for_update()).one_or_none()
    if row is None or (not row.failures and result in _GOOD_RESULTS):
        return
    values: dict[str, Any] = {"failures": 0 if result in _GOOD_RESULTS else row.failures + 1}
    limit = row.definition.get("pause_after_failures")
    if limit is not None and values["failures"] >= limit and row.paused_at is None:
        reason = f"{count_text(values['failures'], 'failure')} in a row"
        values |= {"paused_at": at, "pause_reason": reason}
        data = {"schedule": name, "reason": reason, "failures": values["failures"]}
        append_events(connection, [event_row(None, at, "schedule.paused", **data)])
    connection.execute(update(schedules).where(mine).values(**values))


def _cancel_queued(connection: Connection, launch: int, at: float, reason: str) -> bool:
    is_queued = (launches.c.id == launch) & (launches.c.state == LaunchState.QUEUED)
    ended = {"state": LaunchState.ENDED, "ended_at": at, "result": _CANCELLED}
    changed = connection.execute(
        update(launches).where(is_queued).values(reason=sanitize_text(reason), **ended)
    )
    return changed.rowcount == 1


def _change(connection: Connection, launch: int, holder: str, **values: Any) -> bool:
    mine = (launches.c.id == launch) & (launches.c.owner == holder)
    return connection.execute(update(launches).where(mine).values(**values)).rowcount == 1


def _launch_of(row: Row[Any]) -> Launch:
    return Launch(**{**row._asdict(), "state": LaunchState(row.state)})
