"""The page of a job: its outcome and why, counts, failures, changes, fields and earlier runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo

from longline.analysis.job_report import FullReport
from longline.core.model import ItemState
from longline.core.output import count_text
from longline.monitoring.reports.page import (
    STATE_LEVELS,
    Block,
    Cell,
    Chart,
    Facts,
    Level,
    Meter,
    Notes,
    ReportPage,
    ReportSection,
    ReportTable,
    Series,
    Shares,
    Tag,
    bytes_of,
    count_of,
    count_or_nothing,
    filled_table,
    in_zone,
    local_time,
    share_of,
    span_of,
    state_tag,
)
from longline.storage.monitoring.run_history import EndedRun

_MAX_EXAMPLES = 3  # items of each kind of failure
_MAX_FIELDS = 40
_ITEM_LEVELS = {
    "stored": Level.GOOD,
    "unchanged": Level.GOOD,
    "skipped": Level.NEUTRAL,
    "queued": Level.NEUTRAL,
    "leased": Level.NEUTRAL,
    "failed": Level.BAD,
    "quarantined": Level.WARNING,
}
_DRIFTED = 0.1  # a share that differs by more is marked


def job_page(report: FullReport, at: float, zone: tzinfo) -> ReportPage:
    """Return the page of a job's report; `at` is when it was made."""
    state = report.state
    failed = [one for one in report.checks if not one.holds]
    if failed and state == "complete":
        verdict = f"complete, but {count_text(len(failed), 'check')} failed"
    else:
        verdict = state if report.reason is None else f"{state}: {report.reason}"
    level = STATE_LEVELS.get(state, Level.NEUTRAL)
    return ReportPage(
        title=f"Report on {report.job}",
        state=verdict[0].upper() + verdict[1:],
        level=Level.WARNING if level is Level.GOOD and failed else level,
        about=f"Source {report.source} · {_period(report, zone)} · "
        f"written {in_zone(at, zone):%Y-%m-%d %H:%M %Z} by longline report",
        sections=(
            ReportSection("Result", tuple(_result(report))),
            ReportSection("Checks", (_checks(report),)),
            ReportSection("Failures", tuple(_failures(report))),
            ReportSection("Changes to records", tuple(_change_blocks(report))),
            ReportSection("Fields", tuple(_field_blocks(report))),
            ReportSection("Warnings", tuple(_warnings(report, zone))),
            ReportSection("Earlier runs", tuple(_earlier(report, zone))),
            ReportSection("Statistics", (_statistics(report),)),
        ),
    )


def _period(report: FullReport, zone: tzinfo) -> str:
    if report.started_at is None:
        return "not started"
    start = local_time(report.started_at, zone)
    elapsed = _elapsed(report)
    return f"started {start}, not ended" if elapsed is None else f"{start}, {span_of(elapsed)}"


def _result(report: FullReport) -> Iterable[Block]:
    values = report.statistics
    names = [state.value for state in ItemState if values[state.value]]
    yield Shares(
        "items discovered",
        tuple((name, values[name], _ITEM_LEVELS[name]) for name in names),
    )
    yield Facts(
        (
            ("Success", share_of(values["success_rate"])),
            ("Duration", span_of(values["seconds"] or _elapsed(report))),
            ("Items per hour", count_of(values["items_per_hour"])),
            ("Requests", count_of(values["requests"])),
            ("Waited for limits", span_of(values["waited_seconds"])),
            ("Retries", count_of(values["retries"])),
            ("429 responses", count_of(values["rate_limited"])),
            ("Received", bytes_of(values["received_bytes"])),
        )
    )


def _elapsed(report: FullReport) -> float | None:
    """Return the seconds from its first start to its end."""
    if report.started_at is None or report.ended_at is None:
        return None
    return report.ended_at - report.started_at


def _checks(report: FullReport) -> ReportTable:
    return ReportTable(
        ("check", "passed", "result"),
        tuple(
            (one.claim, Tag("yes", Level.GOOD) if one.holds else Tag("no", Level.BAD), one.found)
            for one in report.checks
        ),
        wide="check",
    )


def _failures(report: FullReport) -> Iterable[Block]:
    if not report.kinds:
        return
    examples: defaultdict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for _, kind, key, reason in report.failures:
        if len(examples[kind]) < _MAX_EXAMPLES:
            examples[kind].append((key, reason))
    columns = ("attempts", "failed", "quarantined", "skipped")
    yield filled_table(
        ReportTable(
            ("kind", *columns, "waiting"),
            tuple(
                (
                    kind,
                    *(count_or_nothing(counts.get(name, 0)) for name in columns),
                    count_or_nothing(counts.get("queued", 0) + counts.get("leased", 0)),
                )
                for kind, counts in report.kinds.items()
            ),
            numbers=frozenset({*columns, "waiting"}),
        )
    )
    rows = [
        (kind, key, reason or "")
        for kind, several in sorted(examples.items())
        for key, reason in several
    ]
    if rows:
        yield ReportTable(("kind", "example", "reason"), tuple(rows), wide="reason")


def _change_blocks(report: FullReport) -> Iterable[Block]:
    changes = report.history.changes
    if changes is None:
        return
    if changes.older is None:
        yield Notes(
            ("This is the first run of the source, so there is nothing to compare it with.",)
        )
    yield Facts(tuple((name.capitalize(), count_of(n)) for name, n in changes.counts.items()))
    rows = [(kind, ", ".join(keys)) for kind, keys in changes.examples.items() if keys]
    if rows and changes.older is not None:
        yield ReportTable(("change", "first records"), tuple(rows), wide="first records")
    if changes.caveats:
        yield Notes(changes.caveats)


def _field_blocks(report: FullReport) -> Iterable[Block]:
    history = report.history
    if history.drift:
        note = "Accepted as the new baseline." if history.is_drift_accepted else "Drift."
        yield Notes((note, *(f"{name}: {text}" for name, text in history.drift.items())))
    if not history.coverage:
        return
    rows: list[tuple[Cell, ...]] = []
    full = 0
    for one in history.coverage:
        change = None if one.now is None or one.before is None else one.now - one.before
        if one.now == 1 and not change and one.drift is None:
            full += 1
            continue
        is_worse = one.drift is not None or (change is not None and change < -_DRIFTED)
        level = Level.WARNING if is_worse else Level.GOOD
        rows.append(
            (
                one.field,
                UNSEEN if one.now is None else Meter(one.now, level),
                UNSEEN if one.before is None else share_of(one.before),
                "" if change is None or not round(change, 3) else f"{change:+.1%}",
            )
        )
    before = f"before ({count_text(history.baseline_runs, 'run')})"
    columns: tuple[str, ...] = ("field", "filled", before, "change")
    if not history.baseline_runs:
        rows, columns = [row[:2] for row in rows], columns[:2]
    if rows:
        shown = tuple(rows[:_MAX_FIELDS])
        yield ReportTable(columns, shown, numbers=frozenset({before, "change"}))
    notes = []
    if full:
        notes.append(f"{count_text(full, 'field is', 'fields are')} filled in every record.")
    if len(rows) > _MAX_FIELDS:
        hidden = count_text(len(rows) - _MAX_FIELDS, "more field is", "more fields are")
        notes.append(f"{hidden} not listed.")
    if notes:
        yield Notes(tuple(notes))


UNSEEN = "not seen"


def _warnings(report: FullReport, zone: tzinfo) -> Iterable[Block]:
    caveats = report.caveats
    texts = [f"Discovery ended early: {one}" for one in caveats.cuts]
    if caveats.limit is not None:
        texts.append(f"Limited to {count_text(caveats.limit, 'item')}.")
    texts += caveats.warnings
    if texts:
        yield Notes(tuple(texts))
    if not report.logged:
        return
    counts = (count_text(count, level) for level, count in report.logged.items())
    yield Notes((f"Logged: {', '.join(counts)}. The last ones:",))
    yield ReportTable(
        ("time", "level", "message"),
        tuple(
            (
                local_time(one.at, zone),
                Tag(one.level, Level.WARNING if one.level == "warning" else Level.BAD),
                one.message,
            )
            for one in report.log
        ),
        short=frozenset({"time"}),
        wide="message",
    )


def _earlier(report: FullReport, zone: tzinfo) -> Iterable[Block]:
    earlier = report.history.earlier
    if not earlier:
        return
    runs = [*earlier, *([_this_run(report)] if report.ended_at is not None else [])]
    yield from run_charts(runs, zone)
    columns = ("items", "ok", "bad", "requests")
    yield ReportTable(
        ("run", "state", "ended", "duration", *columns),
        tuple(
            (
                "this run" if run.job == report.job else run.job,
                state_tag(run.state),
                local_time(run.ended_at, zone),
                span_of(run.seconds),
                count_of(run.found),
                count_of(_sum(run.items, "stored", "unchanged")),
                count_of(_sum(run.items, "failed", "quarantined")),
                count_of(run.statistics.get("requests", 0)),
            )
            for run in reversed(runs)
        ),
        numbers=frozenset({"duration", *columns}),
        short=frozenset({"ended"}),
    )


def _this_run(report: FullReport) -> EndedRun:
    values = report.statistics
    states = ("stored", "unchanged", "skipped", "failed", "quarantined")
    return EndedRun(
        job=report.job,
        source=report.source,
        state=report.state,
        reason=report.reason,
        created_at=report.created_at or 0.0,
        started_at=report.started_at,
        ended_at=report.ended_at or 0.0,
        items={"open": values["queued"] + values["leased"]} | {one: values[one] for one in states},
        statistics={"requests": values["requests"]},
        changes=None,
    )


def run_charts(runs: Sequence[EndedRun], zone: tzinfo) -> Iterable[Chart]:
    """Yield the items and the durations of several runs, oldest first."""
    labels = tuple(f"{in_zone(run.ended_at, zone):%m-%d}" for run in runs)
    good = tuple(float(_sum(run.items, "stored", "unchanged")) for run in runs)
    bad = tuple(float(_sum(run.items, "failed", "quarantined")) for run in runs)
    yield Chart(
        "Items per run",
        labels,
        (Series("ok", Level.GOOD, good), Series("failed or quarantined", Level.BAD, bad)),
    )
    minutes = tuple(run.seconds / 60 for run in runs)
    is_short = max(minutes, default=0.0) < 2  # noqa: PLR2004  # minutes
    values = tuple(run.seconds for run in runs) if is_short else minutes
    unit = "s" if is_short else "min"
    yield Chart("Duration", labels, (Series(unit, Level.NEUTRAL, values),), unit)


def _sum(items: Mapping[str, int], *states: str) -> int:
    return sum(items.get(state, 0) for state in states)


def _statistics(report: FullReport) -> ReportTable:
    return ReportTable(
        ("statistic", "value"),
        tuple((name, _value(value)) for name, value in report.statistics.items()),
        numbers=frozenset({"value"}),
    )


def _value(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {count}" for name, count in sorted(value.items())) or "none"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}"
