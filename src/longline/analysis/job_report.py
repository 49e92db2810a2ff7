"""The report of a job: statistics, and checks of validity and performance."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from longline.core.clock import utc_datetime
from longline.core.model import Caveats, ItemState
from longline.core.output import count_text
from longline.engine.progress import Progress
from longline.storage.jobs import JobFindings

_MIN_SUCCESS = 0.95
_MAX_MEAN_SECONDS = 10.0
_MIN_PER_HOUR = 100
_MAX_MEMORY_BYTES = 1_000_000_000
_MAX_SHOWN = 10  # failures in the document
_MAX_NAMED = 3  # cuts in the table


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about a job, whether it holds, and what was found."""

    claim: str
    holds: bool
    found: str


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

    @property
    def is_good(self) -> bool:
        """Whether every check holds."""
        return all(check.holds for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        values = asdict(self)
        del values["caveats"]
        return values | self.caveats.as_dict() | {"is_good": self.is_good}


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


def as_markdown(result: FullReport, at: float) -> str:
    """Return the report as a Markdown document."""
    caveats = [f"- discovery ended early: {one}" for one in result.caveats.cuts]
    if result.caveats.limit is not None:
        caveats.append(f"- limited to {count_text(result.caveats.limit, 'item')} (--limit)")
    caveats += [f"- warning: {one}" for one in result.caveats.warnings]
    lines = [
        f"# Report of {result.job}",
        "",
        (
            f"Source {result.source}, state {result.state}, written "
            f"{utc_datetime(at):%Y-%m-%d %H:%M} UTC by `longline report`."
        ),
        *(["", *caveats] if caveats else []),
        "",
        "| check | passed | result |",
        "|---|---|---|",
        *(
            f"| {one.claim} | {'yes' if one.holds else '**no**'} | {one.found} |"
            for one in result.checks
        ),
        "",
        "| statistic | value |",
        "|---|---|",
        *(f"| {name} | {_format(value)} |" for name, value in result.statistics.items()),
    ]
    if result.failures:
        lines += ["", f"## Failures (first {_MAX_SHOWN} of {len(result.failures)})", ""]
        lines += [
            f"- `{key}` {state}, {kind}: {reason}"
            for state, kind, key, reason in result.failures[:_MAX_SHOWN]
        ]
    return "\n".join([*lines, ""])


def _format(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        return ", ".join(f"{name} {count}" for name, count in sorted(value.items())) or "none"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"
