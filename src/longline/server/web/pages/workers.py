"""Workers and health: the checks of a home, its servers, workers, services and machines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.server.web.context import Home, Web
from longline.server.web.live import LivePart
from longline.server.web.machines import Machines, read_machines
from longline.server.web.rendering import render
from longline.services.health import HealthReport, HealthState, check_health

router = APIRouter(include_in_schema=False)

_VALID = 10.0  # seconds for which a result is shown again; the checks open the database
_RANKS = {state.value: rank for rank, state in enumerate(reversed(HealthState))}


@dataclass(frozen=True, slots=True)
class _Seen:
    at: float
    report: HealthReport
    machines: Machines


class Checkup:
    """Runs the checks for all who look, at most once in ten seconds."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._seen: _Seen | None = None

    async def read(self, web: Web) -> _Seen:
        """Return the last result, or a new one if it is old."""
        async with self._lock:
            now = web.clock.now()
            if self._seen is None or not 0 <= now - self._seen.at < _VALID:
                report, machines = await asyncio.gather(
                    asyncio.to_thread(check_health, web.settings),
                    read_machines(web, with_services=True),
                )
                self._seen = _Seen(web.clock.now(), report, machines)
            return self._seen


@router.get("/workers")
async def show_workers(request: Request, web: Home) -> Response:
    """Show what runs where, and whether it works."""
    return render(request, "workers.html", **await read_workers(web, {}))


async def read_workers(web: Web, _arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the live part of the page."""
    seen = await web.checkup.read(web)
    checks = seen.report.as_dict()["checks"]
    return {
        "state": seen.report.state.value,
        "checks": sorted(checks, key=lambda one: (_RANKS[one["state"]], one["check"])),
        "checked_at": seen.at,
        "machines": seen.machines,
    }


LIVE = {"workers": LivePart("workers_part.html", read_workers)}
