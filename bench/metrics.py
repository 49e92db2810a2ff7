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
from longline.core.model import Item, Outcome, OutcomeAction, Record, Usage
from longline.monitoring.metrics import Measurement, render_metrics
from longline.services.background import process_memory
from longline.storage.events.events import EventFilter, event_row
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store

MOST_SECONDS = 0.100  # of wall time, and of CPU
MOST_SERIES = 5000
_AT = 1_790_000_000.0
_SOURCES = 40
_EVERY_OPEN = 500
_REPEATS = 15
_EVERY_FAILED = 9
_FIELDS = 20


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
    known = len(await store.jobs.list(limit=None))
    for number in range(known, jobs):
        await _run_job(store, number, items, is_open=number % _EVERY_OPEN == 0)
    if not await store.subscribers.list():
        await store.subscribers.add("bench/slow", EventFilter(("job.*",)), _AT, 0)
        await store.subscribers.add("bench/new", EventFilter(), _AT, None)


async def _run_job(store: Store, number: int, items: int, *, is_open: bool) -> None:
    at = _AT + number * 600
    source = f"source-{number % _SOURCES}"
    job = await store.jobs.create(NewJob(source, {"limit": items}, {"number": number}, at))
    await store.jobs.start(job.id, at + 1)
    domain = f"site-{number}.test"
    found = [Item(f"{number}-{n}", f"https://{domain}/{n}") for n in range(items)]
    await store.queue.enqueue(Discovered(job.id, found, at + 2, is_last=True))
    leases = await store.queue.lease(Claim(job.id, "bench", items, at + 3, at + 60))
    attempts = []
    for place, lease in enumerate(leases[: items // 2] if is_open else leases):
        attempts.append((lease, _outcome(source, lease.item, place, at + 4 + place)))
    await store.queue.complete_all(attempts)
    trouble = {"domain": domain, "reason": "errors", "until": at + 140}
    learned = {"domain": domain, "rate": 2.0}
    name, data = ("breaker.opened", trouble) if number % 5 == 0 else ("limit.learned", learned)
    await store.events.append(event_row(job.id, at + 80, name, **data))
    if is_open:
        return
    coverage = {f"field_{one}": 0.9 for one in range(_FIELDS)}
    profile = {"source": source, "records": items, "invalid": 0, "coverage": coverage}
    sound = {"is_sound": True, "drift": []}
    await store.events.append(event_row(job.id, at + 90, "source.profiled", **profile, **sound))
    await store.jobs.finish(job.id, at + 100)


def _outcome(source: str, item: Item, place: int, at: float) -> Outcome:
    usage = Usage(requests=1)
    usage.add_response(200, 13_000, 0.01 * (place % 70))
    if place % _EVERY_FAILED == 0:
        return Outcome(
            OutcomeAction.FAIL, kind="network", reason="refused", at=at, seconds=0.3, usage=usage
        )
    data = {"title": f"Thing {item.key}", "price": place, "text": "A thing like others. " * 10}
    record = Record(source, item.key, item.url, data, fingerprint=item.key)
    return Outcome(OutcomeAction.STORE, record=record, at=at, seconds=0.2, usage=usage)


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
