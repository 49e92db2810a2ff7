"""Archive middleware: keep every response, so that extraction can be repeated offline."""

from __future__ import annotations

from longline.core.clock import Clock
from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.archive.base import Answer, Archive
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware


class ArchiveMiddleware(Middleware):
    """Keeps what the source receives, of any status, hop by hop, cached or not.

    It is outside the middlewares that add secrets and inside the one that raises for statuses. An
    error in place of a response is kept too. Writing happens in the background; `usage.promises`
    makes the commit wait for it, so no item is committed whose responses could be lost.
    """

    def __init__(self, inner: Middleware, archive: Archive, job: str, clock: Clock) -> None:
        self._inner = inner
        self._archive = archive
        self._job = job
        self._clock = clock

    async def __call__(self, request: Request, usage: Usage) -> Page:
        try:
            page = await self._inner(request, usage)
        except FetchError as error:
            self._keep(request, error, usage)
            raise
        self._keep(request, page, usage)
        return page

    def _keep(self, request: Request, result: Page | FetchError, usage: Usage) -> None:
        answer = Answer(self._job, request, result, self._clock.now())
        usage.promises.append(self._archive.keep(answer))
