"""Budget middlewares: keep a job within its budget of requests, bytes and time.

There are two, because a request is checked twice: before it waits for the rate limit, so that one
that cannot go does not wait, and when it goes, where the count is shared and exact.
"""

from __future__ import annotations

from longline.core.errors import BudgetSpent
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.limits.budget import Budgets


class BudgetCheckMiddleware(Middleware):
    """Refuses requests that are known to exceed the budget; outside breaker and rate limit."""

    def __init__(self, inner: Middleware, budgets: Budgets) -> None:
        self._inner = inner
        self._budgets = budgets
        self._reported: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        try:
            self._budgets.check(request.domain, request.url)
            return await self._inner(request, usage)
        except BudgetSpent as error:
            if error.limit not in self._reported:
                self._reported.add(error.limit)
                usage.add_event("budget.spent", limit=error.limit)
            raise


class BudgetMiddleware(Middleware):
    """Charges each request to the budget when it is sent; inside the rate limit."""

    def __init__(self, inner: Middleware, budgets: Budgets) -> None:
        self._inner = inner
        self._budgets = budgets

    async def __call__(self, request: Request, usage: Usage) -> Page:
        domain = request.domain
        if not self._budgets.try_spend(domain):
            with usage.waiting:
                await self._budgets.spend(domain, request.url)
        page = await self._inner(request, usage)
        if self._budgets.receive(domain, page.size):
            await self._budgets.report(domain)
        return page
