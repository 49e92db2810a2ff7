"""The link that leaves a failing domain alone for a while."""

from __future__ import annotations

import asyncio
import contextlib

from longline.errors import CircuitOpen, StoreError, bad_status
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.fetching.statuses import FIRST_BAD
from longline.model import Account
from longline.resilience.breaker import Health, health_of
from longline.resilience.circuit import CircuitBreaker


class Breaking(Link):
    """Asks the breaker before each request and tells it how the request ended.

    The failure that opens the breaker is reported as CircuitOpen: the item is parked with the
    rest, since its domain is down and the item itself may be fine.
    """

    def __init__(self, inner: Link, breaker: CircuitBreaker) -> None:
        self._inner = inner
        self._breaker = breaker

    async def __call__(self, request: Request, account: Account) -> Page:
        domain = request.domain
        if not self._breaker.is_calm(domain):
            await self._breaker.before(domain, request.url)
        try:
            page = await self._inner(request, account)
        except asyncio.CancelledError as error:
            # The cancellation goes through even when the keeper cannot be told just now.
            with contextlib.suppress(StoreError):
                await self._breaker.after(domain, error)
            raise
        except Exception as error:
            await self._report(request, error)
            raise
        if page.status >= FIRST_BAD:
            await self._report(request, bad_status(request.url, page.status))
        elif not self._breaker.is_calm(domain):
            await self._breaker.after(domain, None)
        return page

    async def _report(self, request: Request, error: Exception) -> None:
        await self._breaker.after(request.domain, error)
        if health_of(error) is Health.DOWN:
            circuit = await self._breaker.state(request.domain)
            if circuit.until is not None:
                raise CircuitOpen(request.url, circuit.until) from error
