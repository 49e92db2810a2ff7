"""Contract of every concurrency backend: at most `limit` requests in flight, in all processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from longline.limits.backends.redis import RedisConcurrencyBackend
from longline.limits.concurrency import (
    LEASE,
    ConcurrencyBackend,
    InFlight,
    add_request,
    remove_request,
    renew_requests,
)
from tests.limit_backends import MemoryConcurrencyBackend, SqliteConcurrencyBackend
from tests.redis_connections import clocked_redis, settled_redis
from tests.servers import RedisServer
from tests.virtual import EPOCH, VirtualClock

DOMAIN = "a.test"
LIMIT = 3
BACKENDS = ["memory", "sqlite", "redis"]


@pytest.fixture(params=BACKENDS)
async def backend(
    request: pytest.FixtureRequest, clock: VirtualClock, tmp_path: Path
) -> AsyncIterator[ConcurrencyBackend]:
    if request.param == "memory":
        yield MemoryConcurrencyBackend(clock)
    elif request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        async with settled_redis(server.url, clock) as connection:
            yield RedisConcurrencyBackend(connection)
    elif request.param == "sqlite":
        backend = SqliteConcurrencyBackend(tmp_path / "limits.sqlite", clock)
        yield backend
        await backend.close()
    else:
        pytest.fail(f"the fixture has no branch for {request.param}")


async def tokens(backend: ConcurrencyBackend, count: int, domain: str = DOMAIN) -> list[str]:
    """Return the tokens of the acquired slots."""
    entries = await asyncio.gather(*(backend.acquire(domain, LIMIT) for _ in range(count)))
    return [entry.token for entry in entries if entry.token is not None]


async def test_of_fifty_requests_only_the_limit_is_in_flight(backend: ConcurrencyBackend) -> None:
    inside = await tokens(backend, 50)

    assert len(set(inside)) == LIMIT


async def test_a_released_slot_can_be_acquired(backend: ConcurrencyBackend) -> None:
    inside = await tokens(backend, 5)

    await backend.release(DOMAIN, inside[0])

    assert len(await tokens(backend, 5)) == 1


async def test_an_unknown_token_can_be_released(backend: ConcurrencyBackend) -> None:
    await tokens(backend, LIMIT)

    await backend.release(DOMAIN, "unknown")
    await backend.release("b.test", "unknown")

    assert await tokens(backend, 1) == []


async def test_the_slot_of_a_dead_process_expires_after_a_lease(
    backend: ConcurrencyBackend, clock: VirtualClock
) -> None:
    await tokens(backend, LIMIT)
    entry = await backend.acquire(DOMAIN, LIMIT)
    await clock.sleep(entry.wait + 0.001)

    assert entry.wait == pytest.approx(LEASE, abs=0.001)
    assert len(await tokens(backend, 5)) == LIMIT


async def test_a_renewed_slot_is_kept(backend: ConcurrencyBackend, clock: VirtualClock) -> None:
    inside = await tokens(backend, LIMIT)
    await clock.sleep(LEASE - 1)
    await backend.renew(DOMAIN, inside[:2])
    await clock.sleep(2)

    assert len(await tokens(backend, 5)) == 1


async def test_a_lost_slot_is_restored_by_its_renewal(backend: ConcurrencyBackend) -> None:
    await backend.renew(DOMAIN, ["one", "two"])

    assert len(await tokens(backend, 5)) == 1


async def test_domains_have_room_of_their_own(backend: ConcurrencyBackend) -> None:
    await tokens(backend, 5)

    assert len(await tokens(backend, 5, "b.test")) == LIMIT


async def test_a_lower_limit_counts_those_inside(backend: ConcurrencyBackend) -> None:
    await tokens(backend, 2)

    assert (await backend.acquire(DOMAIN, 2)).token is None


def test_a_clock_set_back_extends_no_lease() -> None:
    in_flight, _ = add_request(InFlight(), "one", 1, LEASE, EPOCH)

    in_flight, entry = add_request(in_flight, "two", 1, LEASE, EPOCH - 3600)

    assert (entry.token, entry.wait) == (None, LEASE)
    assert add_request(in_flight, "two", 1, LEASE, EPOCH - 3600 + LEASE)[1].token is not None


def test_in_flight_is_acquired_minus_released_and_expired() -> None:
    in_flight = renew_requests(InFlight({"one": EPOCH}), ["two"], LEASE, EPOCH)

    assert remove_request(in_flight, "one") == InFlight({"two": EPOCH + LEASE})


async def test_a_redis_clock_set_back_extends_no_lease(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    async with AsyncExitStack() as ends:
        now = await ends.enter_async_context(settled_redis(redis_server.url, clock))
        await ends.enter_async_context(
            clocked_redis(redis_server.url, Shifted(3600), prefix=now.prefix)
        )
        ahead = await ends.enter_async_context(
            clocked_redis(redis_server.url, Shifted(3600), prefix=now.prefix)
        )
        await RedisConcurrencyBackend(ahead).acquire(DOMAIN, 1)

        entry = await RedisConcurrencyBackend(now).acquire(DOMAIN, 1)

    assert (entry.token, entry.wait) == (None, LEASE)


class Shifted(VirtualClock):
    """A clock that can be set wrong."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return super().now() + self._seconds
