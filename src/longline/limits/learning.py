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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import pairwise

from longline.core.errors import check_range
from longline.limits.backends.state import StateBackend, returning
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
    if known.refusals:
        rate = _SHADE * known.proven or min(known.rate, _CUT * (known.ceiling or known.rate))
    elif known.published is not None:
        rate = BELOW * known.published
    else:
        rate = max(START, min(known.rate, known.proven))
    caution = Caution.NONE
    if ceiling is not None:
        # A proven rate far below the refused one: search between the two.
        is_far = is_old or known.proven < ceiling / 2
        caution = Caution.SOME if is_far else Caution.MUCH
    return replace(
        known,
        rate=_bounded(rate),
        burst=known.burst if known.is_learned else _PROBE,
        is_learned=True,
        ceiling=ceiling,
        refused_at=now if is_old else known.refused_at,
        caution=caution,
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
        is_burst_proven=state.is_burst_proven
        or any(after - before < _PAIR for before, after in pairwise(sorted(sent))),
    )
    proven = min(_mean_rate(counted, max(sent)), counted.rate)
    counted = replace(counted, proven=max(counted.proven, proven))
    is_due = now - counted.window_at >= _WINDOW
    return _measure(counted, now, is_eager=is_eager) if is_due else counted


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
    wanted = f"from {SLOWEST:g} to {FASTEST:g} requests per second"
    check_range("rate", rate, wanted, at_least=SLOWEST, at_most=FASTEST)
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
    measured = replace(state, window_at=now, window_count=0)
    if not is_eager or used < _BUSY * seconds:
        return measured
    seconds = min(used, seconds)
    if state.ceiling is None:
        highest = _bounded(FASTEST if state.published is None else BELOW * state.published)
        rate = min(state.rate + _STEP * seconds, highest)
    else:
        step = (state.ceiling - state.rate) * min(1.0, seconds / _APPROACH[Caution(state.caution)])
        rate = min(state.rate + step, _HIGHEST * state.ceiling)
    return replace(measured, rate=rate, changed_at=now) if rate > state.rate else measured


def _mean_rate(state: Learned, until: float) -> float:
    """Return the mean accepted rate of this measurement; 0 while there are too few requests."""
    seconds = until - state.since
    if state.accepted < _ENOUGH or seconds <= 0:
        return 0.0
    return state.accepted / seconds


def _bounded(rate: float) -> float:
    return min(max(rate, SLOWEST), FASTEST)


# ---------------- The limit of one domain: declared, learned, published or pinned

_LEARNING_SYNC = 0.5  # seconds between two syncs of a learning process with the others
_PIN_SYNC = 2.0  # seconds between two checks whether a limit was pinned or deleted
_MANY_OUTSTANDING = 8  # requests without a response; a slow site is not asked faster
_NOTABLE_CHANGE = 1.2  # times a rate: a change worth an event


class DomainLimit:
    """The effective rate limit of one domain.

    Args:
        domain: the domain.
        declared: the limit that its source declares; None is unlimited, or to be learned.
        learned: where processes share learned limits.
        is_learning: whether to learn the limit.
        respects_pins: whether a pinned limit overrides the declared one.
    """

    def __init__(
        self,
        domain: str,
        declared: RateLimit | None,
        learned: StateBackend[Learned],
        *,
        is_learning: bool,
        respects_pins: bool = True,
    ) -> None:
        self.limit: RateLimit | None = None
        self.rate: float | None = None
        self.is_learning = is_learning
        self.domain = domain
        self._declared = declared
        self._respects_pins = respects_pins
        self._backend = learned
        self._learned = start_run(None, 0.0) if is_learning else None
        self._published: float | None = None
        self._cap: float | None = None
        self._is_cap_stored = False
        self._accepted: list[float] = []
        self._synced_at = 0.0
        self._reported_rate: float | None = None
        self._outstanding = 0
        self._update_limit()

    async def load(self, now: float) -> None:
        """Load the known limit; a learning process starts its run with it."""
        self._synced_at = now
        if self.is_learning:
            await self._change(start_run)
            self._reported_rate = self.rate
        else:
            self._set_learned((await self._backend.read(self.domain))[0])

    @property
    def is_from_site(self) -> bool:
        """Whether robots.txt, the site itself or a person has set a limit for the domain."""
        is_pinned = self._learned is not None and self._learned.is_pinned and self._respects_pins
        return is_pinned or self._cap is not None or self._published is not None

    def cap_rate(self, rate: float) -> None:
        """Never exceed this rate."""
        if self._cap is None or rate < self._cap:
            self._cap, self._is_cap_stored = rate, False
            self._update_limit()

    def record_accepted(self, sent_at: float, outstanding: int) -> None:
        """Record an accepted request, while this many others had no response yet."""
        self._accepted.append(sent_at)
        self._outstanding = max(self._outstanding, outstanding)

    async def sync(self, now: float) -> None:
        """Exchange what was learned with other processes, if the last sync is old enough."""
        if now - self._synced_at < (_LEARNING_SYNC if self.is_learning else _PIN_SYNC):
            return
        self._synced_at = now  # before awaiting, so that no other task syncs meanwhile
        if not self.is_learning:
            self._set_learned((await self._backend.read(self.domain))[0])
            return
        is_eager, self._outstanding = self._outstanding <= _MANY_OUTSTANDING, 0
        await self._share(is_eager=is_eager)

    async def record_refused(self, sent_at: float, now: float) -> None:
        """Share immediately that a request was refused."""
        if self.is_learning:
            self._synced_at = now
            await self._share(is_eager=False, refused_at=sent_at)

    async def set_published(self, rate: float) -> bool:
        """Record a limit that the site declares; return True when it had declared none before.

        Some sites declare a different limit on every page: the lowest counts.
        """
        if self._published is not None and self._published <= rate:
            return False
        self._published = rate
        is_first = self._learned is None or self._learned.published is None
        await self._change(lambda state, now: set_published(state or Learned(), rate, now))
        return is_first

    async def store_cap(self) -> None:
        """Store the cap once, so that `longline limits` shows it."""
        rate = self._cap
        if rate is not None and not self._is_cap_stored:
            self._is_cap_stored = True
            await self._change(lambda state, now: set_restraint(state or Learned(), rate, now))

    def changed_rate(self) -> float | None:
        """Return the learned rate if it has changed by a fifth since the last call."""
        rate, reported = self.rate, self._reported_rate
        if not self.is_learning or rate is None:
            return None
        if reported is not None and reported / _NOTABLE_CHANGE < rate < reported * _NOTABLE_CHANGE:
            return None
        self._reported_rate = rate
        return rate

    async def _share(self, *, is_eager: bool, refused_at: float | None = None) -> None:
        sent, self._accepted = self._accepted, []

        def update(state: Learned | None, now: float) -> Learned:
            known = state or start_run(state, now)
            counted = count_accepted(known, sent, now, is_eager=is_eager)
            return counted if refused_at is None else count_refused(counted, refused_at, now)

        await self._change(update)

    async def _change(self, update: Callable[[Learned | None, float], Learned]) -> None:
        self._set_learned(await self._backend.change(self.domain, returning(update)))

    def _set_learned(self, state: Learned | None) -> None:
        self._learned = state
        if state is None or state.published is None:
            self._published = None  # deleted by a user: adopted again when next declared
        self._update_limit()

    def _update_limit(self) -> None:
        limit, known = self._declared, self._learned
        rate = limit.rate if limit else math.inf
        if known is not None and (self.is_learning or (known.is_pinned and self._respects_pins)):
            limit, rate = limit_of(known), effective_rate(known)
        elif known is not None and known.published:
            # The site may have declared a higher one to another process since.
            published = BELOW * min(known.published, self._published or math.inf)
            if published < rate:
                limit, rate = spread(published), published
        if self._cap is not None:
            rate = min(rate, self._cap)
            limit = cap(limit, rate) if limit else RateLimit(rate, 1)
        self.limit = limit
        self.rate = rate if limit else None
