"""Schedules, what they run next, and what happened to each occurrence."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Query, Request

from longline.core.clock import utc_datetime
from longline.core.errors import ConfigError
from longline.scheduling.changes import run_now
from longline.scheduling.planning import Fate, next_planned
from longline.scheduling.schedule import make_schedule
from longline.scheduling.upcoming import UpcomingRun, upcoming_runs
from longline.server.models import NextRun, Occurrence, Page, Schedule, SchedulePause
from longline.server.web.access import AnyCaller
from longline.server.web.api.requests import (
    CursorText,
    Limit,
    api_router,
    page_in_memory,
    page_of,
    read_cursor,
)
from longline.server.web.context import Home
from longline.server.web.definitions import read_schedule_files
from longline.storage.scheduling.schedules import StoredSchedule

router = api_router("schedules")

_LATEST = 32_503_680_000.0  # the year 3000
_FAR = 366.0  # days in which the next occurrence is searched
_Days = Annotated[float, Query(gt=0, le=366, description="The number of days from now on.")]


@router.get("/schedules")
async def list_schedules(
    web: Home, limit: Limit = 100, cursor: CursorText = None
) -> Page[Schedule]:
    """List schedules by name."""
    stored = await web.store.schedules.list()
    page = page_in_memory(stored, limit, cursor, lambda one: (one.name,))
    now = utc_datetime(web.clock.now())
    # In a thread: the times of hundreds of cron expressions take some milliseconds.
    found = await asyncio.to_thread(_schedules_of, page.items, now)
    return Page(items=found, next=page.next)


@router.get("/schedules/{schedule}")
async def get_schedule(web: Home, schedule: str) -> Schedule:
    """Return a schedule."""
    return _schedule_of(await web.store.schedules.get(schedule), utc_datetime(web.clock.now()))


@router.post("/schedules/{schedule}/pause")
async def pause_schedule(
    web: Home, schedule: str, caller: AnyCaller, body: SchedulePause | None = None
) -> Schedule:
    """Pause a schedule; its occurrences are skipped."""
    now = web.clock.now()
    reason = (body.reason.strip() if body else "") or f"paused by {caller.name}"
    paused = await web.store.schedules.pause(schedule, now, reason)
    return _schedule_of(paused, utc_datetime(now))


@router.post("/schedules/{schedule}/resume")
async def resume_schedule(web: Home, schedule: str) -> Schedule:
    """Resume a schedule; its failures are counted from 0 again."""
    now = web.clock.now()
    return _schedule_of(await web.store.schedules.resume(schedule, now), utc_datetime(now))


@router.post("/schedules/{schedule}/run", status_code=202)
async def run_schedule(request: Request, web: Home, schedule: str) -> Occurrence:
    """Run a schedule now, in addition to its times, even if it is paused."""
    files = await read_schedule_files(request, web)
    started = await run_now(web.store, files, schedule, web.clock.now())
    return Occurrence.model_validate(started)


@router.get("/next-runs")
async def list_next_runs(
    web: Home, days: _Days = 7.0, limit: Limit = 100, cursor: CursorText = None
) -> Page[NextRun]:
    """List the occurrences of the next days of all schedules, by their start."""
    key = read_cursor(cursor, float, str)
    after = None if key is None else (utc_datetime(min(max(key[0], 0.0), _LATEST)), key[1])
    stored = await web.store.schedules.list()
    now = utc_datetime(web.clock.now())
    found = await asyncio.to_thread(
        lambda: [*itertools.islice(upcoming_runs(stored, now, days, after=after), limit + 1)]
    )
    some, following = page_of(
        found, limit, lambda one: (one.planned.starts_at.timestamp(), one.name)
    )
    return Page(items=[_next_run_of(one) for one in some], next=following)


@router.get("/occurrences")
async def list_occurrences(
    web: Home,
    schedule: Annotated[str | None, Query(description="Only those of this schedule.")] = None,
    fate: Annotated[Fate | None, Query(description="Only those with this fate.")] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Occurrence]:
    """List past occurrences, the one that was decided last first."""
    key = read_cursor(cursor, float, str, float)
    found = await web.store.schedules.page(
        name=schedule,
        fate=fate,
        before=None if key is None else (key[0], key[1], key[2]),
        limit=limit + 1,
    )
    some, following = page_of(
        found, limit, lambda one: (one.decided_at, one.schedule, one.nominal_at)
    )
    return Page(items=[Occurrence.model_validate(one) for one in some], next=following)


# ---------------- Values


def _schedules_of(stored: Sequence[StoredSchedule], now: datetime) -> list[Schedule]:
    return [_schedule_of(one, now) for one in stored]


def _schedule_of(stored: StoredSchedule, now: datetime) -> Schedule:
    is_enabled, next_at, problem = False, None, None
    try:
        schedule = make_schedule(stored.definition)
    except ConfigError as error:  # of another version of longline
        problem = str(error)
    else:
        is_enabled, planned = schedule.enabled, next_planned(schedule, now, _FAR)
        next_at = None if planned is None else planned.starts_at
    values = {
        "name": stored.name,
        "origin": stored.origin,
        "is_enabled": is_enabled,
        "paused_at": stored.paused_at,
        "pause_reason": stored.pause_reason,
        "failures": stored.failures,
        "next_at": next_at,
        "problem": problem,
        "definition": dict(stored.definition),
    }
    return Schedule.model_validate(values)


def _next_run_of(one: UpcomingRun) -> NextRun:
    planned = one.planned
    exclusion, change = planned.exclusion, planned.occurrence.change
    return NextRun(
        schedule=one.name,
        nominal_at=planned.occurrence.nominal,
        starts_at=planned.starts_at,
        paused=one.paused,
        excluded=None if exclusion is None else exclusion.reason or "excluded",
        clock_change=None if change is None else change.value,
    )
