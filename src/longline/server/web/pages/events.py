"""Events: the event log with a live tail, its subscribers and webhooks, and who did what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.core.errors import BadOption
from longline.core.event_types import EVENT_TYPES
from longline.core.model import Event
from longline.core.redaction import redact_url
from longline.server.web.context import Home, Web
from longline.server.web.forms import naming_fields
from longline.server.web.live import LivePart
from longline.server.web.pages.logs import number_of
from longline.server.web.rendering import render
from longline.storage.events.events import EventFilter
from longline.storage.events.subscribers import WEBHOOK

router = APIRouter(include_in_schema=False)

_PAGE = 100
_TAIL = 50  # events of the live part
_NAMES = ("type", "job", "source", "subject")
_AUDIT = EventFilter(("access.*", "token.*"))
_LONGEST = 300  # characters of a filter
_PAGES = {
    "source": "/sources/{}",
    "flow": "/flows/{}",
    "schedule": "/schedules/{}",
    "job": "/jobs/{}",
}


@router.get("/events")
async def show_events(request: Request, web: Home) -> Response:
    """List events, newest first; the first page follows the log."""
    given = _given(request.query_params)
    before = number_of(request.query_params.get("before", ""))
    values = await _read(web, given, before=before, limit=_TAIL if before is None else _PAGE)
    groups = sorted({f"{name.partition('.')[0]}.*" for name in EVENT_TYPES})
    return render(
        request,
        "events.html",
        **values,
        live=urlencode(given) if before is None else None,
        is_filtered=bool(given),
        groups=groups,
        types=sorted(EVENT_TYPES),
    )


async def read_tail(web: Web, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the newest events that the arguments select."""
    return await _read(web, _given(arguments), before=None, limit=_TAIL)


LIVE = {"events": LivePart("events_part.html", read_tail)}


@router.get("/events/audit")
async def show_audit(request: Request, web: Home) -> Response:
    """List who logged in, changed something, and created or revoked tokens."""
    before = number_of(request.query_params.get("before", ""))
    found, after = await web.store.events.page(_AUDIT, before=before, limit=_PAGE, is_jobless=True)
    older = None if after is None or len(found) < _PAGE else f"/events/audit?before={after}"
    return render(request, "events_audit.html", events=[_line(one) for one in found], older=older)


@router.get("/events/subscribers")
async def show_subscribers(request: Request, web: Home) -> Response:
    """List subscribers and webhooks with their lag and failures."""
    subscribers = await web.store.subscribers.list()
    by_name = {one.name: one for one in subscribers}
    webhooks = [
        {
            "webhook": one,
            "url": redact_url(one.url),
            "subscriber": by_name.get(one.subscriber),
        }
        for one in await web.store.webhooks.list()
    ]
    return render(
        request,
        "events_subscribers.html",
        subscribers=[one for one in subscribers if not one.name.startswith(WEBHOOK)],
        webhooks=webhooks,
    )


# ---------------- Values


def _given(query: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name in _NAMES if (text := query.get(name, "").strip()[:_LONGEST])}


async def _read(
    web: Web, given: Mapping[str, str], *, before: int | None, limit: int
) -> dict[str, Any]:
    types = tuple(given["type"].replace(",", " ").split()) if "type" in given else ()
    wanted = EventFilter(types, given.get("job"), given.get("source"), given.get("subject"))
    problem = None
    try:
        with naming_fields({"event type": "Type"}):
            found, after = await web.store.events.page(wanted, before=before, limit=limit)
    except BadOption as error:  # there is no such type
        found, after, problem = [], None, str(error)
    older = None if after is None else f"/events?{urlencode({**given, 'before': after})}"
    return {"events": [_line(one) for one in found], "older": older, "problem": problem}


def _line(event: Event) -> dict[str, Any]:
    kind, _, name = event.subject.partition("/")
    url = _PAGES[kind].format(quote(name, safe="")) if kind in _PAGES and name else None
    last = event.type.rpartition(".")[2]
    return {"event": event, "url": url, "word": last}
