"""How many requests a domain may have under way at once, over all processes.

Each request holds a lease while it is under way and renews it; the lease of a process that died
ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LEASE = 30.0
"""Seconds after which a request that was not heard of is believed dead."""
RENEWAL = LEASE / 6
"""Seconds between two signs of life."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """Who is inside: each token with the moment its lease ends, in seconds since the epoch."""

    leases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """The `token` of one who was let in; None: no room, and none comes by itself for `wait` s."""

    token: str | None
    wait: float = 0.0


def enter(
    crowd: InFlight, token: str, limit: int, lease: float, now: float
) -> tuple[InFlight, Entry]:
    """Let one more in while fewer than `limit` are inside."""
    # A clock that was set back must not keep a dead one inside: no lease is longer than one lease.
    leases = {one: min(until, now + lease) for one, until in crowd.leases.items() if until > now}
    if len(leases) >= limit:
        return InFlight(leases), Entry(None, min(leases.values(), default=now) - now)
    return InFlight({**leases, token: now + lease}), Entry(token)


def stay(crowd: InFlight, tokens: Iterable[str], lease: float, now: float) -> InFlight:
    """Renew leases; one that was forgotten is written down again, since its holder is inside."""
    return InFlight({**crowd.leases, **dict.fromkeys(tokens, now + lease)})


def leave(crowd: InFlight, token: str) -> InFlight:
    """Return the crowd without one."""
    return InFlight({one: until for one, until in crowd.leases.items() if one != token})
