"""Circuit breaker of a domain: stop requests when it fails too often or has banned us.

closed → open → half-open (one probe) → ramping (a few requests) → closed. A ban opens the breaker
immediately and for longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeVar

from longline.core.clock import Clock, SystemClock, backoff
from longline.core.errors import (
    Blocked,
    CircuitOpen,
    Deferred,
    FailureKind,
    StoreError,
    Throttled,
    check_range,
    kind_of,
)
from longline.limits.backends.state import MemoryStateBackend, StateBackend

_LOG = logging.getLogger(__name__)

# ---------------- Failure rate: requests counted by slots of time, so that old ones drop out

SLOTS = 6
"""The number of slots of a window; the oldest drops out as a whole."""

Successes = tuple[tuple[float, int], ...]
"""Successes of one process: how many seconds ago, and how many."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that ended within one slot, which starts at `since`, seconds since the epoch."""

    since: float
    succeeded: int = 0
    failed: int = 0


Window = tuple[Counts, ...]


def count_requests(
    window: Window, at: float, length: float, *, succeeded: int = 0, failed: int = 0
) -> Window:
    """Return the window with these requests added at a time."""
    since = slot_start(at, length)
    slots = {counts.since: counts for counts in window}
    counts = slots.get(since, Counts(since))
    slots[since] = Counts(since, counts.succeeded + succeeded, counts.failed + failed)
    return tuple(slots[start] for start in sorted(slots))


def recent_counts(window: Window, now: float, length: float) -> Window:
    """Return the slots of the last `length` seconds."""
    return tuple(counts for counts in window if counts.since > now - length)


def slot_start(at: float, length: float) -> float:
    """Return when the slot that a time falls into begins."""
    return at - at % (length / SLOTS)


# ---------------- Ramp: after the probe succeeded, requests return at 1, 2, 4, 8 … per second


@dataclass(frozen=True, slots=True)
class Ramp:
    """How far a domain has recovered. Stored as JSON.

    It starts with the first request (`began`; None is not yet), not when the breaker half-opens:
    deferred items come back some seconds later, all together. `free_at` is when the next request
    may go, `turned_away` counts the requests since the last admitted one.
    """

    seconds: float
    began: float | None = None
    free_at: float = 0.0
    turned_away: int = 0

    def is_over(self, now: float) -> bool:
        """Whether requests are no longer restricted."""
        return self.began is not None and now >= self.began + self.seconds

    def request(self, now: float) -> tuple[Ramp, float]:
        """Return the ramp after one more request, and when that request may go."""
        began = now if self.began is None else self.began
        if now >= self.free_at:
            return Ramp(self.seconds, began, now + 2.0 ** (began - now)), now
        # Each is deferred for as long as those before it need at the doubling speed, so that they
        # come back one by one.
        before = self.turned_away * math.log(2) * 2.0 ** (began - self.free_at)
        due = self.free_at + math.log2(1 + before)
        return Ramp(self.seconds, began, self.free_at, self.turned_away + 1), due


# ---------------- The policy

HISTORY = 20
"""The number of transitions that a breaker remembers."""
_PROBE_POLL = 0.1  # of the recovery: how soon others ask again whether the probe has ended
_LONGEST_RAMP = 60.0  # the speed doubles each second, and a float overflows


class Phase(StrEnum):
    """The phase of a breaker: admit all requests, none, one probe, or a few."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"
    RAMPING = "ramping"


class Health(StrEnum):
    """What the result of one request says about its domain."""

    UP = "up"
    DOWN = "down"
    BANNED = "banned"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """Open after `threshold` failures in a row, and send a probe after `recovery` seconds.

    Also open when the share `failure_rate` of at least `least_requests` requests failed within
    `window` seconds. Each failed probe doubles the recovery time up to `longest_recovery`; after a
    ban it starts with `ban_recovery` and grows up to `longest_ban`. After a successful probe the
    requests return over `ramp` seconds; 0 is immediately.

    Raises:
        BadOption: a value is out of range.
    """

    threshold: int = 10
    recovery: float = 60.0
    longest_recovery: float = 600.0
    failure_rate: float = 0.5
    least_requests: int = 20
    window: float = 60.0
    ban_recovery: float = 900.0
    longest_ban: float = 21_600.0
    ramp: float = 5.0

    def __post_init__(self) -> None:
        check_range("threshold", self.threshold, "1 failure or more", at_least=1)
        check_range("least_requests", self.least_requests, "1 request or more", at_least=1)
        for name in ("recovery", "window", "ban_recovery"):
            check_range(name, getattr(self, name), "above 0 seconds", above=0)
        check_range("failure_rate", self.failure_rate, "above 0, up to 1", above=0, at_most=1)
        check_range("ramp", self.ramp, "from 0 to 60 seconds", at_least=0, at_most=_LONGEST_RAMP)

    @classmethod
    def for_apis(cls) -> BreakerPolicy:
        """Return the policy for APIs, which fail as a whole and recover soon."""
        return cls(threshold=5)

    def recovery_after(self, in_a_row: int, *, is_ban: bool = False) -> float:
        """Return how long the breaker is open after this many trips (or bans) in a row."""
        base = self.ban_recovery if is_ban else self.recovery
        longest = self.longest_ban if is_ban else self.longest_recovery
        return backoff(in_a_row, base=base, ceiling=max(base, longest))


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of phase: when, from which to which, and why."""

    at: float
    old: str
    new: str
    reason: str


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The breaker of one domain; times are seconds since the epoch. Stored as JSON.

    `trips` is the total, `trips_in_a_row` and `bans_in_a_row` count since the domain last recovered
    completely. `opened_at` is when the breaker last left the closed phase; a probe without a result
    is considered lost at `probe_until`. `reason` and `is_ban` describe the last trip.
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
        # Backends that store JSON return dicts and lists.
        object.__setattr__(self, "window", tuple(_from_json(Counts, one) for one in self.window))
        history = tuple(_from_json(Transition, one) for one in self.history)
        object.__setattr__(self, "history", history)
        object.__setattr__(self, "ramp", self.ramp and _from_json(Ramp, self.ramp))

    def phase(self, now: float) -> Phase:
        """Return the phase at a time."""
        if self.open_until is not None:
            return Phase.OPEN if now < self.open_until else Phase.HALF_OPEN
        is_ramping = self.ramp is not None and not self.ramp.is_over(now)
        return Phase.RAMPING if is_ramping else Phase.CLOSED

    @property
    def is_closed(self) -> bool:
        """Whether every request may go without being counted."""
        return self.open_until is None and self.ramp is None

    @property
    def is_healthy(self) -> bool:
        """Whether a success would change nothing."""
        return self.failures == 0 and self.is_closed

    def rate(self, policy: BreakerPolicy, now: float) -> float | None:
        """Return the share of recent requests that failed; None when too few are known."""
        window = recent_counts(self.window, now, policy.window)
        failed = sum(counts.failed for counts in window)
        requests = failed + sum(counts.succeeded for counts in window)
        return failed / requests if requests >= policy.least_requests else None


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """The state after a recorded result or a reset, and the change of phase that it caused."""

    after: BreakerState
    transition: Transition | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a request may go; if not, `until` is when to ask again, and `reason` says why."""

    is_allowed: bool
    is_probe: bool = False
    until: float = 0.0
    reason: str = ""
    is_ban: bool = False
    is_ramping: bool = False


def admit_request(
    policy: BreakerPolicy, state: BreakerState, now: float
) -> tuple[BreakerState, Admission]:
    """Decide on one request; in half-open, the first one becomes the probe."""
    state = _after_ramp(state, now)
    if state.ramp is not None:
        ramp, due = state.ramp.request(now)
        reason = "it is recovering, so requests are resumed slowly"
        admission = Admission(due <= now, until=due, reason=reason, is_ramping=True)
        return replace(state, ramp=ramp), admission
    if state.open_until is None:
        return state, Admission(is_allowed=True)
    if now < state.open_until:
        return state, Admission(False, False, state.open_until, state.reason, state.is_ban)
    if state.probe_until is not None and now < state.probe_until:
        until = min(state.probe_until, now + policy.recovery * _PROBE_POLL)
        return state, Admission(False, False, until, state.reason, state.is_ban)
    # A probe whose process was killed never reports a result, so it expires.
    probing = replace(state, probe_until=now + policy.recovery)
    return probing, Admission(is_allowed=True, is_probe=True)


def record_result(
    policy: BreakerPolicy,
    state: BreakerState,
    health: Health,
    now: float,
    *,
    reason: str = "",
    successes: Successes = (),
) -> BreakerState:
    """Record the result of a request; `successes` are earlier ones not recorded yet."""
    state = _after_ramp(state, now)
    phase = state.phase(now)
    if phase is Phase.OPEN and (health is not Health.BANNED or state.is_ban):
        return state  # a late result from before the trip: only the probe decides
    if health is Health.UNKNOWN:
        return replace(state, probe_until=None)
    window = state.window
    for age, count in successes:
        window = count_requests(window, now - age, policy.window, succeeded=count)
    is_up = health is Health.UP
    window = count_requests(window, now, policy.window, succeeded=is_up, failed=not is_up)
    state = replace(state, window=recent_counts(window, now, policy.window))
    if health is Health.BANNED:
        return _trip(policy, state, now, reason, is_ban=True)
    if health is Health.DOWN:
        return _record_failure(policy, state, phase, reason, now)
    if phase is not Phase.HALF_OPEN:
        return replace(state, failures=0)
    new = Phase.RAMPING if policy.ramp else Phase.CLOSED
    return BreakerState(
        trips=state.trips,
        trips_in_a_row=state.trips_in_a_row if policy.ramp else 0,
        bans_in_a_row=state.bans_in_a_row if policy.ramp else 0,
        ramp=Ramp(policy.ramp) if policy.ramp else None,
        history=_with_transition(state, now, phase, new, "responded again"),
    )


def reset_breaker(state: BreakerState, now: float) -> BreakerState:
    """Return the state closed by a user; the number of trips is kept."""
    if state.is_healthy:
        return state
    return BreakerState(
        trips=state.trips,
        history=_with_transition(state, now, state.phase(now), Phase.CLOSED, "closed by a user"),
    )


def health_of(error: BaseException | None) -> Health:
    """Return what the result of a request says about its domain; None is a success.

    A site that asks for a pause of a given length works: the rate limiter obeys, and the breaker
    has nothing to add. A site that is overloaded without saying so is down.
    """
    if error is None:
        return Health.UP
    if isinstance(error, (CircuitOpen, Deferred)):
        return Health.UNKNOWN  # no request was sent, or it was recorded before
    if isinstance(error, Throttled) and error.retry_after is not None:
        return Health.UNKNOWN
    return _HEALTH.get(kind_of(error), Health.DOWN)


_HEALTH = {
    FailureKind.REFUSED: Health.UP,  # the host responded: it is up
    FailureKind.GONE: Health.UP,
    FailureKind.INVALID: Health.UP,
    FailureKind.BLOCKED: Health.BANNED,
    FailureKind.BUG: Health.UNKNOWN,  # our own bug says nothing about the host
    FailureKind.BUDGET: Health.UNKNOWN,  # no request was sent
}


def _after_ramp(state: BreakerState, now: float) -> BreakerState:
    """Return the state, closed once its ramp is over."""
    if state.ramp is None or not state.ramp.is_over(now):
        return state
    return BreakerState(
        failures=state.failures,
        trips=state.trips,
        window=state.window,
        history=_with_transition(state, now, Phase.RAMPING, Phase.CLOSED, "back at full speed"),
    )


def _record_failure(
    policy: BreakerPolicy, state: BreakerState, phase: Phase, reason: str, now: float
) -> BreakerState:
    state = replace(state, failures=state.failures + 1)
    rate = state.rate(policy, now)
    if phase is Phase.HALF_OPEN:
        cause = "still failing"
    elif phase is Phase.RAMPING:
        cause = "failed again while recovering"
    elif state.failures >= policy.threshold:
        cause = f"{state.failures} failures in a row"
    elif rate is not None and rate >= policy.failure_rate:
        cause = f"{rate:.0%} of the requests within {policy.window:g} s failed"
    else:
        return state
    return _trip(policy, state, now, f"{cause}; the last one: {reason}" if reason else cause)


def _trip(
    policy: BreakerPolicy, state: BreakerState, now: float, reason: str, *, is_ban: bool = False
) -> BreakerState:
    bans, trips = state.bans_in_a_row + is_ban, state.trips_in_a_row + (not is_ban)
    seconds = policy.recovery_after(bans if is_ban else trips, is_ban=is_ban)
    return BreakerState(
        failures=state.failures,
        trips=state.trips + 1,
        trips_in_a_row=trips,
        bans_in_a_row=bans,
        is_ban=is_ban,
        opened_at=now if state.opened_at is None else state.opened_at,
        open_until=now + seconds,
        reason=reason,
        window=state.window,
        history=_with_transition(state, now, state.phase(now), Phase.OPEN, reason),
    )


def _with_transition(
    state: BreakerState, now: float, old: Phase, new: Phase, reason: str
) -> tuple[Transition, ...]:
    return (*state.history, Transition(now, old, new, reason))[-HISTORY:]


_Part = TypeVar("_Part")


def _from_json(kind: type[_Part], value: Any) -> _Part:
    return value if isinstance(value, kind) else kind(**value)


# ---------------- All domains

_LONGEST_REASON = 200
_LONGEST_WAIT = 5.0  # seconds that are awaited while a domain ramps up; longer ones are refused
_SPARE = 0.001  # seconds: waking slightly too early would mean another wait


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    """The breaker of a domain for display; `opened_at` and `until` are None while it is closed.

    `rate` is the share of recent requests that failed; None when too few are known.
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
    """Trips in all processes, and the requests that this process turned away."""

    trips: int
    turned_away: int
    domains: Mapping[str, BreakerStatus]


class CircuitBreaker:
    """A breaker for each domain.

    Args:
        threshold: failures in a row that open it.
        recovery: seconds until a probe is sent.
        policy: replaces `threshold` and `recovery`, and sets more.
        clock: the clock.
        backend: where the breakers are; by default in this process.
        freshness: seconds for which a state of the backend may be reused; 0 is never.

    Raises:
        BadOption: a value is out of range.
    """

    def __init__(
        self,
        threshold: int = 10,
        recovery: float = 60.0,
        *,
        policy: BreakerPolicy | None = None,
        clock: Clock | None = None,
        backend: StateBackend[BreakerState] | None = None,
        freshness: float = 0.0,
    ) -> None:
        self._policy = policy or BreakerPolicy(threshold, recovery)
        self._clock = clock or SystemClock()
        self._backend = backend or MemoryStateBackend(self._clock)
        self._freshness = freshness
        self._seen: dict[str, tuple[BreakerState, float]] = {}
        self._healthy_until: dict[str, float] = {}
        self._successes: dict[str, dict[float, int]] = {}
        self._probes: set[str] = set()
        self._turned_away = 0

    def is_healthy(self, domain: str) -> bool:
        """Return whether a recently read state shows no failures; no backend is called.

        Then a request needs no `admit`, and a success only `count_success`. False means only that
        the state is not known.
        """
        return self._clock.now() < self._healthy_until.get(domain, 0.0)

    def count_success(self, domain: str) -> None:
        """Count a success in this process; it is recorded with the next result."""
        now, window = self._clock.now(), self._policy.window
        slots = self._successes.setdefault(domain, {})
        since = slot_start(now, window)
        if since not in slots:
            slots = {start: slots[start] for start in slots if start > now - window}
            self._successes[domain] = slots
        slots[since] = slots.get(since, 0) + 1

    async def admit(self, domain: str, url: str | None = None) -> None:
        """Return when a request may go; its result has to be passed to `record`.

        While the domain ramps up, short waits are awaited: an item that needs several requests
        would otherwise start again at each.

        Raises:
            CircuitOpen: the breaker is open; it says until when.
        """
        while not (admission := await self._admission(domain)).is_allowed:
            wait = admission.until - self._clock.now()
            if wait > _LONGEST_WAIT or not admission.is_ramping:
                self._turned_away += 1
                _LOG.debug("circuit breaker refused %s: %s", url or domain, admission.reason)
                kind = FailureKind.BLOCKED if admission.is_ban else FailureKind.NETWORK
                raise CircuitOpen(url or domain, admission.until, admission.reason, kind)
            await self._clock.sleep(wait + _SPARE)
        if admission.is_probe:
            self._probes.add(domain)

    async def record(self, domain: str, error: BaseException | None) -> BreakerChange | None:
        """Record the result of a request; None is a success, a cancellation counts as neither.

        Returns the effect; None when the backend was not called, or a cancellation not recorded.
        """
        health = Health.UNKNOWN if isinstance(error, asyncio.CancelledError) else health_of(error)
        is_probe = domain in self._probes
        self._probes.discard(domain)
        if health is Health.UNKNOWN and not is_probe:
            return None
        if health is Health.UP and (await self._current_state(domain)).is_healthy:
            self.count_success(domain)
            return None
        now = self._clock.now()
        successes = self._successes.pop(domain, {})
        text = error.evidence if isinstance(error, Blocked) else str(error or "")
        reason = text or (type(error).__name__ if error else "")
        ages = tuple((now - since, count) for since, count in successes.items())

        def update(state: BreakerState | None, now: float) -> tuple[BreakerState, BreakerChange]:
            before = state or BreakerState()
            after = record_result(
                self._policy,
                before,
                health,
                now,
                reason=reason[:_LONGEST_REASON],
                successes=ages,
            )
            is_same = after.history == before.history
            return after, BreakerChange(after, None if is_same else after.history[-1])

        try:
            change = await self._backend.change(domain, update)
        except StoreError:
            if isinstance(error, asyncio.CancelledError):
                return None  # it goes through even when the backend is not reachable
            raise
        self._remember(domain, change.after)
        if (moved := change.transition) is not None:
            _LOG.debug("breaker of %s: %s to %s: %s", domain, moved.old, moved.new, moved.reason)
        return change

    @contextlib.asynccontextmanager
    async def guard(self, domain: str, url: str | None = None) -> AsyncIterator[None]:
        """Admit the block as one request and record its result.

        Raises:
            CircuitOpen: the breaker is open; the block does not run.
        """
        await self.admit(domain, url)
        try:
            yield
        except (Exception, asyncio.CancelledError) as error:
            await self.record(domain, error)
            raise
        await self.record(domain, None)

    async def reset(self, domain: str) -> BreakerChange:
        """Close the breaker of a domain; there is no transition if nothing changes."""

        def close(state: BreakerState | None, now: float) -> tuple[BreakerState, BreakerChange]:
            before = state or BreakerState()
            after = reset_breaker(before, now)
            transition = None if after is before else after.history[-1]
            return after, BreakerChange(after, transition)

        self._probes.discard(domain)
        change = await self._backend.change(domain, close)
        self._remember(domain, change.after)
        return change

    async def state(self, domain: str) -> BreakerStatus:
        """Return the breaker of a domain."""
        self._seen.pop(domain, None)
        state = await self._current_state(domain)
        return status_of_breaker(state, self._policy, self._clock.now())

    def get_statistics(self) -> BreakerStatistics:
        """Return all breakers as they were last seen."""
        now = self._clock.now()
        domains = {
            name: status_of_breaker(state, self._policy, now)
            for name, (state, _) in self._seen.items()
        }
        trips = sum(status.trips for status in domains.values())
        return BreakerStatistics(trips, self._turned_away, domains)

    async def _admission(self, domain: str) -> Admission:
        """Decide on one request; the backend is called only when it matters."""
        state = await self._current_state(domain)
        if not state.is_closed:
            # A user may just have closed it; an outdated state would defer the item, or its whole
            # domain, until the breaker half-opens.
            self._seen.pop(domain, None)
            state = await self._current_state(domain)
        now = self._clock.now()
        if state.is_closed or state.phase(now) is Phase.OPEN:
            return admit_request(self._policy, state, now)[1]
        self._seen.pop(domain, None)
        return await self._backend.change(
            domain, lambda state, now: admit_request(self._policy, state or BreakerState(), now)
        )

    async def _current_state(self, domain: str) -> BreakerState:
        """Return the state; one that was read recently is reused."""
        seen = self._seen.get(domain)
        if seen and self._clock.now() - seen[1] < self._freshness:
            return seen[0]
        found, _ = await self._backend.read(domain)
        state = found or BreakerState()
        self._remember(domain, state)
        return state

    def _remember(self, domain: str, state: BreakerState) -> None:
        now = self._clock.now()
        self._seen[domain] = (state, now)
        self._healthy_until[domain] = now + self._freshness if state.is_healthy else 0.0


def status_of_breaker(state: BreakerState, policy: BreakerPolicy, now: float) -> BreakerStatus:
    """Return a breaker at a time, for display."""
    return BreakerStatus(
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
