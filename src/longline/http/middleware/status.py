"""Status middleware: raise an error for a status of 400 and more, unless the request accepts it."""

from __future__ import annotations

from longline.core.clock import Clock
from longline.core.errors import bad_status
from longline.core.model import Usage
from longline.http.messages import FIRST_ERROR, Page, Request
from longline.http.middleware.base import Middleware


class StatusMiddleware(Middleware):
    """Raises the error of a status.

    It is outside cache, breaker and rate limit: those see the response itself.
    """

    def __init__(self, inner: Middleware, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        if page.status < FIRST_ERROR or page.status in request.accept:
            return page
        raise bad_status(request.url, page.status, page.retry_after(self._clock.now()))
