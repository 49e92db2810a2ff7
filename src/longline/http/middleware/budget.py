"""The links that keep a job within its budget of requests, bytes and time.

Two, because a request is judged twice: before it stands in line for its turn, so that what cannot
go does not wait, and when it goes, where the count is shared with other processes and exact.
"""

from __future__ import annotations

from longline.core.model import Usage
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.limits.budget import Budgets
from longline.limits.errors import BudgetSpent


class BudgetCheckMiddleware(Middleware):
    """Turns away what is known to be over the budget; stands outside breaker and pace."""

    def __init__(self, inner: Middleware, budgets: Budgets) -> None:
        self._inner = inner
        self._budgets = budgets
        self._told: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        try:
            self._budgets.check(request.domain, request.url)
            return await self._inner(request, usage)
        except BudgetSpent as error:
            if error.limit not in self._told:
                self._told.add(error.limit)
                usage.add_event("budget.spent", limit=error.limit)
            raise


class BudgetMiddleware(Middleware):
    """Takes each request that goes out of the budget; stands right before the transport."""

    def __init__(self, inner: Middleware, budgets: Budgets) -> None:
        self._inner = inner
        self._budgets = budgets

    async def __call__(self, request: Request, usage: Usage) -> Page:
        domain = request.domain
        if not self._budgets.spends_at_once(domain):
            with usage.waiting:
                await self._budgets.spend(domain, request.url)
        page = await self._inner(request, usage)
        if self._budgets.receive(domain, len(page.body)):
            await self._budgets.report(domain)
        return page
