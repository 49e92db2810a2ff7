"""The report of a job: statistics, and checks of validity and performance."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from longline.analysis.changes import ChangeKind, compare_runs
from longline.core.errors import BadOption
from longline.core.model import Caveats, ItemState, Job
from longline.drift.monitor import compare_fields
from longline.engine.progress import Progress, ProgressTracker
from longline.storage.jobs import JobFindings
from longline.storage.monitoring.logs import LogFilter
from longline.storage.monitoring.run_history import EndedRun
from longline.storage.store import Store

_MIN_SUCCESS = 0.95
_MAX_MEAN_SECONDS = 10.0
_MIN_PER_HOUR = 100
_MAX_MEMORY_BYTES = 1_000_000_000
_MAX_NAMED = 3  # cuts in a check
_MAX_CHANGES = 5  # records of each kind that are listed
_MAX_EARLIER = 10  # runs to compare with
_MAX_LOG = 2000  # lines that are counted; a job stores fewer
_MAX_LINES = 10  # of the log that are listed


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about a job, whether it holds, and what was found."""

    claim: str
    holds: bool
    found: str


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """What a job has changed, compared with the run before it.

    `counts` are those of `longline records changes`, `examples` the first keys of each kind.
    `caveats` say what the runs could not see.
    """

    older: str | None
    counts: Mapping[str, int]
    examples: Mapping[str, tuple[str, ...]]
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldCoverage:
    """The share of records in which a field is filled; None: no record was seen with it.

    `drift` is why the field counts as drifted.
    """

    field: str
    now: float | None
    before: float | None
    drift: str | None = None


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A job next to earlier runs of its source.

    `coverage` and `drift` are empty before the job has ended. `baseline_runs` is how many earlier
    runs the fields were compared with, `earlier` are the last ended runs, oldest first.
    """

    changes: RecordChanges | None = None
    coverage: tuple[FieldCoverage, ...] = ()
    baseline_runs: int = 0
    drift: Mapping[str, str] = field(default_factory=dict)
    is_drift_accepted: bool = False
    earlier: tuple[EndedRun, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """A warning or an error that was logged while the job ran."""

    at: float
    level: str
    message: str


@dataclass(frozen=True, slots=True)
class FullReport:
    """All statistics and checks of one job."""

    job: str
    source: str
    state: str
    statistics: dict[str, Any]
    checks: tuple[Check, ...]
    failures: tuple[tuple[str, str, str, str | None], ...]
    reason: str | None = None
    caveats: Caveats = field(default_factory=Caveats)
    created_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    kinds: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By kind of failure: items by state, and failed attempts."""
    history: JobHistory = field(default_factory=JobHistory)
    logged: Mapping[str, int] = field(default_factory=dict)
    """How many lines of each level were logged."""
    log: tuple[LoggedLine, ...] = ()
    """The last of them."""

    @property
    def is_good(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        values = asdict(self)
        del values["caveats"]
        history: dict[str, Any] = values.pop("history")
        return values | history | self.caveats.as_dict() | {"is_good": self.is_good}


async def read_report(store: Store, job: Job) -> FullReport:
    """Return the report of a job, as far as it has got."""
    progress = await ProgressTracker(store, job.id).snapshot()
    findings = await store.jobs.findings(job.id, job.source)
    caveats = await store.jobs.caveats(job.id)
    report = build_report(progress, findings, reason=job.reason, caveats=caveats)
    lines, _ = await store.logs.search(LogFilter(job=job.id, level=logging.WARNING), limit=_MAX_LOG)
    logged = [
        LoggedLine(one.at, logging.getLevelName(one.level).lower(), one.message) for one in lines
    ]
    return replace(
        report,
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.finished_at,
        kinds=await store.failures.by_kind(job.id),
        history=await _read_history(store, job),
        logged=dict(Counter(one.level for one in logged)),
        log=tuple(logged[-_MAX_LINES:]),
    )


async def _read_history(store: Store, job: Job) -> JobHistory:
    earlier = tuple(await store.run_history.before(job, limit=_MAX_EARLIER))
    history = JobHistory(changes=await _read_changes(store, job), earlier=earlier)
    kept = await store.profiles.find(job.id)
    if kept is None:
        return history
    compared = await compare_fields(store, kept)
    drift: Mapping[str, str] = kept.profile.get("drift", {})
    coverage = tuple(
        FieldCoverage(
            row["field"],
            None if row["now"] is None else row["now"]["filled"],
            None if row["before"] is None else row["before"]["filled"],
            drift.get(row["field"]),
        )
        for row in compared["fields"]
        # Keys of nested objects may be data, and make thousands of fields; @score is not a field.
        if "." not in row["field"] and not row["field"].startswith("@")
    )
    return replace(
        history,
        coverage=coverage,
        baseline_runs=compared["baseline"]["runs"],
        drift=drift,
        is_drift_accepted=kept.is_accepted,
    )


async def _read_changes(store: Store, job: Job) -> RecordChanges | None:
    try:
        found = await compare_runs(store, newer_job=job.id, most=_MAX_CHANGES)
    except BadOption:  # the earlier run cannot be compared
        return None
    return RecordChanges(
        found.older,
        {kind.value: found.counts[kind] for kind in ChangeKind},
        {
            kind.value: tuple(one.key for one in found.of(kind))
            for kind in ChangeKind
            if kind is not ChangeKind.UNCHANGED
        },
        found.caveats,
    )


def build_report(
    progress: Progress,
    findings: JobFindings,
    *,
    reason: str | None = None,
    caveats: Caveats | None = None,
) -> FullReport:
    """Build the report of a job from what it has committed and what it reported at its end."""
    caveats = caveats or Caveats()
    statistics = _statistics(progress, findings)
    whole = Check(
        "discovery did not end early",
        not caveats.cuts and progress.is_discovered,
        "; ".join(caveats.cuts[:_MAX_NAMED])
        or ("complete" if progress.is_discovered else "not finished"),
    )
    checks = (whole, *_validity_checks(progress, findings), *_speed_checks(progress, statistics))
    return FullReport(
        progress.job,
        progress.source,
        progress.state.value,
        statistics,
        checks,
        findings.failures,
        reason,
        caveats,
    )


def _statistics(progress: Progress, findings: JobFindings) -> dict[str, Any]:
    spent = sum(run["seconds"] for run in findings.runs)
    memory = [run["peak_memory_bytes"] for run in findings.runs]
    processed = progress.processed
    scores = findings.scores
    return {
        "discovered": progress.total,
        **{state.value: progress.counts[state] for state in ItemState},
        "success_rate": progress.success_rate,
        "runs": len(findings.runs),
        "seconds": round(spent, 3),
        "items_per_hour": round(processed / spent * 3600, 1) if spent else None,
        "mean_seconds": progress.mean_seconds,
        "median_seconds": _quantile(findings.seconds, 0.5),
        "p95_seconds": _quantile(findings.seconds, 0.95),
        "slowest_seconds": findings.seconds[-1] if findings.seconds else None,
        "requests": progress.statistic("requests"),
        "requests_per_item": round(progress.statistic("requests") / processed, 2)
        if processed
        else None,
        "retries": progress.statistic("retries"),
        "rate_limited": progress.statistic("rate_limited"),
        "received_bytes": progress.statistic("received_bytes"),
        "waited_seconds": round(progress.statistics.get("waited", 0.0), 1),
        "peak_memory_bytes": max(memory) if memory else None,
        "mean_score": round(sum(scores) / len(scores), 2) if scores else None,
        "grades": findings.grades,
        "failures_by_kind": dict(Counter(kind for _, kind, _, _ in findings.failures)),
    }


def _validity_checks(progress: Progress, findings: JobFindings) -> list[Check]:
    counts = progress.counts
    nulls = findings.unexplained_nulls
    twice = findings.keys_stored_twice
    return [
        Check(
            "discovered = stored + unchanged + skipped + failed + quarantined",
            progress.remaining == 0 and progress.is_discovered,
            f"{progress.total} discovered, {progress.processed} finished",
        ),
        Check(
            "every stored or unchanged item has its record",
            findings.items_without_record == 0,
            f"{counts[ItemState.STORED] + counts[ItemState.UNCHANGED]} items, "
            f"{findings.items_without_record} without a record",
        ),
        # What cannot be checked any more, since its events were pruned, is not claimed.
        *(
            []
            if twice is None
            else [Check("no item was finished twice", twice == 0, f"{twice} items")]
        ),
        Check(
            "no empty field without a reason",
            not nulls,
            f"{', '.join(nulls[:3])} …" if nulls else "none",
        ),
    ]


def _speed_checks(progress: Progress, statistics: dict[str, Any]) -> list[Check]:
    rate, mean = progress.success_rate, progress.mean_seconds
    hourly, memory = statistics["items_per_hour"], statistics["peak_memory_bytes"]
    return [
        Check(
            f"at least {_MIN_SUCCESS:.0%} success",
            rate is not None and rate >= _MIN_SUCCESS,
            "no item was attempted" if rate is None else f"{rate:.1%}",
        ),
        Check(
            "no 429 responses",
            not statistics["rate_limited"],
            f"{statistics['rate_limited']} responses",
        ),
        Check(
            f"under {_MAX_MEAN_SECONDS:g} s per item on average",
            mean is not None and mean < _MAX_MEAN_SECONDS,
            "unknown" if mean is None else f"{mean:.2f} s",
        ),
        Check(
            f"more than {_MIN_PER_HOUR} items per hour",
            hourly is not None and hourly > _MIN_PER_HOUR,
            "unknown" if hourly is None else f"{hourly:,.0f}",
        ),
        Check(
            "under 1 GB of memory",
            memory is not None and memory < _MAX_MEMORY_BYTES,
            "unknown" if memory is None else f"{memory / 1e6:,.0f} MB",
        ),
    ]


def _quantile(ordered: tuple[float, ...], share: float) -> float | None:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None
