"""Keepers over cells: what is left to a backend is to change one named value atomically."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar
from uuid import uuid4

from longline.limits import breaker as breaking
from longline.limits import concurrency
from longline.limits import rate_limit as pacing
from longline.limits.backends.base import BreakerBackend, ConcurrencyBackend, RateLimitBackend
from longline.limits.breaker import (
    Admission,
    BreakerPolicy,
    BreakerState,
    Change,
    Health,
    Successes,
)
from longline.limits.concurrency import LEASE, Entry, InFlight
from longline.limits.rate_limit import BucketState, RateLimit, Slot

State = TypeVar("State")
Answer = TypeVar("Answer")
Step = Callable[[State | None, float], tuple[State | None, Answer]]
"""Told the value (None: there is none yet) and the time; returns the new value and an answer."""


class Cells(Protocol[State]):
    """Named values that several tasks or processes share."""

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        """Replace a value, with nobody in between; a value returned as it was is not written."""

    async def read(self, name: str) -> tuple[State | None, float]:
        """Return a value, and the time."""

    async def all(self) -> dict[str, State]:
        """Return every value by its name."""

    async def forget(self, name: str) -> bool:
        """Remove a value; False when there was none."""


class CellRateLimitBackend(RateLimitBackend):
    """The policy of `pace.py`, applied to cells."""

    def __init__(self, cells: Cells[BucketState]) -> None:
        self._cells = cells

    async def reserve(self, domain: str, pace: RateLimit) -> Slot:
        return await self._cells.change(domain, lambda state, now: pacing.reserve(pace, state, now))

    async def check(self, domain: str, pace: RateLimit, slot: Slot) -> float | None:
        state, now = await self._cells.read(domain)
        return None if state is None else pacing.check(pace, state, slot, now)

    async def penalise(self, domain: str, pace: RateLimit, seconds: float) -> BucketState:
        def step(state: BucketState | None, now: float) -> tuple[BucketState, BucketState]:
            barred = pacing.penalise(pace, state, now + seconds, now)
            return barred, barred

        return await self._cells.change(domain, step)

    async def observe_lateness(self, domain: str, pace: RateLimit, seconds: float) -> None:
        def step(state: BucketState | None, _now: float) -> tuple[BucketState | None, None]:
            return state and pacing.observe_lateness(pace, state, seconds), None

        await self._cells.change(domain, step)

    async def give_back(self, domain: str, slot: Slot) -> None:
        def step(state: BucketState | None, _now: float) -> tuple[BucketState | None, None]:
            return state and pacing.give_back(state, slot), None

        await self._cells.change(domain, step)

    async def state(self, domain: str) -> BucketState | None:
        state, _now = await self._cells.read(domain)
        return state


class CellBreakerBackend(BreakerBackend):
    """The policy of `breaker.py`, applied to cells."""

    def __init__(self, cells: Cells[BreakerState], *, freshness: float) -> None:
        self._cells = cells
        self.freshness = freshness

    async def admit(self, domain: str, policy: BreakerPolicy) -> Admission:
        return await self._cells.change(
            domain, lambda state, now: breaking.admit(policy, state or BreakerState(), now)
        )

    async def record(
        self,
        domain: str,
        policy: BreakerPolicy,
        health: Health,
        *,
        reason: str = "",
        successes: Successes = (),
    ) -> Change:
        def step(state: BreakerState | None, now: float) -> tuple[BreakerState, Change]:
            before = state or BreakerState()
            after = breaking.record(policy, before, health, now, reason=reason, successes=successes)
            return after, Change(before, after)

        return await self._cells.change(domain, step)

    async def reset(self, domain: str) -> BreakerState:
        def step(state: BreakerState | None, now: float) -> tuple[BreakerState, BreakerState]:
            closed = breaking.reset(state or BreakerState(), now)
            return closed, closed

        return await self._cells.change(domain, step)

    async def state(self, domain: str) -> BreakerState:
        state, _now = await self._cells.read(domain)
        return state or BreakerState()

    async def all(self) -> dict[str, BreakerState]:
        return await self._cells.all()

    async def forget(self, domain: str) -> bool:
        return await self._cells.forget(domain)


class CellConcurrencyBackend(ConcurrencyBackend):
    """The policy of `concurrency.py`, applied to cells."""

    def __init__(self, cells: Cells[InFlight]) -> None:
        self._cells = cells

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> Entry:
        token = uuid4().hex
        return await self._cells.change(
            domain,
            lambda crowd, now: concurrency.enter(crowd or InFlight(), token, limit, lease, now),
        )

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        await self._cells.change(
            domain,
            lambda crowd, now: (concurrency.stay(crowd or InFlight(), tokens, lease, now), None),
        )

    async def release(self, domain: str, token: str) -> None:
        await self._cells.change(
            domain, lambda crowd, _now: (crowd and concurrency.leave(crowd, token), None)
        )
