"""One time for all machines of a cluster: the database's, whatever their own clocks say."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from longline.core.clock import Clock
from longline.core.errors import StoreError
from longline.engine.committer import beside

_EVERY = 60.0  # seconds between looks at the database's clock; none drifts by much in that time


class Timekeeper(Protocol):
    """Whose time counts: a `Store`."""

    async def now(self) -> float:
        """Return its time, in seconds since the epoch."""


class SharedClock(Clock):
    """Runs with this machine's steady clock and is set by the database's.

    Leases are compared by their times: a worker whose clock is an hour ahead would think that all
    others are dead. Until it is set the first time, it shows this machine's time.
    """

    def __init__(self) -> None:
        self._zero = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._zero

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

    async def follow(self, store: Timekeeper) -> float:
        """Set it by the database; return by how many seconds this machine's clock is ahead.

        An answer that took long, as in a process that is busy, tells less than what is known
        already: it counts only if it shows that this clock is wrong.
        """
        asked = time.monotonic()
        there = await store.now()
        answered = time.monotonic()
        if not there - answered <= self._zero <= there - asked:
            self._zero = there - (asked + answered) / 2
        return time.time() - self.now()

    @asynccontextmanager
    async def following(self, store: Timekeeper) -> AsyncIterator[None]:
        """Set it from time to time while the block does something, for hours perhaps.

        Raises:
            LonglineError: what the block raises.
        """
        async with beside(self._keep_following(store)):
            yield

    async def _keep_following(self, store: Timekeeper) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            with contextlib.suppress(StoreError):  # whoever works notices, too
                await self.follow(store)
