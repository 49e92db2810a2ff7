"""Evaluate the rules of alerts: return all that is wrong now."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from longline.monitoring.alerts.conditions import AlertCondition
from longline.monitoring.alerts.rules import Rule
from longline.monitoring.alerts.run_checks import RunSeries, check_run, is_about_runs
from longline.monitoring.alerts.state_checks import DiskSpace, HomeState, check_state
from longline.storage.monitoring.alert_inputs import AlertInputs, MeasuredRun, RunCache
from longline.storage.store import Store

_MIN_SERIES = 3  # runs with the same options that are judged although others ran later
_CURRENT = 3.0  # of the longest time between these runs, after which they have ended for good
_LEAST_CURRENT = 2 * 86_400.0


@dataclass(frozen=True, slots=True)
class _Judged:
    """Runs of a source with the same options, and what is wrong about the last one.

    It counts until a time, unless it `is_newest` of the source.
    """

    series: RunSeries
    conditions: Sequence[AlertCondition]
    is_newest: bool
    until: float


@dataclass(slots=True)
class EvaluationCache:
    """What earlier evaluations have read and found; only sources that have changed are judged."""

    runs: RunCache = field(default_factory=RunCache)
    judged: dict[str, tuple[_Judged, ...]] = field(default_factory=dict)
    rules: Sequence[Rule] = ()


async def evaluate(
    store: Store,
    rules: Sequence[Rule],
    now: float,
    *,
    home: Path | None = None,
    cache: EvaluationCache | None = None,
) -> list[AlertCondition]:
    """Return all that is wrong at this time: the latest state, not what a later run has healed.

    Args:
        store: the database.
        rules: those of `make_rules` or `default_rules`.
        now: the time of the database.
        home: the folder whose disk is examined; None: no disk is.
        cache: of earlier calls, so that only what has changed is read again.

    Raises:
        StoreError: the database cannot be used.
    """
    cache = EvaluationCache() if cache is None else cache
    inputs = await store.alert_inputs.read(now, cache.runs)
    enabled = [rule for rule in rules if rule.is_enabled]
    state = HomeState(
        now=now,
        inputs=inputs,
        runs=cache.runs.runs,
        subscribers=await store.subscribers.list(),
        webhooks=await store.webhooks.list(),
        disk=None if home is None else await asyncio.to_thread(_disk_space, home),
    )
    return await asyncio.to_thread(_judge_all, cache, enabled, inputs, state)


def _disk_space(home: Path) -> DiskSpace | None:
    try:
        found = shutil.disk_usage(home)
    except OSError:  # the home does not exist yet
        return None
    return DiskSpace(found.total, found.free)


def _judge_all(
    cache: EvaluationCache, rules: Sequence[Rule], inputs: AlertInputs, state: HomeState
) -> list[AlertCondition]:
    cache.runs.runs |= inputs.changed
    cache.runs.states |= inputs.states
    changed: Iterable[str] = inputs.changed if cache.rules == rules else cache.runs.runs
    of_runs = [rule for rule in rules if is_about_runs(rule)]
    for source in changed:
        mine = [rule for rule in of_runs if rule.applies_to(source)]
        cache.judged[source] = tuple(_judge_source(mine, cache.runs.runs[source]))
    cache.rules = rules
    series = {
        (source, one.series.last.options): one.series
        for source, several in cache.judged.items()
        for one in several
    }
    found = [
        condition
        for several in cache.judged.values()
        for one in several
        if one.is_newest or state.now <= one.until
        for condition in one.conditions
    ]
    state = replace(state, series=series)
    found += [condition for rule in rules for condition in check_state(rule, state)]
    return _one_of_each(found)


def _judge_source(rules: Sequence[Rule], runs: Sequence[MeasuredRun]) -> Iterator[_Judged]:
    by_options: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        by_options.setdefault(run.options, []).append(run)
    for several in by_options.values():
        is_newest = several[-1] is runs[-1]
        if not is_newest and len(several) < _MIN_SERIES:
            continue
        series = RunSeries(several)
        found = [one for rule in rules if (one := check_run(rule, series)) is not None]
        ends = [run.ended_at for run in several]
        longest = max((later - earlier for earlier, later in pairwise(ends)), default=0.0)
        until = ends[-1] + max(_CURRENT * longest, _LEAST_CURRENT)
        yield _Judged(series, found, is_newest, until)


def _one_of_each(conditions: Iterable[AlertCondition]) -> list[AlertCondition]:
    """Return one condition of each rule and subject: the newest one."""
    found: dict[tuple[str, str], AlertCondition] = {}
    for one in conditions:
        known = found.get((one.rule, one.subject))
        if known is None or (one.since or 0.0) > (known.since or 0.0):
            found[one.rule, one.subject] = one
    return list(found.values())
