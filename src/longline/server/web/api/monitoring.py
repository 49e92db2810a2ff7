"""What a home reports about itself: alerts, silences, logs, workers, health, metrics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from starlette.responses import PlainTextResponse

from longline.engine.owner import process_of
from longline.monitoring.alerts.notifications import is_silenced, silence_alerts
from longline.server.models import (
    Alert,
    Health,
    LogLine,
    Page,
    Silence,
    SilenceCreate,
    Worker,
)
from longline.server.monitoring_part import render_home
from longline.server.web.api.requests import (
    CursorText,
    Limit,
    api_router,
    page_in_memory,
    page_of,
    read_cursor,
    write_cursor,
)
from longline.server.web.context import Home, Web
from longline.storage.monitoring.alerts import Alert as StoredAlert
from longline.storage.monitoring.alerts import AlertState
from longline.storage.monitoring.alerts import Silence as StoredSilence
from longline.storage.monitoring.logs import LogFilter
from longline.storage.monitoring.logs import LogLine as StoredLine
from longline.storage.query import parse_timestamp
from longline.storage.workers import RegisteredWorker

router = api_router("monitoring")

_Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
_METRICS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The metrics, in the text format of Prometheus or OpenMetrics.",
        "content": {
            media_type: {
                "schema": {"type": "string"},
                "example": 'longline_build_info{version="1.0.0"} 1.0\n',
            }
            for media_type in ("text/plain", "application/openmetrics-text")
        },
    }
}


class AlertChoice(StrEnum):
    """Which alerts are listed."""

    OPEN = "open"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    ANY = "any"


_STATES = {
    AlertChoice.OPEN: (AlertState.PENDING, AlertState.FIRING),
    AlertChoice.PENDING: (AlertState.PENDING,),
    AlertChoice.FIRING: (AlertState.FIRING,),
    AlertChoice.RESOLVED: (AlertState.RESOLVED,),
}


class Level(StrEnum):
    """The lowest level of log lines."""

    WARNING = "warning"
    ERROR = "error"


# ---------------- Alerts and silences


@router.get("/alerts")
async def list_alerts(
    web: Home,
    state: Annotated[
        AlertChoice, Query(description="Only alerts in this state; open: pending or firing.")
    ] = AlertChoice.OPEN,
    rule: Annotated[str | None, Query(description="Only alerts of this rule.")] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Alert]:
    """List alerts, the newest first."""
    key = read_cursor(cursor, int)
    found = await web.store.alerts.page(
        states=_STATES.get(state, ()),
        rule=rule,
        before=None if key is None else key[0],
        limit=limit + 1,
    )
    some, following = page_of(found, limit, lambda one: (one.id,))
    silences = await web.store.alerts.silences(web.clock.now())
    return Page(items=[_alert_of(one, silences) for one in some], next=following)


@router.get("/alerts/{alert}")
async def get_alert(web: Home, alert: _Number) -> Alert:
    """Return an alert with its evidence."""
    found = await web.store.alerts.get(alert)
    return _alert_of(found, await web.store.alerts.silences(web.clock.now()))


@router.post("/alerts/{alert}/silence")
async def silence_alert(web: Home, alert: _Number, body: SilenceCreate) -> Silence:
    """Silence the notifications of the rule and the subject of an alert for some time."""
    added = await silence_alerts(
        web.store, alert, seconds=body.seconds, reason=body.reason, at=web.clock.now()
    )
    return Silence.model_validate(added)


@router.get("/silences")
async def list_silences(web: Home, limit: Limit = 100, cursor: CursorText = None) -> Page[Silence]:
    """List the active silences, oldest first."""
    found = await web.store.alerts.silences(web.clock.now())
    page = page_in_memory(found, limit, cursor, lambda one: (one.id,))
    return Page(items=[Silence.model_validate(one) for one in page.items], next=page.next)


@router.delete("/silences/{silence}")
async def end_silence(web: Home, silence: _Number) -> Silence:
    """End a silence now."""
    now = web.clock.now()
    ended = await web.store.alerts.unsilence(silence, now)
    return Silence.model_validate(ended)


def _alert_of(one: StoredAlert, silences: Sequence[StoredSilence]) -> Alert:
    values = {name: getattr(one, name) for name in Alert.model_fields if name != "is_silenced"}
    return Alert.model_validate({**values, "is_silenced": is_silenced(one, silences)})


# ---------------- Logs and workers


@router.get("/logs")
async def list_logs(
    web: Home,
    *,
    job: Annotated[str | None, Query(description="Only lines about this job.")] = None,
    source: Annotated[str | None, Query(description="Only lines about this source.")] = None,
    domain: Annotated[str | None, Query(description="Only lines about this domain.")] = None,
    level: Annotated[Level, Query(description="The lowest level.")] = Level.WARNING,
    search: Annotated[
        str | None, Query(max_length=500, description="Only lines with this text, in any case.")
    ] = None,
    since: Annotated[
        str | None, Query(description="Only lines from this time on: ISO 8601, or ago, as 2h.")
    ] = None,
    until: Annotated[str | None, Query(description="Only lines before this time.")] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[LogLine]:
    """List the stored warnings and errors of all processes, the newest first.

    One request searches 100,000 lines, so with a filter, a page may have fewer lines than `limit`,
    even none, and still a next page.
    """
    key, now = read_cursor(cursor, int), web.clock.now()
    wanted = LogFilter(
        job=None if job is None else (await web.store.jobs.get(job)).id,
        source=source,
        level=logging.getLevelNamesMapping()[level.name],
        text=search,
        domain=domain,
        since=None if since is None else parse_timestamp(since, option="since", now=now),
        until=None if until is None else parse_timestamp(until, option="until", now=now),
    )
    before = None if key is None else key[0]
    lines, following = await web.store.logs.page(wanted, before=before, limit=limit)
    return Page(
        items=[_line_of(one) for one in lines],
        next=None if following is None else write_cursor([following]),
    )


def _line_of(one: StoredLine) -> LogLine:
    values = {name: getattr(one, name) for name in LogLine.model_fields}
    return LogLine.model_validate({**values, "level": logging.getLevelName(one.level).lower()})


@router.get("/workers")
async def list_workers(web: Home, limit: Limit = 100, cursor: CursorText = None) -> Page[Worker]:
    """List the registered workers of a cluster by name."""
    found = await web.store.workers.list()
    page = page_in_memory(found, limit, cursor, lambda one: (one.name, one.owner))
    return Page(items=[_worker_of(one) for one in page.items], next=page.next)


def _worker_of(one: RegisteredWorker) -> Worker:
    values = {
        "name": one.name,
        "owner": one.owner,
        "host": one.owner.partition(":")[0],
        "pid": process_of(one.owner),
        "until": one.until,
    }
    return Worker.model_validate(values)


# ---------------- Health and metrics


@router.get("/health")
async def get_health(web: Home) -> Health:
    """Return the findings of the health checks, which run at most once in ten seconds."""
    seen = await web.checkup.read(web)
    return Health.model_validate(seen.report.as_dict())


@router.get("/metrics", response_class=PlainTextResponse, responses=_METRICS)
async def get_metrics(request: Request, web: Home) -> Response:
    """Return the metrics of the home, in the text format of Prometheus or OpenMetrics."""
    return await metrics_response(request, web)


async def metrics_response(request: Request, web: Web) -> Response:
    """Return the metrics as the client accepts them."""
    accept = request.headers.get("accept", "")
    body, media_type = await render_home(web.store, web.settings, web.clock.now(), accept)
    return Response(body, headers={"Content-Type": media_type})
