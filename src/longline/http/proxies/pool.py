"""The pool: the proxies of a home, what checks have found, and how requests through them ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from longline.core.clock import Clock
from longline.http.proxies.choice import EVERYWHERE, Score
from longline.http.proxies.proxy import CredentialFiles, ParsedProxy, Proxy
from longline.limits.backends.state import MemoryStateBackend, StateBackend

ProxyState = Literal["unchecked", "alive", "dead"]
Anonymity = Literal["transparent", "anonymous", "elite"]
_MOST_DOMAINS = 500  # whose requests are summed
OnEvent = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Is passed the type and the data of an event."""
OpenBackend = Callable[[str, type[Any]], StateBackend[Any]]
"""Returns the values of one group."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check of a proxy has found; `latency` is in seconds, `problem` says why it is dead.

    `exit_address` is the address that a site sees.
    """

    is_alive: bool
    checked_at: float
    latency: float | None = None
    anonymity: Anonymity | None = None
    exit_address: str | None = None
    country: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PooledProxy:
    """A proxy of the pool, and its last check. Stored as JSON.

    A dead one is not used until a check finds it alive; `failed_checks` counts those in a row.
    """

    proxy: Proxy
    added_at: float
    check: CheckResult | None = None
    failed_checks: int = 0

    def __post_init__(self) -> None:
        # Backends that store JSON return dicts.
        if isinstance(self.proxy, dict):
            object.__setattr__(self, "proxy", Proxy(**self.proxy))
        if isinstance(self.check, dict):
            object.__setattr__(self, "check", CheckResult(**self.check))

    @property
    def address(self) -> str:
        """The address of the proxy, its name everywhere."""
        return self.proxy.address

    @property
    def state(self) -> ProxyState:
        """What the last check has found."""
        if self.check is None:
            return "unchecked"
        return "alive" if self.check.is_alive else "dead"

    def checked(self, result: CheckResult) -> PooledProxy:
        """Return the proxy after a check; recorded again, the same result changes nothing."""
        if result == self.check:
            return self
        country = result.country or self.proxy.country
        return replace(
            self,
            proxy=replace(self.proxy, country=country),
            check=result,
            failed_checks=0 if result.is_alive else self.failed_checks + 1,
        )


@dataclass(frozen=True, slots=True)
class SeenDomain:
    """A domain that was requested through proxies, and when first. Stored as JSON."""

    since: float


@dataclass(frozen=True, slots=True)
class TierUsage:
    """Requests through the proxies of a tier, and their cost, on one day (UTC). Stored as JSON."""

    day: int
    requests: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class ProxyStates:
    """Backends of what processes share about proxies; `scores` returns those of one domain.

    The pool is what a person has added, so it may be elsewhere than what is learned from use.
    """

    pool: StateBackend[PooledProxy]
    domains: StateBackend[SeenDomain]
    tiers: StateBackend[TierUsage]
    scores: Callable[[str], StateBackend[Score]]

    @classmethod
    def open(cls, backend: OpenBackend, pool: OpenBackend | None = None) -> ProxyStates:
        """Return the backends of a file, server or database; `pool` opens that of the pool."""
        return cls(
            (pool or backend)("proxies", PooledProxy),
            backend("proxy_domains", SeenDomain),
            backend("proxy_tiers", TierUsage),
            # A group for each domain: one row is written for a request, and those of the domain
            # are read together.
            lambda domain: backend(f"proxy_scores/{domain}", Score),
        )

    @classmethod
    def in_memory(cls, clock: Clock) -> ProxyStates:
        """Return backends of this process."""
        made: dict[str, MemoryStateBackend[Any]] = {}

        def backend(group: str, _kind: type[Any]) -> StateBackend[Any]:
            return made.setdefault(group, MemoryStateBackend(clock))

        return cls.open(backend)


@dataclass(frozen=True, slots=True)
class ProxyStatus:
    """A proxy of the pool with its score: at the domain that was asked for, and as a whole.

    `quarantined_until` is None unless one of them is in quarantine.
    """

    pooled: PooledProxy
    score: Score
    whole: Score
    quarantined_until: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """The pool at one time; `usable` are neither dead nor in quarantine."""

    total: int
    alive: int
    dead: int
    unchecked: int
    quarantined: int
    usable: int
    proxies: tuple[ProxyStatus, ...] = ()


@dataclass(slots=True)
class ProxyUse:
    """Requests through a proxy at all domains: all, those that failed, and bans."""

    requests: int = 0
    failed: int = 0
    bans: int = 0


@dataclass(frozen=True, slots=True)
class Replaced:
    """What the results of a refresh changed, as addresses.

    With `is_kept`, nothing was changed: no proxy passed, so the fault may be ours.
    """

    added: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    died: tuple[str, ...] = ()
    is_kept: bool = False


async def _no_event(_name: str, _data: Mapping[str, Any]) -> None:
    return


class ProxyPool:
    """The proxies of a home, shared by its processes.

    Args:
        states: where it is stored.
        clock: the clock.
        credentials: the files of credentials that lists contain.
        on_event: is passed the events `proxy.added`, `proxy.removed`, `proxy.died` and
            `proxy.revived`.
    """

    def __init__(
        self,
        states: ProxyStates,
        clock: Clock,
        credentials: CredentialFiles | None = None,
        *,
        on_event: OnEvent = _no_event,
    ) -> None:
        self._states = states
        self._clock = clock
        self._credentials = credentials
        self._on_event = on_event

    async def all(self) -> list[PooledProxy]:
        """Return every proxy, in the order of the addresses."""
        return [one for _, one in sorted((await self._states.pool.all()).items())]

    async def get(self, address: str) -> PooledProxy | None:
        """Return the proxy with an address; None if there is none."""
        found, _ = await self._states.pool.read(address)
        return found

    async def add(self, proxies: Iterable[Proxy | ParsedProxy]) -> list[PooledProxy]:
        """Add proxies and return the new ones; of a known one, all but its check is replaced.

        Raises:
            OSError: the credentials of a parsed proxy cannot be written to their file.
        """
        added = []
        for one in proxies:
            proxy = self._keep(one)
            before, after = await self._put(proxy)
            if before is None:
                added.append(after)
                await self._report_added(proxy)
            elif self._credentials is not None and before.proxy.credentials != proxy.credentials:
                self._credentials.forget(before.proxy)
        return added

    async def remove(self, address: str) -> bool:
        """Remove a proxy, its credentials and its scores; return False if it was not there."""
        pooled = await self.get(address)
        if pooled is None or not await self._states.pool.forget(address):
            return False
        if self._credentials is not None:
            self._credentials.forget(pooled.proxy)
        for domain in (EVERYWHERE, *await self.domains()):
            await self._states.scores(domain).forget(address)
        await self._on_event("proxy.removed", {"address": address, "origin": pooled.proxy.origin})
        return True

    async def record_check(self, address: str, result: CheckResult) -> PooledProxy | None:
        """Record a check; return the proxy after it, None if it is not in the pool."""

        def update(
            before: PooledProxy | None, _now: float
        ) -> tuple[PooledProxy | None, tuple[PooledProxy | None, PooledProxy | None]]:
            after = None if before is None else before.checked(result)
            return after, (before, after)

        before, after = await self._states.pool.change(address, update)
        if before is not None and after is not None and before.state != after.state:
            await self._report_check(address, before.state, result)
        return after

    async def replace_checked(
        self, results: Iterable[tuple[Proxy | ParsedProxy, CheckResult]]
    ) -> Replaced:
        """Record the results of a refresh: the pool is as it was until now, and then as they say.

        A proxy that is alive is added, and a known one updated. One that is not alive is dead if
        it is in the pool, and otherwise not added. If none is alive, nothing changes: the fault may
        be that of this machine. Of a proxy that a person has added, lists change nothing but the
        check; one that a person has removed meanwhile is only added if a list has it.

        Raises:
            OSError: the credentials of a parsed proxy cannot be written to their file.
        """
        several = list(results)
        if not any(result.is_alive for _, result in several):
            return Replaced(is_kept=True)
        known = await self._states.pool.all()
        added, returned, died = [], [], []
        for one, result in several:
            proxy = one.proxy if isinstance(one, ParsedProxy) else one
            address = proxy.address
            before = known.get(address)
            if before is None and not (result.is_alive and proxy.origin):
                continue
            is_own = before is not None and not before.proxy.origin
            if result.is_alive and not is_own and await self.add([one]):
                added.append(address)
            await self.record_check(address, result)
            if before is not None and before.state == "dead" and result.is_alive:
                returned.append(address)
            elif before is not None and before.state != "dead" and not result.is_alive:
                died.append(address)
        return Replaced(tuple(added), tuple(returned), tuple(died))

    async def domains(self) -> list[str]:
        """Return the domains that were requested through proxies."""
        return sorted(await self._states.domains.all())

    async def use(self) -> dict[str, ProxyUse]:
        """Return the requests through each proxy, summed over the domains.

        The score as a whole lacks bans, and has successes a little later; those of a domain lack
        failures that have nothing to do with it.
        """
        found: dict[str, ProxyUse] = {}
        for domain in (await self.domains())[:_MOST_DOMAINS]:
            for address, score in (await self._states.scores(domain).all()).items():
                one = found.setdefault(address, ProxyUse())
                one.requests += score.requests
                one.failed += score.failed
                one.bans += score.bans
        for address, whole in (await self._states.scores(EVERYWHERE).all()).items():
            one = found.setdefault(address, ProxyUse())
            refused = max(0, whole.failed - one.failed)
            one.requests += refused
            one.failed += refused
        # A request that was in flight when its proxy was removed has written a score again.
        known = await self._states.pool.all()
        return {address: one for address, one in found.items() if address in known}

    async def statistics(self, domain: str | None = None) -> PoolStatistics:
        """Return the pool and its scores: at a domain, or everywhere."""
        now = self._clock.now()
        whole = await self._states.scores(EVERYWHERE).all()
        scores = whole if domain is None else await self._states.scores(domain).all()
        none = Score()
        proxies = [
            _status(one, scores.get(one.address, none), whole.get(one.address, none), now)
            for one in await self.all()
        ]
        return _statistics(proxies)

    def _keep(self, proxy: Proxy | ParsedProxy) -> Proxy:
        if isinstance(proxy, Proxy):
            return proxy
        if proxy.secret is None or self._credentials is None:
            return proxy.proxy
        return self._credentials.keep(proxy)

    async def _put(self, proxy: Proxy) -> tuple[PooledProxy | None, PooledProxy]:
        """Write a proxy; return what was there before and what is now."""

        def update(
            before: PooledProxy | None, now: float
        ) -> tuple[PooledProxy, tuple[PooledProxy | None, PooledProxy]]:
            after = PooledProxy(proxy, added_at=now)
            if before is not None:
                country = proxy.country or before.proxy.country
                after = replace(before, proxy=replace(proxy, country=country))
            return after, (before, after)

        return await self._states.pool.change(proxy.address, update)

    async def _report_added(self, proxy: Proxy) -> None:
        data = {"address": proxy.address, "tier": proxy.tier, "origin": proxy.origin}
        await self._on_event("proxy.added", data)

    async def _report_check(self, address: str, before: ProxyState, result: CheckResult) -> None:
        if result.is_alive and before == "dead":
            await self._on_event("proxy.revived", {"address": address})
        elif not result.is_alive:
            problem = result.problem or ""
            await self._on_event("proxy.died", {"address": address, "problem": problem})


def _status(pooled: PooledProxy, score: Score, whole: Score, now: float) -> ProxyStatus:
    held = [one for one in (whole, score) if one.is_quarantined(now)]
    until = max((one.until or 0.0 for one in held), default=None)
    return ProxyStatus(pooled, score, whole, until, held[0].reason if held else "")


def _statistics(proxies: Sequence[ProxyStatus]) -> PoolStatistics:
    states = Counter(one.pooled.state for one in proxies)
    living = [one for one in proxies if one.pooled.state != "dead"]
    quarantined = sum(one.quarantined_until is not None for one in living)
    return PoolStatistics(
        total=len(proxies),
        alive=states["alive"],
        dead=states["dead"],
        unchecked=states["unchecked"],
        quarantined=quarantined,
        usable=len(living) - quarantined,
        proxies=tuple(proxies),
    )
