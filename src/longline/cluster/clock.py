"""One time for all machines of a cluster: the database's, whatever their own clocks say."""

from __future__ import annotations

import asyncio
import time

from longline.clock import Clock
from longline.stores.store import Store


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

    async def follow(self, store: Store) -> float:
        """Set it by the database; return by how many seconds this machine's clock is ahead."""
        asked = time.monotonic()
        there = await store.now()
        answered = time.monotonic()
        self._zero = there - (asked + answered) / 2
        return time.time() - self.now()
