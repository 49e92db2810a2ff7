"""Streams of the live parts of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longline.core.clock import SystemClock
from longline.orchestrator import Orchestrator
from longline.server.web.access import Caller
from longline.server.web.context import Web
from longline.server.web.live import LivePart, LiveParts
from longline.storage.access import Role
from tests.server.web.conftest import Dashboard


async def nothing(_web: Web, _arguments: Mapping[str, str]) -> Mapping[str, Any]:
    return {"status": 200, "title": "A part", "detail": "", "hint": "", "path": "/", "query": {}}


async def test_a_stream_ends_so_that_its_session_is_checked(dashboard: Dashboard) -> None:
    settings = dashboard.settings
    async with Orchestrator(settings=settings, stores_logs=False) as orchestrator:
        web = Web(orchestrator, settings, SystemClock())
        parts = LiveParts(web, {"part": LivePart("problem.html", nothing)}, longest=0.0)

        sent = [message async for message in parts.stream("part", {}, Caller("someone", Role.READ))]

    assert len(sent) == 1
