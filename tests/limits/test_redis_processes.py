"""Processes that share one Redis share one rate limit."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.limits.redis_process import RATE_LIMIT
from tests.redis_connections import new_prefix
from tests.servers import RedisServer

PROGRAM = Path(__file__).with_name("redis_process.py")
PROCESSES = 4
TIMES = 10


async def run_process(url: str, prefix: str) -> list[float]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, url, prefix, str(TIMES), stdout=asyncio.subprocess.PIPE
    )
    result, _ = await process.communicate()
    return [float(line) for line in result.decode().splitlines()]


@pytest.mark.real_time
async def test_processes_share_one_rate_limit(redis_server: RedisServer) -> None:
    prefix = new_prefix()

    result = await asyncio.gather(
        *(run_process(redis_server.url, prefix) for _ in range(PROCESSES))
    )

    times = sorted(at for one in result for at in one)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == PROCESSES * TIMES
    assert min(gaps) > RATE_LIMIT.interval - 0.001
