"""The link that leaves a domain alone for a while when it fails, or when it has banned us."""

from __future__ import annotations

import asyncio
import contextlib

from longline.core.errors import FailureKind, StoreError, bad_status
from longline.core.model import Usage
from longline.http.headers import retry_after
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.middleware.responses import FIRST_BAD
from longline.limits.breaker import BreakerState, Change, Health, Phase, health_of
from longline.limits.circuit import CircuitBreaker
from longline.limits.errors import CircuitOpen

_BAD = frozenset({Health.DOWN, Health.BANNED})


class BreakerMiddleware(Middleware):
    """Asks the breaker before each request and tells it how the request ended.

    The failure that opens the breaker is reported as CircuitOpen: the item is parked with the
    rest, since its domain is down or bans us and the item itself may be fine.
    """

    def __init__(self, inner: Middleware, breaker: CircuitBreaker) -> None:
        self._inner = inner
        self._breaker = breaker

    async def __call__(self, request: Request, usage: Usage) -> Page:
        domain = request.domain
        if not self._breaker.is_calm(domain):
            with usage.waiting:
                await self._breaker.before(domain, request.url)
        try:
            page = await self._inner(request, usage)
        except asyncio.CancelledError as error:
            # The cancellation goes through even when the keeper cannot be told just now.
            with contextlib.suppress(StoreError):
                await self._breaker.after(domain, error)
            raise
        except Exception as error:
            await self._report(request, usage, error)
            raise
        if page.status < FIRST_BAD and self._breaker.is_calm(domain):
            self._breaker.count_success(domain)
        else:
            await self._report(request, usage, _error_of(request, page))
        return page

    async def _report(self, request: Request, usage: Usage, error: Exception | None) -> None:
        change = await self._breaker.after(request.domain, error)
        if change is None:
            return
        _tell(usage, request.domain, change)
        state = change.after
        if state.open_until is not None and health_of(error) in _BAD:
            kind = FailureKind.BLOCKED if state.is_ban else FailureKind.NETWORK
            raise CircuitOpen(request.url, state.open_until, state.reason, kind) from error


def _error_of(request: Request, page: Page) -> Exception | None:
    if page.status < FIRST_BAD:
        return None
    # Only whether it asks for a pause matters here; how long is the pace's business.
    return bad_status(request.url, page.status, retry_after(page.headers, now=0.0))


def _tell(usage: Usage, domain: str, change: Change) -> None:
    """Make a change of phase an event of the job, and a ban an alert."""
    transition = change.transition
    if transition is None:
        return
    if transition.new == Phase.OPEN:
        _tell_opened(usage, domain, change.after)
    elif transition.old == Phase.HALF_OPEN:
        usage.add_event("breaker.closed", domain=domain, reason=transition.reason)


def _tell_opened(usage: Usage, domain: str, state: BreakerState) -> None:
    usage.add_event("breaker.opened", domain=domain, reason=state.reason, until=state.open_until)
    if state.is_ban:
        usage.add_event(
            "domain.blocked", domain=domain, evidence=state.reason, until=state.open_until
        )
