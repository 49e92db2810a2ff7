"""A past that passes again: several tasks that meet archived moments in the order they had.

A source may remember things between items (that a site has turned it away, say), so what it makes
of an item depends on what came before. One item after the other would be another order than that
of the run, in which they overlapped.

Only the clock of a seat is of the past. A timeout of the event loop inside a layer measures the
real time of the replay, and may fire while its task merely waits for its turn.
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
        self._moments: list[_Moment] = []
        self._numbers = itertools.count()
        self._busy: set[Seat] = set()

    def take_seat(self) -> Seat:
        """Return a clock for one more task; time stands still until it waits, or leaves."""
        seat = Seat(self)
        self._busy.add(seat)
        return seat

    async def wait(self, seat: Seat, at: float) -> None:
        """Wait for a moment, unless it has passed, or the task has ended and left this behind."""
        if seat.has_left:
            return
        moment = (at, next(self._numbers), asyncio.get_running_loop().create_future(), seat)
        heapq.heappush(self._moments, moment)
        seat.waiting += 1
        self._busy.discard(seat)
        self._move_on()
        try:
            await moment[2]
        except asyncio.CancelledError:
            self._give_up(moment)
            raise

    def leave(self, seat: Seat) -> None:
        """Go on without a task that has ended."""
        seat.has_left = True
        self._busy.discard(seat)
        if seat.waiting:  # something that the task began and did not wait for
            self._drop([moment for moment in self._moments if moment[3] is seat])
        self._move_on()

    def _move_on(self) -> None:
        while not self._busy and self._moments:
            at, _, reached, seat = heapq.heappop(self._moments)
            self._wake(seat)
            if not reached.done():  # else it was cancelled, and nobody was there at that moment
                self.now = max(self.now, at)
                reached.set_result(None)

    def _wake(self, seat: Seat) -> None:
        # A task with several requests at once counts as waiting while one of them does.
        seat.waiting -= 1
        if not seat.waiting and not seat.has_left:
            self._busy.add(seat)

    def _give_up(self, moment: _Moment) -> None:
        if moment in self._moments:
            self._drop([moment])

    def _drop(self, moments: list[_Moment]) -> None:
        for moment in moments:
            self._moments.remove(moment)
            self._wake(moment[3])
            moment[2].cancel()
        heapq.heapify(self._moments)


class Seat(Clock):
    """The clock of one task on a timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.waiting = 0
        self.has_left = False

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


_Moment = tuple[float, int, "asyncio.Future[None]", Seat]
