"""Jobs: a list, one job with its progress, charts, failures, log and events, and its items."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Path, Request
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from longline.analysis.job_report import read_report
from longline.core.errors import FailureKind
from longline.core.logging import redact_text
from longline.core.model import OPEN_STATES, Event, ItemState, Job, JobState
from longline.engine.owner import abandoned_among, is_abandoned
from longline.monitoring.reports.html import as_html
from longline.monitoring.reports.job_page import job_page
from longline.server.web.context import Home, Web
from longline.server.web.forms import read_form, redirect
from longline.server.web.live import LivePart
from longline.server.web.rendering import json_text, render
from longline.storage.events.events import EventFilter
from longline.storage.events.projections import ProjectionRow
from longline.storage.monitoring.job_items import (
    MOST_GROUPED,
    DomainWait,
    FailureGroup,
    FinishedItem,
    ItemRow,
    Wait,
)
from longline.storage.monitoring.logs import LogFilter
from longline.storage.scheduling.launches import Launch, LaunchState

router = APIRouter(include_in_schema=False)

_PAGE = 50  # jobs of a page
_ITEMS = 50  # items of a page
_LOG = 30  # lines
_EVENTS = 30
_GROUPS = 12  # of failures that are listed
_SAMPLE = 2000  # finished items in charts
_RECENT = 60.0  # seconds over which the present speed is measured
_POINTS = 60  # of a chart, at most
_STEPS = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)  # seconds of one point
_LONG = 3 * 3600.0  # seconds, from which a job has charts by hour
_MOST_HOURS = 72
_HOUR = 3600
_STATES = ("stored", "unchanged", "skipped", "failed", "quarantined")
_LEVELS = {"stored": "ok", "unchanged": "ok", "skipped": "dim", "failed": "bad"}
_FAMILIES = {2: ("2xx", "ok"), 3: ("3xx", "busy"), 4: ("4xx", "warn"), 5: ("5xx", "bad")}
_NOT_OF_ITEMS = (
    *("job.*", "run.*", "leases.*", "checkpoint.*", "export.*", "source.*", "discovery.*"),
    *("drift.*", "breaker.*", "domain.*", "limit.*", "robots.*", "auth.*"),
)
# The report has its styles inside. In a sandbox, it can run nothing and reach nothing.
_REPORT_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


_Name = Annotated[str, Path(min_length=1)]  # every id begins with an empty one


def job_url(job: str) -> str:
    """Return the page of a job."""
    return f"/jobs/{quote(job, safe='')}"


# ---------------- The list


@router.get("/jobs")
@router.get("/jobs/")
async def show_jobs(request: Request, web: Home) -> Response:
    """List jobs, a page at a time."""
    given = request.query_params
    source, state = given.get("source", ""), given.get("state", "")
    found = await web.store.jobs.page(
        source=source or None,
        states=_states(state),
        before=cursor_of(given.get("before", "")),
        limit=_PAGE + 1,
    )
    shown = found[:_PAGE]
    rows = await web.store.projections.rows("runs", keys=[job.id for job in shown])
    runs = {row["job"]: row for row in rows}
    now = web.clock.now()
    abandoned = await abandoned_among(web.store, shown, now)
    sources = await web.store.projections.rows("sources")
    return render(
        request,
        "jobs.html",
        jobs=[_job_row(job, runs.get(job.id), abandoned, now) for job in shown],
        sources=sorted(row["source"] for row in sources if row["source"]),
        states=["open", *(one.value for one in JobState)],
        given={"source": source, "state": state},
        is_later="before" in given,
        next_url=_next_url(given, shown[-1]) if len(found) > _PAGE else None,
    )


def _states(name: str) -> Sequence[JobState]:
    if name == "open":
        return OPEN_STATES
    try:
        return [JobState(name)] if name else ()
    except ValueError:
        raise HTTPException(422, f"There is no state {name!r:.60} of a job.") from None


def cursor_of(text: str) -> tuple[float, str] | None:
    """Return the position after which a page begins, written as `number~name`.

    Raises:
        HTTPException: it is malformed.
    """
    if not text:
        return None
    number, _, name = text.partition("~")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise HTTPException(422, "This address has an invalid position in a list.")
    return value, name


def _next_url(given: QueryParams, last: Job) -> str:
    kept = {name: given[name] for name in ("source", "state") if given.get(name)}
    return f"/jobs?{urlencode({**kept, 'before': f'{last.created_at!r}~{last.id}'})}"


def _job_row(
    job: Job, run: ProjectionRow | None, abandoned: Collection[str], now: float
) -> dict[str, Any]:
    counts: Mapping[str, int] = run["items"] if run else {}
    failures: Mapping[str, int] = run["failures"] if run else {}
    return {
        "job": job,
        "state": "abandoned" if job.id in abandoned else job.state.value,
        "seconds": _seconds_of(job, now),
        "requests": run["requests"] if run else 0,
        "failures": sorted(failures.items(), key=lambda one: -one[1])[:3],
        **_sums(counts),
    }


async def _run_of(web: Web, job: Job) -> ProjectionRow | None:
    rows = await web.store.projections.rows("runs", keys=[job.id])
    return rows[0] if rows else None


async def _state_of(web: Web, job: Job, now: float) -> str:
    return "abandoned" if await is_abandoned(web.store, job, now) else job.state.value


def _seconds_of(job: Job, now: float) -> float | None:
    if job.started_at is None:
        return None
    return (now if job.finished_at is None else job.finished_at) - job.started_at


def _sums(counts: Mapping[str, int]) -> dict[str, int]:
    total = sum(counts.values())
    return {
        "total": total,
        "done": total - counts.get("open", 0),
        "ok": counts.get("stored", 0) + counts.get("unchanged", 0),
        "skipped": counts.get("skipped", 0),
        "bad": counts.get("failed", 0) + counts.get("quarantined", 0),
    }


# ---------------- One job


async def read_job(web: Web, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the live part of a job; its argument is the id."""
    store, now = web.store, web.clock.now()
    job = await store.jobs.get(arguments.get("id", ""))
    is_open = job.state in OPEN_STATES
    run = await _run_of(web, job)
    counts: Mapping[str, int] = run["items"] if run else {}
    finished = await store.job_items.last_finished(job.id, limit=_SAMPLE)
    speed = speed_of(finished, now, sample=_SAMPLE) if is_open else None
    lines, _ = await store.logs.search(LogFilter(job=job.id), limit=_LOG)
    launches = await store.launches.of_target(job.id, limit=1)
    state = await _state_of(web, job, now)
    sums = _sums(counts)
    return {
        "job": job,
        "state": state,
        "counts": [(name, counts.get(name, 0), _LEVELS.get(name, "bad")) for name in _STATES],
        "open_items": counts.get("open", 0),
        **sums,
        "run": run,
        "seconds": _seconds_of(job, now),
        "speed": speed,
        "left": _time_left(job, sums, speed, now),
        "statistics": await store.events.statistics(job.id),
        "waits": await waits_of(web, job, state, launches, now) if is_open else [],
        "charts": await _charts(web, job, finished, now),
        "groups": (groups := await store.job_items.failure_groups(job.id))[:_GROUPS],
        "more_groups": max(0, len(groups) - _GROUPS),
        "kinds": _kinds(groups, run),
        "is_sampled": any(counts.get(one, 0) > MOST_GROUPED for one in ("failed", "skipped")),
        "log": lines[::-1],
        "events": await _last_events(web, job),
        "can_pause": state in ("running", "pending") or _is_waiting(launches),
        "can_resume": state in ("paused", "abandoned") and not _is_waiting(launches),
        "can_cancel": is_open,
        "error_level": logging.ERROR,
        "warning_level": logging.WARNING,
    }


def _is_waiting(launches: Sequence[Launch]) -> bool:
    return any(one.state is LaunchState.QUEUED for one in launches)


def speed_of(
    finished: Sequence[FinishedItem], now: float, *, sample: int
) -> dict[str, float] | None:
    """Return items and requests per second of the last minute; None: nothing has ended in it.

    `finished` are the items that ended last, at most `sample`.
    """
    recent = [one for one in finished if one.at > now - _RECENT]
    if not recent:
        return None
    seconds = max(1.0, now - recent[0].at) if len(recent) == len(finished) else _RECENT
    if len(recent) == sample:  # there were more than the sample has
        seconds = max(0.1, now - recent[0].at)
    return {
        "items": len(recent) / seconds,
        "requests": sum(one.requests for one in recent) / seconds,
    }


def _time_left(
    job: Job, sums: Mapping[str, int], speed: Mapping[str, float] | None, now: float
) -> float | None:
    left = sums["total"] - sums["done"]
    if job.state is not JobState.RUNNING or not left:
        return None
    if speed is not None:
        return left / speed["items"]
    seconds = _seconds_of(job, now)
    return left * seconds / sums["done"] if seconds and sums["done"] else None


async def waits_of(
    web: Web, job: Job, state: str, launches: Sequence[Launch], now: float
) -> list[dict[str, Any]]:
    """Return what an open job waits for, as texts."""
    found: list[dict[str, Any]] = []
    if _is_waiting(launches):
        text = "Waits for a free place in longline serve"
        found.append({"text": text, "since": launches[0].created_at, "until": None})
    elif state == "abandoned":
        text = "No process runs this job. Resume it to continue."
        found.append({"text": text, "since": None, "until": None})
    elif state == "paused":
        text = f"Paused: {job.reason or 'no reason is stored'}"
        found.append({"text": text, "since": None, "until": None})
    if state in ("abandoned", "paused"):
        return found
    waits = [one for one in await web.store.job_items.domain_waits(job.id) if one.due > now]
    if not waits:
        return found
    rows = await web.store.projections.rows("domains", keys=[one.domain for one in waits])
    domains = {row["domain"]: row for row in rows}
    return found + [_domain_wait(one, domains.get(one.domain), now) for one in waits]


def _domain_wait(wait: DomainWait, row: ProjectionRow | None, now: float) -> dict[str, Any]:
    until = row["breaker_until"] if row else None
    if row is not None and row["breaker"] == "open" and (until or 0) > now:
        text = f"{wait.domain}: circuit breaker open: {row['breaker_reason']}"
        return {"text": text, "since": row["breaker_since"], "until": until}
    why = wait.reason or (f"deferred ({wait.kind})" if wait.kind else "its items are not due yet")
    return {"text": f"{wait.domain}: {why}", "since": None, "until": wait.due}


def _kinds(groups: Sequence[FailureGroup], run: ProjectionRow | None) -> list[dict[str, Any]]:
    """Return the kinds of failure with their items, and the attempts that ended with them."""
    kinds: dict[str, dict[str, Any]] = {}
    for one in groups:
        kind = kinds.setdefault(one.kind, {"kind": one.kind, "items": 0, "attempts": 0})
        kind["items"] += one.count
    for name, count in (run["failures"] if run else {}).items():
        kinds.setdefault(name, {"kind": name, "items": 0, "attempts": 0})["attempts"] = count
    return sorted(kinds.values(), key=lambda one: (-one["items"], -one["attempts"], one["kind"]))


async def _last_events(web: Web, job: Job) -> list[Event]:
    wanted = EventFilter(_NOT_OF_ITEMS, job=job.id)
    return (await web.store.events.last(wanted, limit=_EVENTS))[::-1]


# ---------------- Charts


async def _charts(
    web: Web, job: Job, finished: Sequence[FinishedItem], now: float
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return title, kind and data of each chart: of the last items, and by hour for long jobs."""
    if not finished:
        return []
    start, end = finished[0].at, finished[-1].at
    step = next((one for one in _STEPS if (end - start) / one <= _POINTS), _STEPS[-1])
    times = [
        float(one) for one in range(int(start // step) * step, int(end // step) * step + 1, step)
    ]
    places: list[list[FinishedItem]] = [[] for _ in times]
    for one in finished:
        places[int((one.at - times[0]) // step)].append(one)
    rates = [
        _series("requests", "busy", [sum(i.requests for i in some) / step for some in places]),
        _series("items", "ok", [len(some) / step for some in places]),
    ]
    means = [sum(i.seconds for i in some) / len(some) if some else None for some in places]
    longest = [max((i.seconds for i in some), default=None) for some in places]
    charts = [
        ("Requests and items per second", "line", {"x": times, "series": rates}),
        (
            "Seconds per item",
            "line",
            {
                "x": times,
                "series": [_series("mean", "busy", means), _series("longest", "dim", longest)],
            },
        ),
        ("Last status of items", "line", {"x": times, "series": _status_series(places)}),
    ]
    waits = await web.store.job_items.last_waits(job.id)
    if waits:
        charts.append(("Longest wait of deferred items, seconds", "bars", _wait_data(waits)))
    if (_seconds_of(job, now) or 0) > _LONG:
        charts += await _hourly(web, job, now)
    return charts


def _series(label: str, level: str, values: Sequence[float | None]) -> dict[str, Any]:
    rounded = [None if one is None else round(one, 3) for one in values]
    return {"label": label, "class": level, "values": rounded}


def _status_series(places: Sequence[Sequence[FinishedItem]]) -> list[dict[str, Any]]:
    names = {family: name for family, (name, _) in _FAMILIES.items()}
    series = []
    for family, name in [*names.items(), (None, "no response")]:
        values = [sum(_family(one) == family for one in some) for some in places]
        if any(values) or family == 2:  # noqa: PLR2004  # successes, as HTTP names them
            level = _FAMILIES[family][1] if family else "dim"
            series.append(_series(name, level, values))
    return series


def _family(item: FinishedItem) -> int | None:
    family = (item.status or 0) // 100
    return family if family in _FAMILIES else None


def _wait_data(waits: Sequence[Wait]) -> dict[str, Any]:
    start, end = waits[0].at, waits[-1].at
    step = next((one for one in _STEPS if (end - start) / one <= _POINTS), _STEPS[-1])
    longest: dict[float, float] = {}
    for one in waits:
        place = one.at // step * step
        longest[place] = max(longest.get(place, 0.0), one.seconds)
    return {"x": list(longest), "series": [_series("seconds", "warn", list(longest.values()))]}


async def _hourly(web: Web, job: Job, now: float) -> list[tuple[str, str, dict[str, Any]]]:
    """Return charts of the hours of a long job, which count all jobs of its source."""
    end = job.finished_at or now
    first = max(int((job.started_at or job.created_at) // _HOUR), int(end // _HOUR) - _MOST_HOURS)
    hours = [one * _HOUR for one in range(first, int(end // _HOUR) + 1)]
    keys = [f"{job.source} {hour}" for hour in hours]
    found = await web.store.projections.rows("hours", keys=keys)
    rows = {row["hour"]: row for row in found}
    requests = [rows[hour]["requests"] if hour in rows else 0 for hour in hours]
    outcomes = [
        _series(
            state,
            _LEVELS.get(state, "bad"),
            [rows[hour]["items"][state] if hour in rows else 0 for hour in hours],
        )
        for state in _STATES
        if any(row["items"][state] for row in found)
    ]
    return [
        (
            "Requests by hour",
            "bars",
            {"x": hours, "series": [_series("requests", "busy", requests)]},
        ),
        ("Outcomes by hour", "line", {"x": hours, "series": outcomes}),
    ]


# ---------------- Items


@router.get("/jobs/{name:path}/items")
async def show_items(request: Request, web: Home, name: _Name) -> Response:
    """List the items of a job in one state."""
    given = request.query_params
    job = await web.store.jobs.get(name)
    try:
        state = ItemState(given.get("state") or ItemState.FAILED)
    except ValueError:
        raise HTTPException(422, "There is no such state of an item.") from None
    found = await web.store.job_items.page(
        job.id, state, before=_item_cursor(given.get("before", "")), limit=_ITEMS + 1
    )
    counts = await web.store.queue.counts(job.id)
    shown = found[:_ITEMS]
    return render(
        request,
        "job_items.html",
        job=job,
        chosen=state.value,
        items=shown,
        tabs=[(one, counts[ItemState(one)]) for one in (*_STATES, "queued", "leased")],
        next_url=_next_items_url(job, state, shown) if len(found) > _ITEMS else None,
    )


def _item_cursor(text: str) -> tuple[float, int] | None:
    found = cursor_of(text)
    if found is None:
        return None
    if not found[1].isascii() or not found[1].isdigit():
        raise HTTPException(422, "This address has an invalid position in a list.")
    return found[0], min(int(found[1]), 2**63 - 1)


def _next_items_url(job: Job, state: ItemState, shown: Sequence[ItemRow]) -> str | None:
    last = shown[-1]
    if last.finished_at is None:
        return None
    after = {"state": state.value, "before": f"{last.finished_at!r}~{last.id}"}
    return f"{job_url(job.id)}/items?{urlencode(after)}"


# ---------------- The report


@router.get("/jobs/{name:path}/report")
async def show_report(web: Home, name: _Name) -> Response:
    """Show the report of a job, as `longline report` writes it."""
    job = await web.store.jobs.get(name)
    page = job_page(await read_report(web.store, job), web.clock.now(), UTC)
    return HTMLResponse(as_html(page), headers={"Content-Security-Policy": _REPORT_POLICY})


# Its path is the last: the name of a source, with which a job begins, may contain slashes.
@router.get("/jobs/{name:path}")
async def show_job(request: Request, web: Home, name: _Name) -> Response:
    """Show a job."""
    job = await web.store.jobs.get(name)
    values = await read_job(web, {"id": job.id})
    settings = redact_text(json_text(dict(job.settings), is_indented=True))
    return render(request, "job.html", **values, settings=settings)


# ---------------- Actions


@router.post("/jobs/{name:path}/pause")
async def pause_job(web: Home, name: _Name) -> Response:
    """Pause a job."""
    job = await web.orchestrator.pause(name)
    return redirect(job_url(job.id), "Paused")


@router.post("/jobs/{name:path}/cancel")
async def cancel_job(web: Home, name: _Name) -> Response:
    """End a job."""
    job = await web.orchestrator.cancel(name)
    return redirect(job_url(job.id), "Cancelled")


@router.post("/jobs/{name:path}/resume")
async def resume_job(web: Home, name: _Name) -> Response:
    """Have the executor resume a job."""
    job = await web.store.jobs.get(name)
    launch = await web.orchestrator.launch_resume(job.id)
    return redirect(job_url(job.id), _launched(launch, "The job"))


@router.post("/jobs/{name:path}/retry")
async def retry_job(request: Request, web: Home, name: _Name) -> Response:
    """Queue failed items of a job again, all or by kind, state or key."""
    form = await read_form(request)
    job = await web.store.jobs.get(name)
    try:
        kind = FailureKind(form["kind"]) if form.get("kind") else None
        state = ItemState(form["state"]) if form.get("state") else None
    except ValueError:
        raise HTTPException(422, "There is no such kind of failure or state.") from None
    launch = await web.orchestrator.launch_retry(
        job.id, kind=kind, state=state, key=form.get("key") or None
    )
    return redirect(job_url(job.id), _launched(launch, "The retry"))


def _launched(launch: Launch | None, what: str) -> str:
    return "The running job takes the items" if launch is None else f"{what} is queued"


LIVE = {"job": LivePart("job_part.html", read_job)}
