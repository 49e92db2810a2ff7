"""The link that waits for the site's pace, and slows down when the site says so."""

from __future__ import annotations

from dataclasses import replace

from longline.clock import Clock
from longline.fetching.headers import retry_after
from longline.fetching.link import Link
from longline.fetching.messages import Page, Request, Sent
from longline.model import Account
from longline.resilience.limiter import RateLimiter

_TOO_MANY = 429
_PAUSE_UNASKED = 5.0  # seconds of rest after a 429 that does not say how long


class Pacing(Link):
    """Every request takes a token of its domain; a 429 or Retry-After stops the domain for all."""

    def __init__(self, inner: Link, limiter: RateLimiter, clock: Clock) -> None:
        self._inner = inner
        self._limiter = limiter
        self._clock = clock

    async def __call__(self, request: Request, account: Account) -> Page:
        domain = request.domain
        grant = await self._limiter.acquire(domain, request.url)
        if grant.waited:
            account.waits += 1
            account.waited += grant.waited
        sent = Sent()
        try:
            page = await self._inner(replace(request, sent=sent), account)
        finally:
            if sent.at is not None:
                await self._limiter.report_lateness(domain, sent.at - grant.at)
        await self._rest(domain, page.status, retry_after(page.headers, self._clock.now()))
        return page

    async def _rest(self, domain: str, status: int, pause: float | None) -> None:
        if pause is None and status == _TOO_MANY:
            pause = _PAUSE_UNASKED
        if pause:
            await self._limiter.penalise(domain, pause)
