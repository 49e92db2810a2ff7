"""Ended runs with their counts, for reports: of a period, or of a source before a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select

from longline.core.model import OPEN_STATES, Job
from longline.storage.database import Repository, reads
from longline.storage.events.projections import Stage, read_rows
from longline.storage.job_changes import RECORD_CHANGES
from longline.storage.schema import events, jobs, projection_rows, projections, statistics

_HOUR = 3600
_ITEMS = ("open", "stored", "unchanged", "skipped", "failed", "quarantined")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A job that has ended.

    `items` counts all its items by state. `changes` counts new, changed, gone and returned records;
    None: not known, since events of the job were deleted.
    """

    job: str
    source: str
    state: str
    reason: str | None
    created_at: float
    started_at: float | None
    ended_at: float
    items: Mapping[str, int]
    statistics: Mapping[str, float]
    changes: Mapping[str, int] | None

    @property
    def seconds(self) -> float:
        """From its first start to its end, pauses included."""
        return self.ended_at - (self.created_at if self.started_at is None else self.started_at)

    @property
    def found(self) -> int:
        """How many items it has discovered."""
        return sum(self.items.values())


@dataclass(frozen=True, slots=True)
class SourceStrip:
    """The last jobs of a source as pairs of job and state, oldest first; `at` is the last start."""

    source: str
    runs: Sequence[tuple[str, str]]
    at: float


@dataclass(frozen=True, slots=True)
class ChangedRecords:
    """The records that a job has changed in one way: `count` of them, and the newest `keys`.

    `count` stops at a limit, so that it is read in bounded time.
    """

    kind: str
    count: int
    keys: Sequence[str]


class RunHistory(Repository):
    """The ended jobs of all sources."""

    @reads
    def strips(self, connection: Connection, *, runs: int, sources: int) -> list[SourceStrip]:
        """Return the last `runs` jobs of the `sources` that were used last, the newest first."""
        newest = func.max(jobs.c.created_at).label("newest")
        used = select(jobs.c.source, newest).group_by(jobs.c.source)
        found = connection.execute(used.order_by(newest.desc(), jobs.c.source).limit(sources)).all()
        newest_first = (jobs.c.created_at.desc(), jobs.c.id.desc())
        place = func.row_number().over(partition_by=jobs.c.source, order_by=newest_first)
        numbered = (
            select(jobs.c.source, jobs.c.id, jobs.c.state, place.label("place"))
            .where(jobs.c.source.in_([source for source, _ in found]))
            .subquery()
        )
        last = select(numbered).where(numbered.c.place <= runs).order_by(numbered.c.place.desc())
        strips: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for row in connection.execute(last):
            strips[row.source].append((row.id, row.state))
        return [SourceStrip(source, strips[source], at) for source, at in found]

    @reads
    def ended(self, connection: Connection, start: float, end: float) -> list[EndedRun]:
        """Return the jobs that have ended from `start` on and before `end`, in this order."""
        chosen = select(jobs.c.id).where(jobs.c.finished_at >= start, jobs.c.finished_at < end)
        found = _runs(connection, chosen)
        return sorted(found, key=lambda run: (run.ended_at, run.job))

    @reads
    def changes_since(self, connection: Connection, at: float) -> int:
        """Return how many records became new or changed, from the hour of a time on."""
        counts = projection_rows.c.data["records"]
        found = (counts[one].as_integer() for one in ("created", "changed", "returned"))
        query = select(*(func.coalesce(func.sum(one), 0) for one in found)).where(
            projection_rows.c.stage == Stage.LIVE,
            projection_rows.c.projection == "hours",
            projection_rows.c.sort >= at // _HOUR * _HOUR,
        )
        return sum(map(int, connection.execute(query).one()))

    @reads
    def before(self, connection: Connection, job: Job, *, limit: int) -> list[EndedRun]:
        """Return the last ended jobs of the same source that were created before, oldest first."""
        is_before = or_(
            jobs.c.created_at < job.created_at,
            and_(jobs.c.created_at == job.created_at, jobs.c.id < job.id),
        )
        chosen = (
            select(jobs.c.id)
            .where(jobs.c.source == job.source, is_before, jobs.c.state.not_in(OPEN_STATES))
            .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
            .limit(limit)
        )
        found = _runs(connection, chosen)
        return sorted(found, key=lambda run: (run.created_at, run.job))

    @reads
    def coverage(
        self, connection: Connection, names: Sequence[str]
    ) -> dict[str, Mapping[str, float]]:
        """Return by job the share of its records in which each field is filled."""
        query = (
            select(events.c.job_id, events.c.data)
            .where(events.c.job_id.in_(names), events.c.type == "source.profiled")
            .order_by(events.c.id)
        )
        return {job: data["coverage"] for job, data in connection.execute(query)}

    @reads
    def changed_records(
        self, connection: Connection, job: str, *, listed: int, counted: int
    ) -> list[ChangedRecords]:
        """Return which records a job has changed; per kind, `listed` keys of at most `counted`."""
        found = []
        for name, kind in RECORD_CHANGES.items():
            # One query per type reads the newest entries from the index, and no others.
            of_type = select(events.c.key).where(events.c.job_id == job, events.c.type == name)
            some = of_type.order_by(events.c.id.desc())
            count = select(func.count()).select_from(some.limit(counted).subquery())
            keys = [*connection.scalars(some.limit(listed))]
            found.append(ChangedRecords(kind, connection.scalar(count) or 0, keys))
        return found


def _runs(connection: Connection, chosen: Select[Any]) -> list[EndedRun]:
    columns = ("id", "source", "state", "reason", "created_at", "started_at", "finished_at")
    rows = connection.execute(
        select(*(jobs.c[name] for name in columns)).where(jobs.c.id.in_(chosen))
    ).all()
    names = [row.id for row in rows]
    counters: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in connection.execute(select(statistics).where(statistics.c.job_id.in_(chosen))):
        counters[row.job_id][row.name] = row.value
    items = _items(connection, names)
    changes = _record_changes(connection, chosen, names)
    return [
        EndedRun(
            job=row.id,
            source=row.source,
            state=row.state,
            reason=row.reason,
            created_at=row.created_at,
            started_at=row.started_at,
            ended_at=row.finished_at,
            items=items.get(row.id, dict.fromkeys(_ITEMS, 0)),
            statistics=counters[row.id],
            changes=changes[row.id],
        )
        for row in rows
    ]


def _items(connection: Connection, names: Sequence[str]) -> dict[str, Mapping[str, int]]:
    found: dict[str, Mapping[str, int]] = {}
    for start in range(0, len(names), 5000):  # SQLite allows 32,766 variables
        rows = read_rows(connection, "runs", keys=names[start : start + 5000])
        found |= {row["job"]: row["items"] for row in rows}
    return found


def _record_changes(
    connection: Connection, chosen: Select[Any], names: Sequence[str]
) -> dict[str, dict[str, int] | None]:
    found: dict[str, dict[str, int] | None] = {
        name: dict.fromkeys(RECORD_CHANGES.values(), 0) for name in names
    }
    counted = (
        select(events.c.job_id, events.c.type, func.count())
        .where(events.c.job_id.in_(chosen), events.c.type.in_(RECORD_CHANGES))
        .group_by(events.c.job_id, events.c.type)
    )
    for job, kind, count in connection.execute(counted):
        if (counts := found.get(job)) is not None:
            counts[RECORD_CHANGES[kind]] = count
    deleted_until = connection.scalar(select(func.max(projections.c.base))) or 0
    begun = (
        select(events.c.job_id)
        .where(events.c.job_id.in_(chosen), events.c.type == "job.created")
        .group_by(events.c.job_id)
        .having(func.min(events.c.id) <= deleted_until)
    )
    return found | dict.fromkeys(connection.scalars(begun), None)
