"""Authentication middleware: send credentials to the hosts that they are for, and to no others."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from longline.config.auth import Auth
from longline.core.clock import Clock
from longline.core.errors import UnknownSecret
from longline.core.model import Usage
from longline.http.auth import make_scheme
from longline.http.errors import AuthFailed
from longline.http.messages import FIRST_ERROR, Middleware, Page, Request, has_header

_UNAUTHORIZED = 401


class AuthMiddleware(Middleware):
    """Authenticates requests to the hosts of `auth`; others pass unchanged.

    It is inside redirects, so every hop is checked and no secret follows one to another host; and
    outside IdentityMiddleware, whose cookie jar keeps the cookies of a login. robots.txt is fetched
    without credentials. When a response shows that the credentials have expired, they are renewed
    and the request is sent once more; if that fails too, they are not renewed again until a
    response succeeds.
    """

    def __init__(self, inner: Middleware, auth: Auth, clock: Clock) -> None:
        self._inner = inner
        self._reach = auth.reach
        self._scheme = make_scheme(inner, auth, clock)
        self._renewal_failed = False
        self._reported: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if not self._reach.covers(request.url):
            page = await self._inner(request, usage)
            if page.status == _UNAUTHORIZED and request.domain not in self._reported:
                self._reported.add(request.domain)  # once: a forgotten host is easily seen
                usage.add_event("auth.withheld", host=request.domain, hosts=list(self._reach.hosts))
            return page
        if urlsplit(request.url).path == "/robots.txt":
            return await self._inner(request, usage)
        if problem := self._reach.problem(request.url):
            raise AuthFailed(request.url, problem)
        try:
            return await self._send_authenticated(request, usage)
        except UnknownSecret as error:
            raise AuthFailed(request.url, str(error)) from error

    async def _send_authenticated(self, request: Request, usage: Usage) -> Page:
        if request.is_renewing:
            usage.add_event("auth.ended", host=request.domain, reason="the source requested it")
            await self._scheme.renew(self._scheme.serial, request, usage)
            request = _uncached(request)
        page, serial = await self._send_signed(request, usage)
        reason = self._scheme.expiry_reason(page)
        if reason and not self._renewal_failed:
            usage.add_event("auth.ended", host=request.domain, reason=reason)
            await self._scheme.renew(serial, request, usage)
            page, _ = await self._send_signed(_uncached(request), usage)
            reason = self._scheme.expiry_reason(page)
        self._renewal_failed = reason is not None
        if reason is None or page.status >= FIRST_ERROR:
            return page
        # Otherwise this page would be taken for the requested one.
        raise AuthFailed(request.url, reason)

    async def _send_signed(self, request: Request, usage: Usage) -> tuple[Page, int]:
        try:
            signed = await self._scheme.sign(request, usage)
        finally:
            usage.status = None  # that of a login is not the request's own
        serial = self._scheme.serial
        return await self._inner(signed, usage), serial


def _uncached(request: Request) -> Request:
    """Return the request with no-cache: the cache may have stored the refusal."""
    if has_header(request.headers, "Cache-Control"):
        return request
    return replace(request, headers={**request.headers, "Cache-Control": "no-cache"})
