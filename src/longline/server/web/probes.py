"""What programs request at the root: /livez, /readyz, /metrics and /judge.

The health checks need no token, so they say nothing but whether the server works. The judge of
proxies needs none either: it says nothing but what a request has sent itself.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from longline.config.settings import Settings
from longline.http.proxies.judge import echo
from longline.server.web.api.monitoring import metrics_response
from longline.server.web.context import Home
from longline.services.health import HealthReport, HealthState, check_readiness

router = APIRouter(include_in_schema=False)
_MOST_JUDGED = 500  # requests to the judge within a second


class ReadinessCheck:
    """Runs the checks of readiness once for all concurrent requests."""

    def __init__(self) -> None:
        self._running: asyncio.Task[HealthReport] | None = None

    async def is_ready(self, settings: Settings) -> bool:
        """Return whether the checks without which nothing works are passed."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(check_readiness(settings))
        report = await asyncio.shield(self._running)
        return report.state is not HealthState.FAILED


@router.get("/livez")
async def show_liveness() -> Response:
    """Respond as long as the process works."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def show_readiness(request: Request, web: Home) -> Response:
    """Respond with 503 if home, disk, database, Redis or broker cannot be used."""
    state = request.app.state
    if not hasattr(state, "readiness"):
        state.readiness = ReadinessCheck()
    check: ReadinessCheck = state.readiness
    if await check.is_ready(web.settings):
        return PlainTextResponse("ready\n")
    return PlainTextResponse("not ready\n", 503)


@router.get("/metrics")
async def show_metrics(request: Request, web: Home) -> Response:
    """Return the metrics; this needs a token."""
    return await metrics_response(request, web)


class JudgeLimit:
    """Counts requests to the judge, which anybody may send."""

    def __init__(self) -> None:
        self._second = 0
        self._count = 0

    def admits(self, now: float) -> bool:
        """Count a request; return False if there were too many within this second."""
        if int(now) != self._second:
            self._second, self._count = int(now), 0
        self._count += 1
        return self._count <= _MOST_JUDGED


@router.get("/judge")
async def judge_request(request: Request, web: Home) -> Response:
    """Return the address and headers of the request itself, if the setting web_judge is on."""
    if not web.settings.web_judge:
        raise HTTPException(404, "The judge of proxies is off: see the setting web_judge.")
    state = request.app.state
    if not hasattr(state, "judge_limit"):
        state.judge_limit = JudgeLimit()
    limit: JudgeLimit = state.judge_limit
    if not limit.admits(web.clock.now()):
        raise HTTPException(429, "Too many requests.", {"Retry-After": "1"})
    address = None if request.client is None else request.client.host
    return JSONResponse(echo(address, request.headers.items()))
