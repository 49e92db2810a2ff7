"""Waiting for one's turn: no domain is asked faster than its pace allows."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from longline.core.clock import Clock, SystemClock
from longline.core.errors import BadOption, FailureKind, StoreError
from longline.limits.backends.base import RateLimitBackend
from longline.limits.backends.cells import Cells
from longline.limits.backends.memory import MemoryCells, MemoryRateLimitBackend
from longline.limits.domain_limit import DomainLimit
from longline.limits.errors import Deferred
from longline.limits.learning import FASTEST, Learned
from longline.limits.rate_limit import (
    BucketState,
    RateLimit,
    Slot,
    is_void,
    observe_lateness,
    tokens,
)

# ---------------- A waiting line: one at a time, the most urgent first, and otherwise in the

_LEAP = 1000  # later arrivals that one step of priority lets go ahead: nobody waits for ever


class PriorityLock:
    """A lock whose holder hands it on to the first in line.

    Nobody slips in between, so no wake-up is lost. A request of higher priority goes ahead of
    those that wait, but not for ever: each step of priority is worth a thousand places.
    """

    def __init__(self) -> None:
        self._arrivals = 0
        self._is_held = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(not turn.done() for _, _, turn in self._waiting)

    @asynccontextmanager
    async def turn(self, priority: int = 0) -> AsyncIterator[None]:
        """Wait for one's turn, and keep it until the block ends."""
        await self._enter(priority)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, priority: int) -> None:
        if not self._is_held:
            self._is_held = True
            return
        self._arrivals += 1
        turn = asyncio.get_running_loop().create_future()
        place = self._arrivals - _LEAP * priority
        heapq.heappush(self._waiting, (place, self._arrivals, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the turn came together with the cancellation: hand it on
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._is_held = False


_LONGEST_REST = 30.0  # seconds of a penalty that are sat out; items with longer ones are parked
_FRESHNESS = 1.0  # seconds between two looks whether an unlimited domain has to rest
_FIRST_IN_LINE = 1000  # priority of a request whose connection waits for it
_SHORTEST_WAIT = 0.001  # below this, time went into asking, not into waiting
_AFTER_A_REST = RateLimit(FASTEST, 1, margin=0.0)
"""The pace of an unlimited domain that asked for a rest: as good as none, but it can be barred."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The right to send one request, due at the moment `at` after `waited` seconds in line.

    `is_paced` is False when the domain has no limit: then nobody asks how late the request left.
    """

    domain: str
    at: float
    waited: float
    is_paced: bool = False


@dataclass(frozen=True, slots=True)
class DomainStatistics:
    """Waits of one domain; `mean_wait` is over the requests that waited.

    `rate`, `capacity` and `tokens` (how many requests could go now) are None without a limit.
    """

    requests: int
    waits: int
    total_wait: float
    mean_wait: float
    rate: float | None
    capacity: int | None
    tokens: float | None


@dataclass(frozen=True, slots=True)
class LimiterStatistics:
    """Waits of all domains together, and of each; `rate` and `capacity` are the defaults."""

    requests: int
    waits: int
    total_wait: float
    mean_wait: float
    rate: float | None
    capacity: int | None
    domains: Mapping[str, DomainStatistics]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        return asdict(self)


class RateLimiter:
    """A token bucket for each domain.

    Tasks of one process stand in line for a domain and only the first holds a slot, so a
    cancellation or a crash wastes one slot at most, and a penalty keeps the order of the line.

    Args:
        rate: Requests a second; None is unlimited, "auto" finds each domain's limit out.
        capacity: How many requests may go at once after a quiet time.
        margin: Seconds of jitter to expect on the way to the server; paid once after a burst.
        limits: Domains with a pace of their own; None is unlimited.
        clock: What to wait by.
        keeper: Where the buckets live; without one, in this process.
        learned: Where known limits live; without one, in this process.
        heeds_pins: Whether a pace that somebody pinned for a domain counts more than `rate`.

    Raises:
        BadOption: when a figure makes no sense.
    """

    def __init__(
        self,
        rate: float | Literal["auto"] | None = 2.0,
        capacity: int = 5,
        *,
        margin: float = 0.1,
        limits: Mapping[str, RateLimit | None] | None = None,
        clock: Clock | None = None,
        backend: RateLimitBackend | None = None,
        learned: Cells[Learned] | None = None,
        heeds_pins: bool = True,
    ) -> None:
        self._heeds_pins = heeds_pins
        self._is_learning = rate == "auto"
        self._default = (
            None if rate is None or rate == "auto" else RateLimit(rate, capacity, margin)
        )
        self._limits = dict(limits or {})
        self._clock = clock or SystemClock()
        self._backend = backend or MemoryRateLimitBackend(self._clock)
        self._learned = learned or MemoryCells[Learned](self._clock)
        self._sites: dict[str, _Site] = {}

    def pace(self, domain: str) -> RateLimit | None:
        """Return the pace of a domain; None is unlimited."""
        return self._site(domain).known.pace

    def rate(self, domain: str) -> float | None:
        """Return the requests a second of a domain, in the long run; None is unlimited."""
        return self._site(domain).known.rate

    def is_free(self, domain: str) -> bool:
        """Say at once that a request may go, and count it; False: `acquire` has to be asked."""
        site = self._sites.get(domain)
        if site is None or site.is_paced or site.is_to_be_looked_up(self._clock.now()):
            return False
        site.tally.add(0.0)
        return True

    async def acquire(self, domain: str, url: str | None = None, *, priority: int = 0) -> Grant:
        """Wait for the turn of one request; the highest priority first, then as they came.

        Raises:
            Deferred: when the domain asked for a rest too long to sit out; names the `url`.
            StoreError: when the keeper cannot be asked.
        """
        asked_at = due = self._clock.now()
        site = self._sites.get(domain)
        if site is None or site.is_to_be_looked_up(asked_at):
            site = await self._look_up(domain)
        waited, is_paced = 0.0, site.is_paced
        if is_paced:
            async with site.line.turn(priority):
                due = await self._take_turn(site, url or domain)
            waited = self._clock.now() - asked_at
        site.tally.add(waited)
        return Grant(domain, due, waited, is_paced)

    async def penalise(self, domain: str, seconds: float) -> None:
        """Stop a domain for so many seconds, in every process that shares the keeper."""
        if not (math.isfinite(seconds) and seconds >= 0):
            raise BadOption("penalty", f"must be 0 seconds or more, not {seconds!r}")
        site = self._site(domain)
        site.rests_until = max(site.rests_until, self._clock.now() + seconds)
        site.state = await self._backend.penalise(domain, site.pace, seconds)
        site.rests_until = max(site.rests_until, site.state.barred_until)

    def restrain(self, domain: str, rate: float) -> None:
        """Never ask a domain faster than this, whatever its pace is otherwise.

        Raises:
            BadOption: when the rate makes no sense.
        """
        RateLimit(rate)
        site = self._site(domain)
        site.is_restraint_told = not site.known.restrain(rate) and site.is_restraint_told

    async def accepted(self, grant: Grant, *, outstanding: int = 0) -> None:
        """Say that a request was answered and not refused; `outstanding` ones are still not."""
        known = self._site(grant.domain).known
        if known.is_learning:
            known.accept(grant.at, outstanding)
            await known.share(self._clock.now())

    async def refused(self, grant: Grant, seconds: float) -> None:
        """Say that a domain found us too fast: it rests for so many seconds, and is slower then."""
        site = self._site(grant.domain)
        await site.known.refuse(grant.at, self._clock.now())
        await self.penalise(grant.domain, seconds)

    async def publish(self, domain: str, rate: float) -> bool:
        """Keep to a limit that the domain declares; True when it had declared none before."""
        return await self._site(domain).known.publish(rate)

    def news(self, domain: str) -> float | None:
        """Return a learned rate when it has changed by a fifth since this was last asked."""
        return self._site(domain).known.news()

    async def leave(self, grant: Grant, url: str | None = None) -> Grant:
        """Say that a request is about to be written; returns the grant it leaves with.

        That is another one, waited for, when the request is so late that its own is void.
        Lateness makes the margin grow.

        Raises:
            Deferred: as `acquire` does.
            StoreError: when the keeper cannot be asked.
        """
        site = self._site(grant.domain)
        pace, known, now = site.known.pace, site.state, self._clock.now()
        late = now - grant.at
        # Nearly every request is in time: the keeper hears only of those that may matter.
        if not pace or not known or observe_lateness(pace, known, late) is known:
            return grant
        state = await self._backend.state(grant.domain) if late > pace.hold(known) else None
        await self._backend.observe_lateness(grant.domain, pace, late)
        if not state or not is_void(pace, state, grant.at, now):
            return grant
        async with site.line.turn(_FIRST_IN_LINE):
            due = await self._take_turn(site, url or grant.domain)
        return Grant(grant.domain, due, self._clock.now() - now, is_paced=True)

    def get_statistics(self) -> LimiterStatistics:
        """Return the figures since the start or the last reset."""
        total = _Tally()
        for site in self._sites.values():
            total.merge(site.tally)
        return LimiterStatistics(
            **total.figures(),
            rate=self._default.rate if self._default else None,
            capacity=self._default.capacity if self._default else None,
            domains={
                name: self._describe(site)
                for name, site in self._sites.items()
                if site.tally.requests
            },
        )

    def reset_statistics(self) -> None:
        """Begin to count anew; the buckets stay as they are."""
        for site in self._sites.values():
            site.tally = _Tally()

    def _site(self, domain: str) -> _Site:
        site = self._sites.get(domain)
        if site is None:
            declared = self._limits.get(domain, self._default)
            is_learning = self._is_learning and domain not in self._limits
            known = DomainLimit(
                domain,
                declared,
                self._learned,
                is_learning=is_learning,
                heeds_pins=self._heeds_pins,
            )
            site = self._sites[domain] = _Site(domain, known)
        return site

    async def _look_up(self, domain: str) -> _Site:
        """Hear what is known of a domain; those who come meanwhile wait for it."""
        site = self._site(domain)
        async with site.line.turn():
            now = self._clock.now()
            if site.is_to_be_looked_up(now):
                await (site.known.share(now) if site.is_met else site.known.meet(now))
                await self._hear_of_rest(site, now)
                site.is_met, site.looked_at = True, now
        return site

    async def _hear_of_rest(self, site: _Site, now: float) -> None:
        """Find out whether an unlimited domain rests; others hear of it with each slot."""
        if not site.is_paced:
            state = await self._backend.state(site.domain)
            if state and state.barred_until > now:
                site.rests_until = state.barred_until

    async def _take_turn(self, site: _Site, url: str) -> float:
        """Reserve slots until one can be used, and return the moment it was due."""
        await self._catch_up(site)
        while True:
            pace = site.pace
            slot = await self._backend.reserve(site.domain, pace)
            due = self._clock.now() + slot.wait
            site.state = slot.after
            rest = slot.after.barred_until - (slot.at - slot.wait)
            if rest > _LONGEST_REST:
                await self._backend.give_back(site.domain, slot)
                problem = f"{site.domain} asked for a rest"
                until = self._clock.now() + rest
                raise Deferred(url, until, problem, FailureKind.OVERLOAD, is_for_domain=True)
            if slot.wait == 0 or await self._sit_out(site.domain, pace, slot):
                return due
            await self._backend.give_back(site.domain, slot)

    async def _catch_up(self, site: _Site) -> None:
        """Hear what other processes have learned, and let them know what restrains us."""
        now = self._clock.now()
        if now >= site.rests_until:
            site.rests_until = 0.0
        if not site.is_restraint_told:
            site.is_restraint_told = True
            await site.known.remember_restraint()
        await site.known.share(now)

    async def _sit_out(self, domain: str, pace: RateLimit, slot: Slot) -> bool:
        """Wait for a slot; False when it has become void."""
        more: float | None = slot.wait
        try:
            while more:
                await self._clock.sleep(more)
                more = await self._backend.check(domain, pace, slot)
        except asyncio.CancelledError:
            # The cancellation goes through even when the keeper cannot be asked just now.
            with contextlib.suppress(StoreError):
                await self._backend.give_back(domain, slot)
            raise
        return more is not None

    def _describe(self, site: _Site) -> DomainStatistics:
        pace = site.known.pace
        if pace is None:
            return DomainStatistics(**site.tally.figures(), rate=None, capacity=None, tokens=None)
        left = tokens(pace, site.state, self._clock.now())
        return DomainStatistics(
            **site.tally.figures(), rate=site.known.rate, capacity=pace.capacity, tokens=left
        )


@dataclass(slots=True)
class _Tally:
    requests: int = 0
    waits: int = 0
    total_wait: float = 0.0

    def add(self, waited: float) -> None:
        self.requests += 1
        if waited >= _SHORTEST_WAIT:
            self.waits += 1
            self.total_wait += waited

    def merge(self, other: _Tally) -> None:
        self.requests += other.requests
        self.waits += other.waits
        self.total_wait += other.total_wait

    def figures(self) -> dict[str, Any]:
        mean = self.total_wait / self.waits if self.waits else 0.0
        return {**asdict(self), "mean_wait": mean}


@dataclass(slots=True)
class _Site:
    """One domain: its limit, its line, its bucket as last seen, and what it cost."""

    domain: str
    known: DomainLimit
    line: PriorityLock = field(default_factory=PriorityLock)
    tally: _Tally = field(default_factory=_Tally)
    state: BucketState | None = None
    rests_until: float = 0.0
    is_met: bool = False
    looked_at: float = -math.inf
    is_restraint_told: bool = True

    @property
    def is_paced(self) -> bool:
        return self.known.pace is not None or self.rests_until > 0

    def is_to_be_looked_up(self, now: float) -> bool:
        """Whether it is unknown, or unlimited and not looked at for a while."""
        return now - self.looked_at >= _FRESHNESS and not (self.is_met and self.is_paced)

    @property
    def pace(self) -> RateLimit:
        return self.known.pace or _AFTER_A_REST


# ---------------- Decide whether a refusal (429) is about the whole domain or about one address

_PROOF = 3
"""Requests for other addresses that succeed, for each address that was refused in the meantime."""
_MEMORY = 3600.0  # seconds for which an address is remembered after its last refusal
_MOST = 200  # addresses of one domain that are remembered


@dataclass(frozen=True, slots=True)
class Refusals:
    """The addresses of one domain that were refused: when first, when last, and how often."""

    addresses: Mapping[str, Sequence[float]] = field(default_factory=dict)


def note(state: Refusals | None, url: str, now: float) -> Refusals:
    """Note that a request for an address was refused."""
    known = state.addresses if state else {}
    recent = {mark: one for mark, one in known.items() if now - one[1] <= _MEMORY}
    first, _, count = recent.get(_mark(url), (now, now, 0))
    recent[_mark(url)] = (first, now, count + 1)
    latest = sorted(recent, key=lambda mark: recent[mark][1])[-_MOST:]
    return Refusals({mark: recent[mark] for mark in latest})


def forget(state: Refusals | None, url: str) -> Refusals | None:
    """Forget that an address was refused: a request for it succeeded."""
    if state is None:
        return None
    mark = _mark(url)
    return Refusals({other: one for other, one in state.addresses.items() if other != mark})


def is_about_address(state: Refusals, url: str, successes: Iterable[float]) -> bool:
    """Say whether only this address is refused, and not its domain.

    Args:
        state: what is known, this refusal included.
        url: the address that was refused.
        successes: when requests for other addresses of the domain were sent that succeeded.
    """
    first, _, count = state.addresses[_mark(url)]
    others = sum(one[1] >= first for one in state.addresses.values()) - 1
    # Of a domain that refuses many, the same address may be hit twice by chance.
    if count < (3 if others else 2):
        return False
    return sum(at > first for at in successes) >= _PROOF * (1 + others)


def times(state: Refusals, url: str) -> int:
    """Return how often an address was refused."""
    return int(state.addresses[_mark(url)][2])


def _mark(url: str) -> str:
    return blake2b(url.encode(errors="replace"), digest_size=8).hexdigest()
