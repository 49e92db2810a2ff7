"""A process that shares a backend's file with others; started by test_sqlite.py.

Usage: sqlite_process.py reserve|probe FILE COUNT. Prints reserved times, or whether it may probe.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from longline.core.clock import SystemClock
from longline.limits.backends.sqlite import SqliteStateFile
from longline.limits.breaker import BreakerBackend, BreakerPolicy, BreakerState
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend

RATE_LIMIT = RateLimit(rate=0.1, capacity=5)
POLICY = BreakerPolicy(threshold=1, recovery=60.0)


async def reserve(path: Path, count: int) -> None:
    file = SqliteStateFile(path, SystemClock())
    backend = RateLimitBackend(file.backend("pace", BucketState))
    for _ in range(count):
        slot = await backend.reserve("a.test", RATE_LIMIT)
        print(repr(slot.at), flush=True)  # noqa: T201 - the answer of this program
    await asyncio.to_thread(
        sys.stdin.read
    )  # wait until stdin is closed, so that it can be killed alive


async def probe(path: Path, count: int) -> None:
    file = SqliteStateFile(path, SystemClock())
    backend = BreakerBackend(file.backend("breaker", BreakerState))
    for _ in range(count):
        admission = await backend.admit("a.test", POLICY)
        print(int(admission.is_probe), flush=True)  # noqa: T201 - the answer of this program
    await file.close()


if __name__ == "__main__":
    task = {"reserve": reserve, "probe": probe}[sys.argv[1]]
    asyncio.run(task(Path(sys.argv[2]), int(sys.argv[3])))
