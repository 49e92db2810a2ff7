"""Seeded faults: which URLs fail, how, and for how many requests."""

from __future__ import annotations

from enum import StrEnum
from typing import cast

from aiohttp import web

from longline.core.clock import Clock
from longline.sandbox.seeded import Picks, chance, draw


class Fault(StrEnum):
    """One way in which a web site fails."""

    SERVER_ERROR = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    DROPPED = "dropped"
    CUT = "cut"
    DRIP = "drip"
    WRONG_CHARSET = "wrong_charset"


_LOT = (
    *(Fault.SERVER_ERROR,) * 28,
    *(Fault.BAD_GATEWAY,) * 20,
    *(Fault.DROPPED,) * 24,
    *(Fault.CUT,) * 22,
    *(Fault.UNAVAILABLE,) * 4,
    *(Fault.DRIP,) * 2,  # each costs a client its whole deadline, so they are the rarest
)
_HTML_LOT = (*_LOT, *(Fault.WRONG_CHARSET,) * 15)
_MOST = 2  # a client that tries three times always gets through


class FaultPlan:
    """Decides for each request whether and how it fails.

    A share of all addresses is faulty; such an address fails on its first one or two requests,
    each time in the same way, and is sound ever after.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._share = share
        self._seed = seed
        self._left: dict[str, int] = {}

    def next(self, address: str, *, is_html: bool = False) -> Fault | None:
        """Return the fault of this request, if any, and count it."""
        fault = self.fault_of(address, is_html=is_html)
        if fault is None:
            return None
        left = self._left.get(address, self.length_of(address))
        if not left:
            return None
        self._left[address] = left - 1
        return fault

    def fault_of(self, address: str, *, is_html: bool = False) -> Fault | None:
        """Return the fault of this URL; None when it has none."""
        if chance(self._seed, "faulty", address) >= self._share:
            return None
        return Picks(draw(self._seed, "fault", address)).of(_HTML_LOT if is_html else _LOT)

    def length_of(self, address: str) -> int:
        """Return how many requests to a faulty URL fail."""
        return 1 + Picks(draw(self._seed, "failures", address)).below(_MOST)


# ---------------- How a sound answer is spoilt on its way to the client

DRIP_CHUNKS = 20
DRIP_PAUSE = 4.0
"""Seconds between two chunks: each read is quick, the whole takes longer than a minute."""

_STATUSES = {
    Fault.SERVER_ERROR: (500, "Internal Server Error"),
    Fault.BAD_GATEWAY: (502, "Bad Gateway"),
    Fault.UNAVAILABLE: (503, "Service Unavailable"),
}


def status_under(fault: Fault, answer: web.Response) -> int | None:
    """Return the status that the client will see; None when it sees none."""
    if fault is Fault.DROPPED:
        return None
    return _STATUSES[fault][0] if fault in _STATUSES else answer.status


async def spoil(
    fault: Fault, request: web.Request, answer: web.Response, clock: Clock
) -> web.StreamResponse:
    """Send or return the response with this fault."""
    if fault in _STATUSES:
        status, text = _STATUSES[fault]
        return web.Response(
            status=status, text=f"<h1>{status} {text}</h1>", content_type="text/html"
        )
    if fault is Fault.WRONG_CHARSET:
        return _in_wrong_charset(request, answer)
    if fault is Fault.CUT:
        return await _cut(request, answer)
    if fault is Fault.DRIP:
        return await _drip(request, answer, clock)
    _hang_up(request)
    return answer  # the client is gone


def _in_wrong_charset(request: web.Request, answer: web.Response) -> web.Response:
    # The header lies or is silent; the declaration in the page is correct, as on most such sites.
    page = (answer.text or "").replace('<meta charset="utf-8">', '<meta charset="windows-1251">')
    lies = len(request.path) % 2 == 0
    return web.Response(
        status=answer.status,
        body=page.encode("windows-1251", "xmlcharrefreplace"),
        headers={"Content-Type": "text/html; charset=utf-8" if lies else "text/html"},
    )


async def _cut(request: web.Request, answer: web.Response) -> web.StreamResponse:
    body = _body(answer)
    stream = await _open(request, answer, len(body))
    await stream.write(body[: len(body) // 2])
    _hang_up(request)
    return stream


async def _drip(request: web.Request, answer: web.Response, clock: Clock) -> web.StreamResponse:
    body = _body(answer)
    stream = await _open(request, answer, len(body))
    step = -(-len(body) // DRIP_CHUNKS)
    for start in range(0, len(body), step):
        await stream.write(body[start : start + step])
        await clock.sleep(DRIP_PAUSE)
    await stream.write_eof()
    return stream


async def _open(request: web.Request, answer: web.Response, length: int) -> web.StreamResponse:
    stream = web.StreamResponse(status=answer.status, headers=answer.headers)
    stream.content_length = length
    await stream.prepare(request)
    return stream


def _body(answer: web.Response) -> bytes:
    return cast("bytes", answer.body)  # every answer here is built from bytes or a text


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
