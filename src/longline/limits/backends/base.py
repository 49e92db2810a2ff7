"""Where the shared state of a policy lives: what every keeper promises.

A keeper brings its own clock, since only one clock can count for all who share it; hence no
method takes the time. Moments in its answers are seconds since the epoch by that clock; where the
caller's own is far from it, states that are only looked at are told by the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from longline.limits.breaker import (
    Admission,
    BreakerPolicy,
    BreakerState,
    Change,
    Health,
    Successes,
)
from longline.limits.concurrency import LEASE, Entry
from longline.limits.rate_limit import BucketState, RateLimit, Slot


class RateLimitBackend(Protocol):
    """The buckets of all domains; each call is one atomic step."""

    async def reserve(self, domain: str, pace: RateLimit) -> Slot:
        """Take the next slot; no other caller, in any process, is given the same."""

    async def check(self, domain: str, pace: RateLimit, slot: Slot) -> float | None:
        """Return the seconds still to wait for a slot, or None when it is void."""

    async def penalise(self, domain: str, pace: RateLimit, seconds: float) -> BucketState:
        """Bar the domain for so many seconds from now, for everyone."""

    async def observe_lateness(self, domain: str, pace: RateLimit, seconds: float) -> None:
        """Note that a request left so many seconds after its slot."""

    async def give_back(self, domain: str, slot: Slot) -> None:
        """Return a slot nobody used; lost when another was reserved since."""

    async def state(self, domain: str) -> BucketState | None:
        """Return what is known of a domain; None when it was never asked."""


class BreakerBackend(Protocol):
    """The breakers of all domains; each call is one atomic step."""

    freshness: float
    """How many seconds an answer of `state` may be used again instead of asking: 0 is never."""

    async def admit(self, domain: str, policy: BreakerPolicy) -> Admission:
        """Decide on one request; of all who ask in half-open, one becomes the probe."""

    async def record(
        self,
        domain: str,
        policy: BreakerPolicy,
        health: Health,
        *,
        reason: str = "",
        successes: Successes = (),
    ) -> Change:
        """Note what a request said about its domain, and successes that were not told before."""

    async def reset(self, domain: str) -> BreakerState:
        """Close the breaker by hand."""

    async def state(self, domain: str) -> BreakerState:
        """Return what is known of a domain; the initial state when it was never asked."""

    async def all(self) -> dict[str, BreakerState]:
        """Return what is known, by domain."""

    async def forget(self, domain: str) -> bool:
        """Remove all that is known of a domain; False when it was never heard of."""


class ConcurrencyBackend(Protocol):
    """Who has a request under way at which domain; each call is one atomic step."""

    async def acquire(self, domain: str, limit: int, lease: float = LEASE) -> Entry:
        """Enter for `lease` seconds while fewer than `limit` are inside, in all processes."""

    async def renew(self, domain: str, tokens: Sequence[str], lease: float = LEASE) -> None:
        """Stay for another `lease` seconds; one who was forgotten meanwhile is inside again."""

    async def release(self, domain: str, token: str) -> None:
        """Leave; a token that is not known does no harm, and one that cannot be told expires."""
