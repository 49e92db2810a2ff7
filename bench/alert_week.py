"""A week of 50 simulated sources with seeded trouble: is each reported in time, and nothing else?

It also measures how long one evaluation of the rules takes, with and without its cache.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

from children import BENCH
from longline.monitoring.alerts.evaluation import EvaluationCache, evaluate
from longline.monitoring.alerts.rules import default_rules
from longline.monitoring.alerts.run_checks import RunSeries, check_run, is_about_runs
from longline.storage.monitoring.alert_inputs import MeasuredRun
from longline.storage.store import Store, open_store

sys.path.append(str(BENCH.parent))
from tests.monitoring.alerts.simulated_runs import SimulatedSource, finish_run, measured
from tests.monitoring.alerts.simulated_week import DAY, TROUBLES, WeekResult, simulate_week
from tests.virtual import EPOCH

_MOST_TICK = 0.5  # seconds
_MOST_FALSE = 1e-4  # of normal runs


@click.group()
def main() -> None:
    """Prove that rules of alerts find trouble, and measure what they cost."""


@main.command()
@click.option("--sources", default=50, help="Simulated sources.")
@click.option("--seeds", default=3, help="Weeks, each with other trouble.")
def week(sources: int, seeds: int) -> None:
    """Simulate weeks; exit with 1 if trouble is missed, or for a false alert per week."""
    false = 0
    missed = 0
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            result = asyncio.run(_simulate(Path(folder), seed, sources))
        false += len(result.false_alerts())
        missed += len(result.missed())
        _print_week(seed, result)
    click.echo(f"{missed} missed, {false} false alerts in {seeds} weeks of {sources} sources")
    sys.exit(1 if missed or false >= seeds else 0)


async def _simulate(folder: Path, seed: int, sources: int) -> WeekResult:
    with open_store(f"sqlite:///{folder / 'longline.sqlite'}") as store:
        return await simulate_week(
            store, seed, sources=sources, records=120, intervals=(DAY / 2, DAY / 4)
        )


def _print_week(seed: int, result: WeekResult) -> None:
    click.echo(f"seed {seed}: {result.runs} runs, {result.evaluations} evaluations")
    for kind in TROUBLES:
        mine = [one for one in result.troubles if one.kind == kind]
        delays = [delay for one in mine if (delay := result.delay(one)) is not None]
        slowest = f"slowest after {max(delays):.1f} intervals" if delays else "none"
        click.echo(f"  {kind}: {len(delays)} of {len(mine)} in time, {slowest}")
    for rule, subject in result.false_alerts():
        click.echo(f"  false: {rule} {subject}: {result.seen[rule, subject][1]}")
    for one in result.missed():
        click.echo(f"  missed: {one.kind} of {one.source}")


@main.command()
@click.option("--sources", default=1650, help="Simulated sources; half of them run every 6 hours.")
@click.option("--runs", default=30, help="Runs of each, all with normal variation.")
def normal(sources: int, runs: int) -> None:
    """Judge every one of many normal runs; exit with 1 if more than 1 in 10,000 fires an alert."""
    rules = [rule for rule in default_rules() if is_about_runs(rule)]
    found: Counter[str] = Counter()
    for number in range(sources):
        interval = (DAY, DAY / 4)[number % 2]
        source = SimulatedSource("shop", number // 2, interval=interval)
        judged: list[MeasuredRun] = []
        for at in (EPOCH + run * interval for run in range(runs)):
            judged.append(measured(source.name, at, source.normal(at)))
            series = RunSeries(judged)
            for one in filter(None, (check_run(rule, series) for rule in rules)):
                found[one.rule] += 1
                click.echo(f"  {one.rule}: {one.summary}")
    fired = found.total()
    click.echo(
        f"{sources * runs:,} normal runs of {sources:,} sources fired {fired}: {dict(found)}"
    )
    sys.exit(1 if fired > sources * runs * _MOST_FALSE else 0)


@main.command()
@click.option("--sources", default=500, help="Sources in the database.")
@click.option("--runs", default=30, help="Ended runs of each.")
def tick(sources: int, runs: int) -> None:
    """Measure the CPU time of evaluations; exit with 1 if one with a cache takes half a second."""
    with tempfile.TemporaryDirectory() as folder:
        slowest = asyncio.run(_measure(Path(folder), sources, runs))
    sys.exit(1 if slowest > _MOST_TICK else 0)


async def _measure(folder: Path, sources: int, runs: int) -> float:
    with open_store(f"sqlite:///{folder / 'longline.sqlite'}") as store:
        for number in range(sources):
            source = SimulatedSource(f"site{number}", 1, records=10)
            for run in range(runs):
                at = EPOCH + run * DAY
                await finish_run(store, source.name, at, source.normal(at))
        cache, now = EvaluationCache(), EPOCH + (runs - 1) * DAY + 600
        first = await _time(store, now, cache)
        idle = await _time(store, now, cache)
        await finish_run(store, "site0", now, SimulatedSource("site0", 1, records=10).normal(now))
        changed = await _time(store, now, cache)
        click.echo(
            f"{sources} sources with {runs} runs: first {first:.3f} s, idle {idle:.3f} s, "
            f"after one run {changed:.3f} s"
        )
        return max(idle, changed)


async def _time(store: Store, now: float, cache: EvaluationCache) -> float:
    began = time.process_time()  # of all threads; other programs may run, too
    await evaluate(store, default_rules(), now, cache=cache)
    return time.process_time() - began


if __name__ == "__main__":
    main()
