"""How fast a domain may be asked when nobody says so: found out from below, told the time.

The rate goes up by a constant for each second of accepted traffic and down by a factor when the
domain refuses. A refusal says more than "too fast": the server's bucket is empty at that moment.
What is accepted from then on is what has been refilled since, whatever the size of the bucket, so
accepted / elapsed is a *proven* lower bound of the true rate; and when the next refusal comes, the
bucket is empty again and the same figure is the true rate itself.

A new run begins with what is proven. `ceiling` is the rate that was last refused; the closer it
comes, the slower the rate grows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

from longline.core.errors import BadOption
from longline.limits.rate_limit import RateLimit

SLOWEST = 0.05
FASTEST = 1000.0
"""No learned or pinned rate lies outside these bounds, in requests a second."""
START = 2.0
"""Requests a second of a domain of which nothing is known."""
_STEP = 3.0  # requests a second, more with each second of accepted traffic
_CUT = 0.6  # of a rate that was refused
BELOW = 0.95
"""Of a limit that is known, measured or published, so much is used."""
_HIGHEST = 0.97  # of a rate that was refused once: never again
_ENOUGH = 10  # accepted requests make a measurement
_WINDOW = 0.5  # seconds between two looks at how busy a domain is
_BUSY = 0.7  # of the rate must be used, or growing would prove nothing
_BURST = 10  # requests that a bucket of unknown size may have given us
_FRESH = 7 * 86_400.0  # seconds for which a ceiling is believed
_SHADE = 0.98  # of what is proven: a rate that is exactly right leaves no room to grow
_PROBE = 2  # requests together: without any slack, each that leaves late is a slot lost
_LIFTED = 1.5  # times an old ceiling, tried anew
_BUNCH = 0.05  # seconds; requests this close arrive together anyway
_PAIR = 0.03  # seconds; a site that takes two requests this close has a bucket for two


class Caution(IntEnum):
    """How carefully a rate grows: at full speed, towards its ceiling in a minute, or an hour."""

    NONE = 0
    SOME = 1
    MUCH = 2


_APPROACH = {Caution.SOME: 60.0, Caution.MUCH: 3600.0}


@dataclass(frozen=True, slots=True)
class Learned:
    """What is known of one domain's limit; rates are requests a second, moments epoch seconds.

    `published` is what the site declares, `restraint` what its robots.txt asks for; both are None
    when it does not. A pinned `rate` (with its `burst`) is somebody's word and is not learned
    over. `burst` is tried with two and `is_burst_proven` once a site took two requests together.
    `proven` is 0 while nothing is. `accepted` requests were sent since the stretch began at
    `since`, beyond what a burst may have given. `refused_at` is when the last refused request was
    sent, `heard_at` when its refusal came in.
    """

    rate: float = START
    burst: int = 1
    is_burst_proven: bool = False
    is_pinned: bool = False
    is_learned: bool = False
    published: float | None = None
    restraint: float | None = None
    proven: float = 0.0
    ceiling: float | None = None
    caution: int = Caution.NONE
    refusals: int = 0
    refused_at: float = 0.0
    heard_at: float = 0.0
    since: float = 0.0
    accepted: int = 0
    window_at: float = 0.0
    window_count: int = 0
    changed_at: float = 0.0

    @property
    def origin(self) -> str:
        """How the pace is known: pinned, robots, published or learned, whichever binds it."""
        known = {"robots": self.restraint}
        if self.is_pinned:
            known["pinned"] = self.rate
        else:
            known["published"] = self.published
            known["learned"] = self.rate if self.is_learned else None
        rates = {name: rate for name, rate in known.items() if rate is not None}
        return min(rates, key=lambda name: rates[name]) if rates else "learned"


def begin(state: Learned | None, now: float) -> Learned:
    """Start a run: with what was proven, or from the bottom when nothing is known."""
    known = state or Learned()
    if known.is_pinned:
        return known
    is_old = known.ceiling is not None and now - known.refused_at > _FRESH
    ceiling = known.ceiling and _bounded(known.ceiling * (_LIFTED if is_old else 1.0))
    return replace(
        known,
        rate=_first_rate(known),
        burst=known.burst if known.is_learned else _PROBE,
        is_learned=True,
        ceiling=ceiling,
        refused_at=now if is_old else known.refused_at,
        caution=_first_caution(ceiling, 0.0 if is_old else known.proven),
        since=now,
        # Unlike after a refusal, the bucket may be full now: a second's worth is not counted.
        accepted=-max(_BURST, math.ceil(ceiling or 0.0)),
        window_at=now,
        window_count=0,
        changed_at=now,
    )


def accepted(
    state: Learned, sent: Sequence[float], now: float, *, is_eager: bool = True
) -> Learned:
    """Count requests that were sent at these moments and not refused.

    Args:
        state: What was known before.
        sent: Any order; those from before the last refusal say nothing new.
        now: The moment.
        is_eager: Whether the rate may grow; not while too many answers are outstanding.
    """
    if state.is_pinned or not sent:
        return state
    fresh = sum(at > state.refused_at for at in sent)
    told = replace(
        state,
        accepted=state.accepted + fresh,
        window_count=state.window_count + fresh,
        is_burst_proven=state.is_burst_proven or _has_pair(sent),
    )
    proven = min(_measured(told, max(sent)), told.rate)
    told = replace(told, proven=max(told.proven, proven))
    return _look(told, now, is_eager=is_eager) if now - told.window_at >= _WINDOW else told


def refused(state: Learned, sent_at: float, now: float) -> Learned:
    """Slow down after a refusal of the request that was sent at `sent_at`."""
    counted = replace(state, refusals=state.refusals + 1)
    if state.is_pinned or sent_at <= state.heard_at:
        return counted  # in flight when an earlier refusal came: the same news
    begun = replace(
        counted,
        refused_at=sent_at,
        heard_at=now,
        since=sent_at,
        accepted=0,
        window_at=now,
        window_count=0,
        changed_at=now,
    )
    if state.burst > 1 and not state.is_burst_proven:
        return replace(begun, burst=1)  # perhaps two together were too many, not the rate
    measured = _measured(state, sent_at) if state.caution else 0.0
    rate = _bounded(BELOW * min(measured, state.rate) if measured else _CUT * state.rate)
    return replace(
        begun,
        rate=rate,
        proven=rate if measured else 0.0,
        ceiling=state.rate,
        caution=Caution.MUCH if state.caution else Caution.SOME,
    )


def published(state: Learned, rate: float, now: float) -> Learned:
    """Believe a limit that the site declares; unknown limits need not be searched for then."""
    if state.published == rate:
        return state
    told = replace(state, published=rate, changed_at=now)
    if state.refusals or state.is_pinned:
        return told
    used = _bounded(BELOW * rate)
    # What was proven before the site said so is no reason to begin the next run above its word.
    return replace(told, rate=used, proven=min(state.proven, used))


def restrained(state: Learned, rate: float, now: float) -> Learned:
    """Remember the pace that robots.txt asks for."""
    return state if state.restraint == rate else replace(state, restraint=rate, changed_at=now)


def pinned(state: Learned | None, rate: float, burst: int, now: float) -> Learned:
    """Set a pace by hand.

    Raises:
        BadOption: a figure makes no sense.
    """
    if not SLOWEST <= rate <= FASTEST:
        wanted = f"from {SLOWEST:g} to {FASTEST:g} requests a second"
        raise BadOption("rate", f"must be {wanted}, not {rate!r}")
    RateLimit(rate, burst)
    known = state or Learned()
    return replace(known, rate=rate, burst=burst, is_pinned=True, changed_at=now)


def pace(state: Learned) -> RateLimit:
    """Return the pace to keep, as far as the site's answers decide it."""
    return spaced(rate(state), state.burst)


def rate(state: Learned) -> float:
    """Return the requests a second of that pace."""
    if state.is_pinned or state.published is None:
        return state.rate
    return min(state.rate, BELOW * state.published)


def kept_rate(state: Learned) -> float:
    """Return the requests a second that all that is known comes down to, for people."""
    known = rate(state) if state.is_pinned or state.is_learned else None
    bounds = (known, None if state.is_pinned else state.published, state.restraint)
    return min((bound for bound in bounds if bound is not None), default=state.rate)


def spaced(rate: float, burst: int = 1) -> RateLimit:
    """Return a pace of exactly `rate` in the long run.

    At high rates the burst is as many as leave within a moment so short that they arrive together
    anyway.
    """
    capacity = max(burst, 1 + int(rate * _BUNCH))
    if capacity > 1:
        return RateLimit(rate, capacity)
    # A bucket of one is held back by a tenth of its interval each time; see Pace.hold.
    return RateLimit(1.1 * rate, 1, margin=1 / (11 * rate))


def slower(one: RateLimit, rate: float) -> RateLimit:
    """Return a pace of which no two requests are closer than `rate` allows."""
    if one.capacity == 1 and one.rate <= rate:
        return one
    return RateLimit(min(one.rate, rate), 1, one.margin)


def _look(state: Learned, now: float, *, is_eager: bool) -> Learned:
    """Let the rate grow by what was used of it since the last look."""
    seconds = now - state.window_at
    used = state.window_count / state.rate  # seconds that this traffic takes at our rate
    looked = replace(state, window_at=now, window_count=0)
    if not is_eager or used < _BUSY * seconds:
        return looked
    rate = _grown(state, min(used, seconds))
    return replace(looked, rate=rate, changed_at=now) if rate > state.rate else looked


def _grown(state: Learned, seconds: float) -> float:
    if state.ceiling is None:
        highest = _bounded(FASTEST if state.published is None else BELOW * state.published)
        return min(state.rate + _STEP * seconds, max(highest, state.rate))
    approach = _APPROACH[Caution(state.caution)]
    step = (state.ceiling - state.rate) * min(1.0, seconds / approach)
    return max(state.rate, min(state.rate + step, _HIGHEST * state.ceiling))


def _measured(state: Learned, until: float) -> float:
    """Return the mean rate of what was accepted in this stretch; 0 while it is too little."""
    seconds = until - state.since
    if state.accepted < _ENOUGH or seconds <= 0:
        return 0.0
    return state.accepted / seconds


def _has_pair(sent: Sequence[float]) -> bool:
    return any(after - before < _PAIR for before, after in pairwise(sorted(sent)))


def _first_rate(state: Learned) -> float:
    if state.refusals:
        return _bounded(
            _SHADE * state.proven or min(state.rate, _CUT * (state.ceiling or state.rate))
        )
    if state.published is not None:
        return _bounded(BELOW * state.published)
    return _bounded(max(START, min(state.rate, state.proven)))


def _first_caution(ceiling: float | None, proven: float) -> Caution:
    if ceiling is None:
        return Caution.NONE
    # Much less proven than refused: there is still much to find between the two.
    return Caution.SOME if proven < ceiling / 2 else Caution.MUCH


def _bounded(rate: float) -> float:
    return min(max(rate, SLOWEST), FASTEST)
