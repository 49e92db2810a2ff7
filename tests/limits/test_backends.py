"""Contract of every rate limit backend.

A new backend needs its name in BACKENDS and a branch in the fixture, here and in
test_concurrency_backends.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.limits.backends.redis import RedisRateLimitBackend
from longline.limits.rate_limit import RateLimit, RateLimitBackend
from tests.limit_backends import (
    MemoryRateLimitBackend,
    SqliteRateLimitBackend,
)
from tests.redis_connections import settled_redis
from tests.servers import RedisServer
from tests.virtual import VirtualClock

BACKENDS = ["memory", "sqlite", "redis"]
RATE_LIMIT = RateLimit()
ROUNDING = 1e-5


@pytest.fixture(params=BACKENDS)
async def buckets(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[RateLimitBackend]:
    if request.param == "memory":
        yield MemoryRateLimitBackend(clock)
    elif request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        async with settled_redis(server.url, clock) as connection:
            yield RedisRateLimitBackend(connection)
    elif request.param == "sqlite":
        backend = SqliteRateLimitBackend(tmp_path / "limits.sqlite", clock)
        yield backend
        await backend.close()
    else:
        pytest.fail(f"the fixture has no branch for {request.param}")


async def test_a_domain_never_asked_has_no_bucket(buckets: RateLimitBackend) -> None:
    assert await buckets.state("a.test") is None


async def test_slots_of_concurrent_callers_respect_the_rate(buckets: RateLimitBackend) -> None:
    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(20)))

    waits = sorted(slot.wait for slot in slots)

    assert waits == pytest.approx([0] * 5 + [0.6 + 0.5 * n for n in range(15)], abs=ROUNDING)


async def test_a_slot_leaves_the_state_it_says(buckets: RateLimitBackend) -> None:
    slot = await buckets.reserve("a.test", RATE_LIMIT)

    assert await buckets.state("a.test") == slot.after


async def test_domains_have_buckets_of_their_own(buckets: RateLimitBackend) -> None:
    await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(9)))

    slot = await buckets.reserve("b.test", RATE_LIMIT)

    assert slot.wait == 0


async def test_time_fills_the_bucket(buckets: RateLimitBackend, clock: VirtualClock) -> None:
    await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(5)))
    await clock.sleep(2.6)

    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(5)))

    assert sum(slot.wait for slot in slots) == 0


async def test_a_slot_is_due_at_its_time(buckets: RateLimitBackend, clock: VirtualClock) -> None:
    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)))
    slot = max(slots, key=lambda slot: slot.at)

    assert await buckets.check("a.test", RATE_LIMIT, slot) == pytest.approx(0.6, abs=ROUNDING)
    await clock.sleep(slot.wait)
    assert await buckets.check("a.test", RATE_LIMIT, slot) == 0


async def test_a_penalty_voids_the_slots_before_its_end(buckets: RateLimitBackend) -> None:
    slot = await buckets.reserve("a.test", RATE_LIMIT)

    await buckets.penalise("a.test", RATE_LIMIT, 30)

    assert await buckets.check("a.test", RATE_LIMIT, slot) is None
    assert (await buckets.reserve("a.test", RATE_LIMIT)).wait == pytest.approx(30.1, abs=ROUNDING)
    assert (await buckets.reserve("a.test", RATE_LIMIT)).wait == pytest.approx(30.6, abs=ROUNDING)


async def test_lateness_moves_slots_that_are_held(buckets: RateLimitBackend) -> None:
    slots = await asyncio.gather(*(buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)))
    slot = max(slots, key=lambda slot: slot.at)

    await buckets.observe_lateness("a.test", RATE_LIMIT, 0.2)

    assert await buckets.check("a.test", RATE_LIMIT, slot) == pytest.approx(0.8, abs=ROUNDING)


async def test_lateness_of_a_domain_never_asked_is_ignored(buckets: RateLimitBackend) -> None:
    await buckets.observe_lateness("a.test", RATE_LIMIT, 0.2)

    assert await buckets.state("a.test") is None


async def test_a_slot_given_back_is_handed_out_again(buckets: RateLimitBackend) -> None:
    slots = [await buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)]

    await buckets.cancel("a.test", slots[-1])

    assert (await buckets.reserve("a.test", RATE_LIMIT)).at == slots[-1].at


async def test_a_slot_with_a_newer_one_behind_it_is_lost(buckets: RateLimitBackend) -> None:
    slots = [await buckets.reserve("a.test", RATE_LIMIT) for _ in range(6)]

    await buckets.cancel("a.test", slots[0])

    assert (await buckets.reserve("a.test", RATE_LIMIT)).at > slots[-1].at
