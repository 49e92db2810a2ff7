"""The link that lets only so many requests of a domain go at once, over all processes.

It stands before the pace: whoever has taken a slot goes at its moment and must not wait for room.
"""

from __future__ import annotations

from longline.core.model import Account
from longline.http.messages import Page, Request
from longline.http.middleware.base import Link
from longline.limits.in_flight import Doorman

_SHORTEST_WAIT = 0.001  # below this, time went into asking, not into waiting


class Crowding(Link):
    """Every request has room at its domain, from before it stands in line until its answer."""

    def __init__(self, inner: Link, doorman: Doorman) -> None:
        self._inner = inner
        self._doorman = doorman

    async def __call__(self, request: Request, account: Account) -> Page:
        room = self._doorman.room(request.domain, priority=request.priority)
        async with account.waiting.to_enter(room) as waited:
            if waited >= _SHORTEST_WAIT:
                account.waits += 1
                account.waited += waited
            return await self._inner(request, account)
