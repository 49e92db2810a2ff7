"""A week of simulated sources, some of which get into trouble, and what the rules find."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from longline.monitoring.alerts.evaluation import EvaluationCache, evaluate
from longline.monitoring.alerts.rules import Rule, default_rules
from longline.storage.store import Store
from tests.monitoring.alerts.simulated_runs import (
    Numbers,
    SimulatedSource,
    finish_run,
    open_breaker,
    start_run,
)
from tests.virtual import EPOCH

DAY, HOUR = 86_400.0, 3600.0
WEEK = 7 * DAY
_EVERY = 2 * HOUR  # between two evaluations
TROUBLES = {  # of each: the rules that may report it, and within how many intervals
    "redesign": ({"field-coverage"}, 1.5),
    "ban": ({"ban"}, 1.5),
    "outage": ({"run-failed"}, 1.5),
    "decay": ({"field-coverage"}, 14.0),
    "fewer": ({"few-records"}, 12.0),
    "stale": ({"stale-data"}, 3.5),
}


@dataclass(frozen=True)
class Trouble:
    """What happens to a source from a time on, and by when it must be reported."""

    kind: str
    source: str
    since: float
    interval: float

    @property
    def deadline(self) -> float:
        return self.since + TROUBLES[self.kind][1] * self.interval

    @property
    def subject(self) -> str:
        return f"domain/{self.source}.test" if self.kind == "ban" else f"source/{self.source}"


@dataclass
class WeekResult:
    """What was found: by rule and subject, when first and with which evidence."""

    troubles: list[Trouble]
    seen: dict[tuple[str, str], tuple[float, object]] = field(default_factory=dict)
    runs: int = 0
    evaluations: int = 0

    def missed(self) -> list[Trouble]:
        """Return the troubles that were not reported in time."""
        return [one for one in self.troubles if self.delay(one) is None]

    def delay(self, trouble: Trouble) -> float | None:
        """Return after how many intervals a trouble was reported; None: not, or too late."""
        rules, _ = TROUBLES[trouble.kind]
        times = [
            at
            for (rule, subject), (at, _) in self.seen.items()
            if rule in rules and subject == trouble.subject and at >= trouble.since
        ]
        first = min(times, default=None)
        is_late = first is None or first > trouble.deadline
        return None if first is None or is_late else (first - trouble.since) / trouble.interval

    def false_alerts(self) -> list[tuple[str, str]]:
        """Return what was reported about sources without trouble, or before it began."""
        began = {one.source: one.since for one in self.troubles}
        return [
            (rule, subject)
            for (rule, subject), (at, _) in self.seen.items()
            if at < began.get(subject.partition("/")[2].removesuffix(".test"), at + 1)
        ]


async def simulate_week(
    store: Store, seed: int, *, sources: int, records: int, intervals: tuple[float, ...]
) -> WeekResult:
    """Write the runs of two weeks and more, the last week with trouble, and evaluate regularly."""
    rng = random.Random(seed)
    kinds = list(TROUBLES)
    fleet: list[tuple[SimulatedSource, Trouble | None]] = []
    for number in range(sources):
        name, interval = f"site{number}", intervals[number % len(intervals)]
        count = round(records * rng.uniform(0.8, 2.0))
        source = SimulatedSource(name, seed, interval=interval, records=count)
        kind = kinds[number] if number < len(kinds) else rng.choice([*kinds, *[None] * 6])
        since = EPOCH + rng.uniform(0.1, 1.5) * DAY
        trouble = None if kind is None else Trouble(kind, name, since, interval)
        fleet.append((source, trouble))
    result = WeekResult([one for _, one in fleet if one is not None])
    cache, rules = EvaluationCache(), default_rules()
    next_evaluation = EPOCH
    for at, source, trouble in sorted(_runs(fleet, rng), key=lambda one: one[0]):
        while next_evaluation < at:
            await _evaluate(store, rules, next_evaluation, cache, result)
            next_evaluation += _EVERY
        await _run(store, source, trouble, at)
        result.runs += 1
    while next_evaluation <= EPOCH + WEEK:
        await _evaluate(store, rules, next_evaluation, cache, result)
        next_evaluation += _EVERY
    return result


def _runs(
    fleet: list[tuple[SimulatedSource, Trouble | None]], rng: random.Random
) -> Iterator[tuple[float, SimulatedSource, Trouble | None]]:
    for source, trouble in fleet:
        history = min(30, round(14 * DAY / source.interval)) * source.interval
        at = EPOCH - max(history, 14 * DAY) + rng.random() * source.interval
        while at < EPOCH + WEEK:
            is_stopped = trouble is not None and trouble.kind == "stale" and at >= trouble.since
            if not is_stopped:
                yield at + rng.uniform(0, 0.05) * source.interval, source, trouble
            at += source.interval


async def _evaluate(
    store: Store, rules: Sequence[Rule], at: float, cache: EvaluationCache, result: WeekResult
) -> None:
    result.evaluations += 1
    for one in await evaluate(store, rules, at, cache=cache):
        result.seen.setdefault((one.rule, one.subject), (at, one.evidence))


async def _run(store: Store, source: SimulatedSource, trouble: Trouble | None, at: float) -> None:
    usual = source.normal(at)
    if trouble is None or at < trouble.since:
        await finish_run(store, source.name, at, usual)
        return
    if trouble.kind == "ban":
        job = await start_run(store, source.name, at, usual)
        await open_breaker(store, job.id, at, f"{source.name}.test", is_ban=True)
        await store.jobs.cancel(job.id, at, "it would take days")
        return
    ended = (at - trouble.since) / trouble.interval
    await finish_run(store, source.name, at, _troubled(trouble.kind, usual, 1 + int(ended)))


def _troubled(kind: str, usual: Numbers, number: int) -> Numbers:
    """Return the numbers of the `number`-th run since the trouble began."""
    coverage = dict(usual.coverage or {})
    names = sorted(coverage, key=lambda name: -coverage[name])
    if kind == "redesign":
        coverage |= dict.fromkeys(names[:3], 0.02)
        return replace(usual, coverage=coverage)
    if kind == "decay":
        coverage[names[0]] = max(0.0, coverage[names[0]] - 0.025 * number)
        return replace(usual, coverage=coverage)
    if kind == "outage":
        return replace(usual, records=0, changed=0, failed=usual.records, coverage=None)
    return replace(usual, records=round(0.4 * usual.records), changed=0)
