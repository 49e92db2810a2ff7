"""What is known about domains, and what a person may change: limits and circuit breakers.

Limits and breakers are the state that processes share now; the projection `domains` has what
happened to each domain, such as bans and refusals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longline.core.clock import Clock
from longline.core.errors import BadOption, NotFoundError
from longline.http.messages import origin_of
from longline.limits import learning
from longline.limits.breaker import (
    BreakerPolicy,
    BreakerState,
    BreakerStatus,
    CircuitBreaker,
    status_of_breaker,
)
from longline.limits.learning import Learned
from longline.storage.events.events import event_row
from longline.storage.store import Store
from longline.wiring import DomainStates

_MOST_NAMED = 20  # domains in an error
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|\w([\w.-]*\w)?\.?)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain: its limit, its breaker, and its row of the projection; None where unknown."""

    name: str
    limit: Learned | None
    breaker: BreakerStatus | None
    history: Mapping[str, Any] | None

    @property
    def problems(self) -> list[str]:
        """What is wrong now, as texts."""
        found = []
        if self.breaker is not None and self.breaker.phase != "closed":
            ban = "banned" if self.breaker.is_ban else f"breaker {self.breaker.phase}"
            found.append(f"{ban}: {self.breaker.reason}" if self.breaker.reason else ban)
        for label, name in (("robots.txt", "robots_problem"), ("authentication", "auth_problem")):
            if self.history is not None and self.history[name]:
                found.append(f"{label}: {self.history[name]}")
        return found


class UnknownDomain(NotFoundError):
    """Nothing is known about a domain."""

    domain: str
    message = "nothing is known about the domain {domain!r}"
    hint = "`longline limits` and `longline breakers` list the known ones."


class NoBreaker(NotFoundError):
    """A domain has no breaker; `known` are the first of those that have one."""

    domain: str
    known: tuple[str, ...] = ()
    message = "{domain!r} has no breaker"
    hint = "Known domains: {listed}."

    @property
    def listed(self) -> str:
        """The domains that have one."""
        return ", ".join(self.known) or "none"


async def read_domains(
    store: Store, states: DomainStates, now: float, *, most: int
) -> dict[str, Domain]:
    """Return what is known about the domains that changed last, and all with a limit or breaker."""
    rows = await store.projections.rows("domains", limit=most)
    history = {row["domain"]: row for row in rows if row["domain"]}
    limits, breakers = await states.limits.all(), await states.breakers.all()
    return {
        name: _domain_of(name, limits, breakers, history, now)
        for name in sorted({*history, *limits, *breakers})
    }


async def read_domain(store: Store, states: DomainStates, now: float, name: str) -> Domain:
    """Return what is known about a domain.

    Raises:
        UnknownDomain: it has no limit and no breaker, and nothing has happened to it.
    """
    rows = await store.projections.rows("domains", keys=[name])
    history = {row["domain"]: row for row in rows}
    limits, breakers = await states.limits.all(), await states.breakers.all()
    if name not in {*history, *limits, *breakers}:
        raise UnknownDomain(name)
    return _domain_of(name, limits, breakers, history, now)


def _domain_of(
    name: str,
    limits: Mapping[str, Learned],
    breakers: Mapping[str, BreakerState],
    history: Mapping[str, Mapping[str, Any]],
    now: float,
) -> Domain:
    breaker = breakers.get(name)
    status = None if breaker is None else status_of_breaker(breaker, BreakerPolicy(), now)
    return Domain(name, limits.get(name), status, history.get(name))


async def pin_limit(
    store: Store, states: DomainStates, clock: Clock, domain: str, *, rate: float, burst: int = 1
) -> tuple[str, Learned]:
    """Pin the rate limit of a domain, given as a host or a URL; return its name and its limit.

    Raises:
        BadOption: it is not a domain, or a number is out of range.
    """

    def pin(state: Learned | None, now: float) -> tuple[Learned, Learned]:
        pinned = learning.pin(state, rate, burst, now)
        return pinned, pinned

    name = parse_domain(domain)
    if not _HOST.fullmatch(name):
        raise BadOption("DOMAIN", f"must be a host like shop.example:8080, not {domain!r}")
    learning.pin(None, rate, burst, 0.0)  # refuses numbers that make no sense
    state = await states.limits.change(name, pin)
    await _append_event(store, clock, "limit.pinned", domain=name, rate=rate, burst=burst)
    return name, state


async def forget_limit(store: Store, states: DomainStates, clock: Clock, domain: str) -> str:
    """Forget the rate limit of a domain, pinned or learned; return its name.

    Raises:
        BadOption: no limit is known for it.
    """
    name = parse_domain(domain)
    if not await states.limits.forget(name):
        raise BadOption("DOMAIN", f"no limit is known for {name}")
    await _append_event(store, clock, "limit.forgotten", domain=name)
    return name


async def find_breaker(states: DomainStates, domain: str) -> BreakerState:
    """Return the breaker of a domain.

    Raises:
        NoBreaker: it has none.
    """
    known = await states.breakers.all()
    if domain not in known:
        raise NoBreaker(domain, tuple(sorted(known)[:_MOST_NAMED]))
    return known[domain]


async def reset_breaker(
    store: Store, states: DomainStates, clock: Clock, domain: str
) -> tuple[BreakerState, int]:
    """Close the breaker of a domain; return it, and how many deferred items became due.

    Raises:
        NoBreaker: it has none.
    """
    await find_breaker(states, domain)
    change = await CircuitBreaker(backend=states.breakers).reset(domain)
    moved = change.transition
    if moved is not None and moved.old != moved.new:  # else it only forgets failures
        await _append_event(store, clock, "breaker.closed", domain=domain, reason=moved.reason)
    return change.after, await store.queue.make_due(domain)


def parse_domain(text: str) -> str:
    """Return host and port of a domain or a URL."""
    return origin_of(text if "://" in text else f"http://{text}")[1]


async def _append_event(store: Store, clock: Clock, name: str, **data: Any) -> None:
    # The state may be in another file, so the two are not one transaction.
    await store.events.append(event_row(None, clock.now(), name, **data))
