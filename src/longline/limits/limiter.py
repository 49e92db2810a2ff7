"""RateLimiter: wait until a domain's rate limit admits a request."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longline.core.clock import Clock, SystemClock
from longline.core.errors import Deferred, FailureKind, StoreError, check_range
from longline.limits.backends.state import MemoryStateBackend, StateBackend
from longline.limits.learning import FASTEST, DomainLimit, Learned
from longline.limits.rate_limit import (
    BucketState,
    RateLimit,
    RateLimitBackend,
    available_tokens,
    is_void,
    observe_lateness,
)

_LOG = logging.getLogger(__name__)
_PRIORITY_STEP = 1000  # later arrivals that one step of priority overtakes: no request starves


async def wait_for_turn(turn: asyncio.Future[None], release: Callable[[], None]) -> None:
    """Wait for a turn; one that is granted at the same time as a cancellation is released."""
    try:
        await turn
    except asyncio.CancelledError:
        if turn.done() and not turn.cancelled():
            release()
        raise


class PriorityLock:
    """A lock that is handed to the waiter with the highest priority, then to the earliest.

    Priority is bounded: each step is worth a thousand places, so no waiter starves.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._is_held = False
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        """Return the number of waiters."""
        return sum(not turn.done() for _, _, turn in self._waiters)

    @contextlib.asynccontextmanager
    async def acquire(self, priority: int = 0) -> AsyncIterator[None]:
        """Hold the lock during the block."""
        if self._is_held:
            await self._wait_for_turn(priority)
        self._is_held = True
        try:
            yield
        finally:
            self._release()

    async def _wait_for_turn(self, priority: int) -> None:
        self._arrivals += 1
        turn = asyncio.get_running_loop().create_future()
        place = self._arrivals - _PRIORITY_STEP * priority
        heapq.heappush(self._waiters, (place, self._arrivals, turn))
        await wait_for_turn(turn, self._release)

    def _release(self) -> None:
        while self._waiters:
            _, _, turn = heapq.heappop(self._waiters)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False


# ---------------- All domains

_LONGEST_PENALTY = 30.0  # seconds of a penalty that are awaited; longer ones defer the item
_FRESHNESS = 1.0  # seconds between two checks whether an unlimited domain is barred
_URGENT = 1000  # priority of a request whose connection is already open
_SHORTEST_WAIT = 0.001  # below this, the time went into the call, not into waiting
_UNLIMITED = RateLimit(FASTEST, 1, margin=0.0)
"""The limit of an unlimited domain after a penalty: practically none, but it can be barred."""


@dataclass(frozen=True, slots=True)
class AcquiredSlot:
    """The right to send one request, due at the time `at` after `waited` seconds.

    `is_limited` is False when the domain has no limit; its lateness is not measured then.
    """

    domain: str
    at: float
    waited: float
    is_limited: bool = False


@dataclass(frozen=True, slots=True)
class WaitStatistics:
    """Requests and their waits; `mean_wait` is over the requests that waited.

    `rate` and `capacity` are those of the limit; None without one.
    """

    requests: int
    waits: int
    total_wait: float
    mean_wait: float
    rate: float | None
    capacity: int | None


@dataclass(frozen=True, slots=True)
class DomainStatistics(WaitStatistics):
    """Waits of one domain; `tokens` is how many requests could go now, None without a limit."""

    tokens: float | None


@dataclass(frozen=True, slots=True)
class LimiterStatistics(WaitStatistics):
    """Waits of all domains together, and of each; the limit is the default one."""

    domains: Mapping[str, DomainStatistics]


class RateLimiter:
    """A token bucket for each domain.

    Tasks of one process queue for a domain and only the first reserves a slot, so a cancellation or
    a crash wastes at most one slot, and a penalty keeps the order of the queue.

    Args:
        rate: requests per second; None is unlimited, "auto" learns each domain's limit.
        capacity: the burst: requests that may go together after an idle time.
        margin: seconds of jitter expected on the way to the server; paid once after a burst.
        limits: domains with their own limit; None is unlimited.
        clock: the clock to wait by.
        backend: where the buckets are; by default in this process.
        learned: where learned limits are; by default in this process.
        respects_pins: whether a limit pinned for a domain overrides `rate`.

    Raises:
        BadOption: a value is out of range.
    """

    def __init__(
        self,
        rate: float | Literal["auto"] | None = 2.0,
        capacity: int = 5,
        *,
        margin: float = 0.1,
        limits: Mapping[str, RateLimit | None] | None = None,
        clock: Clock | None = None,
        backend: RateLimitBackend | None = None,
        learned: StateBackend[Learned] | None = None,
        respects_pins: bool = True,
    ) -> None:
        self._respects_pins = respects_pins
        self._is_learning = rate == "auto"
        self._default = (
            None if rate is None or rate == "auto" else RateLimit(rate, capacity, margin)
        )
        self._limits = dict(limits or {})
        self._clock = clock or SystemClock()
        self._backend = backend or RateLimitBackend(MemoryStateBackend(self._clock))
        self._learned = learned or MemoryStateBackend[Learned](self._clock)
        self._domains: dict[str, _Domain] = {}

    def limit(self, domain: str) -> RateLimit | None:
        """Return the rate limit of a domain; None is unlimited."""
        return self._domain(domain).limit

    def rate(self, domain: str) -> float | None:
        """Return the long-term requests per second of a domain; None is unlimited."""
        return self._domain(domain).rate

    def try_acquire(self, domain: str) -> bool:
        """Count a request that may go immediately; return False when `acquire` has to decide."""
        known = self._domains.get(domain)
        if known is None or known.is_limited or known.is_outdated(self._clock.now()):
            return False
        known.requests += 1
        return True

    async def acquire(
        self, domain: str, url: str | None = None, *, priority: int = 0
    ) -> AcquiredSlot:
        """Wait until one request may go; the highest priority first, then in order of arrival.

        Raises:
            Deferred: the domain is barred for too long to wait here; names the `url`.
            StoreError: the backend cannot be used.
        """
        started = due = self._clock.now()
        known = self._domains.get(domain)
        if known is None or known.is_outdated(started):
            known = await self._load_domain(domain)
        waited, is_limited = 0.0, known.is_limited
        if is_limited:
            async with known.queue.acquire(priority):
                due = await self._wait_for_slot(known, url or domain)
            waited = self._clock.now() - started
        known.requests += 1
        if waited >= _SHORTEST_WAIT:
            known.waits += 1
            known.total_wait += waited
            _LOG.debug("waited %.3f s for the rate limit of %s", waited, domain)
        return AcquiredSlot(domain, due, waited, is_limited)

    async def penalise(self, domain: str, seconds: float) -> None:
        """Bar a domain for this many seconds, in every process that shares the backend."""
        check_range("penalty", seconds, "0 seconds or more", at_least=0)
        _LOG.debug("%s is blocked for %.3f s", domain, seconds)
        known = self._domain(domain)
        known.barred_until = max(known.barred_until, self._clock.now() + seconds)
        known.state = await self._backend.penalise(domain, known.limit or _UNLIMITED, seconds)
        known.barred_until = max(known.barred_until, known.state.barred_until)

    async def is_from_site(self, domain: str) -> bool:
        """Return whether robots.txt, the site itself or a person has set the limit of a domain."""
        known = self._domains.get(domain)
        if known is None or not known.is_loaded:
            known = await self._load_domain(domain)
        return known.is_from_site

    def cap_rate(self, domain: str, rate: float) -> None:
        """Never exceed this rate at a domain, whatever its limit is otherwise.

        Raises:
            BadOption: the rate is out of range.
        """
        RateLimit(rate)
        self._domain(domain).cap_rate(rate)

    async def record_accepted(self, slot: AcquiredSlot, *, outstanding: int = 0) -> None:
        """Record that a request was accepted while `outstanding` ones had no response yet."""
        known = self._domain(slot.domain)
        if known.is_learning:
            known.record_accepted(slot.at, outstanding)
            await known.sync(self._clock.now())

    async def record_refused(self, slot: AcquiredSlot, seconds: float) -> None:
        """Record that a domain refused a request: bar it for these seconds, then go slower."""
        await self._domain(slot.domain).record_refused(slot.at, self._clock.now())
        await self.penalise(slot.domain, seconds)

    async def set_published(self, domain: str, rate: float) -> bool:
        """Respect a limit that the domain declares; return True when it had declared none."""
        return await self._domain(domain).set_published(rate)

    def changed_rate(self, domain: str) -> float | None:
        """Return the learned rate if it has changed by a fifth since the last call."""
        return self._domain(domain).changed_rate()

    async def confirm(self, slot: AcquiredSlot, url: str | None = None) -> AcquiredSlot:
        """Check a slot just before the request is written; return the slot to send it with.

        That is a new one, waited for, when the request is so late that its own is void. Lateness
        makes the margin grow.

        Raises:
            Deferred: as `acquire` does.
            StoreError: the backend cannot be used.
        """
        known = self._domain(slot.domain)
        limit, seen, now = known.limit, known.state, self._clock.now()
        late = now - slot.at
        # Nearly every request is in time: the backend is called only when it may matter.
        if not limit or not seen or observe_lateness(limit, seen, late) is seen:
            return slot
        state = await self._backend.state(slot.domain) if late > limit.hold(seen) else None
        await self._backend.observe_lateness(slot.domain, limit, late)
        if not state or not is_void(limit, state, slot.at, now):
            return slot
        async with known.queue.acquire(_URGENT):
            due = await self._wait_for_slot(known, url or slot.domain)
        return AcquiredSlot(slot.domain, due, self._clock.now() - now, is_limited=True)

    def get_statistics(self) -> LimiterStatistics:
        """Return the statistics since the start or the last reset."""
        now = self._clock.now()
        domains = {
            name: known.statistics(now) for name, known in self._domains.items() if known.requests
        }
        requests = sum(one.requests for one in domains.values())
        waits = sum(one.waits for one in domains.values())
        total_wait = sum(one.total_wait for one in domains.values())
        return LimiterStatistics(
            requests,
            waits,
            total_wait,
            total_wait / waits if waits else 0.0,
            self._default.rate if self._default else None,
            self._default.capacity if self._default else None,
            domains,
        )

    def reset_statistics(self) -> None:
        """Start counting from zero; the buckets keep their state."""
        for known in self._domains.values():
            known.requests = known.waits = 0
            known.total_wait = 0.0

    def _domain(self, domain: str) -> _Domain:
        known = self._domains.get(domain)
        if known is None:
            known = self._domains[domain] = _Domain(
                domain,
                self._limits.get(domain, self._default),
                self._learned,
                is_learning=self._is_learning and domain not in self._limits,
                respects_pins=self._respects_pins,
            )
        return known

    async def _load_domain(self, domain: str) -> _Domain:
        """Load what is known of a domain, once for all tasks that wait for it."""
        known = self._domain(domain)
        async with known.queue.acquire():
            now = self._clock.now()
            if known.is_outdated(now):
                await (known.sync(now) if known.is_loaded else known.load(now))
                if not known.is_limited:  # limited domains see a penalty with each slot
                    state = await self._backend.state(known.domain)
                    if state and state.barred_until > now:
                        known.barred_until = state.barred_until
                known.is_loaded, known.checked_at = True, now
        return known

    async def _wait_for_slot(self, known: _Domain, url: str) -> float:
        """Reserve slots until one can be used, and return the time it was due."""
        now = self._clock.now()
        if now >= known.barred_until:
            known.barred_until = 0.0
        await known.store_cap()
        await known.sync(now)
        while True:
            limit = known.limit or _UNLIMITED
            slot = await self._backend.reserve(known.domain, limit)
            due = self._clock.now() + slot.wait
            known.state = slot.after
            penalty = slot.after.barred_until - (slot.at - slot.wait)
            if penalty > _LONGEST_PENALTY:
                await self._backend.cancel(known.domain, slot)
                problem = f"{known.domain} asked for a delay"
                until = self._clock.now() + penalty
                raise Deferred(url, until, problem, FailureKind.OVERLOAD, is_for_domain=True)
            left: float | None = slot.wait
            try:
                while left:
                    await self._clock.sleep(left)
                    left = await self._backend.check(known.domain, limit, slot)
            except asyncio.CancelledError:
                # The cancellation goes through even when the backend is not reachable.
                with contextlib.suppress(StoreError):
                    await self._backend.cancel(known.domain, slot)
                raise
            if left is not None:
                return due
            await self._backend.cancel(known.domain, slot)  # it has become void


class _Domain(DomainLimit):
    """One domain: its limit, its queue, its bucket as last seen, and its waits."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.queue = PriorityLock()
        self.requests = 0
        self.waits = 0
        self.total_wait = 0.0
        self.state: BucketState | None = None
        self.barred_until = 0.0
        self.is_loaded = False
        self.checked_at = -math.inf

    @property
    def is_limited(self) -> bool:
        return self.limit is not None or self.barred_until > 0

    def is_outdated(self, now: float) -> bool:
        """Whether it was never loaded, or is unlimited and not checked for a while."""
        return now - self.checked_at >= _FRESHNESS and not (self.is_loaded and self.is_limited)

    def statistics(self, now: float) -> DomainStatistics:
        limit = self.limit
        return DomainStatistics(
            self.requests,
            self.waits,
            self.total_wait,
            self.total_wait / self.waits if self.waits else 0.0,
            self.rate if limit else None,
            limit.capacity if limit else None,
            available_tokens(limit, self.state, now) if limit else None,
        )
