"""Breaker middleware: stop requests to a domain that fails or has banned us."""

from __future__ import annotations

import asyncio

from longline.core.clock import Clock
from longline.core.errors import CircuitOpen, FailureKind, bad_status
from longline.core.model import Usage
from longline.http.messages import FIRST_ERROR, Middleware, Page, Request
from longline.limits.breaker import CircuitBreaker, Health, Phase, health_of

_BAD = frozenset({Health.DOWN, Health.BANNED})


class BreakerMiddleware(Middleware):
    """Asks the breaker before each request and records the result.

    The failure that opens the breaker is raised as CircuitOpen: the item is deferred with the
    others, since its domain is down or bans us and the item itself may be fine.
    """

    def __init__(self, inner: Middleware, breaker: CircuitBreaker, clock: Clock) -> None:
        self._inner = inner
        self._breaker = breaker
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        domain = request.domain
        if not self._breaker.is_healthy(domain):
            with usage.waiting:
                await self._breaker.admit(domain, request.url)
        try:
            page = await self._inner(request, usage)
        except asyncio.CancelledError as error:
            await self._breaker.record(domain, error)
            raise
        except Exception as error:
            await self._record(request, usage, error)
            raise
        if page.status < FIRST_ERROR and self._breaker.is_healthy(domain):
            self._breaker.count_success(domain)
        elif page.status < FIRST_ERROR:
            await self._record(request, usage, None)
        else:
            # Only whether it asks for a pause matters here; the rate limiter obeys it.
            pause = page.retry_after(self._clock.now())
            await self._record(request, usage, bad_status(request.url, page.status, pause))
        return page

    async def _record(self, request: Request, usage: Usage, error: Exception | None) -> None:
        change = await self._breaker.record(request.domain, error)
        if change is None:
            return
        domain, transition, state = request.domain, change.transition, change.after
        if transition is not None and transition.new == Phase.OPEN:
            reason, until = state.reason, state.open_until
            usage.add_event("breaker.opened", domain=domain, reason=reason, until=until)
            if state.is_ban:
                usage.add_event("domain.blocked", domain=domain, evidence=reason, until=until)
        elif transition is not None and transition.old == Phase.HALF_OPEN:
            usage.add_event("breaker.closed", domain=domain, reason=transition.reason)
        if state.open_until is not None and health_of(error) in _BAD:
            kind = FailureKind.BLOCKED if state.is_ban else FailureKind.NETWORK
            raise CircuitOpen(request.url, state.open_until, state.reason, kind) from error
