"""The outermost link: tries again what may succeed, each time through the whole chain."""

from __future__ import annotations

from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account
from longline.resilience.handler import RetryHandler


class Retrying(Link):
    """Retries by the handler's policy; a wait too long to sit out is raised as Postponed."""

    def __init__(self, inner: Link, handler: RetryHandler) -> None:
        self._inner = inner
        self._handler = handler

    async def __call__(self, request: Request, account: Account) -> Page:
        def count(_error: Exception, _attempt: int, _wait: float) -> None:
            account.retries += 1

        return await self._handler.execute(lambda: self._inner(request, account), on_retry=count)
