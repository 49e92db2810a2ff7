"""Time as a dependency: the clock is passed to all code that waits or needs the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from types import TracebackType
from typing import Generic, Protocol, TypeVar

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
            self._since = _time()
        self._blocks += 1

    def __exit__(self, *_error: object) -> None:
        self._blocks -= 1
        if not self._blocks:
            self._seconds += _time() - self._since
            if self.on_end is not None:
                self.on_end()

    @property
    def is_waiting(self) -> bool:
        """Whether it waits now."""
        return self._blocks > 0

    def seconds(self) -> float:
        """Return the seconds waited until now; overlapping waits count once."""
        return self._seconds + (_time() - self._since if self._blocks else 0.0)

    def to_enter(self, inner: AbstractAsyncContextManager[T]) -> AbstractAsyncContextManager[T]:
        """Return `inner` with the time to enter it measured."""
        return _Entering(inner, self)


class _Entering(AbstractAsyncContextManager[T], Generic[T]):
    __slots__ = ("_inner", "_waiting")

    def __init__(self, inner: AbstractAsyncContextManager[T], waiting: WaitTimer) -> None:
        self._inner = inner
        self._waiting = waiting

    async def __aenter__(self) -> T:
        with self._waiting:
            return await self._inner.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def _time() -> float:
    # That of the loop: a `Clock` may be adjusted in between.
    return asyncio.get_running_loop().time()
