"""Concurrency middleware: limit the requests in flight per domain, over all processes.

It is outside the rate limit: a request that has a rate slot goes at its time and does not wait.
"""

from __future__ import annotations

from longline.core.model import Usage
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.limits.concurrency import ConcurrencyLimiter

_SHORTEST_WAIT = 0.001  # below this, the time went into the call, not into waiting


class ConcurrencyMiddleware(Middleware):
    """Holds a slot of the request's domain until the response has arrived."""

    def __init__(self, inner: Middleware, limiter: ConcurrencyLimiter) -> None:
        self._inner = inner
        self._limiter = limiter

    async def __call__(self, request: Request, usage: Usage) -> Page:
        slot = self._limiter.slot(request.domain, priority=request.priority)
        async with usage.waiting.to_enter(slot) as waited:
            if waited >= _SHORTEST_WAIT:
                usage.waits += 1
                usage.waited += waited
            return await self._inner(request, usage)
