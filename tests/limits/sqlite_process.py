"""A process that shares a backend's file with others; started by test_sqlite.py.

Usage: sqlite_process.py reserve|probe FILE COUNT. Prints reserved times, or whether it may probe.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from longline.core.clock import SystemClock
from longline.core.errors import CircuitOpen
from longline.limits.backends.sqlite import SqliteStateFile
from longline.limits.breaker import BreakerPolicy, BreakerState, CircuitBreaker
from longline.limits.rate_limit import BucketState, RateLimit, RateLimitBackend

RATE_LIMIT = RateLimit(rate=0.1, capacity=5)
POLICY = BreakerPolicy(threshold=1, recovery=60.0)


async def reserve(path: Path, count: int) -> None:
    file = SqliteStateFile(path, SystemClock())
    backend = RateLimitBackend(file.backend("pace", BucketState))
    for _ in range(count):
        slot = await backend.reserve("a.test", RATE_LIMIT)
        print(repr(slot.at), flush=True)  # noqa: T201 - the answer of this program
    # Until stdin is closed, so that it can be killed while it is alive.
    await asyncio.to_thread(sys.stdin.read)


async def probe(path: Path, count: int) -> None:
    file = SqliteStateFile(path, SystemClock())
    states = file.backend("breaker", BreakerState)
    breaker = CircuitBreaker(policy=POLICY, backend=states)
    for _ in range(count):
        try:
            await breaker.admit("a.test")
        except CircuitOpen:
            print(0, flush=True)  # noqa: T201 - the answer of this program
        else:
            print(1, flush=True)  # noqa: T201 - the answer of this program
    await file.close()


if __name__ == "__main__":
    task = {"reserve": reserve, "probe": probe}[sys.argv[1]]
    asyncio.run(task(Path(sys.argv[2]), int(sys.argv[3])))
