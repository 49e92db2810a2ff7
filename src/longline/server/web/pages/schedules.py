"""Schedules: what runs by itself, when, what happened to each occurrence, and how to change it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import quote
from zoneinfo import available_timezones

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.core.clock import utc_datetime
from longline.core.errors import BadOption, ConfigError
from longline.scheduling.changes import add_schedule, run_now
from longline.scheduling.planning import Planned, next_planned, plan_next
from longline.scheduling.schedule import Schedule, make_schedule, target_text, trigger_text
from longline.scheduling.upcoming import CLOCK_CHANGES, stored_schedule, why_paused
from longline.server.web.access import AnyCaller
from longline.server.web.context import Home, Web
from longline.server.web.definitions import read_schedule_files
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.rendering import duration, render
from longline.storage.scheduling.schedules import COMMAND, StoredOccurrence, StoredSchedule

router = APIRouter(include_in_schema=False)

_PAGE = 50  # schedules
_NEXT = 10  # occurrences of one schedule
_HISTORY = 50
_FAR = 366.0  # days in which the next occurrence is searched
_MOST_MARKS = 100  # of one schedule in the timeline
_MOST_NOTES = 20  # occurrences whose notes are written out
_WIDTH = 1000  # units of the timeline
_DAYS = {"1": 1.0, "7": 7.0}
_LABELS = {
    "name": "Name",
    **dict.fromkeys(("source", "flow", "FLOW"), "Source or flow"),
    **dict.fromkeys(("cron", "every"), "When"),
    "timezone": "Time zone",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """An occurrence in the timeline: its place, its class and what it is."""

    x: float
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    """A schedule in the list; `is_dense` says that the timeline shows only its first marks."""

    stored: StoredSchedule
    schedule: Schedule | None = None
    problem: str | None = None
    next_at: float | None = None
    last: StoredOccurrence | None = None
    marks: Sequence[Mark] = ()
    notes: Sequence[tuple[Planned, str]] = ()
    is_dense: bool = False

    @property
    def name(self) -> str:
        """Its name."""
        return self.stored.name

    @property
    def url(self) -> str:
        """Its page."""
        return schedule_url(self.stored.name)

    @property
    def paused(self) -> str | None:
        """Why it is paused; None: it is not."""
        return why_paused(self.stored)

    @property
    def target(self) -> str:
        """What it runs."""
        return "" if self.schedule is None else target_text(self.schedule)

    @property
    def target_url(self) -> str | None:
        """The page of what it runs."""
        if self.schedule is None:
            return None
        if self.schedule.flow is not None:
            return f"/flows/{quote(Path(self.schedule.flow).stem, safe='')}"
        source = self.schedule.source
        return None if source is None else f"/sources/{quote(Path(source).stem, safe='')}"

    @property
    def trigger(self) -> str:
        """When it runs."""
        return "" if self.schedule is None else trigger_text(self.schedule, duration)

    @property
    def zone(self) -> str:
        """Its time zone."""
        return "" if self.schedule is None else self.schedule.timezone

    @property
    def state(self) -> str:
        """Whether it runs."""
        if self.problem is not None:
            return "invalid"
        if self.paused is not None:
            return "paused"
        is_enabled = self.schedule is not None and self.schedule.enabled
        return "active" if is_enabled else "disabled"

    @property
    def level(self) -> str:
        """How urgent that is."""
        if self.state == "active":
            return "warning" if self.stored.failures else "good"
        return {"invalid": "bad", "paused": "warning"}.get(self.state, "neutral")

    @property
    def origin(self) -> str:
        """Where it is defined."""
        return "command" if self.is_of_command else Path(self.stored.origin).name

    @property
    def is_of_command(self) -> bool:
        """Whether no file defines it."""
        return self.stored.origin == COMMAND


def schedule_url(name: str) -> str:
    """Return the page of a schedule."""
    return f"/schedules/{quote(name, safe='')}"


# ---------------- Pages


@router.get("/schedules")
async def show_schedules(request: Request, web: Home) -> Response:
    """List the schedules with a timeline of what they run next."""
    query = request.query_params
    text, state = query.get("q", "").strip().lower(), query.get("state", "")
    stored = await web.store.schedules.list()
    chosen = [one for one in stored if text in one.name.lower() and _is_in_state(one, state)]
    page = _page_number(query.get("page", ""))
    shown = chosen[page * _PAGE : (page + 1) * _PAGE]
    days = _DAYS.get(query.get("days", ""), 1.0)
    last = await web.store.schedules.last_occurrences([one.name for one in shown])
    now = utc_datetime(web.clock.now())
    # In a thread: the times of dozens of cron expressions take some milliseconds.
    lines = await asyncio.to_thread(_lines_of, shown, now, days)
    notes = [(one, planned, text) for one in lines for planned, text in one.notes]
    notes.sort(key=lambda one: one[1].starts_at)
    return render(
        request,
        "schedules.html",
        lines=[replace(one, last=last.get(one.name)) for one in lines],
        total=len(stored),
        matching=len(chosen),
        paused=sum(one.paused_at is not None for one in stored),
        days=int(days),
        axis=_axis(days),
        notes=notes[:_MOST_NOTES],
        page=page,
        has_more=len(chosen) > (page + 1) * _PAGE,
        zones=_zones(),
    )


@router.get("/schedules/{name}")
async def show_schedule(request: Request, web: Home, name: str) -> Response:
    """Show one schedule with its next occurrences and its history."""
    stored = await web.store.schedules.get(name)
    before = _number(request.query_params.get("before"))
    found = await web.store.schedules.history(name, limit=_HISTORY + 1, before=before)
    now = utc_datetime(web.clock.now())
    line = await asyncio.to_thread(_line_of, stored, now, 7.0)
    coming = await asyncio.to_thread(_coming, line.schedule, now)
    older = f"?before={found[_HISTORY - 1].nominal_at!r}#history" if len(found) > _HISTORY else None
    return render(
        request,
        "schedule.html",
        one=line,
        coming=coming,
        history=found[:_HISTORY],
        older=older,
        axis=_axis(7.0),
        definition=dict(stored.definition),
    )


# ---------------- Actions


@router.post("/schedules")
async def add(request: Request, web: Home) -> Response:
    """Add a schedule of a source or flow."""
    form = {name: text.strip() for name, text in (await read_form(request)).items()}
    with naming_fields(_LABELS):
        saved = await _add(request, web, form)
    return redirect(schedule_url(saved.name), f"{saved.name} was saved")


async def _add(request: Request, web: Web, form: Mapping[str, str]) -> StoredSchedule:
    trigger = form.get("trigger", "cron")
    if trigger not in ("cron", "every"):
        raise BadOption("Trigger", "it is cron or every")
    target = form.get("target", "source")
    if target not in ("source", "flow"):
        raise BadOption("Runs", "it is source or flow")
    values = {
        "name": form.get("name", ""),
        target: form.get("runs", ""),
        trigger: form.get("when", ""),
        "timezone": form.get("timezone", "") or "UTC",
    }
    schedule = make_schedule(values)
    files = await read_schedule_files(request, web)
    return await add_schedule(web.store, files, schedule, web.clock.now())


@router.post("/schedules/{name}/run")
async def run(request: Request, web: Home, name: str) -> Response:
    """Run a schedule now, in addition to its times."""
    files = await read_schedule_files(request, web)
    started = await run_now(web.store, files, name, web.clock.now())
    return redirect(schedule_url(name), f"launch {started.launch_id} is queued")


@router.post("/schedules/{name}/pause")
async def pause(request: Request, web: Home, name: str, caller: AnyCaller) -> Response:
    """Pause a schedule; its occurrences are skipped."""
    reason = (await read_form(request)).get("reason", "").strip()[:500]
    reason = reason or f"paused by {caller.name}"
    await web.store.schedules.pause(name, web.clock.now(), reason)
    return redirect(schedule_url(name), f"{name} is paused")


@router.post("/schedules/{name}/resume")
async def resume(web: Home, name: str) -> Response:
    """Resume a schedule."""
    await web.store.schedules.resume(name, web.clock.now())
    return redirect(schedule_url(name), f"{name} is resumed")


@router.post("/schedules/{name}/remove")
async def remove(web: Home, name: str) -> Response:
    """Remove a schedule that no file defines; its history stays."""
    await web.store.schedules.remove(name, web.clock.now())
    return redirect("/schedules", f"{name} was removed")


# ---------------- Values


def _is_in_state(one: StoredSchedule, state: str) -> bool:
    if state == "paused":
        return one.paused_at is not None
    return one.failures > 0 if state == "failing" else True


def _page_number(text: str) -> int:
    return min(int(text), 1_000_000) if text.isascii() and text.isdigit() else 0


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _zones() -> list[str]:
    return sorted(available_timezones())


def _lines_of(stored: Sequence[StoredSchedule], now: datetime, days: float) -> list[ScheduleLine]:
    return [_line_of(one, now, days) for one in stored]


def _line_of(stored: StoredSchedule, now: datetime, days: float) -> ScheduleLine:
    try:
        schedule = stored_schedule(stored)
    except ConfigError as error:  # of another version of longline
        return ScheduleLine(stored, problem=str(error))
    line = ScheduleLine(stored, schedule)
    if not schedule.enabled:
        return line
    found = [*itertools.islice(plan_next(schedule, now, days), _MOST_MARKS + 1)]
    coming = next_planned(schedule, now, _FAR)
    noted = [(one, text) for one in found[:_MOST_MARKS] if (text := note_of(one))]
    return replace(
        line,
        next_at=None if coming is None else coming.starts_at.timestamp(),
        marks=[_mark(one, now, days, line.paused) for one in found[:_MOST_MARKS]],
        notes=noted[:_MOST_NOTES],
        is_dense=len(found) > _MOST_MARKS,
    )


def _coming(schedule: Schedule | None, now: datetime) -> list[tuple[Planned, str]]:
    if schedule is None or not schedule.enabled:
        return []
    return [(one, note_of(one)) for one in itertools.islice(plan_next(schedule, now, _FAR), _NEXT)]


def note_of(one: Planned) -> str:
    """Return what a clock change or an exclusion does to an occurrence; empty: nothing."""
    notes = []
    if one.occurrence.change is not None:
        notes.append(CLOCK_CHANGES[one.occurrence.change])
    if one.exclusion is not None:
        reason = one.exclusion.reason
        notes.append(f"excluded: {reason}" if reason else "excluded")
    return "; ".join(notes)


def _mark(one: Planned, now: datetime, days: float, paused: str | None) -> Mark:
    x = (one.starts_at - now) / timedelta(days=days) * _WIDTH
    kind = "run"
    if one.exclusion is not None or paused is not None:
        kind = "out"
    elif one.occurrence.change is not None:
        kind = "shift"
    title = f"{one.occurrence.local:%a %Y-%m-%d %H:%M %Z}"
    note = note_of(one) or ("paused" if paused is not None else "")
    return Mark(round(min(x, _WIDTH - 3), 1), kind, f"{title}: {note}" if note else title)


def _axis(days: float) -> list[str]:
    """Return the labels of the timeline at equal distances, from its beginning to its end."""
    if days <= 1:
        return ["now", *(f"+{hours} h" for hours in (6, 12, 18, 24))]
    return ["now", *(f"+{day} d" for day in range(1, int(days) + 1))]
