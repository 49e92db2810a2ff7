"""The event log: a list by cursor, and a stream of server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Response
from starlette.responses import StreamingResponse

from longline.core.errors import BadOption
from longline.engine.subscribers import complete_job
from longline.server.models import Event, Page
from longline.server.web.api.requests import CursorText, Limit, api_router
from longline.server.web.context import Home
from longline.server.web.live import SSE_HEADERS
from longline.storage.events.events import EventFilter
from longline.storage.query import parse_timestamp

router = api_router("events")

_SPAN = 100_000  # ids that one request searches for a rare type
_LARGEST = 2**63 - 1
_EXAMPLE = (
    'retry: 2000\nid: 41\n\nid: 42\ndata: {"id":42,"at":"2026-11-18T08:00:00Z",'
    '"type":"job.started","job":"shop-20261118-080000-ab12","key":null,'
    '"subject":"job/shop-20261118-080000-ab12","version":1,"data":{"engine":"local"}}\n\n'
)
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Messages without end; the data of each is an `Event`, its id that of it.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
    }
}


async def _wanted(
    web: Home,
    types: Annotated[
        list[str] | None,
        Query(max_length=50, description="Event types, or patterns such as `job.*`; repeatable."),
    ] = None,
    job: Annotated[str | None, Query(description="Only events of this job.")] = None,
    source: Annotated[str | None, Query(description="Only events of this source.")] = None,
    subject: Annotated[
        str | None, Query(description="Only events about this subject, such as domain/HOST.")
    ] = None,
) -> EventFilter:
    given = EventFilter(tuple(types or ()), job or None, source or None, subject or None)
    return await complete_job(web.store, given)


_Wanted = Annotated[EventFilter, Depends(_wanted)]
_After = Annotated[
    int | None, Query(ge=0, le=_LARGEST, description="Only events with a larger id.")
]


@router.get("/events")
async def list_events(
    web: Home,
    wanted: _Wanted,
    after: _After = None,
    *,
    since: Annotated[
        str | None, Query(description="Only events from this time on: ISO 8601, or ago, as 2h.")
    ] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Event]:
    """List events in the order of their commits, from the oldest on.

    The cursor is the id of the last event that was searched. One request searches 100,000 ids, so
    with a filter, a page may have fewer events than `limit`, even none, and still a next page.
    """
    events = web.store.events
    start = after or 0
    if cursor is not None:
        start = _id_of(cursor)
    elif since is not None:
        at = parse_timestamp(since, option="since", now=web.clock.now())
        start = max(start, await events.before(at))
    found, last = await events.read(start, wanted, limit=limit, span=_SPAN)
    following = str(last) if last < await events.newest() else None
    return Page(items=[Event.model_validate(one) for one in found], next=following)


@router.get("/events/stream", response_class=StreamingResponse, responses=_STREAM)
async def stream_events(
    web: Home,
    wanted: _Wanted,
    after: _After = None,
    last_event_id: Annotated[
        int | None,
        Header(ge=0, le=_LARGEST, description="As `after`, for clients that connect again."),
    ] = None,
) -> Response:
    """Send events as they are committed, as server-sent events, until the server stops.

    Without a cursor, it begins with the next event. The first message, and one after 15 s of
    silence, have only an id: a cursor for the next connection.
    """
    start = after if last_event_id is None else last_event_id
    stream = await web.events.open(wanted, start)
    return StreamingResponse(stream, media_type="text/event-stream", headers=SSE_HEADERS)


def _id_of(cursor: str) -> int:
    if not (cursor.isascii() and cursor.isdigit() and int(cursor) <= _LARGEST):
        raise BadOption("cursor", "it is not a cursor of this list")
    return int(cursor)
