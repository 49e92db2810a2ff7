"""The way of a request: which links it passes, in which order.

retry → redirects → addresses → statuses → archive → robots → authentication → identity → cache
→ join → budget → breaker → room → pace → budget → bans → HTML guard
→ transport

- Retries and redirects stand outside the rest, so every attempt and every hop is judged anew and
  pays for its own token.
- Statuses raise for 400 and more; every link inside sees the plain answer.
- The archive keeps what a source is given. Secrets are added further in, so it never sees one.
- Cache and join stand before budget, breaker and pace: an answer that nobody has to be asked for
  costs nothing.
- Room for a limited number at once is waited for before the pace: who holds a slot goes.
- A connection is waited for together with the pace, before the deadline of the request begins.
- A budget is looked at before a request stands in line, and taken from when it goes.

A link whose policy is None is not built.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from longline.config.auth import Auth, mark_of
from longline.config.identity import StartCookies
from longline.core.clock import Clock
from longline.http.address_policy import AddressCheck, AddressPolicy
from longline.http.archive.base import Archive
from longline.http.cache.base import HttpCache
from longline.http.middleware.archive import ArchiveMiddleware
from longline.http.middleware.authentication import AuthMiddleware
from longline.http.middleware.bans import BanMiddleware
from longline.http.middleware.base import Middleware
from longline.http.middleware.breaker import BreakerMiddleware
from longline.http.middleware.budget import BudgetCheckMiddleware, BudgetMiddleware
from longline.http.middleware.coalescing import CoalescingMiddleware
from longline.http.middleware.concurrency import ConcurrencyMiddleware
from longline.http.middleware.html_guard import HtmlGuard, HtmlProbe
from longline.http.middleware.identity import IdentityMiddleware
from longline.http.middleware.rate_limit import RateLimitMiddleware
from longline.http.middleware.responses import RedirectMiddleware, StatusMiddleware
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.robots import RobotsMiddleware
from longline.http.robots_rules import AGENT, RobotsText
from longline.http.transports.aiohttp import ConnectionLimit
from longline.limits.backends.cells import Cells
from longline.limits.budget import Budgets
from longline.limits.circuit import CircuitBreaker
from longline.limits.in_flight import ConcurrencyLimiter
from longline.limits.limiter import RateLimiter, Refusals
from longline.limits.retry import RetryHandler


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """How a source presents itself, and what it expects of its pages."""

    headers: Mapping[str, str] = field(default_factory=dict)
    cookies: bool | StartCookies = True
    auth: Auth | None = None
    expects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policies:
    """What the links of a chain decide by, and where they keep what they know."""

    limiter: RateLimiter
    breaker: CircuitBreaker
    retry: RetryHandler
    ignored_robots: frozenset[str] = frozenset()
    identity: ClientIdentity = ClientIdentity()
    robots: Cells[RobotsText] | None = None
    budgets: Budgets | None = None
    cache: HttpCache | None = None
    archive: Archive | None = None
    job: str = ""
    concurrency_limiter: ConcurrencyLimiter | None = None
    connections: ConnectionLimit | None = None
    refusals: Cells[Refusals] | None = None
    addresses: AddressPolicy | None = None
    agent: str = AGENT
    """The name that robots.txt knows us by."""


def build_chain(
    transport: Middleware, policies: Policies, clock: Clock, closing: AsyncExitStack | None = None
) -> Middleware:
    """Join the links around a transport; `closing` ends what they do in the background."""
    if closing is not None:
        probe = HtmlProbe()
        closing.callback(probe.close)
        transport = HtmlGuard(transport, probe)
    chain = _sending(transport, policies, clock)
    if policies.concurrency_limiter and closing is not None:
        closing.push_async_callback(policies.concurrency_limiter.close)
    chain = CoalescingMiddleware(chain)
    if policies.cache:
        # hishel imports every storage it knows, redis among them: 8 MB.
        from longline.http.middleware.cache import CacheMiddleware  # noqa: PLC0415

        mark = mark_of(policies.identity.auth, policies.identity.cookies)
        chain = caching = CacheMiddleware(chain, policies.cache, clock, mark=mark)
        if closing is not None:
            closing.push_async_callback(caching.close)
    chain = _asking(chain, policies, clock)
    if policies.archive:
        chain = ArchiveMiddleware(chain, policies.archive, policies.job, clock)
    chain = StatusMiddleware(chain, clock)
    if policies.addresses:
        chain = AddressCheck(chain, policies.addresses)
    chain = RedirectMiddleware(chain)
    return RetryMiddleware(chain, policies.retry, clock)


def _sending(transport: Middleware, policies: Policies, clock: Clock) -> Middleware:
    """Return the links that a request passes when the site really is asked."""
    chain: Middleware = BanMiddleware(transport, expects=policies.identity.expects)
    if policies.budgets:
        chain = BudgetMiddleware(chain, policies.budgets)
    chain = RateLimitMiddleware(
        chain, policies.limiter, clock, policies.connections, policies.refusals
    )
    if policies.concurrency_limiter:
        chain = ConcurrencyMiddleware(chain, policies.concurrency_limiter)
    chain = BreakerMiddleware(chain, policies.breaker)
    return BudgetCheckMiddleware(chain, policies.budgets) if policies.budgets else chain


def _asking(inner: Middleware, policies: Policies, clock: Clock) -> Middleware:
    """Return the links that decide whether to ask, and say who does."""
    identity = policies.identity
    chain: Middleware = IdentityMiddleware(
        inner, headers=identity.headers, cookies=identity.cookies
    )
    if identity.auth:
        chain = AuthMiddleware(chain, identity.auth, clock)
    return RobotsMiddleware(
        chain,
        clock,
        ignored=policies.ignored_robots,
        cells=policies.robots,
        restrain=policies.limiter.restrain,
        agent=policies.agent,
    )
