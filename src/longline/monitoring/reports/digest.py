"""The digest of all sources over a period: what needs a person, what ran, and what changed.

A run belongs to the period in which it ended. What needs a person is the state at the time of the
digest, so that a failure which a later run has healed is not listed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

from longline.core.clock import SystemClock, utc_datetime
from longline.core.errors import ConfigError
from longline.core.model import Job, JobState
from longline.core.output import count_text
from longline.engine.owner import abandoned_among
from longline.monitoring.alerts.alerting import EvaluationState, read_evaluation
from longline.monitoring.reports.page import Level, in_zone
from longline.scheduling.triggers import resolve
from longline.scheduling.upcoming import UpcomingRun, stored_schedule, upcoming_runs
from longline.storage.events.projections import ProjectionRow
from longline.storage.monitoring.alerts import Alert, AlertState
from longline.storage.monitoring.attention import LatestFlowRun, LatestStates, MissedRuns
from longline.storage.monitoring.run_history import EndedRun
from longline.storage.scheduling.flows import FlowState
from longline.storage.scheduling.schedules import StoredSchedule
from longline.storage.store import Store

_HOUR = 3600.0
_OLD_EVALUATION = _HOUR  # seconds after which the alerts are not those of the present
_MAX_HOURS = 49  # a longer period is divided into days
_MAX_BUCKETS = 62  # days; a longer period is divided into parts of several days
_MAX_NEXT = 30  # schedules whose next run is listed
_MAX_COMING = 20_000  # runs to come that are counted
_MOST_NEAR = 500  # runs to come that are searched for the next schedules
_ENDS = ("complete", "partial", "failed", "cancelled")
_RANKS = {Level.BAD: 0, Level.WARNING: 1, Level.GOOD: 2, Level.NEUTRAL: 3}


# ---------------- Periods


@dataclass(frozen=True, slots=True)
class Period:
    """From `start` on and before `end`, in seconds since the epoch."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start


def last_days(end: float, days: int, zone: ZoneInfo) -> Period:
    """Return the days before a time: from the same time of the day, this many days earlier.

    Over a clock change a day has 23 or 25 hours, so that periods which follow each other have
    neither a gap nor an overlap.
    """
    wall = in_zone(end, zone).replace(tzinfo=None, fold=0) - timedelta(days=days)
    return Period(resolve(wall, zone).nominal.timestamp(), end)


def period_before(period: Period, days: int | None, zone: ZoneInfo) -> Period:
    """Return the period to compare with: as many days, or as many seconds, before."""
    if days is not None:
        return last_days(period.start, days, zone)
    return Period(period.start - period.seconds, period.start)


# ---------------- The data of a digest


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person: what is wrong with it, since when, and what to do.

    `target` is the job or the run of a flow that it is about, `step` its step that waits, if the
    summary is all that a person is asked.
    """

    subject: str
    kind: str
    level: Level
    summary: str
    since: float | None
    action: str
    details: tuple[str, ...] = ()
    target: str | None = None
    step: str | None = None


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Sums over several runs.

    `new`, `changed` and `gone` count records; `returned` ones are among the new. None: not known,
    since events of a run were deleted. `seconds` is the sum of the durations.
    """

    runs: int = 0
    states: Mapping[str, int] = field(default_factory=dict)
    items: int = 0
    ok: int = 0
    skipped: int = 0
    bad: int = 0
    new: int | None = 0
    changed: int | None = 0
    gone: int | None = 0
    requests: int = 0
    retries: int = 0
    rate_limited: int = 0
    seconds: float = 0.0

    @property
    def success(self) -> float | None:
        """The share of items that became records or were unchanged, without skipped ones."""
        tried = self.ok + self.bad
        return self.ok / tried if tried else None


@dataclass(frozen=True, slots=True)
class SourceRuns:
    """The runs of one source in the period; `ends` are their states, oldest first."""

    source: str
    totals: RunTotals
    ends: tuple[str, ...]
    last_job: str
    last_state: str
    last_reason: str | None
    last_ended_at: float


@dataclass(frozen=True, slots=True)
class DomainTrouble:
    """What is wrong with a domain."""

    domain: str
    problem: str
    level: Level
    since: float | None


@dataclass(frozen=True, slots=True)
class NextRun:
    """The next run of a schedule; `count` is how many there are in as many days as the period has.

    `paused` is why they will be skipped.
    """

    schedule: str
    target: str
    starts_at: float
    count: int
    paused: str | None


@dataclass(frozen=True, slots=True)
class Bucket:
    """A part of the period, with the runs that ended in it by state, and their records."""

    start: float
    states: Mapping[str, int]
    changed: int


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest; `made_at` is the time of the states in `needs` and `domains`."""

    period: Period
    days: int | None
    timezone: str
    made_at: float
    needs: tuple[Need, ...]
    running: tuple[str, ...]
    sources: tuple[SourceRuns, ...]
    totals: RunTotals
    before: RunTotals
    buckets: tuple[Bucket, ...]
    domains: tuple[DomainTrouble, ...]
    missed: tuple[MissedRuns, ...]
    next_runs: tuple[NextRun, ...]

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of its periods."""
        return ZoneInfo(self.timezone)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def digest_from(values: Mapping[str, Any]) -> Digest:
    """Return the digest of what `as_dict` has returned."""

    def totals(one: Mapping[str, Any]) -> RunTotals:
        return RunTotals(**one)

    levels = {"level": Level}
    return Digest(
        **{
            **values,
            "period": Period(**values["period"]),
            "needs": tuple(
                Need(**_with_types(one, levels) | {"details": tuple(one["details"])})
                for one in values["needs"]
            ),
            "running": tuple(values["running"]),
            "sources": tuple(
                SourceRuns(**{**one, "totals": totals(one["totals"]), "ends": tuple(one["ends"])})
                for one in values["sources"]
            ),
            "totals": totals(values["totals"]),
            "before": totals(values["before"]),
            "buckets": tuple(Bucket(**one) for one in values["buckets"]),
            "domains": tuple(
                DomainTrouble(**_with_types(one, levels)) for one in values["domains"]
            ),
            "missed": tuple(MissedRuns(**one) for one in values["missed"]),
            "next_runs": tuple(NextRun(**one) for one in values["next_runs"]),
        }
    )


def _with_types(values: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    return {**values, **{name: kind(values[name]) for name, kind in types.items()}}


# ---------------- Reading it


@dataclass(frozen=True, slots=True)
class DigestInputs:
    """What is stored that a digest is built from; without runs, only the latest states."""

    latest: LatestStates
    open_jobs: Sequence[Job]
    abandoned: frozenset[str]
    alerts: Sequence[Alert]
    evaluation: EvaluationState
    schedules: Sequence[StoredSchedule]
    runs: Sequence[EndedRun] = ()
    earlier: Sequence[EndedRun] = ()
    missed: Sequence[MissedRuns] = ()


async def read_digest(
    store: Store, period: Period, *, days: int | None, zone: ZoneInfo, now: float
) -> Digest:
    """Return the digest of a period; `days` is None for a period between two given times."""
    before = period_before(period, days, zone)
    inputs = replace(
        await read_latest(store, since=period.start, now=now),
        runs=await store.run_history.ended(period.start, period.end),
        earlier=await store.run_history.ended(before.start, before.end),
        missed=await store.attention.missed(period.start, period.end),
    )
    return build_digest(inputs, period, days=days, zone=zone, now=now)


async def read_latest(
    store: Store, *, since: float, now: float, domains: int | None = None
) -> DigestInputs:
    """Return the latest states; of the domains that were in trouble since a time, the newest."""
    open_jobs = await store.jobs.list(limit=None, is_open=True)
    return DigestInputs(
        latest=await store.attention.latest(since=since, domains=domains),
        open_jobs=open_jobs,
        abandoned=await abandoned_among(store, open_jobs, now),
        alerts=[one for one in await store.alerts.list() if one.state is AlertState.FIRING],
        evaluation=await read_evaluation(store, SystemClock()),
        schedules=await store.schedules.list(),
    )


def build_digest(
    inputs: DigestInputs, period: Period, *, days: int | None, zone: ZoneInfo, now: float
) -> Digest:
    """Build a digest from what is stored."""
    by_source: defaultdict[str, list[EndedRun]] = defaultdict(list)
    for run in inputs.runs:
        by_source[run.source].append(run)
    running = [
        job.source
        for job in inputs.open_jobs
        if job.state is JobState.RUNNING and job.id not in inputs.abandoned
    ]
    return Digest(
        period=period,
        days=days,
        timezone=zone.key,
        made_at=now,
        needs=tuple(find_needs(inputs, now)),
        running=tuple(sorted(set(running))),
        sources=tuple(sorted(map(_source_runs, by_source.values()), key=_by_urgency)),
        totals=sum_runs(inputs.runs),
        before=sum_runs(inputs.earlier),
        buckets=tuple(_buckets(inputs.runs, period, zone)),
        domains=tuple(find_troubled_domains(inputs.latest.domains, period.start, now)),
        missed=tuple(inputs.missed),
        next_runs=tuple(_next_runs(inputs.schedules, now, days)),
    )


def sum_runs(runs: Iterable[EndedRun]) -> RunTotals:
    """Return the sums over runs."""
    chosen = [*runs]
    items: Counter[str] = Counter()
    counters: Counter[str] = Counter()
    for run in chosen:
        items.update(run.items)
        for name in ("requests", "retries", "rate_limited"):
            counters[name] += int(run.statistics.get(name, 0))
    states = Counter(run.state for run in chosen)
    changes = [run.changes for run in chosen]
    known = [one for one in changes if one is not None]
    is_known = len(known) == len(changes)
    return RunTotals(
        runs=len(chosen),
        states={state: states[state] for state in _ENDS if states[state]},
        items=sum(items.values()),
        ok=items["stored"] + items["unchanged"],
        skipped=items["skipped"],
        bad=items["failed"] + items["quarantined"],
        new=sum(one["new"] + one["returned"] for one in known) if is_known else None,
        changed=sum(one["changed"] for one in known) if is_known else None,
        gone=sum(one["gone"] for one in known) if is_known else None,
        requests=counters["requests"],
        retries=counters["retries"],
        rate_limited=counters["rate_limited"],
        seconds=round(sum(run.seconds for run in chosen), 3),
    )


def _source_runs(runs: Sequence[EndedRun]) -> SourceRuns:
    last = runs[-1]
    return SourceRuns(
        source=last.source,
        totals=sum_runs(runs),
        ends=tuple(run.state for run in runs),
        last_job=last.job,
        last_state=last.state,
        last_reason=last.reason,
        last_ended_at=last.ended_at,
    )


def _by_urgency(one: SourceRuns) -> tuple[int, str]:
    states = ("failed", "partial", "cancelled")
    rank = states.index(one.last_state) if one.last_state in states else len(states)
    return rank, one.source


# ---------------- Parts of the period


def _buckets(runs: Sequence[EndedRun], period: Period, zone: ZoneInfo) -> Iterator[Bucket]:
    starts = [*_bucket_starts(period, zone)]
    ends = [*starts[1:], period.end]
    for start, end in zip(starts, ends, strict=True):
        chosen = [run for run in runs if start <= run.ended_at < end]
        changes = [run.changes for run in chosen if run.changes is not None]
        yield Bucket(
            start,
            dict(Counter(run.state for run in chosen)),
            sum(sum(one.values()) for one in changes),
        )


def _bucket_starts(period: Period, zone: ZoneInfo) -> Iterator[float]:
    """Yield the starts of hours, or of days as clocks in the zone show them."""
    if period.seconds <= _MAX_HOURS * _HOUR:
        hours = -(-period.seconds // _HOUR)
        yield from (period.start + hour * _HOUR for hour in range(int(hours)))
        return
    days = -(-period.seconds // (24 * _HOUR))
    step = timedelta(days=-(-days // _MAX_BUCKETS))
    wall = in_zone(period.start, zone).replace(tzinfo=None, fold=0)
    at = period.start
    while at < period.end - 1:  # a resolved time has no fractions of a second
        yield at
        wall += step
        at = resolve(wall, zone).nominal.timestamp()


# ---------------- What needs a person


def find_needs(inputs: DigestInputs, now: float) -> list[Need]:
    """Return what waits for a person by the latest state, the worst first; one per subject."""
    found = [
        *_needs_of_sources(inputs),
        *_needs_of_flows(inputs.latest.flows),
        *_needs_of_schedules(inputs.schedules),
        *map(_need_of_alert, inputs.alerts),
        *_needs_of_evaluation(inputs.evaluation, now),
    ]
    by_subject: defaultdict[str, list[Need]] = defaultdict(list)
    for need in found:
        by_subject[need.subject].append(need)
    merged = [_merge(several) for several in by_subject.values()]
    return sorted(merged, key=lambda one: (_RANKS[one.level], one.subject))


def _needs_of_evaluation(found: EvaluationState, now: float) -> Iterator[Need]:
    """Yield a need if alerts may be missing, since their rules are not evaluated any more."""
    kind = "not evaluated"
    if found.error is not None:
        text = f"the rules of alerts cannot be evaluated: {found.error}"
        yield Need("home", kind, Level.BAD, text, found.failed_at, "longline logs")
    elif found.evaluated_at is not None and now - found.evaluated_at > _OLD_EVALUATION:
        text = "no server evaluates the rules of alerts, so alerts may be missing or outdated"
        action = "longline serve --no-web"
        yield Need("home", kind, Level.WARNING, text, found.evaluated_at, action)


def _merge(several: Sequence[Need]) -> Need:
    """Return the worst of the needs of a subject, with the others as details."""
    worst = min(several, key=lambda one: _RANKS[one.level])
    others = [f"{one.kind}: {one.summary}" for one in several if one is not worst]
    since = min((one.since for one in several if one.since is not None), default=None)
    return Need(
        worst.subject,
        worst.kind,
        worst.level,
        worst.summary,
        since,
        worst.action,
        tuple(dict.fromkeys(others)),
        worst.target or next((one.target for one in several if one.target is not None), None),
        worst.step,
    )


def _needs_of_sources(inputs: DigestInputs) -> Iterator[Need]:
    latest = inputs.latest
    for row in latest.sources:
        source, job = row["source"], row["job"]
        subject = f"source/{source}"
        if job is not None:
            yield from _needs_of_run(
                row, latest.items.get(job, {}), abandoned=job in inputs.abandoned
            )
        if row["drift"]:
            text = "; ".join(map(str, row["drift"]))
            action = f"longline drift {source}"
            yield Need(subject, "drifted", Level.WARNING, text, row["changed_at"], action)
        if source in latest.late:
            event = latest.late[source]
            text = f"its data is older than {_hours(event.get('limit'))}"
            since = event.get("data_at")
            yield Need(subject, "late", Level.WARNING, text, since, f"longline run {source}")


def _needs_of_run(
    row: ProjectionRow, items: Mapping[str, int], *, abandoned: bool
) -> Iterator[Need]:
    state, job = row["state"], row["job"]
    kinds = {
        "failed": (Level.BAD, f"longline report {job}"),
        "partial": (Level.WARNING, f"longline report {job}"),
        "paused": (Level.WARNING, f"longline resume {job}"),
        "abandoned": (Level.BAD, f"longline resume {job}"),
    }
    if abandoned:
        state = "abandoned"
    if state not in kinds:
        return
    level, action = kinds[state]
    reason = row["reason"] or "no reason was stored"
    if state == "abandoned":
        reason = "no process runs this job"
    elif state == "partial" and items.get("quarantined") and not items.get("failed"):
        state, action = "quarantined", f"longline quarantine list {job}"
    subject = f"source/{row['source']}"
    yield Need(subject, state, level, reason, row["changed_at"], action, target=job)


def _hours(seconds: float | None) -> str:
    return "its limit" if seconds is None else count_text(round(seconds / _HOUR), "hour")


_FLOW_LEVELS = {
    FlowState.FAILED: Level.BAD,
    FlowState.NEEDS_ATTENTION: Level.BAD,
    FlowState.PARTIAL: Level.WARNING,
    FlowState.COMPENSATED: Level.WARNING,
}


def _needs_of_flows(flows: Iterable[LatestFlowRun]) -> Iterator[Need]:
    for one in flows:
        subject, show = f"flow/{one.flow}", f"longline flow show {one.run}"
        for waiting in one.waiting:
            yield Need(
                subject,
                "waits",
                Level.WARNING,
                waiting.question or f"step {waiting.step} waits for approval",
                waiting.since,
                f"longline flow approve {waiting.run}",
                target=waiting.run,
                step=waiting.step if waiting.question else None,
            )
        if not one.waiting and (level := _FLOW_LEVELS.get(FlowState(one.state))) is not None:
            text = one.reason or "no reason was stored"
            yield Need(subject, one.state, level, text, one.changed_at, show, target=one.run)


def _needs_of_schedules(schedules: Iterable[StoredSchedule]) -> Iterator[Need]:
    for one in schedules:
        limit = one.definition.get("pause_after_failures")
        if one.paused_at is not None and limit is not None and one.failures >= limit:
            text = one.pause_reason or f"{count_text(one.failures, 'failure')} in a row"
            action = f"longline schedule resume {one.name}"
            yield Need(f"schedule/{one.name}", "paused", Level.BAD, text, one.paused_at, action)


def _need_of_alert(alert: Alert) -> Need:
    level = Level.BAD if alert.severity == "critical" else Level.WARNING
    summary = alert.summary.removeprefix(f"{alert.subject.replace('/', ' ', 1)}: ")
    summary = summary.removeprefix(f"{alert.subject.partition('/')[2]}: ")
    return Need(alert.subject, "alert", level, summary, alert.since, alert.action)


def find_troubled_domains(
    rows: Iterable[ProjectionRow], since: float, now: float
) -> Iterator[DomainTrouble]:
    """Yield the domains that do not work now, or have refused requests since a time."""
    found: list[DomainTrouble] = []
    for row in rows:
        problems: list[tuple[Level, str, float | None]] = []
        if row["breaker"] == "open":
            phase = "open" if (row["breaker_until"] or now) > now else "half-open"
            text = f"circuit breaker {phase}: {row['breaker_reason']}"
            problems.append((Level.BAD, text, row["changed_at"]))
        if row["banned_at"] is not None and row["banned_at"] >= since:
            problems.append((Level.BAD, f"ban: {row['ban_evidence']}", row["banned_at"]))
        if row["auth_problem"]:
            problems.append((Level.BAD, f"login failed: {row['auth_problem']}", None))
        if row["robots_problem"]:
            problems.append((Level.WARNING, f"robots.txt: {row['robots_problem']}", None))
        if row["refused_at"] is not None and row["refused_at"] >= since:
            problems.append((Level.WARNING, "refused requests (429)", row["refused_at"]))
        if problems:
            level = min((one[0] for one in problems), key=_RANKS.__getitem__)
            times = [at for _, _, at in problems if at is not None]
            texts = "; ".join(text for _, text, _ in problems)
            found.append(DomainTrouble(row["domain"], texts, level, min(times, default=None)))
    yield from sorted(found, key=lambda one: (_RANKS[one.level], one.domain))


def _next_runs(schedules: Sequence[StoredSchedule], now: float, days: int | None) -> list[NextRun]:
    stored = {one.name: one for one in schedules}
    first: dict[str, UpcomingRun] = {}
    counts: Counter[str] = Counter()
    coming = upcoming_runs(schedules, utc_datetime(now), days or 1)
    for one in itertools.islice(coming, _MAX_COMING):
        if one.planned.exclusion is None:
            first.setdefault(one.name, one)
            counts[one.name] += 1
    return [
        NextRun(
            name,
            _target_of(stored[name]),
            one.planned.starts_at.timestamp(),
            counts[name],
            one.paused,
        )
        for name, one in itertools.islice(first.items(), _MAX_NEXT)
    ]


def next_schedules(
    schedules: Sequence[StoredSchedule], now: float, limit: int
) -> list[UpcomingRun]:
    """Return the first occurrence within a day of the schedules that are due next."""
    first: dict[str, UpcomingRun] = {}
    for one in itertools.islice(upcoming_runs(schedules, utc_datetime(now), 1), _MOST_NEAR):
        if one.planned.exclusion is None:
            first.setdefault(one.name, one)
        if len(first) == limit:
            break
    return [*first.values()]


def _target_of(stored: StoredSchedule) -> str:
    try:
        schedule = stored_schedule(stored)
    except ConfigError:  # of another version of longline
        return ""
    return schedule.source or schedule.flow or schedule.job or ""
