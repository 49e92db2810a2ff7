"""A process that shares Redis with others; started by test_redis_processes.py.

Usage: redis_process.py URL PREFIX COUNT. Prints the time of each reserved slot.
"""

from __future__ import annotations

import asyncio
import sys

from longline.core.clock import SystemClock
from longline.limits.backends.redis import open_redis_backends
from longline.limits.rate_limit import RateLimit

DOMAIN = "a.test"
RATE_LIMIT = RateLimit(rate=0.1, capacity=5)


async def ask(url: str, prefix: str, count: int) -> None:
    async with open_redis_backends(url, SystemClock(), prefix=prefix) as backends:
        for _ in range(count):
            slot = await backends.rate_limits.reserve(DOMAIN, RATE_LIMIT)
            print(repr(slot.at), flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1], sys.argv[2], int(sys.argv[3])))
