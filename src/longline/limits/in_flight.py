"""Letting no more than so many requests of a domain go at once, over all processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from longline.core.clock import Clock, SystemClock, sleep_or_wake
from longline.core.errors import BadOption, StoreError
from longline.limits.backends.base import ConcurrencyBackend
from longline.limits.backends.memory import MemoryConcurrencyBackend
from longline.limits.concurrency import LEASE, RENEWAL
from longline.limits.limiter import PriorityLock

_FIRST_PAUSE = 0.02  # seconds until another process is asked again whether it has left
_LONGEST_PAUSE = 0.5


class ConcurrencyLimiter:
    """Room for `limit` requests at each domain.

    Tasks of one process stand in line and only the first asks the keeper; who leaves lets the next
    of its own process ask at once.

    Args:
        limit: How many requests may be under way at a domain, in all processes together.
        clock: What to wait by.
        keeper: Where it is written who is inside; without one, in this process.

    Raises:
        BadOption: when the limit makes no sense.
    """

    def __init__(
        self,
        limit: int,
        *,
        clock: Clock | None = None,
        backend: ConcurrencyBackend | None = None,
    ) -> None:
        if isinstance(limit, (bool, float)) or limit < 1:
            raise BadOption("max_in_flight", f"must be a whole number from 1, not {limit!r}")
        self._limit = limit
        self._clock = clock or SystemClock()
        self._backend = backend or MemoryConcurrencyBackend(self._clock)
        self._doors: dict[str, _Door] = {}
        self._renewing: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def room(self, domain: str, *, priority: int = 0) -> AsyncIterator[float]:
        """Wait for room, keep it until the block ends; gives the seconds that were waited.

        Raises:
            StoreError: when the keeper cannot be asked.
        """
        asked_at = self._clock.now()
        door = self._doors.setdefault(domain, _Door())
        async with door.line.turn(priority):
            token = await self._enter(domain, door)
        try:
            self._keep_renewing()
            yield self._clock.now() - asked_at
        finally:
            door.inside.discard(token)
            await self._leave(domain, token)

    async def close(self) -> None:
        """End what is done in the background; calling it again does no harm."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _enter(self, domain: str, door: _Door) -> str:
        pause = _FIRST_PAUSE
        while True:
            door.has_left.clear()
            if len(door.inside) >= self._limit:
                await door.has_left.wait()
                continue
            entry = await self._backend.acquire(domain, self._limit, LEASE)
            if entry.token is not None:
                door.inside.add(entry.token)
                return entry.token
            await sleep_or_wake(pause, door.has_left)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _leave(self, domain: str, token: str) -> None:
        try:
            # The answer is there: it is not lost because the keeper cannot be told that we leave.
            with contextlib.suppress(StoreError):
                await self._backend.release(domain, token)
        finally:
            self._doors[domain].has_left.set()

    def _keep_renewing(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew())

    async def _renew(self) -> None:
        """Give signs of life for those inside, until there are none."""
        await self._clock.sleep(RENEWAL)
        while inside := [(name, door) for name, door in self._doors.items() if door.inside]:
            for domain, door in inside:
                # A keeper that cannot be asked now is asked again; the leases outlast five tries.
                with contextlib.suppress(StoreError):
                    await self._backend.renew(domain, sorted(door.inside), LEASE)
            await self._clock.sleep(RENEWAL)


@dataclass(slots=True)
class _Door:
    """One domain: who waits, who of this process is inside, and whether somebody left."""

    line: PriorityLock = field(default_factory=PriorityLock)
    inside: set[str] = field(default_factory=set)
    has_left: asyncio.Event = field(default_factory=asyncio.Event)
