"""When to leave a domain alone: it fails, it fails too often, or it has banned us.

closed → open → half-open (one probe) → ramping (few at a time) → closed. A ban opens at once and
for long; going slower would not help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from longline.core.backoff import backoff
from longline.core.errors import BadOption, FailureKind, Throttled, kind_of
from longline.limits.errors import CircuitOpen, Deferred

# ---------------- How many of the last requests failed: counts by slots of time, so that old ones

SLOTS = 6
"""A window is counted in so many pieces; the oldest drops out whole."""

Successes = tuple[tuple[float, int], ...]
"""Successes as one process hands them over: how many seconds ago, and how many."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that ended within one slot, which begins at `since`, seconds since the epoch."""

    since: float
    succeeded: int = 0
    failed: int = 0


Window = tuple[Counts, ...]


def add(window: Window, at: float, length: float, *, succeeded: int = 0, failed: int = 0) -> Window:
    """Return the window with so many more requests that ended at a moment."""
    since = _slot(at, length)
    slots = {counts.since: counts for counts in window}
    counts = slots.get(since, Counts(since))
    slots[since] = Counts(since, counts.succeeded + succeeded, counts.failed + failed)
    return tuple(slots[moment] for moment in sorted(slots))


def recent(window: Window, now: float, length: float) -> Window:
    """Return what lies within the last `length` seconds, to the slot."""
    return tuple(counts for counts in window if counts.since > now - length)


def totals(window: Window) -> tuple[int, int]:
    """Return how many requests there were, and how many of them failed."""
    failed = sum(counts.failed for counts in window)
    return failed + sum(counts.succeeded for counts in window), failed


class Tally:
    """The successes of one domain in this process that nobody was told of yet."""

    def __init__(self, length: float) -> None:
        self._length = length
        self._slots: dict[float, int] = {}

    def count(self, now: float) -> None:
        """Count one success."""
        since = _slot(now, self._length)
        if since not in self._slots:
            self._forget(now)
        self._slots[since] = self._slots.get(since, 0) + 1

    def take(self, now: float) -> Successes:
        """Return what was counted within the window, and begin anew."""
        self._forget(now)
        taken = tuple((now - since, count) for since, count in self._slots.items())
        self._slots = {}
        return taken

    def _forget(self, now: float) -> None:
        oldest = now - self._length
        self._slots = {since: count for since, count in self._slots.items() if since > oldest}


def _slot(at: float, length: float) -> float:
    return at - at % (length / SLOTS)


# ---------------- Coming back gradually: after a rest, requests return at 1, 2, 4, 8 … a second


@dataclass(frozen=True, slots=True)
class Ramp:
    """How far a domain has come back.

    It begins with the first request (`began`; None is not yet), not with the end of the rest:
    those who wait look again some seconds later, and all at once. `free_at` is when the next
    request may go, `turned_away` counts who came too early since the last one went.
    """

    seconds: float
    began: float | None = None
    free_at: float = 0.0
    turned_away: int = 0

    def is_over(self, now: float) -> bool:
        """Whether requests go freely again."""
        return self.began is not None and now >= self.began + self.seconds

    def ask(self, now: float) -> tuple[Ramp, float]:
        """Return the ramp after one request asked, and when that may go: now, or later."""
        began = now if self.began is None else self.began
        if now >= self.free_at:
            return Ramp(self.seconds, began, now + 2.0 ** (began - now)), now
        # Each is sent away for as long as those before it need at the doubling speed, so that
        # they come back one by one.
        before = self.turned_away * math.log(2) * 2.0 ** (began - self.free_at)
        due = self.free_at + math.log2(1 + before)
        return Ramp(self.seconds, began, self.free_at, self.turned_away + 1), due


HISTORY = 20
"""So many changes of a breaker are remembered."""
_PEEK = 0.1  # of the recovery: how soon others look again whether the probe came back
_LONGEST_RAMP = 60.0  # the speed doubles each second, and a float has its end
_SLOWLY = "it is only just back and is asked slowly"


class Phase(StrEnum):
    """What a breaker does with a request: let it through, none, one, or few."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    RAMPING = "ramping"


class Health(StrEnum):
    """What one request says about its domain."""

    UP = "up"
    DOWN = "down"
    BANNED = "banned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Open after `threshold` failures in a row, and ask again after `recovery` seconds.

    Also open when the part `failure_rate` of at least `least_requests` requests failed within
    `window` seconds. Each time the domain is still down, the next rest is twice as long, up to
    `longest_recovery`; after a ban it begins with `ban_rest` and grows up to `longest_ban`. Once
    the domain answers again, requests come back over `ramp` seconds; 0 is all at once.

    Raises:
        BadOption: when a figure makes no sense.
    """

    threshold: int = 10
    recovery: float = 60.0
    longest_recovery: float = 600.0
    failure_rate: float = 0.5
    least_requests: int = 20
    window: float = 60.0
    ban_rest: float = 900.0
    longest_ban: float = 21_600.0
    ramp: float = 5.0

    def __post_init__(self) -> None:
        _check("threshold", self.threshold, "1 failure or more", at_least=1)
        _check("least_requests", self.least_requests, "1 request or more", at_least=1)
        for name in ("recovery", "window", "ban_rest"):
            _check(name, getattr(self, name), "above 0 seconds", above=0)
        _check("failure_rate", self.failure_rate, "above 0, up to 1", above=0, at_most=1)
        _check("ramp", self.ramp, "from 0 to 60 seconds", at_least=0, at_most=_LONGEST_RAMP)

    @classmethod
    def for_apis(cls) -> BreakerPolicy:
        """Return the policy for APIs, which fail all at once and come back soon."""
        return cls(threshold=5, recovery=60.0)

    def rest(self, trips_in_a_row: int) -> float:
        """Return how long the domain rests after so many trips without a recovery between."""
        return _doubled(self.recovery, trips_in_a_row, self.longest_recovery)

    def rest_after_ban(self, bans_in_a_row: int) -> float:
        """Return how long the domain is left alone after so many bans without an answer between."""
        return _doubled(self.ban_rest, bans_in_a_row, self.longest_ban)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of a breaker: when, from which phase to which, and why."""

    at: float
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerState:
    """What is known of one domain; moments are seconds since the epoch.

    `trips` counts for ever, `trips_in_a_row` and `bans_in_a_row` since the domain last came back
    to full speed. `opened_at` is when the breaker last left the closed phase; `probe_until` is when
    a probe that never reported is lost. `reason` and `is_ban` tell of the last trip.
    """

    failures: int = 0
    trips: int = 0
    trips_in_a_row: int = 0
    opened_at: float | None = None
    open_until: float | None = None
    probe_until: float | None = None
    bans_in_a_row: int = 0
    is_ban: bool = False
    reason: str = ""
    ramp: Ramp | None = None
    window: Window = field(default=())
    history: tuple[Transition, ...] = field(default=())

    def __post_init__(self) -> None:
        # A keeper that writes JSON gives dicts and lists back.
        object.__setattr__(self, "window", tuple(_made(Counts, one) for one in self.window))
        object.__setattr__(self, "history", tuple(_made(Transition, one) for one in self.history))
        object.__setattr__(self, "ramp", self.ramp and _made(Ramp, self.ramp))

    def phase(self, now: float) -> Phase:
        """Return the phase at a moment."""
        if self.open_until is not None:
            return Phase.OPEN if now < self.open_until else Phase.HALF_OPEN
        is_ramping = self.ramp is not None and not self.ramp.is_over(now)
        return Phase.RAMPING if is_ramping else Phase.CLOSED

    @property
    def is_free(self) -> bool:
        """Whether every request may go without being counted."""
        return self.open_until is None and self.ramp is None

    @property
    def is_untroubled(self) -> bool:
        """Whether a success would change nothing."""
        return self.failures == 0 and self.is_free

    def rate(self, policy: BreakerPolicy, now: float) -> float | None:
        """Return the part of the last requests that failed; None when too few are known."""
        requests, failed = totals(recent(self.window, now, policy.window))
        return failed / requests if requests >= policy.least_requests else None


@dataclass(frozen=True, slots=True)
class Change:
    """What one report made of a breaker."""

    before: BreakerState
    after: BreakerState

    @property
    def transition(self) -> Transition | None:
        """The change of phase that this report brought about; None when it did not."""
        is_same = self.after.history == self.before.history
        return None if is_same else self.after.history[-1]


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a request may go; if not, `until` is when to ask again, and `reason` says why."""

    is_allowed: bool
    is_probe: bool = False
    until: float = 0.0
    reason: str = ""
    is_ban: bool = False


def admit(policy: BreakerPolicy, state: BreakerState, now: float) -> tuple[BreakerState, Admission]:
    """Decide on one request; in half-open, the first to ask becomes the probe."""
    state = _settled(state, now)
    if state.ramp is not None:
        ramp, due = state.ramp.ask(now)
        admission = Admission(is_allowed=due <= now, until=due, reason=_SLOWLY)
        return replace(state, ramp=ramp), admission
    if state.open_until is None:
        return state, Admission(is_allowed=True)
    if now < state.open_until:
        return state, _turned_away(state, state.open_until)
    if state.probe_until is not None and now < state.probe_until:
        return state, _turned_away(state, min(state.probe_until, now + policy.recovery * _PEEK))
    # A probe whose process was killed never reports, so its right ends by itself.
    probing = replace(state, probe_until=now + policy.recovery)
    return probing, Admission(is_allowed=True, is_probe=True)


def record(
    policy: BreakerPolicy,
    state: BreakerState,
    health: Health,
    now: float,
    *,
    reason: str = "",
    successes: Successes = (),
) -> BreakerState:
    """Note what a request said about the domain; `successes` are those not told of before."""
    state = _settled(state, now)
    phase = state.phase(now)
    if phase is Phase.OPEN and (health is not Health.BANNED or state.is_ban):
        return state  # a request from before the trip, late: only the probe decides
    if health is Health.UNKNOWN:
        return replace(state, probe_until=None)
    state = replace(state, window=_counted(policy, state.window, health, successes, now))
    if health is Health.BANNED:
        return _trip(policy, state, now, reason, is_ban=True)
    if health is Health.UP:
        return _succeeded(policy, state, phase, now)
    state = replace(state, failures=state.failures + 1)
    cause = _cause(policy, state, phase, reason, now)
    return state if cause is None else _trip(policy, state, now, cause)


def reset(state: BreakerState, now: float) -> BreakerState:
    """Return the state closed by hand; the trips stay counted, and requests go freely."""
    if state.is_untroubled:
        return state
    return BreakerState(
        trips=state.trips,
        history=_noted(state, now, state.phase(now), Phase.CLOSED, "closed by hand"),
    )


def health_of(error: BaseException | None) -> Health:
    """Return what the end of a request says about its domain; None is a success.

    A site that asks for a pause and says how long has itself in hand: the pace obeys, and the
    breaker has nothing to add. One that is merely overloaded is down.
    """
    if error is None:
        return Health.UP
    if isinstance(error, (CircuitOpen, Deferred)):
        return Health.UNKNOWN  # nothing was asked, or it was counted before
    if isinstance(error, Throttled) and error.retry_after is not None:
        return Health.UNKNOWN
    return _HEALTH.get(kind_of(error), Health.DOWN)


_HEALTH = {
    FailureKind.REFUSED: Health.UP,  # the host answered: it is up
    FailureKind.GONE: Health.UP,
    FailureKind.INVALID: Health.UP,
    FailureKind.BLOCKED: Health.BANNED,
    FailureKind.BUG: Health.UNKNOWN,  # our own fault says nothing about the host
    FailureKind.BUDGET: Health.UNKNOWN,  # nothing was asked
}


def _settled(state: BreakerState, now: float) -> BreakerState:
    """Return the state closed for good, once its ramp is over."""
    if state.ramp is None or not state.ramp.is_over(now):
        return state
    return BreakerState(
        failures=state.failures,
        trips=state.trips,
        window=state.window,
        history=_noted(state, now, Phase.RAMPING, Phase.CLOSED, "back at full speed"),
    )


def _turned_away(state: BreakerState, until: float) -> Admission:
    return Admission(is_allowed=False, until=until, reason=state.reason, is_ban=state.is_ban)


def _counted(
    policy: BreakerPolicy, window: Window, health: Health, successes: Successes, now: float
) -> Window:
    for age, count in successes:
        window = add(window, now - age, policy.window, succeeded=count)
    is_up = health is Health.UP
    window = add(window, now, policy.window, succeeded=int(is_up), failed=int(not is_up))
    return recent(window, now, policy.window)


def _succeeded(
    policy: BreakerPolicy, state: BreakerState, phase: Phase, now: float
) -> BreakerState:
    if phase is not Phase.HALF_OPEN:
        return replace(state, failures=0)
    if policy.ramp == 0:
        history = _noted(state, now, phase, Phase.CLOSED, "answered again")
        return BreakerState(trips=state.trips, history=history)
    return BreakerState(
        trips=state.trips,
        trips_in_a_row=state.trips_in_a_row,
        bans_in_a_row=state.bans_in_a_row,
        ramp=Ramp(policy.ramp),
        history=_noted(state, now, phase, Phase.RAMPING, "answered again"),
    )


def _cause(
    policy: BreakerPolicy, state: BreakerState, phase: Phase, reason: str, now: float
) -> str | None:
    """Return why the last failure opens the breaker; None when it does not."""
    last = f", the last: {reason}" if reason else ""
    if phase is Phase.HALF_OPEN:
        return f"still failing{last}"
    if phase is Phase.RAMPING:
        return f"failing again on its way back{last}"
    if state.failures >= policy.threshold:
        return f"{state.failures} failures in a row{last}"
    rate = state.rate(policy, now)
    if rate is not None and rate >= policy.failure_rate:
        return f"{rate:.0%} of the requests of {policy.window:g} s failed{last}"
    return None


def _trip(
    policy: BreakerPolicy, state: BreakerState, now: float, reason: str, *, is_ban: bool = False
) -> BreakerState:
    bans, trips = state.bans_in_a_row + is_ban, state.trips_in_a_row + (not is_ban)
    rest = policy.rest_after_ban(bans) if is_ban else policy.rest(trips)
    return BreakerState(
        failures=state.failures,
        trips=state.trips + 1,
        trips_in_a_row=trips,
        bans_in_a_row=bans,
        is_ban=is_ban,
        opened_at=now if state.opened_at is None else state.opened_at,
        open_until=now + rest,
        reason=reason,
        window=state.window,
        history=_noted(state, now, state.phase(now), Phase.OPEN, reason),
    )


def _noted(
    state: BreakerState, now: float, old: Phase, new: Phase, reason: str
) -> tuple[Transition, ...]:
    return (*state.history, Transition(now, old, new, reason))[-HISTORY:]


def _doubled(first: float, times: int, longest: float) -> float:
    return backoff(times, base=first, ceiling=max(first, longest))


def _check(
    name: str,
    value: float,
    wanted: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
) -> None:
    if not (math.isfinite(value) and above < value and at_least <= value <= at_most):
        raise BadOption(name, f"must be {wanted}, not {value!r}")


_Part = TypeVar("_Part")


def _made(kind: type[_Part], value: Any) -> _Part:
    return value if isinstance(value, kind) else kind(**value)
