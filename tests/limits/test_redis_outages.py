"""While Redis is not reachable, callers wait and log it, or raise what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from redis import Redis

from longline.core.clock import SystemClock
from longline.core.errors import BadOption, RedisUnreachable
from longline.limits.backends.redis import (
    RedisConcurrencyBackend,
    RedisConnection,
    RedisRateLimitBackend,
    open_redis_backends,
)
from longline.limits.rate_limit import RateLimit
from tests.redis_connections import new_prefix
from tests.servers import RedisServer, free_port, redis_running
from tests.virtual import VirtualClock

DOMAIN = "a.test"
RATE_LIMIT = RateLimit()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_running(tmp_path) as server:
        yield server


@asynccontextmanager
async def limit_at(
    url: str, clock: VirtualClock, **options: object
) -> AsyncIterator[RedisRateLimitBackend]:
    """Give a backend that waits for ever for an answer: Redis knows nothing of virtual time."""
    connection = RedisConnection(url, clock, **{"timeout": None, **options})  # type: ignore[arg-type]  # mixed
    yield RedisRateLimitBackend(connection)
    await connection.close()


async def problem(url: str, clock: VirtualClock) -> str:
    """Return what is said about a Redis that cannot be used, which has to be at once."""
    begun = clock.now()
    async with limit_at(url, clock) as backend:
        with pytest.raises(RedisUnreachable) as caught:
            await backend.reserve(DOMAIN, RATE_LIMIT)
    assert clock.now() == begun
    return str(caught.value)


async def test_a_missing_redis_is_waited_for_and_reported_once(
    clock: VirtualClock, logged: list[str]
) -> None:
    url, begun = f"redis://127.0.0.1:{free_port()}/0", clock.now()

    async with limit_at(url, clock) as backend:
        with pytest.raises(RedisUnreachable, match="longline up"):
            await backend.reserve(DOMAIN, RATE_LIMIT)

    assert 55 < clock.now() - begun <= 60
    assert len(logged) == 1
    assert url.removeprefix("redis://").removesuffix("/0") in logged[0]


async def test_the_patience_of_workers_has_no_end(clock: VirtualClock) -> None:
    async with limit_at(f"redis://127.0.0.1:{free_port()}/0", clock, max_wait=None) as backend:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await backend.reserve(DOMAIN, RATE_LIMIT)


async def test_work_goes_on_when_redis_is_back(
    server: RedisServer, clock: VirtualClock, logged: list[str]
) -> None:
    async with limit_at(server.url, clock) as backend:
        await backend.reserve(DOMAIN, RATE_LIMIT)
        server.kill()
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(backend.reserve(DOMAIN, RATE_LIMIT)) for _ in range(5)]
            await clock.sleep(10)
            server.start()

    assert len({task.result().at for task in waiting}) == 5
    assert len(set(logged)) == len(logged) == 2  # that it is gone, and that it is back


@pytest.mark.parametrize("user", ["", ":wr0ng@"])
async def test_a_wrong_password_is_an_error_immediately(
    tmp_path: Path, clock: VirtualClock, user: str
) -> None:
    with redis_running(tmp_path, "--requirepass", "secret") as server:
        error = await problem(f"redis://{user}127.0.0.1:{server.port}/0", clock)

    assert "password" in error
    assert "LONGLINE_REDIS_URL" in error
    assert "wr0ng" not in error


async def test_a_missing_and_a_wrong_password_are_distinguished(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with redis_running(tmp_path, "--requirepass", "secret") as server:
        missing = await problem(f"redis://127.0.0.1:{server.port}/0", clock)
        wrong = await problem(f"redis://:wr0ng@127.0.0.1:{server.port}/0", clock)

    assert missing != wrong


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), "memory"),
        (("REPLICAOF", "127.0.0.1", "1"), "replica"),
    ],
)
async def test_a_redis_that_takes_no_writes_is_an_error_immediately(
    server: RedisServer, clock: VirtualClock, setting: tuple[str, ...], cause: str
) -> None:
    with Redis.from_url(server.url) as redis:
        redis.execute_command(*setting)

    assert cause in await problem(server.url, clock)


async def test_a_redis_that_becomes_a_replica_is_an_error_immediately(
    server: RedisServer, clock: VirtualClock
) -> None:
    async with limit_at(server.url, clock) as backend:
        await backend.reserve(DOMAIN, RATE_LIMIT)
        with Redis.from_url(server.url) as redis:
            redis.replicaof("127.0.0.1", 1)

            with pytest.raises(RedisUnreachable, match="replica"):
                await backend.reserve(DOMAIN, RATE_LIMIT)
            redis.replicaof("NO", "ONE")

        assert (await backend.reserve(DOMAIN, RATE_LIMIT)).wait > 0


async def test_an_endless_script_of_another_client_is_reported(
    server: RedisServer, clock: VirtualClock
) -> None:
    with Redis.from_url(server.url) as redis:
        redis.config_set("lua-time-limit", 1)
    with socket.create_connection(("127.0.0.1", server.port)) as other:
        other.sendall(b'EVAL "while true do end" 0\r\n')

        assert "SCRIPT KILL" in await problem(server.url, clock)


@dataclass
class Stub:
    """A server in this loop that answers each time with the same bytes, or never."""

    answer: bytes = b""
    port: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while await reader.read(4096):
            writer.write(self.answer)
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield f"redis://127.0.0.1:{self.port}/0"


async def test_another_server_than_redis_is_an_error_immediately(clock: VirtualClock) -> None:
    async with Stub(b"HTTP/1.1 400 Bad Request\r\n\r\n").running() as url:
        assert url.removeprefix("redis://").removesuffix("/0") in await problem(url, clock)


async def test_a_network_that_stalls_is_waited_for(clock: VirtualClock, logged: list[str]) -> None:
    begun = clock.now()
    async with (
        Stub().running() as url,
        limit_at(url, clock, timeout=3.0) as backend,
    ):
        with pytest.raises(RedisUnreachable):
            await backend.reserve(DOMAIN, RATE_LIMIT)

    assert 50 < clock.now() - begun < 65
    assert len(logged) == 1


async def test_a_cancellation_goes_through_a_stalled_network(clock: VirtualClock) -> None:
    async with Stub().running() as url, limit_at(url, clock, timeout=3.0, max_wait=None) as backend:
        begun = clock.now()
        asking = asyncio.create_task(backend.reserve(DOMAIN, RATE_LIMIT))
        await clock.sleep(1)
        asking.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asking

    assert clock.now() - begun == pytest.approx(1, abs=0.01)


async def test_a_release_does_not_wait_for_redis(clock: VirtualClock) -> None:
    begun = clock.now()
    connection = RedisConnection(
        f"redis://127.0.0.1:{free_port()}/0", clock, max_wait=None, timeout=None
    )

    await RedisConcurrencyBackend(connection).release(DOMAIN, "token")

    assert clock.now() == begun
    await connection.close()


class Lossy:
    """A way to Redis on which the first answers to scripts get lost, or are late."""

    def __init__(self, server: RedisServer, losses: int, *, delay: float = 0.0) -> None:
        self._server = server
        self._losses = losses
        self._delay = delay
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server.port)
        while question := await reader.read(65_536):
            back.write(question)
            answer = await there.read(65_536)
            if b"EVALSHA" in question and b"NOSCRIPT" not in answer and self._losses:
                self._losses -= 1
                if not self._delay:
                    break
                if self.meanwhile:
                    await self.meanwhile()
                await asyncio.sleep(self._delay)
            writer.write(answer)
        back.close()
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"


async def test_a_lost_answer_wastes_a_slot_and_doubles_none(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    prefix = new_prefix()
    slow = RateLimit(0.01, 1)
    async with (
        limit_at(redis_server.url, clock, prefix=prefix) as direct,
        Lossy(redis_server, 1).running() as url,
        limit_at(url, clock, prefix=prefix) as lossy,
    ):
        first = await direct.reserve(DOMAIN, slow)
        second = await lossy.reserve(DOMAIN, slow)

    assert second.at - first.at == pytest.approx(2 * slow.interval, rel=0.02)


async def test_a_slot_that_comes_too_late_is_not_used(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    prefix = new_prefix()
    slow = RateLimit(0.1, 5)
    async with (
        limit_at(redis_server.url, clock, prefix=prefix) as direct,
        Lossy(redis_server, 1, delay=100.0).running() as url,
        limit_at(url, clock, prefix=prefix) as late,
    ):
        first = await direct.reserve(DOMAIN, slow)
        second = await late.reserve(DOMAIN, slow)

    assert second.at - first.at == pytest.approx(2 * slow.interval, rel=0.02)


async def test_a_check_that_comes_too_late_is_made_again(
    redis_server: RedisServer, clock: VirtualClock
) -> None:
    prefix, slow, way = new_prefix(), RateLimit(0.1, 5), Lossy(redis_server, 1, delay=2.0)
    async with (
        limit_at(redis_server.url, clock, prefix=prefix) as direct,
        way.running() as url,
        limit_at(url, clock, prefix=prefix) as late,
    ):
        slot = await direct.reserve(DOMAIN, slow)
        await direct.check(DOMAIN, slow, slot)  # now Redis knows the script
        way.meanwhile = lambda: direct.penalise(DOMAIN, slow, 100)

        assert await late.check(DOMAIN, slow, slot) is None


async def test_an_address_that_makes_no_sense_is_refused(clock: VirtualClock) -> None:
    with pytest.raises(BadOption) as refused:
        RedisConnection("http://127.0.0.1", clock)

    assert refused.value.option == "redis_url"


@pytest.mark.real_time
async def test_opening_the_backends_starts_the_epoch(redis_server: RedisServer) -> None:
    prefix = new_prefix()

    async with open_redis_backends(redis_server.url, SystemClock(), prefix=prefix):
        with Redis.from_url(redis_server.url) as redis:
            assert redis.exists(prefix + "born")
