"""What the tests of identity share: the links in their order, over real HTTP, and a secret."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from typing import Any

import pytest
from aiohttp import web

from longline.config.identity import StartCookies
from longline.config.job_spec import make_spec
from longline.core.errors import LonglineError
from longline.core.model import Usage
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.authentication import AuthMiddleware
from longline.http.middleware.identity import IdentityMiddleware
from longline.http.middleware.status import RedirectMiddleware, StatusMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from tests.scripted_site import Answer, ScriptedSite
from tests.virtual import VirtualClock

SECRET = "hunter2-7f3a"  # noqa: S105  # not a real one


class Door:
    """Redirects, statuses, authentication and identity around a transport, as in the chain."""

    def __init__(
        self,
        clock: VirtualClock,
        auth: dict[str, Any] | None = None,
        *,
        headers: dict[str, str] | None = None,
        cookies: bool | StartCookies = True,
    ) -> None:
        self.usage = Usage()
        self.transport = HttpTransport(HttpOptions(timeout=10), clock)
        self.seen = Recording(self.transport)
        middleware: Middleware = IdentityMiddleware(self.seen, headers=headers, cookies=cookies)
        if auth is not None:
            checked = make_spec({"source": "shop", "auth": auth}).auth
            assert checked is not None
            middleware = AuthMiddleware(middleware, checked, clock)
        self.middleware: Middleware = RedirectMiddleware(StatusMiddleware(middleware, clock))
        self.parts: list[object] = [middleware, *vars(middleware).values()]

    async def page(self, url: str, **values: Any) -> Page:
        return await self.middleware(Request(url, **values), self.usage)

    async def get(self, url: str, **values: Any) -> str:
        return (await self.page(url, **values)).text

    async def get_all(self, *urls: str) -> list[str]:
        return await asyncio.gather(*(self.get(url) for url in urls))

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        return [dict(one.data) for one in self.usage.events if one.type == kind]


class Recording(Middleware):
    """Remembers what would go out, as it would be printed."""

    def __init__(self, inner: Middleware) -> None:
        self._inner = inner
        self.requests: list[str] = []
        self.urls: list[str] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        self.requests.append(repr(request))
        self.urls.append(request.url)
        return await self._inner(request, usage)


def echo(name: str) -> Answer:
    """Answer with the value of a request's header, or "none"."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.headers.get(name, "none"))

    return answer


def host_of(site: ScriptedSite) -> str:
    return site.url.removeprefix("http://")


def elsewhere(site: ScriptedSite) -> str:
    """Return the address of the same server under another name."""
    return site.url.replace("127.0.0.1", "localhost")


def texts_of(error: BaseException) -> str:
    """Return all that anybody could print of an error, and what a worker sends home."""
    shown = [str(error), repr(error), repr(error.args), repr(vars(error))]
    shown += traceback.format_exception(error)
    if isinstance(error, LonglineError):
        shown.append(repr(pickle.dumps(error)))
    return "\n".join(shown)


async def failure_of(door: Door, url: str, kind: type[LonglineError], **values: Any) -> str:
    """Return the sentence of the error that a request ends with; no text of it has the secret."""
    with pytest.raises(kind) as raised:
        await door.get(url, **values)
    assert SECRET not in texts_of(raised.value)
    return str(raised.value)
