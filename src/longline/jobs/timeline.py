"""A past that passes again: several tasks that meet archived moments in the order they had.

A source may remember things between items (that a site has turned it away, say), so what it makes
of an item depends on what came before. One item after the other would be another order than that
of the run, in which they overlapped.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

from longline.clock import Clock


class Timeline:
    """The time of a replay: it moves on to the next moment when everybody waits for one."""

    def __init__(self) -> None:
        self.now = 0.0
        self._moments: list[tuple[float, int, asyncio.Future[None], Seat]] = []
        self._numbers = itertools.count()
        self._busy = 0

    def take_seat(self) -> Seat:
        """Return a clock for one more task; time stands still until it waits, or leaves."""
        self._busy += 1
        return Seat(self)

    async def wait(self, seat: Seat, at: float) -> None:
        """Wait for a moment, unless it has passed."""
        reached = asyncio.get_running_loop().create_future()
        heapq.heappush(self._moments, (at, next(self._numbers), reached, seat))
        if not seat.waiting:
            self._busy -= 1
        seat.waiting += 1
        self._move_on()
        await reached

    def leave(self, seat: Seat) -> None:
        """Go on without a task that has ended."""
        if not seat.waiting:
            self._busy -= 1
        self._move_on()

    def _move_on(self) -> None:
        # A task with several requests at once counts as waiting while one of them does.
        while not self._busy and self._moments:
            at, _, reached, seat = heapq.heappop(self._moments)
            self.now = max(self.now, at)
            seat.waiting -= 1
            if not seat.waiting:
                self._busy += 1
            if not reached.done():
                reached.set_result(None)


class Seat(Clock):
    """The clock of one task on a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.waiting = 0

    def now(self) -> float:
        return self._timeline.now

    async def sleep(self, seconds: float) -> None:
        await self.reach(self.now() + max(0.0, seconds))

    async def reach(self, at: float) -> None:
        """Come back at a moment of the past, in its turn."""
        await self._timeline.wait(self, at)

    def leave(self) -> None:
        """Say that the task has ended."""
        self._timeline.leave(self)
