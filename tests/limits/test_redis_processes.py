"""Processes that share one Redis share one pace, and one probe."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from longline.core.clock import SystemClock
from longline.limits.backends.redis import RedisBreakerBackend, open_redis_backends
from longline.limits.breaker import BreakerPolicy, Health
from tests.limits.redis_process import DOMAIN, PACE, POLICY
from tests.redis_connections import clocked_redis, new_prefix
from tests.servers import RedisServer
from tests.virtual import VirtualClock

PROGRAM = Path(__file__).with_name("redis_process.py")
PROCESSES = 4
TIMES = 10


async def run_process(url: str, prefix: str) -> list[tuple[float, bool]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, url, prefix, str(TIMES), stdout=asyncio.subprocess.PIPE
    )
    result, _ = await process.communicate()
    rows = [line.split() for line in result.decode().splitlines()]
    return [(float(at), probe == "1") for at, probe in rows]


@pytest.mark.real_time
async def test_processes_share_one_limit_and_one_probe(redis_server: RedisServer) -> None:
    prefix = new_prefix()
    async with open_redis_backends(redis_server.url, SystemClock(), prefix=prefix) as backends:
        soon = BreakerPolicy(threshold=1, recovery=0.001)
        await backends.breakers.record(DOMAIN, soon, Health.DOWN)

    result = await asyncio.gather(
        *(run_process(redis_server.url, prefix) for _ in range(PROCESSES))
    )

    answers = [answer for one in result for answer in one]
    times = sorted(at for at, _ in answers)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(answers) == PROCESSES * TIMES
    assert min(gaps) > PACE.interval - 0.001
    assert sum(is_probe for _, is_probe in answers) == 1


async def test_of_many_clients_one_becomes_the_probe(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    prefix = new_prefix()
    async with AsyncExitStack() as ends:
        connections = [clocked_redis(redis_server.url, clock, prefix=prefix) for _ in range(12)]
        backends = [
            RedisBreakerBackend(await ends.enter_async_context(connection))
            for connection in connections
        ]
        await backends[0].record(DOMAIN, POLICY, Health.DOWN)
        await clock.sleep(601)

        admissions = await asyncio.gather(*(one.admit(DOMAIN, POLICY) for one in backends * 5))

    assert [admission.is_allowed for admission in admissions].count(True) == 1
    assert [admission.is_probe for admission in admissions].count(True) == 1


async def test_of_many_clients_no_report_is_lost(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    prefix = new_prefix()
    async with (
        clocked_redis(redis_server.url, clock, prefix=prefix) as one,
        clocked_redis(redis_server.url, clock, prefix=prefix) as other,
    ):
        backends = [RedisBreakerBackend(one), RedisBreakerBackend(other)]
        patient = BreakerPolicy(threshold=1000, least_requests=1000)
        reports = (backend.record(DOMAIN, patient, Health.DOWN) for backend in backends * 20)

        await asyncio.gather(*reports)

        assert (await backends[0].state(DOMAIN)).failures == 40
