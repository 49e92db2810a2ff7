"""The link that leaves a failing domain alone for a while."""

from __future__ import annotations

from longline.errors import CircuitOpen
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account
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
        try:
            async with self._breaker.guard(domain, request.url):
                return await self._inner(request, account)
        except CircuitOpen:
            raise
        except Exception as error:
            circuit = await self._breaker.state(domain)
            if circuit.until is not None:
                raise CircuitOpen(request.url, circuit.until) from error
            raise
