"""Rotation: which proxy a request uses, and what is recorded about it, for all processes."""

from __future__ import annotations

import random as randomness
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from longline.core.clock import Clock
from longline.core.model import Usage
from longline.http.proxies.choice import (
    EVERYWHERE,
    Candidate,
    Choice,
    InFlight,
    ProxyPolicy,
    Result,
    Score,
    Tier,
    Wanted,
    choose,
    record_failure,
    record_success,
)
from longline.http.proxies.pool import PooledProxy, ProxyStates, SeenDomain, TierUsage
from longline.http.proxies.proxy import Proxy

_FRESHNESS = 0.5  # seconds for which scores that other processes may change are reused
_POOL_FRESHNESS = 2.0  # the same for the list of proxies
_WHOLE_EVERY = 10.0  # seconds; how often successes are added to the score as a whole
_DAY = 86_400.0


@dataclass(slots=True)
class _Seen:
    """Values that were read at a time."""

    at: float
    scores: dict[str, Score]


class ProxyRotation:
    """Chooses proxies of the pool for the requests of one job.

    The scores are shared by all processes of a home. A request costs one write; what others write
    is seen after half a second.

    Args:
        states: where pool and scores are stored.
        clock: the clock.
        wanted: which proxies are used.
        policy: when a proxy is quarantined, and how proxies are weighted.
        tiers: all tiers, in the order in which they are used.
        random: returns a number from 0 to 1, excluding 1.
    """

    def __init__(
        self,
        states: ProxyStates,
        clock: Clock,
        wanted: Wanted,
        policy: ProxyPolicy | None = None,
        tiers: Sequence[Tier] = (),
        *,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._states = states
        self._clock = clock
        self._wanted = wanted
        self._policy = policy or ProxyPolicy()
        self._tiers = {tier.name: tier for tier in tiers}
        self._random = random
        self._in_flight = InFlight()
        self._pool: tuple[float, dict[str, PooledProxy]] | None = None
        self._scores: dict[str, _Seen] = {}
        self._made: dict[str, tuple[float, dict[str, Candidate]]] = {}
        self._spent: tuple[float, frozenset[str]] | None = None
        self._unwritten: dict[str, int] = {}
        self._written_at: dict[str, float] = {}
        self._known_domains: set[str] = set()

    async def choose(self, domain: str, tried: frozenset[str] = frozenset()) -> Choice:
        """Choose a proxy for a request to a domain, of those that it has not tried."""
        await self._note_domain(domain)
        candidates = await self._candidates(domain)
        return choose(
            *(
                self._policy,
                tuple(candidates.values()),
                self._wanted,
                self._clock.now(),
                self._random(),
            ),
            tried=tried,
            spent=await self._spent_tiers(),
            tiers=tuple(self._tiers.values()),
            in_flight=self._in_flight.counts,
        )

    async def find(self, address: str) -> Proxy | None:
        """Return the proxy with an address; None if it is no longer in the pool."""
        found = (await self._read_pool()).get(address)
        return None if found is None else found.proxy

    async def candidate(self, domain: str, address: str) -> Candidate | None:
        """Return a proxy with its scores at a domain; None if it is dead or not in the pool."""
        return (await self._candidates(domain)).get(address)

    def begin(self, address: str) -> None:
        """Count a request that is sent through a proxy; `end` is called after it."""
        self._in_flight.add(address, 1)

    def end(self, address: str) -> None:
        """Count the end of a request."""
        self._in_flight.add(address, -1)

    async def charge(self, proxy: Proxy) -> bool:
        """Count a request to the tier of its proxy; return False if its budget is spent."""
        tier = self._tiers.get(proxy.tier)
        if tier is None or not (tier.cost or tier.budget is not None):
            return True

        def update(before: TierUsage | None, now: float) -> tuple[TierUsage, bool]:
            day = int(now // _DAY)
            used = before if before is not None and before.day == day else TierUsage(day)
            if tier.budget is not None and used.cost + tier.cost > tier.budget:
                return used, False
            return replace(used, requests=used.requests + 1, cost=used.cost + tier.cost), True

        is_paid = await self._states.tiers.change(tier.name, update)
        if not is_paid:
            self._spent = None
        return is_paid

    async def record_success(self, domain: str, address: str, seconds: float, usage: Usage) -> None:
        """Record a request that reached its site through a proxy."""
        before, after = await self._change(
            domain, address, lambda score, now: record_success(self._policy, score, now, seconds)
        )
        if before.is_recovering and not after.is_recovering:
            usage.add_event("proxy.returned", address=address, domain=domain)
        await self._add_to_whole(address, seconds, usage)

    async def record_failure(
        self, domain: str, address: str, result: Result, reason: str, usage: Usage
    ) -> None:
        """Record a request that failed through a proxy: at the domain, as a whole, or both.

        A gateway that rotates has another exit for the next request, so only several failures in a
        row say something about it, and a ban is one of them.
        """
        proxy = await self.find(address)
        if proxy is not None and proxy.is_rotating and result is not Result.REFUSED:
            await self._record_at(domain, address, Result.FAILED, reason, usage, is_patient=True)
            return
        if result is not Result.REFUSED:
            await self._record_at(domain, address, result, reason, usage)
        if result is not Result.BANNED:
            await self._record_at(EVERYWHERE, address, result, reason, usage)

    async def _record_at(
        self,
        domain: str,
        address: str,
        result: Result,
        reason: str,
        usage: Usage,
        *,
        is_patient: bool = False,
    ) -> None:
        is_whole = domain == EVERYWHERE
        before, after = await self._change(
            domain,
            address,
            lambda score, now: record_failure(
                self._policy, score, now, result, reason, is_whole=is_whole or is_patient
            ),
        )
        if after.until is not None and after.since != before.since:
            usage.add_event(
                "proxy.banned" if result is Result.BANNED else "proxy.quarantined",
                address=address,
                domain=None if is_whole else domain,
                reason=after.reason,
                until=after.until,
            )

    async def _add_to_whole(self, address: str, seconds: float, usage: Usage) -> None:
        """Add a success to the score as a whole: soon if it had failed, else now and then."""
        self._unwritten[address] = self._unwritten.get(address, 0) + 1
        whole = (await self._read_scores(EVERYWHERE)).get(address, Score())
        now = self._clock.now()
        is_due = now - self._written_at.get(address, 0.0) >= _WHOLE_EVERY
        if whole.is_proven and not is_due:
            return
        count, self._written_at[address] = self._unwritten.pop(address), now
        before, after = await self._change(
            EVERYWHERE,
            address,
            lambda score, now: record_success(self._policy, score, now, seconds, count),
        )
        if before.is_recovering and not after.is_recovering:
            usage.add_event("proxy.returned", address=address, domain=None)

    async def _change(
        self, domain: str, address: str, make: Callable[[Score, float], Score]
    ) -> tuple[Score, Score]:
        """Change a score; return it before and after."""

        def update(before: Score | None, now: float) -> tuple[Score, tuple[Score, Score]]:
            known = before or Score()
            after = make(known, now)
            return after, (known, after)

        before, after = await self._states.scores(domain).change(address, update)
        if (seen := self._scores.get(domain)) is not None:
            seen.scores[address] = after
        for place, made in self._made.items():
            if domain in (place, EVERYWHERE) and (old := made[1].get(address)) is not None:
                is_whole = domain == EVERYWHERE
                new = replace(old, whole=after) if is_whole else replace(old, score=after)
                made[1][address] = new
        return before, after

    async def _candidates(self, domain: str) -> dict[str, Candidate]:
        """Return the proxies that are not dead, with their scores, by address."""
        made, now = self._made.get(domain), self._clock.now()
        if made is not None and now - made[0] < _FRESHNESS and made[1]:
            return made[1]
        here, whole = await self._read_scores(domain), await self._read_scores(EVERYWHERE)
        none = Score()
        candidates = {
            address: Candidate(
                address,
                one.proxy.tier,
                one.proxy.country,
                here.get(address, none),
                whole.get(address, none),
                one.check.latency if one.check is not None else None,
            )
            for address, one in (await self._read_pool()).items()
            if one.state != "dead"
        }
        self._made[domain] = (now, candidates)
        return candidates

    async def _read_pool(self) -> Mapping[str, PooledProxy]:
        now = self._clock.now()
        if self._pool is None or now - self._pool[0] >= _POOL_FRESHNESS or not self._pool[1]:
            self._pool = (now, await self._states.pool.all())
        return self._pool[1]

    async def _read_scores(self, domain: str) -> Mapping[str, Score]:
        seen, now = self._scores.get(domain), self._clock.now()
        if seen is None or now - seen.at >= _FRESHNESS:
            if seen is not None:
                seen.at = now  # other requests need not read them as well
            scores = await self._states.scores(domain).all()
            seen = self._scores[domain] = _Seen(now, scores)
        return seen.scores

    async def _spent_tiers(self) -> frozenset[str]:
        if all(tier.budget is None for tier in self._tiers.values()):
            return frozenset()
        now = self._clock.now()
        if self._spent is None or now - self._spent[0] >= _FRESHNESS:
            day, used = int(now // _DAY), await self._states.tiers.all()
            spent = frozenset(
                name
                for name, tier in self._tiers.items()
                if tier.budget is not None
                and (one := used.get(name)) is not None
                and one.day == day
                and one.cost + tier.cost > tier.budget
            )
            self._spent = (now, spent)
        return self._spent[1]

    async def _note_domain(self, domain: str) -> None:
        if domain in self._known_domains:
            return
        self._known_domains.add(domain)
        await self._states.domains.change(domain, lambda seen, now: (seen or SeenDomain(now), None))
