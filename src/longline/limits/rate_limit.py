"""Rate limit of a domain: a token bucket that is passed the time and reserves slots (GCRA).

The bucket is one number, the *theoretical arrival time*: each request moves it one interval on,
and a request may go once it is at most `slack` ahead.

A server that enforces exactly this limit has no tokens left after our burst, so a request that
travels a millisecond faster than an earlier one is refused. If delivery times differ by up to
`hold` seconds, request j is safe when, for every i with j - i >= capacity,

    slot[j] >= slot[i] + (j - i) * interval - slack + hold.

Slots from a full bucket need no refill and are safe. Every other slot is `hold` later than the
bucket allows, while the bucket itself counts from the earlier time: the wait is paid once, after
the burst, and not with every request. This holds while hold <= slack; beyond it, requests would
have to be spread further apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from longline.core.errors import check_range
from longline.limits.backends.state import StateBackend, returning

LONGEST_MARGIN = 5.0
"""Lateness never raises the margin above this many seconds."""
_GROWTH = 1.5  # of the observed lateness, so that a slightly later request is covered too
_ROUNDING = 1e-9  # of a sum of intervals
_CLOCK_ROUNDING = 1e-6  # epoch seconds in a float are exact to about 0.2 microseconds


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`rate` requests per second after a burst of `capacity`; `margin` is the expected jitter.

    Raises:
        BadOption: a value is out of range.
    """

    rate: float = 2.0
    capacity: int = 5
    margin: float = 0.1

    def __post_init__(self) -> None:
        check_range("rate", self.rate, "above 0 requests per second", above=0)
        check_range("capacity", self.capacity, "a whole number from 1", at_least=1, is_whole=True)
        check_range("margin", self.margin, "0 seconds or more", at_least=0)

    @property
    def interval(self) -> float:
        """Seconds until one token is refilled."""
        return 1 / self.rate

    @property
    def slack(self) -> float:
        """Seconds by which a full bucket lets requests run ahead of the rate."""
        return (self.capacity - 1) / self.rate

    def hold(self, state: BucketState) -> float:
        """Return the seconds by which slots are delayed after a burst."""
        # More than the slack would cost rate with every request. A bucket of one has no slack, so
        # any jitter would be refused: there, and only there, a tenth of the rate is given up.
        return min(max(self.margin, state.margin), max(self.slack, self.interval / 10))


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of one domain's bucket; times are seconds since the epoch. Stored as JSON.

    `ahead` is the theoretical arrival time, counted from `full_at`, when the bucket was last known
    to be full: a small number, so that adding an interval a million times does not drift. `margin`
    has grown by lateness, 0 while none was seen. No slot is before `barred_until`.
    """

    full_at: float
    ahead: float = 0.0
    margin: float = 0.0
    barred_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A reservation: a request may go at the time `at`, which was `wait` seconds ahead.

    `hold` is its delay, `before` and `after` are the bucket states around it. On Redis, it is valid
    only in the `epoch` in which it was reserved.
    """

    at: float
    wait: float
    hold: float
    before: BucketState
    after: BucketState
    epoch: str = ""


def reserve_slot(
    limit: RateLimit, state: BucketState | None, now: float
) -> tuple[BucketState, Slot]:
    """Reserve the next slot of a domain; a state of None is a domain without requests so far."""
    before = _refill(limit, state, now)
    hold = limit.hold(before)
    ready = before.ahead - limit.slack
    is_refill_needed = ready > _ROUNDING
    offset = max(
        now - before.full_at,
        ready + hold if is_refill_needed else 0.0,
        before.barred_until - before.full_at,
    )
    after = replace(before, ahead=max(before.ahead, offset) + limit.interval)
    at = max(before.full_at + offset, before.barred_until)
    return after, Slot(at, max(0.0, at - now), hold, before, after)


def check_slot(limit: RateLimit, state: BucketState, slot: Slot, now: float) -> float | None:
    """Return the seconds still to wait for a slot; called again after each wait.

    None means that the slot is void and another has to be reserved: a penalty arrived in between,
    or the caller woke so late that the requests behind it could catch up with it.
    """
    if slot.at < state.barred_until:
        return None
    hold = limit.hold(state)
    due = slot.at + max(0.0, hold - slot.hold)
    if 0 < hold < now - due:
        return None
    return due - now if due - now > _CLOCK_ROUNDING else 0.0


def is_void(limit: RateLimit, state: BucketState, at: float, now: float) -> bool:
    """Return whether a request that leaves now may no longer use its slot at the time `at`.

    Its token is lost once the bucket has been full since: the server's bucket was full as well and
    holds no more than `capacity`. This happens after a stall, when requests with earlier slots
    leave together with the burst of a full bucket. A penalty voids a slot as well.
    """
    if at < state.barred_until:
        return True
    return state.full_at > at + _CLOCK_ROUNDING or now >= _certainly_full_at(limit, state)


def bar(limit: RateLimit, state: BucketState | None, until: float, now: float) -> BucketState:
    """Bar a domain until a time, and start again then with an empty bucket."""
    state = _refill(limit, state, now)
    ahead = max(until, now) - state.full_at + limit.slack
    return replace(
        state,
        ahead=max(state.ahead, ahead),
        barred_until=max(state.barred_until, until),
    )


def observe_lateness(limit: RateLimit, state: BucketState, seconds: float) -> BucketState:
    """Grow the margin when a request left nearly a margin, or more, after its slot."""
    if seconds <= max(limit.margin, state.margin) / 2:
        return state
    return replace(state, margin=max(state.margin, min(_GROWTH * seconds, LONGEST_MARGIN)))


def available_tokens(limit: RateLimit, state: BucketState | None, now: float) -> float:
    """Return how many requests could go now."""
    if state is None:
        return float(limit.capacity)
    if now < state.barred_until:
        return 0.0
    debt = (state.full_at + state.ahead - now) * limit.rate
    return min(float(limit.capacity), max(0.0, limit.capacity - debt))


def _refill(limit: RateLimit, state: BucketState | None, now: float) -> BucketState:
    """Return the state at this time."""
    if state is None:
        return BucketState(full_at=now)
    if now >= _certainly_full_at(limit, state):  # old lateness fades
        return replace(state, full_at=now, ahead=0.0, margin=state.margin / 2)
    if now < state.full_at:
        return replace(state, full_at=now)  # the clock was set back: do not stop the domain
    return state


def _certainly_full_at(limit: RateLimit, state: BucketState) -> float:
    """Return when the bucket is full, even if the last request arrived as late as expected."""
    return state.full_at + state.ahead + limit.hold(state)


# ---------------- Backends


class RateLimitBackend:
    """The buckets of all domains; each call is one atomic step."""

    def __init__(self, states: StateBackend[BucketState]) -> None:
        self._states = states

    async def reserve(self, domain: str, limit: RateLimit) -> Slot:
        """Reserve the next slot; no other caller in any process gets the same."""
        return await self._states.change(domain, lambda state, now: reserve_slot(limit, state, now))

    async def check(self, domain: str, limit: RateLimit, slot: Slot) -> float | None:
        """Return the seconds still to wait for a slot, or None when it is void."""
        state, now = await self._states.read(domain)
        return None if state is None else check_slot(limit, state, slot, now)

    async def penalise(self, domain: str, limit: RateLimit, seconds: float) -> BucketState:
        """Bar the domain for this many seconds from now, in all processes."""
        return await self._states.change(
            domain, returning(lambda state, now: bar(limit, state, now + seconds, now))
        )

    async def observe_lateness(self, domain: str, limit: RateLimit, seconds: float) -> None:
        """Record that a request left this many seconds after its slot."""
        await self._states.change(
            domain,
            lambda state, _now: (state and observe_lateness(limit, state, seconds), None),
        )

    async def cancel(self, domain: str, slot: Slot) -> None:
        """Return an unused slot; it is lost when another was reserved since."""
        await self._states.change(
            domain, lambda state, _now: (slot.before if state == slot.after else state, None)
        )

    async def state(self, domain: str) -> BucketState | None:
        """Return the bucket of a domain; None when it had no requests."""
        return (await self._states.read(domain))[0]
