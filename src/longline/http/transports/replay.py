"""The end of a chain that asks nobody: answers from an archive."""

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
"""The kind of what is told when the archive has no answer."""


class ReplayTransport(Middleware):
    """Gives what a job was given, errors included; makes no request.

    Args:
        archive: where the answers are.
        job: whose answers.
        until: the moment up to which answers count; None is any.
        arrive: told the moment of each answer; the answer is given once it returns.
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
    """Join the links that give meaning to answers around an archive; the others would only ask."""
    return RedirectMiddleware(
        StatusMiddleware(ReplayTransport(archive, job, until=until, arrive=arrive), clock)
    )
