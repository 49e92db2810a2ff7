"""Time as a dependency: the clock is passed to all code that waits or needs the time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from longline.core.errors import StoreError

T = TypeVar("T")


class Clock(Protocol):
    """The time, and waiting."""

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds; return immediately when they are not positive."""


class SystemClock(Clock):
    """The clock of this machine."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def utc_datetime(seconds: float) -> datetime:
    """Return seconds since the epoch as an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, UTC)


async def sleep_or_wake(seconds: float, wake: asyncio.Event) -> bool:
    """Wait for this many seconds or until `wake` is set; return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        return False
    return True


class WaitTimer:
    """Measures how long an attempt has waited: a context manager for each wait, which may overlap.

    Waits for rate limits, slots, pauses and coalesced requests do not count as work on the item.
    Every waiting request uses it, so it is not a generator.
    """

    __slots__ = ("_blocks", "_seconds", "_since", "on_end")

    def __init__(self) -> None:
        self._blocks = 0
        self._seconds = 0.0
        self._since = 0.0
        self.on_end: Callable[[], None] | None = None

    def __enter__(self) -> None:
        if not self._blocks:
            self._since = _loop_time()
        self._blocks += 1

    def __exit__(self, *_error: object) -> None:
        self._blocks -= 1
        if not self._blocks:
            self._seconds += _loop_time() - self._since
            if self.on_end is not None:
                self.on_end()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits now."""
        return self._blocks > 0

    def seconds(self) -> float:
        """Return the seconds waited until now; overlapping waits count once."""
        return self._seconds + (_loop_time() - self._since if self._blocks else 0.0)

    @contextlib.asynccontextmanager
    async def to_enter(self, inner: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter `inner` for the block, with the time to enter it measured."""
        async with contextlib.AsyncExitStack() as stack:
            with self:
                entered = await stack.enter_async_context(inner)
            yield entered


def _loop_time() -> float:
    # That of the loop: a `Clock` may be adjusted in between.
    return asyncio.get_running_loop().time()


_FOLLOW = 60.0  # seconds between two readings of the database's clock


class TimeServer(Protocol):
    """What a cluster takes its time from: a `Store`."""

    async def now(self) -> float:
        """Return its time, in seconds since the epoch."""


class SharedClock(SystemClock):
    """The database's time, kept by this machine's monotonic clock.

    All machines of a cluster compare the times of leases: a worker whose clock is an hour ahead
    would consider all others dead. Until it is first set, it shows this machine's time.
    """

    def __init__(self) -> None:
        self._zero = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._zero

    async def follow(self, store: TimeServer) -> float:
        """Set it by the database; return by how many seconds this machine's clock is ahead.

        A slow response is less accurate than the current setting, so the clock is changed only if
        the response proves it wrong.
        """
        asked = time.monotonic()
        there = await store.now()
        answered = time.monotonic()
        if not there - answered <= self._zero <= there - asked:
            self._zero = there - (asked + answered) / 2
        return time.time() - self.now()

    async def keep_following(self, store: TimeServer) -> None:
        """Set it once a minute, until cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW)
            with contextlib.suppress(StoreError):  # the work itself reports it
                await self.follow(store)


# ---------------- Exponential backoff

_MAX_EXPONENT = 64  # a float overflows past 2.0**1023


def backoff(failures: int, *, base: float, ceiling: float, multiplier: float = 2.0) -> float:
    """Return the seconds to wait after this many failures in a row, without jitter."""
    return min(base * multiplier ** min(max(failures - 1, 0), _MAX_EXPONENT), ceiling)
