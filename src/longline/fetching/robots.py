"""The link that obeys robots.txt."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from protego import Protego

from longline.clock import Clock
from longline.errors import RobotsDisallowed, bad_status
from longline.fetching.headers import retry_after
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request, origin_of
from longline.fetching.redirects import Redirects
from longline.fetching.statuses import FIRST_BAD
from longline.model import Account

AGENT = "longline"
_LIFETIME = 24 * 3600.0
_LARGEST = 500 * 1024  # bytes that RFC 9309 asks a crawler to read
_CLIENT_ERRORS = frozenset(range(400, 500)) - {429}


class Robots(Link):
    """Refuses what a host's robots.txt disallows, unless the host was named as an override.

    A host without one (any 4xx) allows all. One that cannot be had (5xx, no connection) fails the
    request with that failure, which is retried like any other: not knowing is not a permission.
    """

    def __init__(self, inner: Link, clock: Clock, *, ignored: frozenset[str] = frozenset()) -> None:
        self._inner = inner
        self._redirected = Redirects(inner)
        self._clock = clock
        self._ignored = ignored
        self._rules: dict[str, tuple[float, Protego | None]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def __call__(self, request: Request, account: Account) -> Page:
        scheme, host = origin_of(request.url)
        if host not in self._ignored and host.partition(":")[0] not in self._ignored:
            origin = f"{scheme}://{host}"
            until, rules = self._rules.get(origin, (0.0, None))
            if until <= self._clock.now():
                rules = await self._learn(origin, account)
            if rules is not None and not rules.can_fetch(request.url, AGENT):
                raise RobotsDisallowed(request.url, f"it applies to {AGENT}")
        return await self._inner(request, account)

    async def _learn(self, origin: str, account: Account) -> Protego | None:
        """Ask a host for its rules, once for all who wait; None when it has none."""
        async with self._locks[origin]:
            until, rules = self._rules.get(origin, (0.0, None))
            if until <= self._clock.now():
                rules = await self._ask(origin, account)
                self._rules[origin] = (self._clock.now() + _LIFETIME, rules)
            return rules

    async def _ask(self, origin: str, account: Account) -> Protego | None:
        url = f"{origin}/robots.txt"
        page = await self._redirected(Request(url), account)
        if page.status in _CLIENT_ERRORS:
            return None
        if page.status >= FIRST_BAD:
            raise bad_status(url, page.status, retry_after(page.headers, self._clock.now()))
        # Protego does not know the byte order mark that some editors write.
        return Protego.parse(page.body[:_LARGEST].decode("utf-8-sig", "replace"))
