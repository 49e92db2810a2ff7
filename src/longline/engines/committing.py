"""Committing outcomes many at a time, beside the work on the next items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from longline.clock import Clock
from longline.errors import LeaseLost
from longline.model import ItemState
from longline.stores.queue import Finish, Queue

_COMPANY = 0.05  # seconds that outcomes wait for each other while they come in numbers


class Committer:
    """Takes outcomes from the workers and commits what has come together in one transaction.

    `on_commit` is told the new state of each item, or None when its lease was lost.
    """

    def __init__(
        self,
        queue: Queue,
        clock: Clock,
        most_waiting: int,
        on_commit: Callable[[ItemState | None], None],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._room = asyncio.Semaphore(most_waiting)
        self._on_commit = on_commit
        self._waiting: list[Finish] = []
        self._arrived = asyncio.Event()
        self._is_closing = False

    async def hand_over(self, finish: Finish) -> None:
        """Leave an outcome to be committed; waits only when too many are waiting already."""
        await self._room.acquire()
        self._waiting.append(finish)
        self._arrived.set()

    def close(self) -> None:
        """Let `run` return once everything handed over is committed."""
        self._is_closing = True
        self._arrived.set()

    async def run(self) -> None:
        """Commit until closed.

        Raises:
            StoreError: the database does not take any more.
        """
        size = 0
        while True:
            await self._arrived.wait()
            if size > 1 and not self._is_closing:
                await self._clock.sleep(_COMPANY)
            self._arrived.clear()
            batch, self._waiting = self._waiting, []
            size = len(batch)
            for end in await self._queue.finish_all(batch) if batch else ():
                self._room.release()
                self._on_commit(None if isinstance(end, LeaseLost) else end)
            if self._is_closing and not self._waiting:
                return
