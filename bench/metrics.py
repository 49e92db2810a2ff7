"""Metrics of a large home: the time and CPU of one answer, and the number of its series.

    python bench/metrics.py --jobs 10000 --items 115 [--home FOLDER] [--database URL]

Makes a home with that many jobs, each with a domain of its own and new records, then reads and
renders all metrics several times. With --home, the home is kept, and used again by the next call.
It exits with 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from prometheus_client.parser import text_string_to_metric_families

from children import exit_on_sigterm
from large_home import Amounts, add_jobs
from longline.monitoring.metrics import Measurement, render_metrics
from longline.services.background import process_memory
from longline.storage.events.events import EventFilter
from longline.storage.store import Store, open_store

MOST_SECONDS = 0.100  # of wall time, and of CPU
MOST_SERIES = 5000
_AT = 1_790_000_000.0
_SOURCES = 40
_INTERVAL = 600.0
_REPEATS = 15


def main() -> None:
    """Fill, measure; exit with 1 when a limit is exceeded."""
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=115)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--database")
    parser.add_argument("--fill-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        home.mkdir(exist_ok=True)
        address = options.database or f"sqlite:///{home}/longline.sqlite"
        with open_store(address) as store:
            asyncio.run(_fill(store, options.jobs, options.items))
            is_good = options.fill_only or asyncio.run(_measure(store, home))
    sys.exit(0 if is_good else 1)


async def _fill(store: Store, jobs: int, items: int) -> None:
    await add_jobs(store, Amounts(jobs, items, _SOURCES, _AT, _INTERVAL))
    if not await store.subscribers.list():
        await store.subscribers.add("bench/slow", EventFilter(("job.*",)), _AT, 0)
        await store.subscribers.add("bench/new", EventFilter(), _AT, None)


async def _measure(store: Store, home: Path) -> bool:
    walls, processors, memories = [], [], []
    text = b""
    for _ in range(_REPEATS):
        wall, processor = time.perf_counter(), time.process_time()
        memory = process_memory(home)
        memories.append(time.perf_counter() - wall)
        totals = await store.totals.read(await store.now())
        text, _ = render_metrics(Measurement(totals, memory))
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    families = list(text_string_to_metric_families(text.decode()))
    series = sum(len(one.samples) for one in families)
    records = sum(one.records for one in totals.sources.values())
    print(
        f"{records:,} records, {len(await store.jobs.list(limit=None)):,} jobs, "
        f"{totals.all_domains['domains']:,} domains, {totals.size_bytes / 1e6:,.0f} MB: "
        f"{series:,} series (at most {MOST_SERIES:,}), {len(text):,} bytes"
    )
    print(
        f"median of {_REPEATS}: {median(walls) * 1000:.1f} ms, "
        f"{median(processors) * 1000:.1f} ms of CPU (at most {MOST_SECONDS * 1000:g}); "
        f"slowest {max(walls) * 1000:.1f} ms; of these processes {median(memories) * 1000:.1f} ms"
    )
    slowest = max(median(walls), median(processors))
    return series < MOST_SERIES and slowest < MOST_SECONDS


if __name__ == "__main__":
    main()
