"""Projections of many events: time and memory of a rebuild, and the CPU time of status queries.

    python bench/projections.py --events 1000000

Makes a home with jobs, items and records until it has that many events, rebuilds all projections
with `longline events rebuild all` in a process of its own, compares the rows before and after, and
times the queries that commands and pages make. It exits with 1 when a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Text, cast, select

from children import LONGLINE, exit_on_sigterm, run
from longline.core.model import Item, Outcome, OutcomeAction, Record, Usage
from longline.storage.database import Database, open_database
from longline.storage.events.events import event_row, update_projections
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.schema import projection_rows
from longline.storage.store import Store

MOST_SECONDS = 90.0
MOST_MEGABYTES = 200.0
MOST_QUERY = 0.020  # seconds of CPU
_PATIENCE = 3600.0
_AT = 1_790_000_000.0
_ITEMS = 50  # per job; each has about two events
_SOURCES = 40
_DOMAINS = 400
_REPEATS = 20
_EVERY_FAILED = 9
_MEGABYTE = 2**20


def main() -> None:
    """Measure; exit with 1 when a limit is exceeded."""
    exit_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--events", type=int, default=1_000_000)
    count = parser.parse_args().events
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        database = open_database(f"sqlite:///{home}/longline.sqlite", prepare=update_projections)
        with Store(database) as store:
            asyncio.run(_fill(store, count))
            before = _stored_rows(database)
            slowest = asyncio.run(_time_queries(store))
        ended = run([LONGLINE, "events", "rebuild", "all", "--home", str(home)], timeout=_PATIENCE)
        database = open_database(f"sqlite:///{home}/longline.sqlite")
        is_same = _stored_rows(database) == before
        database.close()
    megabytes = (ended.peak_bytes or 0) / _MEGABYTE
    is_good = [
        ended.code == 0,
        is_same,
        ended.seconds <= MOST_SECONDS,
        megabytes <= MOST_MEGABYTES,
        slowest <= MOST_QUERY,
    ]
    print(
        f"rebuild of {count:,} events: {ended.seconds:.1f} s (at most {MOST_SECONDS:g}), "
        f"{megabytes:.0f} MB (at most {MOST_MEGABYTES:g}), "
        f"{len(before):,} rows {'equal' if is_same else 'DIFFERENT'}; "
        f"slowest query {slowest * 1000:.1f} ms of CPU (at most {MOST_QUERY * 1000:g})"
    )
    sys.exit(0 if all(is_good) else 1)


async def _fill(store: Store, count: int) -> None:
    number = 0
    while await store.events.newest() < count:
        await _run_job(store, number)
        number += 1


async def _run_job(store: Store, number: int) -> None:
    at = _AT + number * 600
    source = f"source-{number % _SOURCES}"
    job = await store.jobs.create(NewJob(source, {}, {"number": number}, at))
    await store.jobs.start(job.id, at + 1)
    domain = f"site-{number % _DOMAINS}.test"
    found = [Item(str(n), f"https://{domain}/{n}") for n in range(_ITEMS)]
    await store.queue.enqueue(Discovered(job.id, found, at + 2, is_last=True))
    leases = await store.queue.lease(Claim(job.id, "bench", _ITEMS, at + 3, at + 60))
    attempts = []
    for place, lease in enumerate(leases):
        outcome = _outcome(source, lease.item, number, place, at + 4 + place)
        attempts.append((lease, outcome))
    await store.queue.complete_all(attempts)
    if number % 5 == 0:
        opened = event_row(
            job.id, at + 80, "breaker.opened", domain=domain, reason="errors", until=at + 140
        )
        await store.events.append(opened)
    await store.jobs.finish(job.id, at + 100)


def _outcome(source: str, item: Item, run_number: int, place: int, at: float) -> Outcome:
    usage = Usage(requests=1)
    if place % _EVERY_FAILED == 0:
        return Outcome(
            OutcomeAction.FAIL, kind="network", reason="refused", at=at, seconds=0.3, usage=usage
        )
    data = {"title": f"Thing {item.key}", "price": run_number}
    record = Record(source, item.key, item.url, data, fingerprint=f"{run_number}")
    return Outcome(OutcomeAction.STORE, record=record, at=at, seconds=0.2, usage=usage)


async def _time_queries(store: Store) -> float:
    """Return the CPU time of the slowest status query, in seconds."""
    newest = (await store.jobs.list(limit=1))[0]
    rows = store.projections.rows
    queries: dict[str, Callable[[], Awaitable[Any]]] = {
        "20 newest runs": lambda: rows("runs", limit=20),
        "all sources": lambda: rows("sources"),
        "all domains": lambda: rows("domains"),
        "hours of a day": lambda: rows("hours", since=newest.created_at - 86400),
        "failures by kind": lambda: rows("failures"),
        "progress of a job": lambda: store.queue.progress([newest.id]),
        "20 newest jobs": lambda: store.jobs.list(limit=20),
    }
    slowest = 0.0
    for name, query in queries.items():
        await query()
        begun = time.process_time()
        for _ in range(_REPEATS):
            await query()
        seconds = (time.process_time() - begun) / _REPEATS
        print(f"{name}: {seconds * 1000:.2f} ms of CPU")
        slowest = max(slowest, seconds)
    return slowest


def _stored_rows(database: Database) -> list[tuple[Any, ...]]:
    columns = projection_rows.c
    query = select(columns.projection, columns.key, columns.sort, cast(columns.data, Text))
    query = query.where(columns.stage == "live").order_by(columns.projection, columns.key)
    with database.snapshot() as connection:
        return [tuple(row) for row in connection.execute(query)]


if __name__ == "__main__":
    main()
