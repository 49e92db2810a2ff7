"""The end of the chain for sources with a browser: it gets the pages, plain HTTP the rest."""

from __future__ import annotations

from longline.core.model import Usage
from longline.http.messages import Page, Request
from longline.http.middleware.base import Middleware


class TransportChooser(Middleware):
    """Sends each request to the transport it was meant for.

    robots.txt, sitemaps, logins and JSON go over plain HTTP even when pages need a browser: a
    browser would show them instead of giving them.
    """

    def __init__(self, http: Middleware, browser: Middleware) -> None:
        self._http = http
        self._browser = browser

    async def __call__(self, request: Request, usage: Usage) -> Page:
        transport = self._browser if request.is_rendered else self._http
        return await transport(request, usage)
