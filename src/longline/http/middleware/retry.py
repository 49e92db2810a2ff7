"""Retry middleware, the outermost: retry what may succeed, each time through the whole chain."""

from __future__ import annotations

from longline.core.clock import Clock
from longline.core.errors import Blocked, BudgetSpent, CircuitOpen, Deferred, FetchError, kind_of
from longline.core.model import BANNED, Failure, Usage
from longline.http.messages import Middleware, Page, Request
from longline.limits.retry import RetryHandler


class RetryMiddleware(Middleware):
    """Retries by the handler's policy; a wait too long for waiting in place raises Deferred.

    Every failed attempt is recorded in `usage`, with what followed.
    """

    def __init__(self, inner: Middleware, handler: RetryHandler, clock: Clock) -> None:
        self._inner = inner
        self._handler = handler
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        started = self._clock.now()

        def record(error: Exception, step: str) -> None:
            now = self._clock.now()
            status = getattr(error, "status", None)
            usage.failures.append(
                Failure(now, request.url, kind_of(error), str(error), step, now - started, status)
            )

        def on_retry(error: Exception, _attempt: int, wait: float) -> None:
            nonlocal started
            usage.retries += 1
            record(error, f"retried after {wait:.3g} s")
            started = self._clock.now() + wait

        usage.status = None  # that of an earlier request says nothing about this one
        try:
            return await self._handler.execute(
                lambda: self._inner(request, usage), on_retry=on_retry, waiting=usage.waiting
            )
        except FetchError as error:
            record(error, _step_after(error))
            raise


def _step_after(error: FetchError) -> str:
    if isinstance(error.__cause__, Blocked):
        return BANNED
    if isinstance(error, (CircuitOpen, Deferred)):
        return "deferred"
    return "not requested" if isinstance(error, BudgetSpent) else "given up"
