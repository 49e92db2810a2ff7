"""Log every request with its status, size, duration, wait and cache use."""

from __future__ import annotations

import logging

from longline.core.clock import Clock
from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request, origin_of

_LOG = logging.getLogger(__name__)


def is_request_logged() -> bool:
    """Whether requests are logged, so that the middleware is worth its time."""
    return _LOG.isEnabledFor(logging.INFO)


async def result_of(chain: Middleware, request: Request, usage: Usage) -> Page | FetchError:
    """Return the response to a request, or the error in place of one."""
    try:
        return await chain(request, usage)
    except FetchError as error:
        return error


class RequestLogMiddleware(Middleware):
    """Logs each attempt, redirect and robots.txt; secrets are added further in and never seen."""

    def __init__(self, inner: Middleware, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        started, waited = self._clock.now(), usage.waited
        result = await result_of(self._inner, request, usage)
        page = result if isinstance(result, Page) else None
        _LOG.info(
            "%s %s",
            request.method,
            request.url,
            extra={
                "domain": origin_of(request.url)[1],
                "status": getattr(result, "status", None),
                "bytes": page.size if page else None,
                "seconds": round(self._clock.now() - started, 3),
                "wait": round(usage.waited - waited, 3),
                "cache": "hit" if page and page.is_cached else "miss",
                "error": None if page else f"{type(result).__name__}: {result}",
            },
        )
        if isinstance(result, FetchError):
            raise result
        return result
