"""Leased items by domain: each domain has workers of its own, so that none waits for another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from longline.model import Lease


@dataclass(slots=True)
class _Lane:
    waiting: deque[Lease] = field(default_factory=deque)
    workers: int = 0


class Lanes:
    """Works on leases, `width` at once in each domain.

    Args:
        group: where the workers live; what one raises ends them all.
        work: what is done with a lease.
        width: how many of one domain at the same time.
        on_low: called when a domain has only `width` leases left to begin.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        work: Callable[[Lease], Awaitable[None]],
        width: int,
        on_low: Callable[[], None],
    ) -> None:
        self._group = group
        self._work = work
        self._width = width
        self._on_low = on_low
        self._lanes: dict[str, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, leases: Iterable[Lease]) -> None:
        """Take leases to work on; workers are there as long as there is something for them."""
        for lease in leases:
            lane = self._lanes.setdefault(lease.domain, _Lane())
            lane.waiting.append(lease)
            if lane.workers < self._width:
                lane.workers += 1
                task = self._group.create_task(self._serve(lease.domain, lane))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    def waiting(self) -> dict[str, int]:
        """Return how many leases of each domain nobody has begun."""
        return {domain: len(lane.waiting) for domain, lane in self._lanes.items()}

    def take_waiting(self) -> list[Lease]:
        """Return the leases that no worker has begun, and forget them: the workers end soon."""
        waiting = [lease for lane in self._lanes.values() for lease in lane.waiting]
        for lane in self._lanes.values():
            lane.waiting.clear()
        return waiting

    async def finish(self, grace: float) -> None:
        """Wait until every worker has ended; cancel those that have not after `grace` seconds."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=grace)
            for task in late:
                task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, domain: str, lane: _Lane) -> None:
        while lane.waiting:
            lease = lane.waiting.popleft()
            if len(lane.waiting) == self._width or not lane.waiting:
                self._on_low()
            await self._work(lease)
        lane.workers -= 1
        if not lane.workers:
            self._lanes.pop(domain, None)
