"""A judge of proxies: it echoes the address and the headers of a request."""

from __future__ import annotations

from typing import ClassVar

from aiohttp import web

from longline.sandbox.sites.base import PracticeSite, Truth

_MOST_HEADERS = 60
_LONGEST = 2000


class Judge(PracticeSite):
    """What a checker of proxies compares: the same request with and without a proxy."""

    name: ClassVar[str] = "judge"
    path: ClassVar[str] = "/judge"
    about: ClassVar[str] = "echoes a request, to check proxies"

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/judge", self._echo)]

    def truth(self) -> Truth:
        return {}

    async def _echo(self, request: web.Request) -> web.Response:
        headers = dict(list(request.headers.items())[:_MOST_HEADERS])
        seen = {name.lower(): value[:_LONGEST] for name, value in headers.items()}
        return web.json_response({"address": request.remote or "", "headers": seen})
