"""Concurrency limit: how many requests to a domain may be in flight, over all processes.

Each request holds a lease while it is in flight and renews it; the lease of a process that died
expires.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from longline.core.clock import Clock, SystemClock, backoff, sleep_or_wake
from longline.core.errors import StoreError, check_range
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.limiter import PriorityLock

LEASE = 30.0
"""Seconds after which a request that was not renewed is considered dead."""
RENEWAL = LEASE / 6
"""Seconds between two renewals."""
_FIRST_POLL = 0.02  # seconds until the backend is asked again for a slot
_LONGEST_POLL = 0.5


@dataclass(frozen=True, slots=True)
class InFlight:
    """The requests in flight at a domain: each token with its lease's end. Stored as JSON."""

    leases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InFlightSlot:
    """An acquired slot's `token`; None if all are in use, and none expires for `wait` seconds."""

    token: str | None
    wait: float = 0.0


def add_request(
    state: InFlight, token: str, limit: int, lease: float, now: float
) -> tuple[InFlight, InFlightSlot]:
    """Add a request while fewer than `limit` are in flight."""
    # After the clock was set back, no lease may be longer than one lease.
    leases = {one: min(until, now + lease) for one, until in state.leases.items() if until > now}
    if len(leases) >= limit:
        return InFlight(leases), InFlightSlot(None, min(leases.values(), default=now) - now)
    return InFlight({**leases, token: now + lease}), InFlightSlot(token)


def renew_requests(state: InFlight, tokens: Iterable[str], lease: float, now: float) -> InFlight:
    """Renew leases; a lost one is added again, since its request is in flight."""
    return InFlight({**state.leases, **dict.fromkeys(tokens, now + lease)})


def remove_request(state: InFlight, token: str) -> InFlight:
    """Remove a request."""
    return InFlight({one: until for one, until in state.leases.items() if one != token})


class ConcurrencyBackend:
    """The requests in flight at all domains; each call is one atomic step."""

    def __init__(self, states: StateBackend[InFlight]) -> None:
        self._states = states

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> InFlightSlot:
        """Acquire a slot for `lease` seconds if fewer than `limit` are in use in all processes."""
        token = uuid4().hex
        return await self._states.change(
            domain, lambda state, now: add_request(state or InFlight(), token, limit, lease, now)
        )

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        """Renew leases for another `lease` seconds; lost ones are added again."""
        await self._states.change(
            domain,
            lambda state, now: (renew_requests(state or InFlight(), tokens, lease, now), None),
        )

    async def release(self, domain: str, token: str) -> None:
        """Free a slot; an unknown token is ignored, and one that cannot be released expires."""
        await self._states.change(
            domain, lambda state, _now: (state and remove_request(state, token), None)
        )


class ConcurrencyLimiter:
    """A distributed semaphore of `limit` slots for each domain.

    Tasks of one process queue and only the first asks the backend; a released slot immediately
    wakes the next task of its own process.

    Args:
        limit: requests that may be in flight at a domain, in all processes together.
        clock: the clock to wait by.
        backend: where the requests in flight are recorded; by default in this process.

    Raises:
        BadOption: the limit is not a whole number from 1.
    """

    def __init__(
        self,
        limit: int,
        *,
        clock: Clock | None = None,
        backend: ConcurrencyBackend | None = None,
    ) -> None:
        check_range("max_in_flight", limit, "a whole number from 1", at_least=1, is_whole=True)
        self._limit = limit
        self._clock = clock or SystemClock()
        self._backend = backend or ConcurrencyBackend(MemoryStateBackend(self._clock))
        self._domains: dict[str, _DomainSlots] = {}
        self._renewal: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def slot(self, domain: str, *, priority: int = 0) -> AsyncIterator[float]:
        """Hold a slot during the block; yields the seconds that were waited.

        Raises:
            StoreError: the backend cannot be used.
        """
        started = self._clock.now()
        slots = self._domains.setdefault(domain, _DomainSlots())
        async with slots.queue.acquire(priority):
            token = await self._acquire(domain, slots)
        try:
            if self._renewal is None or self._renewal.done():
                self._renewal = asyncio.create_task(self._renew())
            yield self._clock.now() - started
        finally:
            slots.held.discard(token)
            try:
                # The response is there: it is not lost because the backend is not reachable.
                with contextlib.suppress(StoreError):
                    await self._backend.release(domain, token)
            finally:
                slots.released.set()

    async def close(self) -> None:
        """Stop renewing; further calls do nothing."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def _acquire(self, domain: str, slots: _DomainSlots) -> str:
        polls = 0
        while True:
            slots.released.clear()
            if len(slots.held) >= self._limit:
                await slots.released.wait()
                continue
            slot = await self._backend.acquire(domain, self._limit, LEASE)
            if slot.token is not None:
                slots.held.add(slot.token)
                return slot.token
            polls += 1
            pause = backoff(polls, base=_FIRST_POLL, ceiling=_LONGEST_POLL)
            await sleep_or_wake(pause, slots.released)

    async def _renew(self) -> None:
        """Renew all leases of this process until it holds none."""
        await self._clock.sleep(RENEWAL)
        while held := [(name, slots) for name, slots in self._domains.items() if slots.held]:
            for domain, slots in held:
                # Tried again at the next renewal; a lease outlasts five failed ones.
                with contextlib.suppress(StoreError):
                    await self._backend.renew(domain, sorted(slots.held), LEASE)
            await self._clock.sleep(RENEWAL)


@dataclass(slots=True)
class _DomainSlots:
    """One domain: its queue, the slots of this process, and whether one was released."""

    queue: PriorityLock = field(default_factory=PriorityLock)
    held: set[str] = field(default_factory=set)
    released: asyncio.Event = field(default_factory=asyncio.Event)
