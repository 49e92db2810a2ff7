"""The way of a request: which links it passes, in which order.

retry → redirects → statuses → robots → (cache) → (join identical) → breaker → pace → (proxy) →
transport. The links in brackets have their seats here and are not built yet. Retries and
redirects stand outside the rest, so every attempt and every hop pays for its own token.
"""

from __future__ import annotations

from dataclasses import dataclass

from longline.clock import Clock
from longline.fetching.breaking import Breaking
from longline.fetching.link import Link
from longline.fetching.pacing import Pacing
from longline.fetching.redirects import Redirects
from longline.fetching.retrying import Retrying
from longline.fetching.robots import Robots
from longline.fetching.statuses import Statuses
from longline.resilience.circuit import CircuitBreaker
from longline.resilience.handler import RetryHandler
from longline.resilience.limiter import RateLimiter


@dataclass(frozen=True, slots=True)
class Policies:
    """What the links of a chain decide by."""

    limiter: RateLimiter
    breaker: CircuitBreaker
    retry: RetryHandler
    ignored_robots: frozenset[str] = frozenset()


def build_chain(transport: Link, policies: Policies, clock: Clock) -> Link:
    """Join the links around a transport."""
    chain = transport
    if policies.limiter.is_limited:
        chain = Pacing(chain, policies.limiter, clock)
    chain = Breaking(chain, policies.breaker)
    chain = Robots(chain, clock, ignored=policies.ignored_robots)
    chain = Statuses(chain, clock)
    chain = Redirects(chain)
    return Retrying(chain, policies.retry, clock)
