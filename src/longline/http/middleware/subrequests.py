"""What a page asks for by itself, in a browser: paced, out of the budget, and not of a sick host.

robots.txt is not asked about it: no browser does that for the parts of a page that may be read,
and without them the page would not be the one that was allowed.
"""

from __future__ import annotations

from longline.core.errors import FailureKind
from longline.http.address_policy import AddressPolicy
from longline.http.messages import origin_of
from longline.limits.breaker import Phase
from longline.limits.budget import Budgets
from longline.limits.circuit import CircuitBreaker
from longline.limits.errors import CircuitOpen
from longline.limits.limiter import RateLimiter


class Subrequests:
    """Waits for the turn of a request that a page makes; what it raises is why it may not go."""

    def __init__(
        self,
        limiter: RateLimiter,
        breaker: CircuitBreaker,
        budgets: Budgets | None = None,
        addresses: AddressPolicy | None = None,
        *,
        is_remote: bool = False,
    ) -> None:
        self._limiter = limiter
        self._breaker = breaker
        self._budgets = budgets
        self._addresses = addresses
        self._is_remote = is_remote

    async def __call__(self, url: str) -> None:
        """Return when the request may go; it has then been taken out of the budgets.

        Raises:
            BudgetSpent: there is no request, or no time, left.
            CircuitOpen: the host rests.
            Deferred: the host asked for a long pause.
            PrivateAddress: a site may not lead there.
        """
        if self._addresses is not None and self._is_remote:
            await self._addresses.check_host(url)
        elif self._addresses is not None:
            self._addresses.check_literal(url)  # names are checked when the browser connects
        domain = origin_of(url)[1]
        if self._budgets is not None:
            self._budgets.check(domain, url)
        if not self._breaker.is_calm(domain):
            await self._check_rest(domain, url)
        await self._limiter.acquire(domain, url)
        if self._budgets is not None and not self._budgets.spends_at_once(domain):
            await self._budgets.spend(domain, url)

    async def _check_rest(self, domain: str, url: str) -> None:
        # Only looked at: how the request of a page ends is not told, so it cannot be a probe.
        circuit = await self._breaker.state(domain)
        if circuit.phase is Phase.OPEN and circuit.until is not None:
            kind = FailureKind.BLOCKED if circuit.is_ban else FailureKind.NETWORK
            raise CircuitOpen(url, circuit.until, circuit.reason, kind)
