"""Asking before each request whether its domain rests, and telling afterwards how it went."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from longline.clock import Clock, SystemClock
from longline.errors import CircuitOpen, StoreError
from longline.resilience.breaker import (
    BreakerPolicy,
    BreakerState,
    Health,
    Phase,
    health_of,
)
from longline.resilience.keepers.base import BreakerKeeper
from longline.resilience.keepers.memory import MemoryBreakerKeeper


@dataclass(frozen=True, slots=True)
class Circuit:
    """How a domain's breaker stands; `opened_at` and `until` are None while it is closed."""

    phase: Phase
    failures: int
    trips: int
    opened_at: float | None
    until: float | None


@dataclass(frozen=True, slots=True)
class BreakerStatistics:
    """Trips as the keeper counts them, and the requests this process turned away."""

    trips: int
    turned_away: int
    domains: Mapping[str, Circuit]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        return asdict(self)


class CircuitBreaker:
    """A breaker for each domain.

    Args:
        threshold: Failures in a row that open it.
        recovery: Seconds until one request may try again.
        policy: Both and more, instead of them.
        clock: What time it is.
        keeper: Where the breakers live; without one, in this process.

    Raises:
        BadOption: when a figure makes no sense.
    """

    def __init__(
        self,
        threshold: int = 10,
        recovery: float = 60.0,
        *,
        policy: BreakerPolicy | None = None,
        clock: Clock | None = None,
        keeper: BreakerKeeper | None = None,
    ) -> None:
        self._policy = policy or BreakerPolicy(threshold, recovery)
        self._clock = clock or SystemClock()
        self._keeper = keeper or MemoryBreakerKeeper(self._clock)
        self._mirror: dict[str, tuple[BreakerState, float]] = {}
        self._probing: set[str] = set()
        self._turned_away = 0

    def is_calm(self, domain: str) -> bool:
        """Say at once that all is well with a domain, so that neither call below is needed.

        False means only that this is not known for sure.
        """
        seen = self._mirror.get(domain)
        return (
            seen is not None
            and seen[0].is_untroubled
            and self._clock.now() - seen[1] < self._keeper.freshness
        )

    async def before(self, domain: str, url: str | None = None) -> None:
        """Let a request through, or not; every request let through is to be told to `after`.

        Raises:
            CircuitOpen: when the domain rests; it says until when.
        """
        state = await self._look(domain)
        if state.open_until is None:
            return
        if self._clock.now() < state.open_until:
            self._turn_away(url or domain, state.open_until)
        admission = await self._keeper.admit(domain, self._policy)
        self._mirror.pop(domain, None)
        if not admission.is_allowed:
            self._turn_away(url or domain, admission.until)
        if admission.is_probe:
            self._probing.add(domain)

    async def after(self, domain: str, error: BaseException | None) -> None:
        """Tell how a request ended; None is a success, and a cancellation says nothing."""
        health = Health.UNKNOWN if isinstance(error, asyncio.CancelledError) else health_of(error)
        is_probe = domain in self._probing
        self._probing.discard(domain)
        if health is Health.UNKNOWN and not is_probe:
            return
        if health is Health.UP and (await self._look(domain)).is_untroubled:
            return
        self._remember(domain, await self._keeper.record(domain, self._policy, health))

    @contextlib.asynccontextmanager
    async def guard(self, domain: str, url: str | None = None) -> AsyncIterator[None]:
        """Ask before and tell after what is done inside.

        Raises:
            CircuitOpen: when the domain rests; nothing is done then.
        """
        await self.before(domain, url)
        try:
            yield
        except asyncio.CancelledError as error:
            # The cancellation goes through even when the keeper cannot be told just now.
            with contextlib.suppress(StoreError):
                await self.after(domain, error)
            raise
        except Exception as error:
            await self.after(domain, error)
            raise
        await self.after(domain, None)

    async def reset(self, domain: str) -> None:
        """Close the breaker of a domain by hand."""
        self._probing.discard(domain)
        self._remember(domain, await self._keeper.reset(domain))

    async def state(self, domain: str) -> Circuit:
        """Return how the breaker of a domain stands."""
        self._remember(domain, await self._keeper.state(domain))
        return self._describe(self._mirror[domain][0])

    def get_statistics(self) -> BreakerStatistics:
        """Return how all breakers stood when they were last looked at."""
        domains = {name: self._describe(state) for name, (state, _) in self._mirror.items()}
        trips = sum(circuit.trips for circuit in domains.values())
        return BreakerStatistics(trips, self._turned_away, domains)

    async def _look(self, domain: str) -> BreakerState:
        """Return the state, from the mirror while that is fresh."""
        seen = self._mirror.get(domain)
        if seen and self._clock.now() - seen[1] < self._keeper.freshness:
            return seen[0]
        state = await self._keeper.state(domain)
        self._remember(domain, state)
        return state

    def _remember(self, domain: str, state: BreakerState) -> None:
        self._mirror[domain] = (state, self._clock.now())

    def _turn_away(self, url: str, until: float) -> None:
        self._turned_away += 1
        raise CircuitOpen(url, until)

    def _describe(self, state: BreakerState) -> Circuit:
        phase = state.phase(self._clock.now())
        return Circuit(phase, state.failures, state.trips, state.opened_at, state.open_until)
