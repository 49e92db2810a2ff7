"""What the rules of alerts examine: the last runs of each source, and what is wrong elsewhere.

All of it is read on one snapshot. A run that has ended is measured once: a caller that passes what
it has read before gets only the sources that have changed since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, Row, and_, exists, func, select

from longline.core.model import OPEN_STATES, JobState
from longline.storage.database import Repository, reads
from longline.storage.events.projections import ProjectionRow, read_rows
from longline.storage.proxy_refresh import PoolSummary, read_pool
from longline.storage.scheduling.flows import FlowState
from longline.storage.scheduling.launches import LaunchState
from longline.storage.scheduling.schedules import late_sources
from longline.storage.schema import (
    events,
    failures,
    flow_runs,
    items,
    jobs,
    launches,
    logs,
    occurrences,
    schedules,
    statistics,
)

_MAX_LISTED = 300  # ended runs of a source that are considered
_NEWEST = 20  # of them that are all read; of older ones, the first of each half of a day
_MAX_OLDER = 30
_HALF_DAY = 43_200.0
_SETTLED = 120.0  # seconds after its end in which log lines of a run may still be written
_MAX_KEYS = 5000  # per query; SQLite allows 32,766 variables
_JUDGED = (JobState.COMPLETE, JobState.PARTIAL, JobState.FAILED)
_COUNTERS = ("requests", "retries", "rate_limited")
_OF_RUNS = ("source.profiled", "drift.accepted", "job.complete", "job.partial")
_STARTS_AND_PAUSES = (
    *("job.started", "job.resumed", "job.continued", "job.paused", "job.reopened"),
)
_OF_WORKERS = ("worker.started", "worker.stopped", "worker.lost")
_DAY = 86_400.0
_RECENT = 7 * _DAY  # seconds that what nothing has changed since is still reported


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A job that has ended, in numbers.

    `options` are what runs must have in common to be compared: options, parameters and limit.
    `identity` differs when also the manifest does. `failures` counts failed attempts by kind,
    `statuses` by HTTP status. `logged` counts stored log lines by level. `coverage` is None when
    the records were not examined. `is_accepted` says that a person has made it the baseline.
    """

    job: str
    source: str
    options: str
    identity: str
    state: str
    reason: str | None
    starts: int
    started_at: float
    ended_at: float
    items: Mapping[str, int]
    counters: Mapping[str, float]
    failures: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[int, int] = field(default_factory=dict)
    logged: Mapping[int, int] = field(default_factory=dict)
    coverage: Mapping[str, float] | None = None
    examined: int = 0
    cuts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    is_accepted: bool = False


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A job that runs or is paused.

    `progress_at` is when its last item was finished, `changed_at` when it was last started or
    paused. With `is_continued`, an executor will continue it.
    """

    job: str
    source: str
    options: str
    state: str
    reason: str | None
    started_at: float
    starts: int
    progress_at: float | None
    changed_at: float | None
    is_continued: bool


@dataclass(frozen=True, slots=True)
class ScheduleFate:
    """A schedule: the last occurrence that was missed, fired or queued, and why it is paused."""

    name: str
    fate: str | None
    nominal_at: float | None
    reason: str | None
    decided_at: float | None
    failures: int
    paused_at: float | None
    pause_reason: str | None


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """A launch of a source that has ended without a job."""

    launch: int
    source: str
    ended_at: float
    reason: str | None


@dataclass(frozen=True, slots=True)
class StoppedFlow:
    """A run of a flow that waits for a person."""

    run: str
    flow: str
    state: str
    reason: str | None
    since: float


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that was lost, and has not started again."""

    worker: str
    at: float
    reason: str | None


@dataclass(slots=True)
class RunCache:
    """The runs of earlier calls by source, and the state of each source when they were read."""

    states: dict[str, str] = field(default_factory=dict)
    runs: dict[str, tuple[MeasuredRun, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlertInputs:
    """What rules examine.

    `sources` and `domains` are rows of these projections. `changed` has the ended runs of sources
    that differ from the cache, oldest first; `states` is what the cache keeps about them. `late`
    has, by source, the event of data that is older than its limit.
    """

    sources: Sequence[ProjectionRow]
    domains: Sequence[ProjectionRow]
    domain_sources: Mapping[str, str]
    changed: Mapping[str, tuple[MeasuredRun, ...]]
    states: Mapping[str, str]
    unfinished: Sequence[UnfinishedRun]
    late: Mapping[str, Mapping[str, Any]]
    schedules: Sequence[ScheduleFate]
    failed_launches: Sequence[FailedLaunch]
    flows: Sequence[StoppedFlow]
    lost_workers: Sequence[LostWorker]
    proxies: PoolSummary | None = None


class AlertInputReader(Repository):
    """Reads what rules examine."""

    @reads
    def read(self, connection: Connection, now: float, known: RunCache) -> AlertInputs:
        """Return it as it is now; of sources that `known` has, only those that have changed."""
        sources = read_rows(connection, "sources")
        domains = [row for row in read_rows(connection, "domains") if row["breaker"] == "open"]
        states = {row["source"]: _state_of(row) for row in sources}
        stale = [name for name, state in states.items() if known.states.get(name) != state]
        changed = _read_runs(connection, stale, known)
        for name in stale:
            runs = changed.get(name, ())
            if runs and now - runs[-1].ended_at < _SETTLED:
                states[name] = ""  # it is read again
        return AlertInputs(
            sources=sources,
            domains=domains,
            domain_sources=_sources_of_domains(connection, [row["domain"] for row in domains]),
            changed=changed,
            states={name: states[name] for name in stale},
            unfinished=_unfinished_runs(connection),
            late=late_sources(connection),
            schedules=_schedule_fates(connection),
            failed_launches=_failed_launches(connection, now - _RECENT),
            flows=_stopped_flows(connection),
            lost_workers=_lost_workers(connection, now - _RECENT),
            proxies=read_pool(connection),
        )


def _state_of(row: ProjectionRow) -> str:
    """Return what changes with each end of a run of a source."""
    names = ("job", "state", "changed_at", "runs", "coverage_job", "is_sound")
    return orjson.dumps([row[name] for name in names]).decode()


# ---------------- Runs that have ended


def _read_runs(
    connection: Connection, names: Sequence[str], known: RunCache
) -> dict[str, tuple[MeasuredRun, ...]]:
    chosen = {name: _last_ended(connection, name) for name in names}
    kept = {
        (run.job, run.ended_at, run.state): run
        for name in names
        for run in known.runs.get(name, ())[:-1]  # the last one may have new log lines
    }
    new = [
        row
        for rows in chosen.values()
        for row in rows
        if (row.id, row.finished_at, row.state) not in kept
    ]
    measured = {run.job: run for run in _measured(connection, new)}
    return {
        name: tuple(
            measured.get(row.id) or kept[row.id, row.finished_at, row.state] for row in rows
        )
        for name, rows in chosen.items()
    }


_SERIES = (jobs.c.settings["set"], jobs.c.settings["params"], jobs.c.settings["limit"])
_ROW = (
    *(jobs.c.id, jobs.c.source, jobs.c.identity, jobs.c.state, jobs.c.reason, jobs.c.runs),
    *(jobs.c.created_at, jobs.c.started_at, jobs.c.finished_at),
)


def _last_ended(connection: Connection, source: str) -> list[Row[Any]]:
    """Return the last ended jobs of a source, oldest first.

    Of a source that runs often, they still cover more than a week, without being many. The same
    older ones are chosen every time.
    """
    query = (
        select(*_ROW)
        .where(jobs.c.source == source, jobs.c.state.in_(_JUDGED))
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(_MAX_LISTED)
    )
    found: list[Row[Any]] = [*connection.execute(query)]
    rows = sorted(found, key=lambda row: (row.finished_at, row.id))
    spread: dict[float, Row[Any]] = {}
    for row in rows[:-_NEWEST]:
        spread.setdefault(row.finished_at // _HALF_DAY, row)
    return [*list(spread.values())[-_MAX_OLDER:], *rows[-_NEWEST:]]


def _measured(connection: Connection, rows: Sequence[Row[Any]]) -> Iterator[MeasuredRun]:
    for start in range(0, len(rows), _MAX_KEYS):
        some = rows[start : start + _MAX_KEYS]
        names = [row.id for row in some]
        projected = {row["job"]: row for row in read_rows(connection, "runs", keys=names)}
        options = _options_of(connection, names)
        counters = _grouped(connection, statistics.c.name, statistics, names)
        kinds, statuses = _failed_attempts(connection, names)
        logged = _logged(connection, names)
        findings = _findings(connection, names)
        for row in some:
            found = findings.get(row.id, {})
            profile = found.get("source.profiled", {})
            end = found.get(f"job.{row.state}", {})
            began = row.created_at if row.started_at is None else row.started_at
            yield MeasuredRun(
                job=row.id,
                source=row.source,
                options=options[row.id],
                identity=row.identity,
                state=row.state,
                reason=row.reason,
                starts=row.runs,
                started_at=began,
                ended_at=row.finished_at,
                items=projected[row.id]["items"] if row.id in projected else {},
                counters=counters[row.id],
                failures=kinds[row.id],
                statuses=statuses[row.id],
                logged=logged[row.id],
                coverage=profile.get("coverage"),
                examined=profile.get("records", 0),
                cuts=tuple(end.get("cuts", ())),
                warnings=tuple(end.get("warnings", ())),
                is_accepted="drift.accepted" in found,
            )


def _options_of(connection: Connection, names: Sequence[str]) -> dict[str, str]:
    """Return the options, parameters and limit of jobs as text."""
    rows = connection.execute(select(jobs.c.id, *_SERIES).where(jobs.c.id.in_(names)))
    return {row[0]: _as_text(row[1:]) for row in rows}


def _as_text(values: Iterable[Any]) -> str:
    return orjson.dumps([one or None for one in values], option=orjson.OPT_SORT_KEYS).decode()


def _grouped(
    connection: Connection, name: Any, table: Any, names: Sequence[str]
) -> defaultdict[str, dict[str, float]]:
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    query = select(table.c.job_id, name, table.c.value).where(
        table.c.job_id.in_(names), name.in_(_COUNTERS)
    )
    for job, counter, value in connection.execute(query):
        found[job][counter] = value
    return found


def _failed_attempts(
    connection: Connection, names: Sequence[str]
) -> tuple[defaultdict[str, dict[str, int]], defaultdict[str, dict[int, int]]]:
    """Return failed attempts by job: those without a response by kind, others by status."""
    kinds: defaultdict[str, dict[str, int]] = defaultdict(dict)
    statuses: defaultdict[str, dict[int, int]] = defaultdict(dict)
    query = (
        select(failures.c.job_id, failures.c.kind, failures.c.status, func.count())
        .where(failures.c.job_id.in_(names))
        .group_by(failures.c.job_id, failures.c.kind, failures.c.status)
    )
    for job, kind, status, count in connection.execute(query):
        if status is None:
            kinds[job][kind] = kinds[job].get(kind, 0) + count
        else:
            statuses[job][status] = statuses[job].get(status, 0) + count
    return kinds, statuses


def _logged(connection: Connection, names: Sequence[str]) -> defaultdict[str, dict[int, int]]:
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    query = (
        select(logs.c.job_id, logs.c.level, func.count())
        .where(logs.c.job_id.in_(names))
        .group_by(logs.c.job_id, logs.c.level)
    )
    for job, level, count in connection.execute(query):
        found[job][level] = count
    return found


def _findings(
    connection: Connection, names: Sequence[str]
) -> defaultdict[str, dict[str, Mapping[str, Any]]]:
    """Return the data of the last event of each of these types, by job."""
    found: defaultdict[str, dict[str, Mapping[str, Any]]] = defaultdict(dict)
    query = (
        select(events.c.job_id, events.c.type, events.c.data)
        .where(events.c.job_id.in_(names), events.c.type.in_(_OF_RUNS))
        .order_by(events.c.id)
    )
    for job, kind, data in connection.execute(query):
        found[job][kind] = data
    return found


# ---------------- What is wrong now


def _unfinished_runs(connection: Connection) -> list[UnfinishedRun]:
    is_continued = exists().where(
        launches.c.target == jobs.c.id, launches.c.state != LaunchState.ENDED
    )
    progress = (
        select(func.max(items.c.finished_at))
        .where(items.c.job_id == jobs.c.id, items.c.finished_at.is_not(None))
        .scalar_subquery()
    )
    changed = (
        select(func.max(events.c.at))
        .where(events.c.job_id == jobs.c.id, events.c.type.in_(_STARTS_AND_PAUSES))
        .scalar_subquery()
    )
    query = (
        select(*_ROW, progress, changed, is_continued, *_SERIES)
        .where(jobs.c.state.in_(OPEN_STATES), jobs.c.started_at.is_not(None))
        .order_by(jobs.c.created_at, jobs.c.id)
    )
    fixed = len(_ROW)
    return [
        UnfinishedRun(
            job=row.id,
            source=row.source,
            options=_as_text(row[fixed + 3 :]),
            state=row.state,
            reason=row.reason,
            started_at=row.started_at,
            starts=row.runs,
            progress_at=row[fixed],
            changed_at=row[fixed + 1],
            is_continued=bool(row[fixed + 2]),
        )
        for row in connection.execute(query)
    ]


def _sources_of_domains(connection: Connection, domains: Sequence[str]) -> dict[str, str]:
    """Return the source of the last job that has opened the breaker of each domain."""
    found: dict[str, str] = {}
    for domain in domains:
        last = (
            select(jobs.c.source)
            .join(events, events.c.job_id == jobs.c.id)
            .where(events.c.subject == f"domain/{domain}", events.c.type == "breaker.opened")
            .order_by(events.c.id.desc())
            .limit(1)
        )
        if (source := connection.scalar(last)) is not None:
            found[domain] = source
    return found


def _schedule_fates(connection: Connection) -> list[ScheduleFate]:
    # Skipped occurrences say nothing: an earlier run may still be running.
    one = occurrences.alias("one")
    newest = (
        select(one.c.nominal_at)
        .where(one.c.schedule == schedules.c.name, one.c.fate != "skipped")
        .order_by(one.c.nominal_at.desc())
        .limit(1)
        .correlate(schedules)
        .scalar_subquery()
    )
    is_newest = and_(occurrences.c.schedule == schedules.c.name, occurrences.c.nominal_at == newest)
    query = (
        select(
            *(schedules.c.name, occurrences.c.fate, occurrences.c.nominal_at),
            *(occurrences.c.reason, occurrences.c.decided_at, schedules.c.failures),
            *(schedules.c.paused_at, schedules.c.pause_reason),
        )
        .select_from(schedules.outerjoin(occurrences, is_newest))
        .where(schedules.c.removed_at.is_(None))
        .order_by(schedules.c.name)
    )
    return [ScheduleFate(*row) for row in connection.execute(query)]


def _failed_launches(connection: Connection, since: float) -> list[FailedLaunch]:
    query = (
        select(launches.c.id, launches.c.name, launches.c.ended_at, launches.c.reason)
        .where(
            launches.c.state == LaunchState.ENDED,
            launches.c.kind == "source",
            launches.c.target.is_(None),
            launches.c.result == JobState.FAILED,
            launches.c.ended_at >= since,
        )
        .order_by(launches.c.id)
    )
    return [FailedLaunch(*row) for row in connection.execute(query)]


def _stopped_flows(connection: Connection) -> list[StoppedFlow]:
    states = (FlowState.WAITING, FlowState.NEEDS_ATTENTION)
    changed = (
        select(func.max(events.c.at))
        .where(events.c.subject == "flow/" + flow_runs.c.id, events.c.type.in_(_OF_FLOWS))
        .scalar_subquery()
    )
    query = (
        select(
            *(flow_runs.c.id, flow_runs.c.flow, flow_runs.c.state, flow_runs.c.reason),
            func.coalesce(changed, flow_runs.c.created_at),
        )
        .where(flow_runs.c.state.in_(states), flow_runs.c.root == flow_runs.c.id)
        .order_by(flow_runs.c.created_at, flow_runs.c.id)
    )
    return [StoppedFlow(*row) for row in connection.execute(query)]


_OF_FLOWS = ("flow.waiting", "flow.needs_attention")


def _lost_workers(connection: Connection, since: float) -> list[LostWorker]:
    query = (
        select(events.c.at, events.c.type, events.c.data)
        .where(events.c.job_id.is_(None), events.c.type.in_(_OF_WORKERS), events.c.at >= since)
        .order_by(events.c.id)
    )
    lost: dict[str, LostWorker] = {}
    for at, kind, data in connection.execute(query):
        if kind == "worker.lost":
            lost[data["worker"]] = LostWorker(data["worker"], at, data.get("reason"))
        else:
            lost.pop(data["worker"], None)
    return list(lost.values())
