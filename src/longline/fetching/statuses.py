"""The link that turns a status of 400 or more into an error, unless the caller wants to see it."""

from __future__ import annotations

from longline.clock import Clock
from longline.errors import bad_status
from longline.fetching.headers import retry_after
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request
from longline.model import Account

FIRST_BAD = 400


class Statuses(Link):
    """Raises what a status means.

    It stands outside the links that judge answers (cache, breaker, pace): those see the answer
    itself, whatever the caller thinks of it.
    """

    def __init__(self, inner: Link, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def __call__(self, request: Request, account: Account) -> Page:
        page = await self._inner(request, account)
        if page.status < FIRST_BAD or page.status in request.accept:
            return page
        pause = retry_after(page.headers, self._clock.now())
        raise bad_status(request.url, page.status, pause)
