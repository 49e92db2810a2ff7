"""The chain of middlewares that every request passes, and its order.

retry → (plugins and source) → sessions → redirects → addresses → status → archive → robots
→ request log → authentication → identity → files → cache → coalescing → budget check → breaker
→ proxies → concurrency → rate limit → budget → bans → HTML guard → transport

- Retries and redirects are outermost: every attempt and every hop passes the rest again and takes
  its own slot of the rate limit.
- `status` raises for 400 and more; all middlewares inside see the plain response.
- The archive keeps what the source receives. Secrets are added further in, so it never sees them.
- Files are stored inside the archive, which keeps what describes them and not their bodies.
- Cache and coalescing are outside budget, breaker and rate limit: a response that needs no request
  costs nothing.
- The concurrency limit is outside the rate limit: a request that has a rate slot does not wait.
- Proxies are inside the breaker, which does not see their failures, and outside the limits: each
  attempt through another proxy takes its own slot.
- A connection is awaited together with the rate limit, before the request's timeout starts.
- A budget is checked before a request waits, and charged when it goes.

A middleware whose policy is None is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from longline.config.auth import Auth, identity_hash
from longline.config.identity import StartCookies
from longline.core.clock import Clock
from longline.http.address_policy import AddressMiddleware, AddressPolicy
from longline.http.archive.warc import Archive, ArchiveMiddleware
from longline.http.cache import HttpCache
from longline.http.messages import Middleware, MiddlewareFactory
from longline.http.middleware.authentication import AuthMiddleware
from longline.http.middleware.bans import BanMiddleware
from longline.http.middleware.breaker import BreakerMiddleware
from longline.http.middleware.budget import BudgetCheckMiddleware, BudgetMiddleware
from longline.http.middleware.cache import CacheMiddleware
from longline.http.middleware.coalescing import CoalescingMiddleware
from longline.http.middleware.files import FilesMiddleware, FileStorage
from longline.http.middleware.html_guard import HtmlGuard, HtmlProbe
from longline.http.middleware.identity import IdentityMiddleware
from longline.http.middleware.proxies import ProxyMiddleware
from longline.http.middleware.rate_limit import (
    ConcurrencyMiddleware,
    RateLimitMiddleware,
    RefusedUrls,
)
from longline.http.middleware.request_log import RequestLogMiddleware, is_request_logged
from longline.http.middleware.retry import RetryMiddleware
from longline.http.middleware.sessions import SessionMiddleware
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.http.proxies.rotation import ProxyRotation
from longline.http.proxies.sessions import SessionPool
from longline.http.robots import AGENT, RobotsMiddleware, RobotsText
from longline.http.transport import ConnectionLimit
from longline.limits.backends.state import StateBackend
from longline.limits.breaker import CircuitBreaker
from longline.limits.budget import Budgets
from longline.limits.concurrency import ConcurrencyLimiter
from longline.limits.limiter import RateLimiter
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
    """The policies and backends of a chain."""

    limiter: RateLimiter
    breaker: CircuitBreaker
    retry: RetryHandler
    ignored_robots: frozenset[str] = frozenset()
    identity: ClientIdentity = ClientIdentity()
    robots: StateBackend[RobotsText] | None = None
    budgets: Budgets | None = None
    cache: HttpCache | None = None
    archive: Archive | None = None
    job: str = ""
    concurrency_limiter: ConcurrencyLimiter | None = None
    connections: ConnectionLimit | None = None
    refused_urls: StateBackend[RefusedUrls] | None = None
    addresses: AddressPolicy | None = None
    middlewares: tuple[MiddlewareFactory, ...] = ()
    """Middlewares of the source, the outermost first."""
    files: FileStorage | None = None
    rotation: ProxyRotation | None = None
    per_proxy: bool = False
    """Whether the rate limit is that of each proxy, not of the domain."""
    sessions: SessionPool | None = None
    agent: str = AGENT
    """Our product token in robots.txt."""


def build_chain(
    transport: Middleware, policies: Policies, clock: Clock, closing: AsyncExitStack
) -> Middleware:
    """Wrap a transport in the middlewares; `closing` ends their background work."""
    chain = _build_inner(transport, policies, clock, closing)
    chain = CoalescingMiddleware(chain)
    identity = policies.identity
    if policies.cache:
        mark = identity_hash(identity.auth, identity.cookies)
        chain = CacheMiddleware(chain, policies.cache, clock, mark=mark)
    if policies.files:
        chain = FilesMiddleware(chain, policies.files, policies.job)
    chain = IdentityMiddleware(
        chain, headers=identity.headers, cookies=identity.cookies, sessions=policies.sessions
    )
    if identity.auth:
        chain = AuthMiddleware(chain, identity.auth, clock)
    if is_request_logged():
        chain = RequestLogMiddleware(chain, clock)
    chain = RobotsMiddleware(
        chain,
        clock,
        ignored=policies.ignored_robots,
        copies=policies.robots,
        cap_rate=policies.limiter.cap_rate,
        agent=policies.agent,
    )
    if policies.archive:
        chain = ArchiveMiddleware(chain, policies.archive, policies.job, clock)
    chain = StatusMiddleware(chain, clock)
    if policies.addresses:
        chain = AddressMiddleware(chain, policies.addresses)
    chain = RedirectMiddleware(chain)
    if policies.sessions:
        chain = SessionMiddleware(chain, policies.sessions)
    for make in reversed(policies.middlewares):
        chain = make(chain)
    return RetryMiddleware(chain, policies.retry, clock)


def _build_inner(
    transport: Middleware, policies: Policies, clock: Clock, closing: AsyncExitStack
) -> Middleware:
    """Return the middlewares that only requests to the site pass."""
    probe = HtmlProbe()
    closing.callback(probe.close)
    chain: Middleware = HtmlGuard(transport, probe)
    chain = BanMiddleware(chain, expects=policies.identity.expects)
    if policies.budgets:
        chain = BudgetMiddleware(chain, policies.budgets)
    chain = RateLimitMiddleware(
        *(chain, policies.limiter, clock, policies.connections, policies.refused_urls),
        per_proxy=policies.per_proxy,
    )
    if policies.concurrency_limiter:
        chain = ConcurrencyMiddleware(chain, policies.concurrency_limiter)
        closing.push_async_callback(policies.concurrency_limiter.close)
    if policies.rotation:
        chain = ProxyMiddleware(
            *(chain, policies.rotation, clock, policies.sessions),
            expects=policies.identity.expects,
        )
    chain = BreakerMiddleware(chain, policies.breaker, clock)
    return BudgetCheckMiddleware(chain, policies.budgets) if policies.budgets else chain
