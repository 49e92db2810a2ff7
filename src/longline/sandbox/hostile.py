"""Hostile sites: bans, outages, slow bodies, challenges, redirect loops, gzip bombs."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum

from aiohttp import web

from longline.core.clock import Clock, SystemClock
from longline.sandbox.server import PracticeServer

_BAN_AFTER = 30
_OUTAGE = 20.0
_DRIP = 1.0  # seconds between two bytes
_DRIPS = 3600
_BLOCK = 100_000_000  # bytes of zeros that are packed at a time

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Temper(StrEnum):
    """The behaviour of a site."""

    HEALTHY = "healthy"
    BANNING = "banning"
    FAILING = "failing"
    DRIPPING = "dripping"
    CHALLENGING = "challenging"
    CIRCLING = "circling"
    BOMBING = "bombing"


class HostileSite(PracticeServer):
    """One site with one temper, at `/item/NUMBER` for any number.

    Banning: thirty good pages, then 403 and a page that says so. Failing: 500 for the first twenty
    seconds. Dripping: a byte a second. Challenging: 200 and a page for people only. Circling:
    redirects for ever. Bombing: a small gzip body of `bomb_bytes` zeros.
    """

    def __init__(
        self, temper: Temper, *, clock: Clock | None = None, bomb_bytes: int = 10_000_000_000
    ) -> None:
        super().__init__()
        self.temper = temper
        self.hits: Counter[int] = Counter()
        """Responses by status; one that never ends is counted when it begins."""
        self.times: list[float] = []
        """The time of each request."""
        self._clock = clock or SystemClock()
        self._opened = self._clock.now()
        self._bomb_bytes = bomb_bytes
        self._bomb = b""

    async def start(self) -> None:
        if self.temper is Temper.BOMBING:
            self._bomb = await asyncio.get_running_loop().run_in_executor(
                None, packed_zeros, self._bomb_bytes
            )
        await super().start()
        self._opened = self._clock.now()

    def reopen(self) -> None:
        """Restart the outage of a failing site and the count of a banning one."""
        self._opened = self._clock.now()
        self.times.clear()

    def _application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/item/{number}", self._serve_item)
        application.router.add_get("/circle/{number}", self._circle)
        return application

    async def _serve_item(self, request: web.Request) -> web.StreamResponse:
        self.times.append(self._clock.now())
        answer = getattr(self, f"_{self.temper.value}")
        return self._counted(await answer(request))

    def _counted(self, response: web.StreamResponse) -> web.StreamResponse:
        self.hits[response.status] += 1
        return response

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        return _page(f"<h1>Thing {request.match_info['number']}</h1><p>All is well.</p>")

    async def _banning(self, request: web.Request) -> web.StreamResponse:
        if len(self.times) <= _BAN_AFTER:
            return await self._healthy(request)
        text = "<h1>Access denied</h1><p>Your address has been blocked for too many requests.</p>"
        return _page(text, title="Access denied", status=403)

    async def _failing(self, request: web.Request) -> web.StreamResponse:
        if self._clock.now() - self._opened < _OUTAGE:
            return web.Response(status=500, text="out of order")
        return await self._healthy(request)

    async def _dripping(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": str(_DRIPS)})
        await response.prepare(request)
        for _ in range(_DRIPS):
            await response.write(b".")
            await self._clock.sleep(_DRIP)
        return response

    async def _challenging(self, _request: web.Request) -> web.StreamResponse:
        form = (
            "<h1>Verify you are human</h1><p>Please complete the check to go on.</p>"
            "<form id='challenge-form' action='/check' method='post'>"
            "<div class='captcha-box'><input name='captcha'></div></form>"
        )
        return _page(form, title="Just a moment...")

    async def _circling(self, request: web.Request) -> web.StreamResponse:
        number = int(request.match_info["number"])
        return web.Response(status=302, headers={"location": f"/circle/{number + 1}"})

    async def _circle(self, request: web.Request) -> web.StreamResponse:
        return self._counted(await self._circling(request))

    async def _bombing(self, _request: web.Request) -> web.StreamResponse:
        headers = {"content-encoding": "gzip", "content-type": "text/html"}
        return web.Response(body=self._bomb, headers=headers)


def packed_zeros(size_bytes: int) -> bytes:
    """Return this many zeros as gzip, a thousandth of their size."""
    zeros = bytes(min(_BLOCK, size_bytes))
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [packer.compress(zeros) for _ in range(max(1, size_bytes // len(zeros)))]
    return b"".join([*pieces, packer.flush()])


def _page(content: str, *, title: str = "A shop", status: int = 200) -> web.Response:
    text = f"<!doctype html><html><head><title>{title}</title></head><body>{content}</body></html>"
    return web.Response(text=text, status=status, content_type="text/html")
