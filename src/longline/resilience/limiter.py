"""Waiting for one's turn: no domain is asked faster than its pace allows."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from longline.clock import Clock, SystemClock
from longline.errors import BadOption, FailureKind, Postponed, StoreError
from longline.resilience.keepers.base import PaceKeeper
from longline.resilience.keepers.memory import MemoryPaceKeeper
from longline.resilience.pace import Pace, PaceState, Slot, observe_lateness, tokens

_LONGEST_REST = 30.0  # seconds of a penalty that are sat out; items with longer ones are parked
_SHORTEST_WAIT = 0.001  # below this, time went into asking, not into waiting


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to send one request, due at the moment `at` after `waited` seconds in line."""

    domain: str
    at: float
    waited: float


@dataclass(frozen=True, slots=True)
class DomainStatistics:
    """Waits of one domain; `mean_wait` is over the requests that waited.

    `rate`, `capacity` and `tokens` (how many requests could go now) are None without a limit.
    """

    requests: int
    waits: int
    total_wait: float
    mean_wait: float
    rate: float | None
    capacity: int | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class LimiterStatistics:
    """Waits of all domains together, and of each; `rate` and `capacity` are the defaults."""

    requests: int
    waits: int
    total_wait: float
    mean_wait: float
    rate: float | None
    capacity: int | None
    domains: Mapping[str, DomainStatistics]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        return asdict(self)


class RateLimiter:
    """A token bucket for each domain.

    Tasks of one process stand in line for a domain and only the first holds a slot, so a
    cancellation or a crash wastes one slot at most, and a penalty keeps the order of the line.

    Args:
        rate: Requests a second; None is unlimited.
        capacity: How many requests may go at once after a quiet time.
        margin: Seconds of jitter to expect on the way to the server; paid once after a burst.
        limits: Domains with a pace of their own; None is unlimited.
        clock: What to wait by.
        keeper: Where the buckets live; without one, in this process.

    Raises:
        BadOption: when a figure makes no sense.
    """

    def __init__(
        self,
        rate: float | None = 2.0,
        capacity: int = 5,
        *,
        margin: float = 0.1,
        limits: Mapping[str, Pace | None] | None = None,
        clock: Clock | None = None,
        keeper: PaceKeeper | None = None,
    ) -> None:
        self._default = None if rate is None else Pace(rate, capacity, margin)
        self._limits = dict(limits or {})
        self._clock = clock or SystemClock()
        self._keeper = keeper or MemoryPaceKeeper(self._clock)
        self._lines: dict[str, asyncio.Lock] = {}
        self._states: dict[str, PaceState] = {}
        self._tallies: dict[str, _Tally] = {}

    @property
    def is_limited(self) -> bool:
        """Whether any domain has a limit at all."""
        return self._default is not None or any(self._limits.values())

    def pace(self, domain: str) -> Pace | None:
        """Return the pace of a domain; None is unlimited."""
        return self._limits.get(domain, self._default)

    async def acquire(self, domain: str, url: str | None = None) -> Grant:
        """Wait for the turn of one request; tasks are served in the order they came.

        Raises:
            Postponed: when the domain asked for a rest too long to sit out; names the `url`.
            StoreError: when the keeper cannot be asked.
        """
        asked_at = due = self._clock.now()
        pace = self.pace(domain)
        if pace is not None:
            async with self._lines.setdefault(domain, asyncio.Lock()):
                due = await self._take_turn(domain, url or domain, pace)
        grant = Grant(domain, due, self._clock.now() - asked_at)
        self._tallies.setdefault(domain, _Tally()).add(grant.waited)
        return grant

    async def penalise(self, domain: str, seconds: float) -> None:
        """Stop a domain for so many seconds, in every process that shares the keeper."""
        if not (math.isfinite(seconds) and seconds >= 0):
            raise BadOption("penalty", f"must be 0 seconds or more, not {seconds!r}")
        if pace := self.pace(domain):
            self._states[domain] = await self._keeper.penalise(domain, pace, seconds)

    async def report_lateness(self, domain: str, seconds: float) -> None:
        """Say how long after `Grant.at` a request really left, so that the margin can grow."""
        pace = self.pace(domain)
        known = self._states.get(domain)
        # Nearly every request is in time: the keeper hears only of those that may matter.
        if pace and known and observe_lateness(pace, known, seconds) is not known:
            await self._keeper.observe_lateness(domain, pace, seconds)

    def get_statistics(self) -> LimiterStatistics:
        """Return the figures since the start or the last reset."""
        total = _Tally()
        for tally in self._tallies.values():
            total.merge(tally)
        return LimiterStatistics(
            **total.figures(),
            rate=self._default.rate if self._default else None,
            capacity=self._default.capacity if self._default else None,
            domains={name: self._describe(name, tally) for name, tally in self._tallies.items()},
        )

    def reset_statistics(self) -> None:
        """Begin to count anew; the buckets stay as they are."""
        self._tallies.clear()

    async def _take_turn(self, domain: str, url: str, pace: Pace) -> float:
        """Reserve slots until one can be used, and return the moment it was due."""
        while True:
            slot = await self._keeper.reserve(domain, pace)
            due = self._clock.now() + slot.wait
            self._states[domain] = slot.after
            rest = slot.after.barred_until - (slot.at - slot.wait)
            if rest > _LONGEST_REST:
                await self._keeper.give_back(domain, slot)
                problem = f"{domain} asked for a rest"
                raise Postponed(url, self._clock.now() + rest, problem, FailureKind.OVERLOAD)
            if slot.wait == 0 or await self._sit_out(domain, pace, slot):
                return due
            await self._keeper.give_back(domain, slot)

    async def _sit_out(self, domain: str, pace: Pace, slot: Slot) -> bool:
        """Wait for a slot; False when it has become void."""
        more: float | None = slot.wait
        try:
            while more:
                await self._clock.sleep(more)
                more = await self._keeper.check(domain, pace, slot)
        except asyncio.CancelledError:
            # The cancellation goes through even when the keeper cannot be asked just now.
            with contextlib.suppress(StoreError):
                await self._keeper.give_back(domain, slot)
            raise
        return more is not None

    def _describe(self, domain: str, tally: _Tally) -> DomainStatistics:
        pace = self.pace(domain)
        if pace is None:
            return DomainStatistics(**tally.figures(), rate=None, capacity=None, tokens=None)
        left = tokens(pace, self._states.get(domain), self._clock.now())
        return DomainStatistics(
            **tally.figures(), rate=pace.rate, capacity=pace.capacity, tokens=left
        )


@dataclass(slots=True)
class _Tally:
    requests: int = 0
    waits: int = 0
    total_wait: float = 0.0

    def add(self, waited: float) -> None:
        self.requests += 1
        if waited >= _SHORTEST_WAIT:
            self.waits += 1
            self.total_wait += waited

    def merge(self, other: _Tally) -> None:
        self.requests += other.requests
        self.waits += other.waits
        self.total_wait += other.total_wait

    def figures(self) -> dict[str, Any]:
        mean = self.total_wait / self.waits if self.waits else 0.0
        return {**asdict(self), "mean_wait": mean}
