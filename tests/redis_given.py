"""Redis for tests: its scripts told another time than Redis's own, and servers to maltreat."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as NotConnected
from redis.retry import Retry

from longline.core.clock import Clock
from longline.limits.backends.redis_connection import RedisConnection, Reply, exact
from tests.servers import RedisServer

_LONG = 1000.0  # seconds after which a bucket that Redis may have forgotten is full
_CLOCK = "local function clock() return tonumber(redis.call('GET', '{key}')) end"


class TimedDoor(RedisConnection):
    """A door to a real Redis whose scripts tell the time by a clock of the test."""

    def __init__(self, url: str, clock: Clock, prefix: str, **options: Any) -> None:
        key = prefix + "now"
        # Redis lives outside of virtual time, so no timer may run while it is waited for.
        super().__init__(
            url, clock, prefix=prefix, timeout=None, lua_clock=_CLOCK.format(key=key), **options
        )
        self._test_clock = clock
        self._now = key
        self._teller = Redis.from_url(url, retry=Retry(NoBackoff(), 3))

    async def call(
        self, script: str, keys: Sequence[str], *words: str, waits: bool = True
    ) -> Reply:
        with contextlib.suppress(NotConnected):  # then the call has something to say about it
            self._teller.set(self._now, exact(self._test_clock.now()))
        return await super().call(script, keys, *words, waits=waits)

    async def close(self) -> None:
        self._teller.close()
        await super().close()


@contextlib.asynccontextmanager
async def timed_door(
    url: str, clock: Clock, *, prefix: str | None = None, **options: Any
) -> AsyncIterator[TimedDoor]:
    """Open a door to keys of one's own, on a Redis that has just begun to remember."""
    door = TimedDoor(url, clock, prefix or new_prefix(), **options)
    try:
        await door.call("connect", [door.key("born")])
        yield door
    finally:
        await door.close()


@contextlib.asynccontextmanager
async def settled_door(url: str, clock: Clock) -> AsyncIterator[TimedDoor]:
    """Open a door to a Redis that has been up for a while."""
    early = _Earlier(clock)
    prefix = new_prefix()
    async with timed_door(url, early, prefix=prefix), timed_door(url, clock, prefix=prefix) as door:
        yield door


@contextlib.contextmanager
def server_of_its_own(folder: Path, *options: str) -> Iterator[RedisServer]:
    """Give a redis-server that nobody else uses, with these options."""
    server = RedisServer(folder, options=options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def new_prefix() -> str:
    """Return a beginning of keys that nobody else uses."""
    return f"test-{uuid4().hex}:"


class _Earlier(Clock):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now() - _LONG

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
