"""The link that lets only so many requests of a domain go at once, over all processes.

It stands before the pace: whoever has taken a slot goes at its moment and must not wait for room.
"""

from __future__ import annotations

from longline.core.model import Usage
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.limits.in_flight import ConcurrencyLimiter

_SHORTEST_WAIT = 0.001  # below this, time went into asking, not into waiting


class ConcurrencyMiddleware(Middleware):
    """Every request has room at its domain, from before it stands in line until its answer."""

    def __init__(self, inner: Middleware, concurrency_limiter: ConcurrencyLimiter) -> None:
        self._inner = inner
        self._concurrency_limiter = concurrency_limiter

    async def __call__(self, request: Request, usage: Usage) -> Page:
        room = self._concurrency_limiter.room(request.domain, priority=request.priority)
        async with usage.waiting.to_enter(room) as waited:
            if waited >= _SHORTEST_WAIT:
                usage.waits += 1
                usage.waited += waited
            return await self._inner(request, usage)
