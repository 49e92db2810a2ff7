"""When Redis forgets, the rate limit starts from a full wait, and old slots are void."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from redis import Redis

from longline.limits.backends.redis import RedisConcurrencyBackend, RedisRateLimitBackend
from longline.limits.rate_limit import RateLimit
from tests.redis_connections import ClockedRedis, settled_redis
from tests.servers import RedisServer, redis_running
from tests.virtual import VirtualClock

DOMAIN = "a.test"
RATE_LIMIT = RateLimit(2.0, 5, 0.1)
A_FULL_WAIT = RATE_LIMIT.interval + RATE_LIMIT.margin


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_running(tmp_path) as server:
        yield server


@pytest.fixture
async def connection(server: RedisServer, clock: VirtualClock) -> AsyncIterator[ClockedRedis]:
    async with settled_redis(server.url, clock) as connection:
        yield connection


@pytest.fixture
def backend(connection: ClockedRedis) -> RedisRateLimitBackend:
    return RedisRateLimitBackend(connection)


def flush(server: RedisServer) -> None:
    with Redis.from_url(server.url) as redis:
        redis.flushall()


def restart(server: RedisServer) -> None:
    server.kill()
    server.start()


def fall_back_to_an_older_copy(server: RedisServer) -> None:
    """Load what was saved before, as a failover to a replica that lags behind does."""
    restart(server)


def save(server: RedisServer) -> None:
    with Redis.from_url(server.url) as redis:
        redis.save()


async def test_a_redis_that_has_been_up_for_a_while_gives_a_burst(
    backend: RedisRateLimitBackend,
) -> None:
    slots = [await backend.reserve(DOMAIN, RATE_LIMIT) for _ in range(6)]

    assert [slot.wait == 0 for slot in slots] == [True] * 5 + [False]


@pytest.mark.parametrize("forget", [flush, restart])
async def test_after_forgetting_the_first_slot_is_a_full_wait_away(
    backend: RedisRateLimitBackend, server: RedisServer, forget: Callable[[RedisServer], None]
) -> None:
    await backend.reserve(DOMAIN, RATE_LIMIT)
    forget(server)

    slots = [await backend.reserve(DOMAIN, RATE_LIMIT) for _ in range(3)]

    gaps = [later.at - earlier.at for earlier, later in pairwise(slots)]
    assert slots[0].wait == pytest.approx(A_FULL_WAIT, abs=1e-5)
    assert gaps == pytest.approx([RATE_LIMIT.interval] * 2, abs=1e-5)


async def test_a_domain_never_asked_before_waits_too(
    backend: RedisRateLimitBackend, server: RedisServer
) -> None:
    flush(server)

    assert (await backend.reserve("b.test", RATE_LIMIT)).wait == pytest.approx(
        A_FULL_WAIT, abs=1e-5
    )


async def test_an_older_copy_is_not_believed(
    backend: RedisRateLimitBackend, server: RedisServer
) -> None:
    await backend.reserve(DOMAIN, RATE_LIMIT)
    save(server)
    for _ in range(4):
        await backend.reserve(DOMAIN, RATE_LIMIT)
    fall_back_to_an_older_copy(server)

    slot = await backend.reserve(DOMAIN, RATE_LIMIT)

    assert slot.wait == pytest.approx(A_FULL_WAIT, abs=1e-5)


async def test_a_quiet_time_after_forgetting_fills_the_bucket(
    backend: RedisRateLimitBackend, server: RedisServer, clock: VirtualClock
) -> None:
    flush(server)
    await backend.state(DOMAIN)  # any call starts the new epoch
    await clock.sleep(RATE_LIMIT.capacity / RATE_LIMIT.rate + RATE_LIMIT.margin)

    slots = [await backend.reserve(DOMAIN, RATE_LIMIT) for _ in range(5)]

    assert sum(slot.wait for slot in slots) == 0


@pytest.mark.parametrize("forget", [flush, restart])
async def test_a_slot_from_before_is_void(
    backend: RedisRateLimitBackend, server: RedisServer, forget: Callable[[RedisServer], None]
) -> None:
    slots = [await backend.reserve(DOMAIN, RATE_LIMIT) for _ in range(8)]
    forget(server)

    assert await backend.check(DOMAIN, RATE_LIMIT, slots[-1]) is None
    after = await backend.reserve(DOMAIN, RATE_LIMIT)
    assert await backend.check(DOMAIN, RATE_LIMIT, slots[-1]) is None
    await backend.cancel(DOMAIN, slots[-1])
    assert await backend.state(DOMAIN) == after.after


async def test_a_rest_that_the_site_asked_for_is_not_forgotten(
    backend: RedisRateLimitBackend, server: RedisServer, clock: VirtualClock
) -> None:
    await backend.penalise(DOMAIN, RATE_LIMIT, 100)
    await clock.sleep(40)
    flush(server)

    slot = await backend.reserve(DOMAIN, RATE_LIMIT)

    assert slot.wait == pytest.approx(60 + RATE_LIMIT.margin, abs=0.1)


async def test_those_inside_are_heard_of_before_others_are_let_in(
    connection: ClockedRedis, server: RedisServer, clock: VirtualClock
) -> None:
    backend = RedisConcurrencyBackend(connection)
    inside = await backend.acquire(DOMAIN, 1)
    flush(server)

    max_in_flight = await backend.acquire(DOMAIN, 1)
    await backend.renew(DOMAIN, [inside.token or ""])
    await clock.sleep(max_in_flight.wait)
    later = await backend.acquire(DOMAIN, 1)

    assert (max_in_flight.token, later.token) == (None, None)
    assert 0 < max_in_flight.wait < 10


async def test_expired_leases_free_their_slots(
    connection: ClockedRedis, server: RedisServer, clock: VirtualClock
) -> None:
    backend = RedisConcurrencyBackend(connection)
    await backend.acquire(DOMAIN, 1)
    flush(server)
    await clock.sleep((await backend.acquire(DOMAIN, 1)).wait)

    assert (await backend.acquire(DOMAIN, 1)).token is not None
