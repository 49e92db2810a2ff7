"""The link that tells a ban page from an answer."""

from __future__ import annotations

from collections.abc import Sequence

from longline.core.errors import Blocked
from longline.core.model import Usage
from longline.http.ban_patterns import find_block
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware


class BanMiddleware(Middleware):
    """Raises Blocked for a page that bans us or wants a person to answer a challenge.

    Args:
        inner: The next link.
        expects: CSS selectors of which every HTML page of the source has at least one.
        is_on: Whether to look at all.
    """

    def __init__(
        self, inner: Middleware, *, expects: Sequence[str] = (), is_on: bool = True
    ) -> None:
        self._inner = inner
        self._expects = tuple(expects)
        self._is_on = is_on

    async def __call__(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        evidence = find_block(page, self._expects) if self._is_on else None
        if evidence is not None:
            raise Blocked(request.url, evidence)
        return page
