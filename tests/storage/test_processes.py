"""Ten processes on one database: no write fails, no row is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from longline.core.model import ItemState
from longline.storage.query import RecordQuery
from longline.storage.store import Store
from tests.storage.given import new_job

PROGRAM = Path(__file__).with_name("writing_process.py")
PROCESSES = 10
ROWS = 50


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, check=False, text=True
    )


@pytest.mark.real_time
async def test_ten_processes_write_to_one_database(store: Store, address: str) -> None:
    job = await store.jobs.create(new_job())

    done = run(address, job.id, str(PROCESSES), str(ROWS))

    assert (done.returncode, done.stderr) == (0, "")
    counts = [int(line) for line in done.stdout.split()]
    assert (len(counts), sum(counts)) == (PROCESSES, PROCESSES * ROWS)
    assert (await store.queue.counts(job.id))[ItemState.SKIPPED] == PROCESSES * ROWS
    assert await store.events.statistics(job.id) == {
        "requests": PROCESSES * ROWS,
        "item_requests": 0,
        "item_seconds": 0,
    }
    keys = {row["key"] for row in store.records.stream(RecordQuery(job=job.id))}
    assert keys == {f"p{n}-{row}" for n in range(PROCESSES) for row in range(ROWS)}
    assert len(await store.events.list(job.id, types=["item.skipped"], limit=10**6)) == len(keys)
