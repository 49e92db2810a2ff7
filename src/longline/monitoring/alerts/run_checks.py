"""Rules about the last ended run of a source: numbers of runs in, conditions out."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf, isfinite
from statistics import median
from typing import Any

from longline.core.errors import FailureKind
from longline.core.model import JobState
from longline.core.output import count_text
from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.learning import (
    ADAPTED_AFTER,
    MIN_RUNS,
    Sample,
    Unusual,
    find_unusual,
    usual_range,
)
from longline.monitoring.alerts.rules import Rule
from longline.storage.monitoring.alert_inputs import MeasuredRun

MAX_COMPARED = 30
"""Earlier runs that a run is compared with."""
_NEWEST = 12  # runs that are all compared; of older ones, the first of each half of a day
_HALF_DAY = 43_200.0
_MIN_SIZE = 20  # requests, items or records of which a share means something
_MAX_FIELDS = 5  # named in a summary
_MAX_WARNINGS = 3  # named in a summary
_NUMBER = re.compile(r"\d[\d,.]*")
_GROWING = 3  # runs that show a growing quarantine
_FASTER = 3.0  # times as fast as usual
_GOOD = (JobState.COMPLETE, JobState.PARTIAL)


class RunSeries:
    """The ended runs of a source with the same options, oldest first; the last one is judged."""

    def __init__(self, runs: Sequence[MeasuredRun]) -> None:
        self.runs = runs
        self.last = runs[-1]

    @cached_property
    def compared(self) -> list[MeasuredRun]:
        """The good runs that it is compared with, then the last run."""
        earlier = [one for one in self.runs[:-1] if one.state in _GOOD]
        accepted = [place for place, one in enumerate(earlier) if one.is_accepted]
        if accepted:  # it replaces all before it
            earlier = earlier[accepted[-1] :]
        spread: dict[float, MeasuredRun] = {}
        for one in earlier[:-_NEWEST]:
            spread.setdefault(one.ended_at // _HALF_DAY, one)
        older = list(spread.values())[-(MAX_COMPARED - _NEWEST) :]
        return [*older, *earlier[-_NEWEST:], self.last]

    @cached_property
    def durations(self) -> list[Sample]:
        """How long the runs took, without those that were interrupted."""
        return [
            Sample(one.ended_at, one.ended_at - one.started_at)
            for one in self.compared
            if one.starts <= 1
        ]


@dataclass(frozen=True, slots=True)
class _Measure:
    """A number of a run that a rule limits and learns.

    `learned` is the number whose usual range is learned, if it is another one. In `text`, `{now}`
    is the number and `{usual}` what is usual, or the limit. With `skips_first`, the first run is
    not learned from.
    """

    text: str
    value: Callable[[MeasuredRun, Rule], Sample | None]
    action: str
    learned: Callable[[MeasuredRun, Rule], Sample | None] | None = None
    unit: str = "count"
    skips_first: bool = False
    details: Callable[[MeasuredRun, Rule], Mapping[str, Any]] = lambda _run, _rule: {}


# ---------------- Numbers of a run


def _records(run: MeasuredRun) -> int:
    return run.items.get("stored", 0) + run.items.get("unchanged", 0)


def _total(run: MeasuredRun) -> int:
    return sum(run.items.values())


def _requests(run: MeasuredRun) -> float:
    return run.counters.get("requests", 0.0)


def _sample(run: MeasuredRun, value: float) -> Sample:
    return Sample(run.ended_at, value)


def _share_of(run: MeasuredRun, part: float, whole: float) -> Sample | None:
    if whole < _MIN_SIZE:
        return None
    return Sample(run.ended_at, min(part / whole, 1.0), int(whole))


def _unwanted(run: MeasuredRun, rule: Rule) -> dict[int, int]:
    wanted = set(rule.statuses)
    return {status: count for status, count in run.statuses.items() if status in wanted}


def _failed_requests(run: MeasuredRun) -> int:
    return sum(run.statuses.values()) + sum(_unanswered(run).values())


def _unanswered(run: MeasuredRun) -> dict[str, int]:
    # Invalid pages, bugs and budgets are no failures of requests.
    kinds = (FailureKind.NETWORK, FailureKind.TIMEOUT, FailureKind.OVERLOAD, FailureKind.SERVER)
    return {kind: run.failures[kind] for kind in kinds if kind in run.failures}


def _logged(run: MeasuredRun, low: int, high: float = inf) -> int:
    return sum(count for level, count in run.logged.items() if low <= level < high)


def _successes(run: MeasuredRun) -> float:
    return max(_requests(run) - _failed_requests(run), 0.0)


_MEASURES: Mapping[str, _Measure] = {
    "few-records": _Measure(
        "the last run has {now}; {usual}",
        lambda run, _: _sample(run, _records(run)),
        "Compare with `longline report {job}`; check whether the lists of the site have changed.",
        unit="record",
    ),
    "log-critical": _Measure(
        "the last run has logged {now} at level critical",
        lambda run, _: _sample(run, _logged(run, logging.CRITICAL)),
        "Read them with `longline logs {job} --level error`.",
        unit="line",
    ),
    "log-errors": _Measure(
        "the last run has logged {now} at level error; {usual}",
        lambda run, _: _sample(run, _logged(run, logging.ERROR, logging.CRITICAL)),
        "Read them with `longline logs {job} --level error`.",
        unit="line",
    ),
    "log-warnings": _Measure(
        "the last run has logged {now} at level warning; {usual}",
        lambda run, _: _sample(run, _logged(run, logging.WARNING, logging.ERROR)),
        "Read them with `longline logs {job}`.",
        unit="line",
    ),
    "http-errors": _Measure(
        "{now} of the requests of the last run got an unwanted HTTP status; {usual}",
        lambda run, rule: _share_of(run, sum(_unwanted(run, rule).values()), _requests(run)),
        "List them with `longline failures {job}`; if the site refuses us, lower the rate.",
        unit="share",
        details=lambda run, rule: {
            "statuses": {str(one): count for one, count in sorted(_unwanted(run, rule).items())}
        },
    ),
    "request-failures": _Measure(
        "{now} of the requests of the last run got no response; {usual}",
        lambda run, _: _share_of(run, sum(_unanswered(run).values()), _requests(run)),
        "List them with `longline failures {job}`; check the network and the site.",
        unit="share",
        details=lambda run, _: {"kinds": _unanswered(run)},
    ),
    "retries": _Measure(
        "{now} of the requests of the last run were retries; {usual}",
        lambda run, _: _share_of(run, run.counters.get("retries", 0.0), _requests(run)),
        "List the failed attempts with `longline failures {job}`; consider a lower rate.",
        unit="share",
    ),
    "few-successes": _Measure(
        "{now} of the last run succeeded; {usual}",
        lambda run, _: _sample(run, _successes(run)),
        "List the failed attempts with `longline failures {job}`.",
        learned=lambda run, _: _share_of(run, _successes(run), _requests(run)),
        unit="request",
    ),
    "many-requests": _Measure(
        "the last run has sent {now}; {usual}",
        lambda run, _: _sample(run, _requests(run)),
        "Check with `longline report {job}` whether lists or links lead in circles.",
        unit="request",
    ),
    "failed-items": _Measure(
        "{now} of the items of the last run failed; {usual}",
        lambda run, _: _share_of(run, run.items.get("failed", 0), _total(run)),
        "List them with `longline failures {job}`; `longline retry {job}` queues them again.",
        unit="share",
    ),
    "quarantined-items": _Measure(
        "{now} of the items of the last run were quarantined; {usual}",
        lambda run, _: _share_of(run, run.items.get("quarantined", 0), _total(run)),
        "Inspect them with `longline quarantine list {job}`; correct the source and replay them.",
        unit="share",
    ),
    "changed-share": _Measure(
        "{now} of the records of the last run are new or changed; {usual}",
        lambda run, _: _share_of(run, run.items.get("stored", 0), _records(run)),
        "Look at the changes with `longline report {job}`.",
        unit="share",
        skips_first=True,  # all of its records are new
    ),
    "long-run": _Measure(
        "the last run took {now}; {usual}",
        lambda run, _: _sample(run, run.ended_at - run.started_at) if run.starts <= 1 else None,
        "See with `longline report {job}` where the time went: waits, retries, slow responses.",
        unit="seconds",
    ),
}
_OF_FAILED_RUNS = (  # rules that say why a run failed; the others would only repeat that it did
    *("run-failed", "log-critical", "log-errors", "http-errors", "request-failures"),
)


# ---------------- Checks


def check_run(rule: Rule, series: RunSeries) -> AlertCondition | None:
    """Return what a rule finds wrong about the last run; None: nothing."""
    last = series.last
    if last.state == JobState.FAILED and rule.kind not in _OF_FAILED_RUNS:
        return None
    if rule.kind in _MEASURES:
        return _check_measure(rule, series)
    check = _CHECKS.get(rule.kind)
    return None if check is None else check(rule, series)


def is_about_runs(rule: Rule) -> bool:
    """Return whether a rule is about ended runs."""
    return rule.kind in _MEASURES or rule.kind in _CHECKS


def _check_measure(rule: Rule, series: RunSeries) -> AlertCondition | None:
    measure, last = _MEASURES[rule.kind], series.last
    sample = measure.value(last, rule)
    if sample is None:
        return None
    unit, found = measure.unit, _beyond_limits(rule, sample)
    if found is None and rule.is_learned:
        take = measure.learned or measure.value
        runs = series.compared[measure.skips_first :]
        values = [value for one in runs if (value := take(one, rule)) is not None]
        is_known = take(last, rule) is not None
        found = find_unusual(values, rule.tolerance) if is_known else None
        unit = "share" if measure.learned else unit
    if found is None:
        return None
    summary = measure.text.format(
        now=amount_text(found.observed, unit), usual=range_text(found, unit)
    )
    if unit == "share" and measure.learned:
        summary = summary.replace(" of the last run", " of the requests of the last run")
    return _condition(rule, last, summary, measure.action, found, **measure.details(last, rule))


def _beyond_limits(rule: Rule, sample: Sample) -> Unusual | None:
    low = -inf if rule.min is None else rule.min
    high = inf if rule.max is None else rule.max
    if low <= sample.value <= high:
        return None
    return Unusual(sample.value, low, high, sample.value, 0)


def _check_failed(rule: Rule, series: RunSeries) -> AlertCondition | None:
    last = series.last
    if last.state != JobState.FAILED:
        return None
    in_a_row = 0
    for one in reversed(series.runs):
        if one.state != JobState.FAILED:
            break
        in_a_row += 1
    first = series.runs[-in_a_row]
    runs = f"the last {in_a_row} runs" if in_a_row > 1 else "the last run"
    return AlertCondition(
        rule.name,
        f"source/{last.source}",
        rule.severity,
        f"{last.source}: {runs} failed: {last.reason or 'reason unknown'}",
        {"job": last.job, "reason": last.reason, "failed_in_a_row": in_a_row},
        f"Read `longline report {last.job}`, correct the cause and run the source again.",
        since=first.ended_at,
    )


def _check_partial(rule: Rule, series: RunSeries) -> AlertCondition | None:
    last = series.last
    # Failed items have their own rules, and so has drift.
    has_bad = last.items.get("failed", 0) + last.items.get("quarantined", 0) > 0
    is_drift = (last.reason or "").startswith("drift:")
    if last.state != JobState.PARTIAL or not (last.cuts or not (has_bad or is_drift)):
        return None
    reason = "; ".join(last.cuts) or last.reason or "reason unknown"
    return AlertCondition(
        rule.name,
        f"source/{last.source}",
        rule.severity,
        f"{last.source}: the last run is incomplete: {reason}",
        {"job": last.job, "cuts": list(last.cuts), "reason": last.reason},
        f"Read `longline report {last.job}`. After an exhausted budget, `longline retry "
        f"{last.job}` continues the job; otherwise correct the source and run it again.",
        since=last.ended_at,
    )


def _check_warnings(rule: Rule, series: RunSeries) -> AlertCondition | None:
    last, usual = series.last, _usual_warnings(series)
    found = [one for one in last.warnings if _without_numbers(one) not in usual]
    if last.is_accepted or not found:
        return None
    more = f", and {len(found) - _MAX_WARNINGS} more" if len(found) > _MAX_WARNINGS else ""
    return AlertCondition(
        rule.name,
        f"source/{last.source}",
        rule.severity,
        f"{last.source}: the last run has warnings: {'; '.join(found[:_MAX_WARNINGS])}{more}",
        {"job": last.job, "warnings": found},
        f"Read `longline report {last.job}` and correct the source. If its records are right, "
        f"`longline drift accept {last.job}` makes these warnings normal for later runs.",
        since=last.ended_at,
    )


def _usual_warnings(series: RunSeries) -> set[str]:
    """Return the warnings of an accepted run, and those that many runs in a row have had."""
    earlier = series.compared[:-1]
    several = [{_without_numbers(text) for text in one.warnings} for one in earlier]
    usual = several[0] if earlier and earlier[0].is_accepted else set()
    if len(several) >= ADAPTED_AFTER:
        usual |= set.intersection(*several[-ADAPTED_AFTER:])
    return usual


def _without_numbers(text: str) -> str:
    return _NUMBER.sub("#", text)


def _check_coverage(rule: Rule, series: RunSeries) -> AlertCondition | None:
    last = series.last
    if last.coverage is None or not last.examined:
        return None
    found: dict[str, Unusual] = {}
    for name, samples in _coverages(series).items():
        limit = rule.fields.get(name, rule.min)
        if limit is not None and samples[-1].value < limit:
            found[name] = Unusual(samples[-1].value, limit, inf, limit, 0)
        elif rule.is_learned and (one := find_unusual(samples, rule.tolerance)) is not None:
            found[name] = one
    if not found:
        return None
    worst = sorted(found, key=lambda name: found[name].observed - found[name].usual)
    shown = [
        f"{name} in {amount_text(found[name].observed, 'share')} of the records "
        f"({range_text(found[name], 'share')})"
        for name in worst[:_MAX_FIELDS]
    ]
    more = f" and {len(found) - _MAX_FIELDS} more fields" if len(found) > _MAX_FIELDS else ""
    is_slow = all(one.is_trend for one in found.values())
    how = "slowly falling coverage" if is_slow else "low coverage"
    return _condition(
        rule,
        last,
        f"{how} of fields in the last run: {', '.join(shown)}{more}",
        "See `longline drift show {source}`; correct the selectors of these fields.",
        found[worst[0]],
        fields={name: _evidence(found[name]) for name in worst},
    )


def _coverages(series: RunSeries) -> dict[str, list[Sample]]:
    """Return the coverage of each field over the runs, up to the last one.

    A field that is missing is not covered, unless the manifest was changed since it was there.
    """
    runs = [one for one in series.compared if one.coverage is not None and one.examined]
    known: defaultdict[str, set[str]] = defaultdict(set)
    for one in runs:
        known[one.identity].update(one.coverage or ())
    found: dict[str, list[Sample]] = {}
    for name in sorted(known[series.last.identity]):
        found[name] = [
            Sample(one.ended_at, (one.coverage or {}).get(name, 0.0), one.examined)
            for one in runs
            if name in known[one.identity]
        ]
    return found


def _check_quarantine(rule: Rule, series: RunSeries) -> AlertCondition | None:
    counts = [one.items.get("quarantined", 0) for one in series.runs]
    added, earlier = counts[-_GROWING:], counts[:-_GROWING]
    if len(earlier) < MIN_RUNS or not all(added):
        return None
    limit = inf if rule.max is None else rule.max
    if sum(added) <= max(limit, _FASTER * _GROWING * median(earlier)):
        return None
    waiting = sum(one.items.get("quarantined", 0) for one in series.runs)
    last = series.last
    return AlertCondition(
        rule.name,
        f"source/{last.source}",
        rule.severity,
        f"{last.source}: the last {_GROWING} runs have quarantined {sum(added):,} items, and "
        f"{count_text(waiting, 'item is', 'items are')} in quarantine",
        {"job": last.job, "observed": added, "usual": median(earlier), "waiting": waiting},
        f"Inspect them with `longline quarantine list {last.job}`; correct the source and replay "
        "them.",
        since=series.runs[-_GROWING].ended_at,
    )


_CHECKS: Mapping[str, Callable[[Rule, RunSeries], AlertCondition | None]] = {
    "run-failed": _check_failed,
    "run-partial": _check_partial,
    "run-warnings": _check_warnings,
    "field-coverage": _check_coverage,
    "quarantine-growing": _check_quarantine,
}


def usual_duration(rule: Rule, series: RunSeries) -> Unusual | None:
    """Return the usual range of the duration of a run; None: it is not known yet."""
    samples = series.durations
    if len(samples) < MIN_RUNS:
        return None
    return usual_range(samples, rule.tolerance, samples[-1])


# ---------------- Texts


def _condition(
    rule: Rule, run: MeasuredRun, problem: str, action: str, found: Unusual, **details: Any
) -> AlertCondition:
    return AlertCondition(
        rule.name,
        f"source/{run.source}",
        rule.severity,
        f"{run.source}: {problem}",
        {"job": run.job, **_evidence(found), **details},
        action.format(job=run.job, source=run.source),
        since=run.ended_at,
    )


def _evidence(found: Unusual) -> dict[str, Any]:
    return {
        "observed": _rounded(found.observed),
        "expected": [_rounded(one) if isfinite(one) else None for one in (found.low, found.high)],
        "usual": _rounded(found.usual) if found.runs else None,
        "runs_compared": found.runs,
        "is_trend": found.is_trend,
    }


def _rounded(value: float) -> float:
    return round(value, 4)


def amount_text(value: float, unit: str) -> str:
    """Return a number with its unit: share, seconds, or the noun that it counts."""
    if unit == "share":
        return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"  # noqa: PLR2004  # a tenth
    if unit == "seconds":
        return duration_text(value)
    return count_text(round(value), unit)


def range_text(found: Unusual, unit: str) -> str:
    """Return what is usual, or what the limit is, as a part of a sentence."""
    plain = partial(amount_text, unit=unit)
    if not found.runs:
        is_low = found.observed < found.low
        return f"the limit is {plain(found.low if is_low else found.high)}"
    if found.is_trend:
        return f"earlier runs had {plain(found.usual)}"
    low, high = max(found.low, 0.0), found.high
    if isfinite(found.low) and isfinite(high):
        first = plain(low) if unit in ("share", "seconds") else f"{round(low):,}"
        return f"usually {first} to {plain(high)}"
    least = f"at least {plain(low)}" if isfinite(found.low) else f"at most {plain(high)}"
    return f"usually {least}"


_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units."""
    parts: list[str] = []
    rest = max(round(seconds), 0)
    for name, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or (parts and len(parts) < 2) or (name == "s" and not parts):  # noqa: PLR2004
            parts.append(f"{count} {name}")
        if len(parts) == 2 or (parts and not rest):  # noqa: PLR2004
            break
    return " ".join(parts)
