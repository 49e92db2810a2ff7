"""Logs: the stored warnings and errors of all processes, with filters."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.server.web.context import Home, Web
from longline.server.web.rendering import render
from longline.storage.monitoring.logs import LogFilter, LogLine
from longline.storage.query import parse_timestamp

router = APIRouter(include_in_schema=False)

_PAGE = 100
_SEARCHED = 25_000  # lines, of one page
_LEVELS = {"warning": logging.WARNING, "error": logging.ERROR}
_TEXTS = ("job", "source", "domain", "text", "item")
_TIMES = ("since", "until")
_LONGEST = 500  # characters of a filter


@router.get("/logs")
async def show_logs(request: Request, web: Home) -> Response:
    """Search the stored lines, newest first."""
    given = {
        name: text.strip()[:_LONGEST]
        for name, text in request.query_params.items()
        if text.strip() and name in ("level", *_TEXTS, *_TIMES)
    }
    before = number_of(request.query_params.get("before", ""))
    lines, after = await web.store.logs.page(
        _filter(web, given), before=before, limit=_PAGE, span=_SEARCHED
    )
    older = None if after is None else f"/logs?{urlencode({**given, 'before': after})}"
    return render(
        request,
        "logs.html",
        lines=[_line(one) for one in lines],
        older=older,
        levels=list(_LEVELS),
        is_filtered=bool(given),
    )


def number_of(text: str) -> int | None:
    """Return the cursor that a query has; None: it has none."""
    is_number = text.isascii() and text.isdigit() and len(text) < 19  # noqa: PLR2004  # 64 bits
    return int(text) if is_number else None


def _filter(web: Web, given: Mapping[str, str]) -> LogFilter:
    now = web.clock.now()
    times: dict[str, Any] = {
        name: parse_timestamp(given[name], option=name.capitalize(), now=now)
        for name in _TIMES
        if name in given
    }
    texts: dict[str, Any] = {name: given.get(name) for name in _TEXTS}
    return LogFilter(level=_LEVELS.get(given.get("level", "")), **texts, **times)


def _line(one: LogLine) -> dict[str, Any]:
    return {"line": one, "level": logging.getLevelName(one.level).lower()}
