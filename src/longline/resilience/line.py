"""A waiting line: one at a time, the most urgent first, and otherwise in the order they came."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LEAP = 1000  # later arrivals that one step of priority lets go ahead: nobody waits for ever


class Line:
    """A lock whose holder hands it on to the first in line.

    Nobody slips in between, so no wake-up is lost. A request of higher priority goes ahead of
    those that wait, but not for ever: each step of priority is worth a thousand places.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._is_held = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(not turn.done() for _, _, turn in self._waiting)

    @asynccontextmanager
    async def turn(self, priority: int = 0) -> AsyncIterator[None]:
        """Wait for one's turn, and keep it until the block ends."""
        await self._enter(priority)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, priority: int) -> None:
        if not self._is_held:
            self._is_held = True
            return
        self._arrivals += 1
        turn = asyncio.get_running_loop().create_future()
        place = self._arrivals - _LEAP * priority
        heapq.heappush(self._waiting, (place, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the turn came together with the cancellation: hand it on
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False
