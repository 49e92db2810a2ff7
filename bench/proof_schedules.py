"""The proof that each occurrence of a schedule is decided and fired once, over a month."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

from children import BENCH
from proofs import Proof, Sizes, exactly, none, nothing_wrong, unjudged

sys.path.append(str(BENCH.parent))
from tests.scheduling.simulation import Result, Simulation
from tests.virtual import VirtualLoop

NAME = "schedules"
_FIRST = datetime(2026, 3, 7, 0, 0, 10, tzinfo=UTC)
_DAY = timedelta(days=1)
# By zone: the expression; its time in UTC before the day of the clock change, on it, and after.
# A time that is skipped is due when the clock jumps, one that comes twice the first time.
_DAILY = {
    "America/New_York": ("30 2 * * *", "07:30", "2026-03-08T07:00", "06:30"),
    "Europe/Sofia": ("30 3 * * *", "01:30", "2026-03-29T01:00", "00:30"),
    "Australia/Lord_Howe": ("45 1 * * *", "14:45", "2026-04-04T14:45", "15:15"),
    "Pacific/Chatham": ("30 3 * * *", "13:45", "2026-04-04T13:45", "14:45"),
}


def prove(sizes: Sizes) -> Proof:
    """Run three schedulers through a month with kills and clock jumps."""
    started = time.monotonic()
    parts = list(_parts(sizes))
    # Side by side, because schedulers of one database often wait for each other.
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        results = list(pool.map(_simulate, *zip(*parts, strict=True)))
    occurrences = sum((one.occurrences for one in results), Counter[str]())
    divided = f", in {len(parts)} parts side by side" if len(parts) > 1 else ""
    about = (
        f"Three schedulers on one SQLite database, {sizes.schedules} schedules every minute, and "
        f"{len(_DAILY)} daily ones, for {sizes.schedule_days} days of virtual time from "
        f"{_FIRST:%Y-%m-%d}{divided}. Schedulers are killed in the "
        "middle of a tick and stalled, and their clocks jump by an hour. The zones are "
        "Europe/Sofia, America/New_York, Australia/Lord_Howe and Pacific/Chatham, whose clocks "
        "change in these days; the times of the daily schedules are compared with a table written "
        "by hand."
    )
    minutes = sizes.schedule_days * 24 * 60
    wanted = sizes.schedules * minutes + len(_due(_FIRST, sizes.schedule_days))
    figures = [
        exactly("occurrences with a fate", occurrences.total(), wanted),
        none("occurrences that are still queued", occurrences["queued"]),
        nothing_wrong(
            "each has one row, and none was fired twice",
            [problem for one in results for problem in one.problems],
        ),
        *(unjudged(fate, f"{count:,}") for fate, count in sorted(occurrences.items())),
        unjudged("kills", sum(one.kills for one in results)),
        unjudged("clock jumps", sum(one.jumps for one in results)),
        unjudged("real time", f"{(time.monotonic() - started) / 60:.0f} min"),
    ]
    return Proof(NAME, about, figures)


def _parts(sizes: Sizes) -> Iterator[tuple[datetime, int, int, int]]:
    """Yield the start, days, number of schedules, and seed of each part."""
    count = min(sizes.schedule_parts, sizes.schedule_days)
    ends = [sizes.schedule_days * number // count for number in range(count + 1)]
    for number, (since, until) in enumerate(pairwise(ends)):
        yield _FIRST + since * _DAY, until - since, sizes.schedules, sizes.seed + number


def _simulate(begin: datetime, days: int, schedules: int, seed: int) -> Result:
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
    ):
        return runner.run(_simulate_days(Path(folder), begin, days, schedules, seed))


async def _simulate_days(
    folder: Path, begin: datetime, days: int, schedules: int, seed: int
) -> Result:
    simulation = Simulation(
        folder,
        f"sqlite:///{folder / 'longline.sqlite'}",
        minutely=schedules,
        start=begin,
        daily={zone: cron for zone, (cron, *_) in _DAILY.items()},
        seed=seed,
    )
    await simulation.begin()
    start = begin.timestamp()
    due = _due(begin, days)
    for day in range(days):
        since, until = start + day * 86_400, start + (day + 1) * 86_400
        await simulation.run(until - simulation.now())
        await simulation.settle()
        simulation.judge(since, until, [one for one in due if since < one <= until])
        await simulation.judge_events()
        simulation.forget(since)
        count = simulation.result.occurrences.total()
        print(f"  {begin + day * _DAY:%Y-%m-%d}: {count:,} occurrences", flush=True)
    simulation.close()
    return simulation.result


def _due(start: datetime, days: int) -> list[float]:
    """Return when the daily schedules are due."""
    found = []
    end = start + days * _DAY
    for _, before, changed, after in _DAILY.values():
        change = datetime.fromisoformat(changed).replace(tzinfo=UTC)
        day = start.replace(hour=0, minute=0, second=0)
        while day < end:
            text = before if day.date() < change.date() else after
            at = change if day.date() == change.date() else _at(day, text)
            if start < at <= end:
                found.append(at.timestamp())
            day += _DAY
    return sorted(found)


def _at(day: datetime, text: str) -> datetime:
    hour, minute = map(int, text.split(":"))
    return day.replace(hour=hour, minute=minute)
