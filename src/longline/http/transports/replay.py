"""Replay transport: responses from an archive instead of the network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from longline.core.clock import Clock
from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.archive.base import Archive
from longline.http.errors import NotArchived
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware
from longline.http.middleware.redirects import RedirectMiddleware
from longline.http.middleware.status import StatusMiddleware

Arrive = Callable[[float], Awaitable[None]]
MISSING = "archive.missing"
"""The event when the archive has no answer."""


class ReplayTransport(Middleware):
    """Returns what a job received, errors included; sends no request.

    Args:
        archive: where the answers are.
        job: the job whose answers are returned.
        until: the time up to which answers count; None is any.
        arrive: awaited with the time of each answer before it is returned.
    """

    def __init__(
        self,
        archive: Archive,
        job: str,
        *,
        until: float | None = None,
        arrive: Arrive | None = None,
    ) -> None:
        self._archive = archive
        self._job = job
        self._until = until
        self._arrive = arrive

    async def __call__(self, request: Request, usage: Usage) -> Page:
        answer = await self._archive.find(self._job, request, until=self._until)
        if answer is None:
            usage.add_event(MISSING, url=request.url, method=request.method)
            raise NotArchived(request.url, request.method)
        if self._arrive is not None:
            await self._arrive(answer.at)
        if isinstance(answer.result, FetchError):
            raise answer.result
        usage.status = answer.result.status
        return answer.result


def build_replay(
    archive: Archive,
    job: str,
    clock: Clock,
    *,
    until: float | None = None,
    arrive: Arrive | None = None,
) -> Middleware:
    """Wrap an archive in the middlewares that interpret responses."""
    return RedirectMiddleware(
        StatusMiddleware(ReplayTransport(archive, job, until=until, arrive=arrive), clock)
    )
