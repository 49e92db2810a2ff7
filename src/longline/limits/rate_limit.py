"""How fast a domain may be asked: a token bucket that is told the time and hands out slots.

The bucket is kept as one moment, the *theoretical arrival time* (GCRA): each request moves it
one interval on, and a request may go once it lies no more than `slack` ahead.

A server that enforces exactly our limit stands at zero after our burst, so a request that
travels a millisecond faster than an earlier one is refused. Say that deliveries differ by up to
`hold` seconds. Request j is then safe when, for every i with j - i >= capacity,

    slot[j] >= slot[i] + (j - i) * interval - slack + hold.

Slots taken from a full bucket need no refill, so for them there is nothing to fear. Every other
slot is set `hold` behind the moment the bucket allows, while the bucket itself goes on counting
from that earlier moment: the wait is paid once, after the burst, and not with every request.
This is so while hold <= slack; beyond it, requests would have to be spread further apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from longline.core.errors import BadOption

LONGEST_MARGIN = 5.0
"""However late requests leave, the margin grows no further than this many seconds."""
_GROWTH = 1.5  # of the lateness seen, so that the next one, a little worse, is covered too
_ROUNDING = 1e-9  # of a sum of intervals
_CLOCK_ROUNDING = 1e-6  # epoch seconds in a float are exact to about 0.2 microseconds


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`rate` requests a second after a burst of `capacity`; `margin` is the jitter to expect.

    Raises:
        BadOption: when a figure makes no sense.
    """

    rate: float = 2.0
    capacity: int = 5
    margin: float = 0.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise BadOption("rate", f"must be above 0 requests a second, not {self.rate!r}")
        if isinstance(self.capacity, float) or self.capacity < 1:
            raise BadOption("capacity", f"must be a whole number from 1, not {self.capacity!r}")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise BadOption("margin", f"must be 0 seconds or more, not {self.margin!r}")

    @property
    def interval(self) -> float:
        """Seconds until one token is back."""
        return 1 / self.rate

    @property
    def slack(self) -> float:
        """Seconds that a full bucket lets requests run ahead of the rate."""
        return (self.capacity - 1) / self.rate

    def hold(self, state: BucketState) -> float:
        """Return the seconds by which slots are held back after a burst."""
        # More than the slack would cost rate with every request. A bucket of one has no slack at
        # all, so any jitter would be refused: there, and only there, a tenth of the rate is paid.
        return min(max(self.margin, state.margin), max(self.slack, self.interval / 10))


@dataclass(frozen=True, slots=True)
class BucketState:
    """What is known of one domain's bucket; moments are seconds since the epoch.

    `ahead` is the theoretical arrival time, counted from `full_at`, the moment at which the bucket
    was last known to be full: a small number, so that adding an interval a million times does not
    drift. `margin` is what lateness has made of it, 0 while none was seen. No slot lies before
    `barred_until`.
    """

    full_at: float
    ahead: float = 0.0
    margin: float = 0.0
    barred_until: float = 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A request may go at the moment `at`, which was `wait` seconds ahead when it was reserved.

    `hold` is what it was held back by, `before` and `after` are the states around it.
    """

    at: float
    wait: float
    hold: float
    before: BucketState
    after: BucketState


def reserve(pace: RateLimit, state: BucketState | None, now: float) -> tuple[BucketState, Slot]:
    """Take the next slot of a domain; a state of None is a domain never asked before."""
    before = _settle(pace, state, now)
    hold = pace.hold(before)
    ready = before.ahead - pace.slack
    is_refill_needed = ready > _ROUNDING
    offset = max(
        now - before.full_at,
        ready + hold if is_refill_needed else 0.0,
        before.barred_until - before.full_at,
    )
    after = replace(before, ahead=max(before.ahead, offset) + pace.interval)
    at = max(before.full_at + offset, before.barred_until)
    return after, Slot(at, max(0.0, at - now), hold, before, after)


def check(pace: RateLimit, state: BucketState, slot: Slot, now: float) -> float | None:
    """Return how many seconds the holder of a slot waits on, asked again on waking.

    None means that the slot is void and another is to be reserved: a penalty came in between, or
    the holder woke so late that the requests behind it could catch up with it.
    """
    if slot.at < state.barred_until:
        return None
    hold = pace.hold(state)
    due = slot.at + max(0.0, hold - slot.hold)
    if 0 < hold < now - due:
        return None
    return due - now if due - now > _CLOCK_ROUNDING else 0.0


def is_void(pace: RateLimit, state: BucketState, at: float, now: float) -> bool:
    """Say whether a request that leaves now may no longer use the slot it was given at `at`.

    Its token is lost once the bucket has been full since: the server's was full then, too, and
    keeps no more than `capacity`. So it is after a stall, when requests that had their slots
    before leave together with the burst of a full bucket. A penalty voids a slot as well.
    """
    if at < state.barred_until:
        return True
    return state.full_at > at + _CLOCK_ROUNDING or now >= _full_for_certain(pace, state)


def penalise(pace: RateLimit, state: BucketState | None, until: float, now: float) -> BucketState:
    """Bar a domain until a moment, and begin again there with an empty bucket."""
    state = _settle(pace, state, now)
    ahead = max(until, now) - state.full_at + pace.slack
    return replace(
        state,
        ahead=max(state.ahead, ahead),
        barred_until=max(state.barred_until, until),
    )


def observe_lateness(pace: RateLimit, state: BucketState, seconds: float) -> BucketState:
    """Grow the margin when a request left this many seconds after its slot, if that was near it."""
    if seconds <= max(pace.margin, state.margin) / 2:
        return state
    return replace(state, margin=max(state.margin, min(_GROWTH * seconds, LONGEST_MARGIN)))


def give_back(state: BucketState, slot: Slot) -> BucketState:
    """Undo the reservation of a slot that nobody used, if none was made since."""
    return slot.before if state == slot.after else state


def tokens(pace: RateLimit, state: BucketState | None, now: float) -> float:
    """Return how many requests could go at once."""
    if state is None:
        return float(pace.capacity)
    if now < state.barred_until:
        return 0.0
    debt = (state.full_at + state.ahead - now) * pace.rate
    return min(float(pace.capacity), max(0.0, pace.capacity - debt))


def _settle(pace: RateLimit, state: BucketState | None, now: float) -> BucketState:
    """Return the state as it stands now, before anything is taken."""
    if state is None:
        return BucketState(full_at=now)
    if now >= _full_for_certain(pace, state):  # old lateness fades
        return replace(state, full_at=now, ahead=0.0, margin=state.margin / 2)
    if now < state.full_at:
        return replace(state, full_at=now)  # a clock that was set back must not stop the domain
    return state


def _full_for_certain(pace: RateLimit, state: BucketState) -> float:
    """Return the moment from which the bucket is full, however late the last request came in."""
    return state.full_at + state.ahead + pace.hold(state)
