"""Connections to Redis whose scripts read the time from the clock of a test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.retry import Retry

from longline.core.clock import Clock
from longline.limits.backends.redis import RedisConnection, Reply, exact

_FULL_AFTER = 1000.0  # seconds after which a bucket that Redis may have forgotten is full
_CLOCK = "local function clock() return tonumber(redis.call('GET', '{key}')) end"


class ClockedRedis(RedisConnection):
    """A connection to a real Redis whose scripts read the time from the clock of the test."""

    def __init__(self, url: str, clock: Clock, prefix: str, **options: Any) -> None:
        key = prefix + "now"
        # Redis lives outside of virtual time, so no timer may run while it is waited for.
        super().__init__(
            url, clock, prefix=prefix, timeout=None, lua_clock=_CLOCK.format(key=key), **options
        )
        self._test_clock = clock
        self._time_key = key
        self._time_writer = Redis.from_url(url, retry=Retry(NoBackoff(), 3))

    async def call(
        self, script: str, keys: Sequence[str], *words: str, waits: bool = True
    ) -> Reply:
        with contextlib.suppress(NotConnected):  # the call itself reports it
            self._time_writer.set(self._time_key, exact(self._test_clock.now()))
        return await super().call(script, keys, *words, waits=waits)

    async def close(self) -> None:
        self._time_writer.close()
        await super().close()


@contextlib.asynccontextmanager
async def clocked_redis(
    url: str, clock: Clock, *, prefix: str | None = None, **options: Any
) -> AsyncIterator[ClockedRedis]:
    """Connect with a new prefix, to a Redis that looks as if it had just started."""
    connection = ClockedRedis(url, clock, prefix or new_prefix(), **options)
    try:
        await connection.call("connect", [connection.key("born")])
        yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def settled_redis(url: str, clock: Clock) -> AsyncIterator[ClockedRedis]:
    """Connect to a Redis that looks as if it had been up for a while."""
    prefix = new_prefix()
    async with (
        clocked_redis(url, _Earlier(clock), prefix=prefix),
        clocked_redis(url, clock, prefix=prefix) as connection,
    ):
        yield connection


def new_prefix() -> str:
    """Return a prefix of keys that no other test uses."""
    return f"test-{uuid4().hex}:"


class _Earlier(Clock):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now() - _FULL_AFTER

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
