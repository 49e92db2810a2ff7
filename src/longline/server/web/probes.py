"""What supervisors and Prometheus request at the root: /livez, /readyz and /metrics.

The first two need no token, so they say nothing but whether the server works.
"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from longline.config.settings import Settings
from longline.server.web.api.monitoring import metrics_response
from longline.server.web.context import Home
from longline.services.health import HealthReport, HealthState, check_readiness

router = APIRouter(include_in_schema=False)


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
