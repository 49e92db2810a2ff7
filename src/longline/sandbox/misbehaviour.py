"""How a sound answer is spoilt on its way to the client."""

from __future__ import annotations

from typing import cast

from aiohttp import web

from longline.core.clock import Clock
from longline.sandbox.faults import Fault

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
    """Send or return the answer with this fault in it."""
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
    return answer  # nobody is left to read it


def _in_wrong_charset(request: web.Request, answer: web.Response) -> web.Response:
    # The header lies or is silent; the page itself tells the truth, as such sites mostly do.
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
