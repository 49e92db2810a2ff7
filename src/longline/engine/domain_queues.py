"""Leased items by domain: each domain has workers of its own, so that none waits for another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from longline.core.errors import FailureKind
from longline.core.model import Lease, Outcome, OutcomeAction
from longline.storage.queue.queue import Waiting


@dataclass(slots=True)
class _DomainQueue:
    waiting: deque[Lease] = field(default_factory=deque)
    workers: int = 0


class DomainQueues:
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
        self._lanes: dict[str, _DomainQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, leases: Iterable[Lease]) -> None:
        """Take leases to work on; workers are there as long as there is something for them."""
        for lease in leases:
            lane = self._lanes.setdefault(lease.domain, _DomainQueue())
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

    async def _serve(self, domain: str, lane: _DomainQueue) -> None:
        while lane.waiting:
            lease = lane.waiting.popleft()
            if len(lane.waiting) == self._width or not lane.waiting:
                self._on_low()
            await self._work(lease)
        lane.workers -= 1
        if not lane.workers:
            self._lanes.pop(domain, None)


# ---------------- Which domains are not worth asking now: their items stay in the queue, untouched

_OF_BREAKERS = (FailureKind.NETWORK, FailureKind.BLOCKED)


class DomainRests:
    """The domains that are known to rest, until when, and which of them have banned us."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._blocks: dict[str, str] = {}
        self._broken: set[str] = set()

    def note(self, domain: str, outcome: Outcome) -> None:
        """Learn from the end of a try."""
        if outcome.action is not OutcomeAction.DEFER or not outcome.is_for_domain:
            return
        self._until[domain] = max(outcome.due or 0.0, self._until.get(domain, 0.0))
        if outcome.kind in _OF_BREAKERS:
            self._broken.add(domain)
        if outcome.kind is FailureKind.BLOCKED:
            self._blocks[domain] = outcome.reason or f"{domain} blocks us"

    def is_resting(self, domain: str, now: float) -> bool:
        """Say whether a domain is not worth asking now."""
        return self._until.get(domain, 0.0) > now

    def broken(self) -> list[str]:
        """Return the domains that rest because of their breaker, as far as can be told."""
        return sorted(self._broken)

    def forget(self, domain: str) -> None:
        """Let a domain be asked again."""
        self._until.pop(domain, None)
        self._blocks.pop(domain, None)
        self._broken.discard(domain)

    def resting(self, now: float) -> frozenset[str]:
        """Return the domains that rest now; what is over is forgotten."""
        for domain in [name for name, until in self._until.items() if until <= now]:
            self.forget(domain)
        return frozenset(self._until)

    def next_due(self, waiting: Mapping[str, Waiting]) -> float | None:
        """Return when the next queued item can be begun; None when none is queued."""
        dues = (max(one.due, self._until.get(name, 0.0)) for name, one in waiting.items())
        return min(dues, default=None)

    def block(self, waiting: Mapping[str, Waiting], now: float) -> str | None:
        """Return why nothing can be done for long: all that waits, waits for a ban to end.

        None when there is anything else to wait for.
        """
        reasons = [
            self._blocks.get(name) or (one.block if one.due > now else None)
            for name, one in waiting.items()
        ]
        return "; ".join(sorted({str(one) for one in reasons})) if all(reasons) else None


# ---------------- How many items a piece of work holds ahead of those that it has begun

_MOST = 128


class Prefetch:
    """Learns it: as many as are begun while more are being taken, twice over.

    Whenever all were begun before more had come, it is twice as many as before: how many would have
    been, nobody knows. So a quick site has several small chunks taken at a time, and a slow one
    never more than it needs.
    """

    def __init__(self, width: int) -> None:
        """Start with as many as can be begun at one moment."""
        self._width = width
        self._count = width
        self._begun = 0
        self._is_dry = False

    def wanted(self, waiting: int) -> int:
        """Return how many more to take when so many wait; 0 when those are enough."""
        return 2 * self._count - waiting if waiting <= self._count else 0

    def item_begun(self) -> None:
        """Note that one more does not wait."""
        self._begun += 1

    def ran_dry(self) -> None:
        """Note that one could have been begun, and none waited."""
        self._is_dry = True

    def start(self) -> None:
        """Note that more are being taken from now on."""
        self._begun, self._is_dry = 0, False

    def learn(self) -> None:
        """Note that they have come."""
        needed = self._width + 2 * self._begun
        if self._is_dry:
            needed = max(needed, 2 * self._count)
        self._count = min(needed, max(self._width, _MOST))
