"""The link that proves who we are, to the hosts that may know, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from longline.config.auth import Auth, BasicAuth, BearerAuth, HeaderAuth, OAuth2Auth, QueryAuth
from longline.config.errors import UnknownSecret
from longline.core.clock import Clock
from longline.core.model import Usage
from longline.http.auth.base import Scheme
from longline.http.auth.fixed import InQuery, basic, bearer, header
from longline.http.auth.login import Login
from longline.http.auth.oauth2 import OAuth2
from longline.http.errors import AuthFailed
from longline.http.headers import has_header
from longline.http.messages import FIRST_ERROR, Page, Request
from longline.http.middleware.base import Middleware

_UNAUTHORIZED = 401


class AuthMiddleware(Middleware):
    """Signs requests to the hosts of `auth`; any other request goes on as it came.

    It stands inside redirects, so every hop is judged anew and no secret follows one to another
    host; and outside Identity, whose jar keeps what a login sets. robots.txt is asked for as
    anybody would. An answer that says the proof has ended is asked for once more with a new one;
    when that does not help either, no other is obtained until an answer was fine again.
    """

    def __init__(self, inner: Middleware, auth: Auth, clock: Clock) -> None:
        self._inner = inner
        self._reach = auth.reach
        self._scheme = _scheme(inner, auth, clock)
        self._is_in_vain = False
        self._withheld: set[str] = set()

    async def __call__(self, request: Request, usage: Usage) -> Page:
        if not self._reach.covers(request.url):
            return await self._unsigned(request, usage)
        if urlsplit(request.url).path == "/robots.txt":
            return await self._inner(request, usage)
        if problem := self._reach.problem(request.url):
            raise AuthFailed(request.url, problem)
        try:
            return await self._signed(request, usage)
        except UnknownSecret as error:
            raise AuthFailed(request.url, str(error)) from error

    async def _unsigned(self, request: Request, usage: Usage) -> Page:
        page = await self._inner(request, usage)
        if page.status == _UNAUTHORIZED and request.domain not in self._withheld:
            self._withheld.add(request.domain)  # told once: a forgotten host is easily seen
            usage.add_event("auth.withheld", host=request.domain, hosts=list(self._reach.hosts))
        return page

    async def _signed(self, request: Request, usage: Usage) -> Page:
        if request.is_renewing:
            usage.add_event("auth.ended", host=request.domain, reason="the source says so")
            await self._scheme.renew(self._scheme.serial, request, usage)
            request = _afresh(request)
        page, serial = await self._ask(request, usage)
        doubt = self._scheme.doubt(page)
        if doubt and not self._is_in_vain:
            usage.add_event("auth.ended", host=request.domain, reason=doubt)
            await self._scheme.renew(serial, request, usage)
            page, _ = await self._ask(_afresh(request), usage)
            doubt = self._scheme.doubt(page)
        self._is_in_vain = doubt is not None
        if doubt is None or page.status >= FIRST_ERROR:
            return page
        # Without an error of its own this answer would be taken for what was asked for.
        raise AuthFailed(request.url, doubt)

    async def _ask(self, request: Request, usage: Usage) -> tuple[Page, int]:
        try:
            signed = await self._scheme.sign(request, usage)
        finally:
            usage.status = None  # that of a login is not the request's own
        serial = self._scheme.serial
        return await self._inner(signed, usage), serial


def _afresh(request: Request) -> Request:
    """Return the request such that a cache asks the site: it may have kept the refusal."""
    if has_header(request.headers, "Cache-Control"):
        return request
    return replace(request, headers={**request.headers, "Cache-Control": "no-cache"})


def _scheme(inner: Middleware, auth: Auth, clock: Clock) -> Scheme:
    if isinstance(auth, BasicAuth):
        return basic(auth)
    if isinstance(auth, BearerAuth):
        return bearer(auth)
    if isinstance(auth, HeaderAuth):
        return header(auth)
    if isinstance(auth, QueryAuth):
        return InQuery(auth)
    if isinstance(auth, OAuth2Auth):
        return OAuth2(inner, auth, clock)
    return Login(inner, auth, clock)
