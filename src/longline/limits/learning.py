"""Learn the rate limit of a domain that declares none: increase from below, back off on refusals.

The rate grows by a constant for each second of accepted traffic and shrinks by a factor when the
domain refuses a request. A refusal also means that the server's bucket is empty at that time. What
is accepted afterwards has been refilled since, whatever the size of the bucket, so accepted /
elapsed is a *proven* lower bound of the true rate; at the next refusal the bucket is empty again
and the same quotient is the true rate.

A new run starts with the proven rate. `ceiling` is the rate that was last refused; the closer the
rate comes to it, the slower it grows.
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
"""Bounds of learned and pinned rates, in requests per second."""
START = 2.0
"""Requests per second to an unknown domain."""
_STEP = 3.0  # requests per second, added for each second of accepted traffic
_CUT = 0.6  # of a rate that was refused
BELOW = 0.95
"""The share of a known limit, measured or published, that is used."""
_HIGHEST = 0.97  # of a rate that was refused: never exceeded again
_ENOUGH = 10  # accepted requests make a measurement
_WINDOW = 0.5  # seconds between two measurements of how busy a domain is
_BUSY = 0.7  # of the rate must be used, or growing would prove nothing
_BURST = 10  # requests that a bucket of unknown size may have granted
_FRESH = 7 * 86_400.0  # seconds for which a ceiling is valid
_SHADE = 0.98  # of the proven rate: exactly right would leave no room to grow
_PROBE = 2  # requests of a burst: without slack, each late request is a lost slot
_LIFTED = 1.5  # times an old ceiling, tried again
_BUNCH = 0.05  # seconds; requests this close arrive together
_PAIR = 0.03  # seconds; a site that accepts two requests this close has a bucket for two


class Caution(IntEnum):
    """How fast a rate grows: at full speed, or towards its ceiling in a minute or an hour."""

    NONE = 0
    SOME = 1
    MUCH = 2


_APPROACH = {Caution.SOME: 60.0, Caution.MUCH: 3600.0}


@dataclass(frozen=True, slots=True)
class Learned:
    """The known limit of one domain; rates are per second, times epoch seconds. Stored as JSON.

    `published` is what the site declares in headers, `restraint` what its robots.txt requests; None
    without one. A pinned `rate` (with its `burst`) was set by a user and is never learned over.
    `burst` starts with two; `is_burst_proven` once a site accepted two requests together. `proven`
    is 0 while unknown. `accepted` requests were sent since the measurement began at `since`, beyond
    what a burst may have granted. `refused_at` is when the last refused request was sent,
    `heard_at` when its refusal arrived.
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
        """Where the effective limit comes from: pinned, robots, published or learned."""
        known = {"robots": self.restraint}
        if self.is_pinned:
            known["pinned"] = self.rate
        else:
            known["published"] = self.published
            known["learned"] = self.rate if self.is_learned else None
        rates = {name: rate for name, rate in known.items() if rate is not None}
        return min(rates, key=lambda name: rates[name]) if rates else "learned"


def start_run(state: Learned | None, now: float) -> Learned:
    """Start a run with the proven rate, or with START when nothing is known."""
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
        # Unlike after a refusal, the bucket may be full now: one second of traffic is not counted.
        accepted=-max(_BURST, math.ceil(ceiling or 0.0)),
        window_at=now,
        window_count=0,
        changed_at=now,
    )


def count_accepted(
    state: Learned, sent: Sequence[float], now: float, *, is_eager: bool = True
) -> Learned:
    """Count accepted requests, sent at these times.

    Args:
        state: the state before.
        sent: in any order; times before the last refusal are ignored.
        now: the time.
        is_eager: whether the rate may grow; not while too many responses are outstanding.
    """
    if state.is_pinned or not sent:
        return state
    fresh = sum(at > state.refused_at for at in sent)
    counted = replace(
        state,
        accepted=state.accepted + fresh,
        window_count=state.window_count + fresh,
        is_burst_proven=state.is_burst_proven or _has_pair(sent),
    )
    proven = min(_mean_rate(counted, max(sent)), counted.rate)
    counted = replace(counted, proven=max(counted.proven, proven))
    return (
        _measure(counted, now, is_eager=is_eager) if now - counted.window_at >= _WINDOW else counted
    )


def count_refused(state: Learned, sent_at: float, now: float) -> Learned:
    """Slow down after the request that was sent at `sent_at` was refused."""
    counted = replace(state, refusals=state.refusals + 1)
    if state.is_pinned or sent_at <= state.heard_at:
        return counted  # in flight when an earlier refusal arrived: the same refusal
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
        return replace(begun, burst=1)  # two together may have been too many, not the rate
    measured = _mean_rate(state, sent_at) if state.caution else 0.0
    rate = _bounded(BELOW * min(measured, state.rate) if measured else _CUT * state.rate)
    return replace(
        begun,
        rate=rate,
        proven=rate if measured else 0.0,
        ceiling=state.rate,
        caution=Caution.MUCH if state.caution else Caution.SOME,
    )


def set_published(state: Learned, rate: float, now: float) -> Learned:
    """Adopt a limit that the site declares in its headers."""
    if state.published == rate:
        return state
    known = replace(state, published=rate, changed_at=now)
    if state.refusals or state.is_pinned:
        return known
    used = _bounded(BELOW * rate)
    # A rate proven earlier must not start the next run above the published limit.
    return replace(known, rate=used, proven=min(state.proven, used))


def set_restraint(state: Learned, rate: float, now: float) -> Learned:
    """Record the rate that robots.txt requests."""
    return state if state.restraint == rate else replace(state, restraint=rate, changed_at=now)


def pin(state: Learned | None, rate: float, burst: int, now: float) -> Learned:
    """Pin a rate limit.

    Raises:
        BadOption: a value is out of range.
    """
    if not SLOWEST <= rate <= FASTEST:
        wanted = f"from {SLOWEST:g} to {FASTEST:g} requests per second"
        raise BadOption("rate", f"must be {wanted}, not {rate!r}")
    RateLimit(rate, burst)
    known = state or Learned()
    return replace(known, rate=rate, burst=burst, is_pinned=True, changed_at=now)


def limit_of(state: Learned) -> RateLimit:
    """Return the rate limit to use, before robots.txt."""
    return spread(effective_rate(state), state.burst)


def effective_rate(state: Learned) -> float:
    """Return the requests per second of that limit."""
    if state.is_pinned or state.published is None:
        return state.rate
    return min(state.rate, BELOW * state.published)


def displayed_rate(state: Learned) -> float:
    """Return the requests per second that result from all known limits, for display."""
    known = effective_rate(state) if state.is_pinned or state.is_learned else None
    bounds = (known, None if state.is_pinned else state.published, state.restraint)
    return min((bound for bound in bounds if bound is not None), default=state.rate)


def spread(rate: float, burst: int = 1) -> RateLimit:
    """Return a limit of exactly `rate` in the long run.

    At high rates the burst is the number of requests that would arrive together anyway.
    """
    capacity = max(burst, 1 + int(rate * _BUNCH))
    if capacity > 1:
        return RateLimit(rate, capacity)
    # A bucket of one is delayed by a tenth of its interval each time; see RateLimit.hold.
    return RateLimit(1.1 * rate, 1, margin=1 / (11 * rate))


def cap(limit: RateLimit, rate: float) -> RateLimit:
    """Return the limit, with no two requests closer than `rate` allows."""
    if limit.capacity == 1 and limit.rate <= rate:
        return limit
    return RateLimit(min(limit.rate, rate), 1, limit.margin)


def _measure(state: Learned, now: float, *, is_eager: bool) -> Learned:
    """Let the rate grow by the used share of the time since the last measurement."""
    seconds = now - state.window_at
    used = state.window_count / state.rate  # seconds that this traffic takes at our rate
    measured_state = replace(state, window_at=now, window_count=0)
    if not is_eager or used < _BUSY * seconds:
        return measured_state
    rate = _grown(state, min(used, seconds))
    return (
        replace(measured_state, rate=rate, changed_at=now) if rate > state.rate else measured_state
    )


def _grown(state: Learned, seconds: float) -> float:
    if state.ceiling is None:
        highest = _bounded(FASTEST if state.published is None else BELOW * state.published)
        return min(state.rate + _STEP * seconds, max(highest, state.rate))
    approach = _APPROACH[Caution(state.caution)]
    step = (state.ceiling - state.rate) * min(1.0, seconds / approach)
    return max(state.rate, min(state.rate + step, _HIGHEST * state.ceiling))


def _mean_rate(state: Learned, until: float) -> float:
    """Return the mean accepted rate of this measurement; 0 while there are too few requests."""
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
    # The proven rate is far below the refused one: search between the two.
    return Caution.SOME if proven < ceiling / 2 else Caution.MUCH


def _bounded(rate: float) -> float:
    return min(max(rate, SLOWEST), FASTEST)
