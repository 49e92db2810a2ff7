"""Asking before each request whether its domain rests, and telling afterwards how it went."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from longline.core.clock import Clock, SystemClock
from longline.core.errors import Blocked, FailureKind, StoreError
from longline.limits.backends.base import BreakerBackend
from longline.limits.backends.memory import MemoryBreakerBackend
from longline.limits.breaker import (
    Admission,
    BreakerPolicy,
    BreakerState,
    Change,
    Health,
    Phase,
    Tally,
    Transition,
    admit,
    health_of,
)
from longline.limits.errors import CircuitOpen

_LONGEST_REASON = 200
_LONGEST_WAIT = 5.0  # seconds on the way back that are sat out; who waits longer is turned away
_SPARE = 0.001  # seconds: who comes a moment too early would have to wait anew


@dataclass(frozen=True, slots=True)
class Circuit:
    """How a domain's breaker stands; `opened_at` and `until` are None while it is closed.

    `rate` is the part of the last requests that failed, as far as failures made them known; None
    when those are too few to tell.
    """

    phase: Phase
    failures: int
    trips: int
    opened_at: float | None
    until: float | None
    rate: float | None = None
    reason: str = ""
    is_ban: bool = False
    history: tuple[Transition, ...] = ()


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
        backend: BreakerBackend | None = None,
    ) -> None:
        self._policy = policy or BreakerPolicy(threshold, recovery)
        self._clock = clock or SystemClock()
        self._backend = backend or MemoryBreakerBackend(self._clock)
        self._mirror: dict[str, tuple[BreakerState, float]] = {}
        self._tallies: dict[str, Tally] = {}
        self._probing: set[str] = set()
        self._turned_away = 0

    def is_calm(self, domain: str) -> bool:
        """Say at once that all is well with a domain.

        Then a request needs no `before`, and a success only `count_success`. False means only
        that this is not known for sure.
        """
        seen = self._mirror.get(domain)
        return (
            seen is not None
            and seen[0].is_untroubled
            and self._clock.now() - seen[1] < self._backend.freshness
        )

    def count_success(self, domain: str) -> None:
        """Count a success here; the keeper hears of it with the next thing it has to be told."""
        tally = self._tallies.get(domain)
        if tally is None:
            tally = self._tallies[domain] = Tally(self._policy.window)
        tally.count(self._clock.now())

    async def before(self, domain: str, url: str | None = None) -> None:
        """Let a request through, or not; every request let through is to be told to `after`.

        While the domain comes back, a short wait is sat out: an item that needs several requests
        would otherwise be begun anew at each.

        Raises:
            CircuitOpen: when the domain rests; it says until when.
        """
        while not (admission := await self._ask(domain)).is_allowed:
            wait = admission.until - self._clock.now()
            if wait > _LONGEST_WAIT or not await self._is_ramping(domain):
                self._turn_away(url or domain, admission)
            await self._clock.sleep(wait + _SPARE)
        if admission.is_probe:
            self._probing.add(domain)

    async def after(self, domain: str, error: BaseException | None) -> Change | None:
        """Tell how a request ended; None is a success, and a cancellation says nothing.

        Returns what this made of the breaker; None when the keeper did not have to be told.
        """
        health = Health.UNKNOWN if isinstance(error, asyncio.CancelledError) else health_of(error)
        is_probe = domain in self._probing
        self._probing.discard(domain)
        if health is Health.UNKNOWN and not is_probe:
            return None
        if health is Health.UP and (await self._look(domain)).is_untroubled:
            self.count_success(domain)
            return None
        tally = self._tallies.pop(domain, None)
        change = await self._backend.record(
            domain,
            self._policy,
            health,
            reason=_reason(error),
            successes=tally.take(self._clock.now()) if tally else (),
        )
        self._remember(domain, change.after)
        return change

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
        self._remember(domain, await self._backend.reset(domain))

    async def state(self, domain: str) -> Circuit:
        """Return how the breaker of a domain stands."""
        self._remember(domain, await self._backend.state(domain))
        return self._describe(self._mirror[domain][0])

    def get_statistics(self) -> BreakerStatistics:
        """Return how all breakers stood when they were last looked at."""
        domains = {name: self._describe(state) for name, (state, _) in self._mirror.items()}
        trips = sum(circuit.trips for circuit in domains.values())
        return BreakerStatistics(trips, self._turned_away, domains)

    async def _ask(self, domain: str) -> Admission:
        """Ask for one request; the keeper only when it has a say."""
        state = await self._look(domain)
        if state.phase(self._clock.now()) is Phase.OPEN:
            # Somebody may just have closed it by hand; on the mirror's word an item, or with it
            # its whole domain, would be put off for the length of a rest.
            self._mirror.pop(domain, None)
            state = await self._look(domain)
        now = self._clock.now()
        if state.is_free or state.phase(now) is Phase.OPEN:
            return admit(self._policy, state, now)[1]
        admission = await self._backend.admit(domain, self._policy)
        self._mirror.pop(domain, None)
        return admission

    async def _is_ramping(self, domain: str) -> bool:
        return (await self._look(domain)).phase(self._clock.now()) is Phase.RAMPING

    async def _look(self, domain: str) -> BreakerState:
        """Return the state, from the mirror while that is fresh."""
        seen = self._mirror.get(domain)
        if seen and self._clock.now() - seen[1] < self._backend.freshness:
            return seen[0]
        state = await self._backend.state(domain)
        self._remember(domain, state)
        return state

    def _remember(self, domain: str, state: BreakerState) -> None:
        self._mirror[domain] = (state, self._clock.now())

    def _turn_away(self, url: str, admission: Admission) -> NoReturn:
        self._turned_away += 1
        kind = FailureKind.BLOCKED if admission.is_ban else FailureKind.NETWORK
        raise CircuitOpen(url, admission.until, admission.reason, kind)

    def _describe(self, state: BreakerState) -> Circuit:
        return describe(state, self._policy, self._clock.now())


def describe(state: BreakerState, policy: BreakerPolicy, now: float) -> Circuit:
    """Return how a breaker stands at a moment, as people want to know it."""
    return Circuit(
        phase=state.phase(now),
        failures=state.failures,
        trips=state.trips,
        opened_at=state.opened_at,
        until=state.open_until,
        rate=state.rate(policy, now),
        reason=state.reason,
        is_ban=state.is_ban,
        history=state.history,
    )


def _reason(error: BaseException | None) -> str:
    if error is None:
        return ""
    told = error.evidence if isinstance(error, Blocked) else str(error)
    return (told or type(error).__name__)[:_LONGEST_REASON]
