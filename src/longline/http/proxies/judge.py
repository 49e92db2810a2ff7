"""The judge: an endpoint that echoes a request, so that a checker sees what a proxy has changed.

`longline serve` and the sandbox have one. Without either, a check opens one on this machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

MOST_HEADERS = 60
LONGEST_HEADER = 2000  # characters of a value


def echo(address: str | None, headers: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return what a judge responds: the address that sent a request, and its headers."""
    several: dict[str, str] = {}
    for number, (name, value) in enumerate(headers):
        if number >= MOST_HEADERS:
            break
        key = name.lower()[:100]
        joined = f"{several[key]}, {value}" if key in several else value
        several[key] = joined[:LONGEST_HEADER]
    return {"address": address or "", "headers": several}


@asynccontextmanager
async def judge_running(host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve a judge on a free port of this machine; yield its URL."""

    async def respond(request: web.Request) -> web.Response:
        return web.json_response(echo(request.remote, request.headers.items()))

    application = web.Application(client_max_size=1)
    application.router.add_get("/judge", respond)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0).start()
        yield f"http://{host}:{runner.addresses[0][1]}/judge"
    finally:
        await runner.cleanup()
