"""The link that keeps every answer, so that extraction can be repeated without a request."""

from __future__ import annotations

from longline.core.clock import Clock
from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.archive.base import Answer, Archive
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware


class ArchiveMiddleware(Middleware):
    """Keeps what the source is given, of any status, hop by hop, cached or not.

    It stands outside the links that add secrets and inside the one that judges statuses. An error
    in place of an answer is kept too: a layer may have made something of it. The writing goes on
    beside the work; that it succeeds is promised in the account, so no item is committed whose
    answers could get lost.
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
