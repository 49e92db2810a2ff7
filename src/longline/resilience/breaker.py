"""When to leave a failing domain alone: closed, open, half-open, and closed again."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from longline.errors import BadOption, CircuitOpen, FailureKind, Postponed, kind_of

_PEEK = 0.1  # of the recovery: how soon others look again whether the probe came back


class Phase(StrEnum):
    """What a breaker does with a request: let it through, turn it away, or let one through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Health(StrEnum):
    """What one request says about its domain."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Open after `threshold` failures in a row, and ask again after `recovery` seconds.

    Each time the domain is still down, the next rest is twice as long, up to `longest_recovery`.

    Raises:
        BadOption: when a figure makes no sense.
    """

    threshold: int = 10
    recovery: float = 60.0
    longest_recovery: float = 600.0

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise BadOption("threshold", f"must be 1 failure or more, not {self.threshold!r}")
        if not (math.isfinite(self.recovery) and self.recovery > 0):
            raise BadOption("recovery", f"must be above 0 seconds, not {self.recovery!r}")

    @classmethod
    def for_apis(cls) -> BreakerPolicy:
        """Return the policy for APIs, which fail all at once and come back soon."""
        return cls(threshold=5, recovery=60.0)

    def rest(self, trips_in_a_row: int) -> float:
        """Return how long the domain rests after so many trips without a success between."""
        longest = max(self.recovery, self.longest_recovery)
        return min(self.recovery * 2.0 ** min(trips_in_a_row - 1, 32), longest)


@dataclass(frozen=True, slots=True)
class BreakerState:
    """What is known of one domain; moments are seconds since the epoch.

    `trips` counts for ever, `trips_in_a_row` since the last success. `opened_at` is when the
    breaker last left the closed phase; `probe_until` is when a probe that never reported is lost.
    """

    failures: int = 0
    trips: int = 0
    trips_in_a_row: int = 0
    opened_at: float | None = None
    open_until: float | None = None
    probe_until: float | None = None

    def phase(self, now: float) -> Phase:
        """Return the phase at a moment."""
        if self.open_until is None:
            return Phase.CLOSED
        return Phase.OPEN if now < self.open_until else Phase.HALF_OPEN

    @property
    def is_untroubled(self) -> bool:
        """Whether a success would change nothing."""
        return self.failures == 0 and self.open_until is None


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a request may go; if not, `until` is when to ask again."""

    is_allowed: bool
    is_probe: bool = False
    until: float = 0.0


def admit(policy: BreakerPolicy, state: BreakerState, now: float) -> tuple[BreakerState, Admission]:
    """Decide on one request; in half-open, the first to ask becomes the probe."""
    if state.open_until is None:
        return state, Admission(is_allowed=True)
    if now < state.open_until:
        return state, Admission(is_allowed=False, until=state.open_until)
    if state.probe_until is not None and now < state.probe_until:
        until = min(state.probe_until, now + policy.recovery * _PEEK)
        return state, Admission(is_allowed=False, until=until)
    # A probe whose process was killed never reports, so its right ends by itself.
    probing = replace(state, probe_until=now + policy.recovery)
    return probing, Admission(is_allowed=True, is_probe=True)


def record(policy: BreakerPolicy, state: BreakerState, health: Health, now: float) -> BreakerState:
    """Note what a request said about the domain."""
    phase = state.phase(now)
    if phase is Phase.OPEN:
        return state  # a request from before the trip, late: only the probe decides
    if health is Health.UNKNOWN:
        return replace(state, probe_until=None)
    if health is Health.UP:
        return reset(state)
    failures = state.failures + 1
    if phase is Phase.CLOSED and failures < policy.threshold:
        return replace(state, failures=failures)
    return _trip(policy, replace(state, failures=failures), now)


def reset(state: BreakerState) -> BreakerState:
    """Return the state closed, as after a success; the trips stay counted."""
    return BreakerState(trips=state.trips)


def health_of(error: BaseException | None) -> Health:
    """Return what the end of a request says about its domain; None is a success."""
    if error is None:
        return Health.UP
    if isinstance(error, (CircuitOpen, Postponed)):
        return Health.UNKNOWN  # nothing was asked, or it was counted before
    return _HEALTH.get(kind_of(error), Health.DOWN)


_HEALTH = {
    FailureKind.REFUSED: Health.UP,  # the host answered: it is up
    FailureKind.GONE: Health.UP,
    FailureKind.INVALID: Health.UP,
    FailureKind.BUG: Health.UNKNOWN,  # our own fault says nothing about the host
}


def _trip(policy: BreakerPolicy, state: BreakerState, now: float) -> BreakerState:
    trips_in_a_row = state.trips_in_a_row + 1
    return BreakerState(
        failures=state.failures,
        trips=state.trips + 1,
        trips_in_a_row=trips_in_a_row,
        opened_at=now if state.opened_at is None else state.opened_at,
        open_until=now + policy.rest(trips_in_a_row),
    )
