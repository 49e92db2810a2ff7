"""Sources: all of them with their latest state, and one with its runs, fields, changes and form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longline.config.job_spec import JobSpec
from longline.core.errors import BadFile, BadOption, ConfigError, FailureKind
from longline.core.model import OPEN_STATES, Job
from longline.devtools.check import Checks, check_source
from longline.devtools.session import open_session, session_spec
from longline.drift.monitor import accept_profile, drift_of
from longline.scheduling.schedule import trigger_text
from longline.scheduling.upcoming import stored_schedule
from longline.server.web.context import Home, Web
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.live import LivePart
from longline.server.web.off_loop import off_loop_of
from longline.server.web.rendering import duration, render
from longline.server.web.source_files import (
    KnownSource,
    known_source,
    launch_source,
    other_sources,
    read_sources,
    reference_of,
    source_url,
)
from longline.sources.loader import Entry, Survey
from longline.storage.events.projections import ProjectionRow
from longline.storage.scheduling.schedules import StoredSchedule

router = APIRouter(include_in_schema=False)

TRY_SECONDS = 45.0
_PAGE = 100  # sources of a page
_RUNS = 40  # of a source, in charts
_LISTED_RUNS = 12
_COVERED = 6  # fields in the chart of coverage
_LISTED_CHANGES = 8  # records of each kind
_COUNTED_CHANGES = 10_000
_LABELS = {"limit": "Maximum records", "rate": "Requests per second"}
_RANKS = {"failed": 0, "paused": 1, "partial": 2, "running": 4, "pending": 4}


# ---------------- The list


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A source in the list: its file if it has one, and its row of the projection if it ran."""

    name: str
    kind: str
    about: str
    row: ProjectionRow | None
    is_late: bool
    schedules: Sequence[str]
    is_runnable: bool

    @property
    def url(self) -> str:
        """Its page."""
        return source_url(self.name)

    @property
    def state(self) -> str:
        """The state of its last run."""
        return (self.row and self.row["state"]) or "never run"

    @property
    def worst(self) -> tuple[str, float] | None:
        """The field that the fewest records have, unless all have it."""
        coverage: Mapping[str, float] = (self.row and self.row["coverage"]) or {}
        name = min(coverage, key=lambda one: (coverage[one], one), default=None)
        return None if name is None or coverage[name] >= 1 else (name, coverage[name])

    @property
    def rank(self) -> tuple[int, str]:
        """Its place in the list: what needs a person comes first."""
        if self.state in _RANKS and _RANKS[self.state] <= 1:
            return _RANKS[self.state], self.name
        if self.is_late or (self.row and self.row["drift"]):
            return 3, self.name
        return _RANKS.get(self.state, 5), self.name


@router.get("/sources")
async def show_sources(request: Request, web: Home) -> Response:
    """List the sources, those that need a person first."""
    query = request.query_params
    files = await read_sources(web.settings)
    lines = await _source_lines(web, files)
    text, state = query.get("q", "").strip().lower(), query.get("state", "")
    chosen = [
        one
        for one in lines
        if (text in one.name.lower() or text in one.about.lower())
        and (not state or _is_in_state(one, state))
    ]
    page = max(0, _number(query.get("page", "0")))
    shown = chosen[page * _PAGE : (page + 1) * _PAGE]
    return render(
        request,
        "sources.html",
        lines=shown,
        total=len(lines),
        matching=len(chosen),
        page=page,
        has_more=len(chosen) > (page + 1) * _PAGE,
        states=sorted({one.state for one in lines}),
        problems=[_problem(one) for one in files.problems],
        built_in=[
            (name, source_url(name))
            for name in other_sources()
            if name not in {one.name for one in lines}
        ],
        folders=[str(one) for one in web.settings.sources],
    )


async def _source_lines(web: Web, files: Survey) -> list[SourceLine]:
    rows = {row["source"]: row for row in await web.store.projections.rows("sources")}
    late = await web.store.attention.late()
    schedules = _schedules_by_source(await web.store.schedules.list())

    def line(name: str, entry: Entry | None) -> SourceLine:
        return SourceLine(
            name,
            entry.kind if entry else "",
            entry.about if entry else "",
            # A job file runs a source of another name, whose row is its own line.
            rows.get(name) if entry is None or entry.kind != "job" else None,
            name in late,
            schedules.get(name, ()),
            entry is not None or name in rows,
        )

    found = [line(name, entry) for name, entry in files.entries.items()]
    found += [line(name, None) for name in rows if name and name not in files.entries]
    return sorted(found, key=lambda one: one.rank)


def _is_in_state(line: SourceLine, state: str) -> bool:
    if state == "late":
        return line.is_late
    if state == "drifted":
        return bool(line.row and line.row["drift"])
    return line.state == state


def _schedules_by_source(stored: Sequence[StoredSchedule]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in stored:
        if (target := _target_of(one)) is not None:
            found.setdefault(target, []).append(one.name)
    return found


def _target_of(stored: StoredSchedule) -> str | None:
    """Return the name of the source or job file that a schedule runs; None for a flow."""
    definition = stored.definition
    target = definition.get("source") or definition.get("job")
    if not isinstance(target, str):
        return None
    return Path(target).stem if target.endswith((".yaml", ".yml")) else target


def _problem(error: ConfigError) -> dict[str, Any]:
    if not isinstance(error, BadFile):
        return {"path": "", "line": 0, "column": 0, "text": str(error)}
    return {
        "path": error.path,
        "line": error.line,
        "column": error.column,
        "text": error.problem,
    }


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0  # noqa: PLR2004


# ---------------- One source


@router.get("/sources/of")
async def show_source_of(request: Request, web: Home) -> Response:
    """Show the source of the query, whose name a path cannot carry."""
    return await _show_source(request, web, request.query_params.get("name", ""))


@router.get("/sources/check")
async def leave_check(name: str = "") -> Response:
    """Lead to the source: a check is not repeated without its form."""
    return redirect(source_url(name) if name else "/sources")


@router.get("/sources/{name:path}")
async def show_source(request: Request, name: str, web: Home) -> Response:
    """Show one source."""
    return await _show_source(request, web, name)


async def _show_source(request: Request, web: Web, name: str) -> Response:
    known = await known_source(web, name)
    jobs = await web.store.jobs.list(source=name, limit=_RUNS)
    runs = await web.store.projections.rows("runs", keys=[job.id for job in jobs])
    by_job = {row["job"]: row for row in runs}
    coverage = await web.store.run_history.coverage([job.id for job in jobs])
    status = await read_status(web, {"name": name})
    row: ProjectionRow | None = status["row"]
    return render(
        request,
        "source.html",
        **status,
        known=known,
        check_url=_check_url(name),
        options=_run_options(known),
        charts=_charts([_run_line(job, by_job.get(job.id)) for job in reversed(jobs)]),
        coverage=_coverage_chart(jobs, coverage, row),
        drift=await _drift(web, row),
        schedules=await _schedule_lines(web, name),
        problem=_problem(known.problem) if known.problem else None,
    )


async def read_status(web: Web, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the live part of a source: its state now, and what runs."""
    name = arguments.get("name", "")
    rows = await web.store.projections.rows("sources", keys=[name])
    row = rows[0] if rows else None
    jobs = await web.store.jobs.list(source=name, limit=_LISTED_RUNS)
    progress = await web.store.projections.rows("runs", keys=[job.id for job in jobs])
    by_job = {one["job"]: one for one in progress}
    runs = [_run_line(job, by_job.get(job.id)) for job in jobs]
    launches = await web.store.launches.list(is_open=True, limit=200)
    files = await read_sources(web.settings)
    entry = files.entries.get(name)
    fresh = getattr(entry.model, "fresh", None) if entry else None
    late = await web.store.attention.late()
    return {
        "name": name,
        "url": source_url(name),
        "row": row,
        "runs": runs,
        "open_jobs": [one for one in runs if one["job"].state in OPEN_STATES],
        "fields": sorted(
            ((row and row["coverage"]) or {}).items(), key=lambda one: (one[1], one[0])
        ),
        "changes": await _changes(web, jobs),
        "failures": await _failures(web, name),
        "queued": [one for one in launches if one.name == name and one.target is None],
        "fresh": fresh,
        "is_late": name in late,
    }


def _run_line(job: Job, row: ProjectionRow | None) -> dict[str, Any]:
    items: Mapping[str, int] = row["items"] if row else {}
    ended = job.finished_at
    return {
        "job": job,
        "at": job.started_at or job.created_at,
        "seconds": None if ended is None else ended - (job.started_at or job.created_at),
        "total": sum(items.values()),
        "done": sum(items.values()) - items.get("open", 0),
        "stored": items.get("stored", 0),
        "unchanged": items.get("unchanged", 0),
        "ok": items.get("stored", 0) + items.get("unchanged", 0),
        "skipped": items.get("skipped", 0),
        "bad": items.get("failed", 0) + items.get("quarantined", 0),
        "requests": row["requests"] if row else 0,
    }


def _charts(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    if len(runs) < 2:  # noqa: PLR2004  # one point is not a chart
        return []
    x = [round(one["at"]) for one in runs]

    def series(label: str, name: str, kind: str) -> dict[str, Any]:
        return {"label": label, "values": [one[name] for one in runs], "class": kind}

    items = [
        series("stored", "stored", "ok"),
        series("unchanged", "unchanged", "dim"),
        series("bad", "bad", "bad"),
    ]
    return [
        ("Items per run", "line", {"x": x, "series": items}),
        ("Duration in seconds", "line", {"x": x, "series": [series("seconds", "seconds", "busy")]}),
    ]


def _coverage_chart(
    jobs: Sequence[Job], coverage: Mapping[str, Mapping[str, float]], row: ProjectionRow | None
) -> dict[str, Any] | None:
    """Return the coverage of the fields that the fewest records have, over the last runs."""
    latest: Mapping[str, float] = (row and row["coverage"]) or {}
    names = sorted(latest, key=lambda one: (latest[one], one))[:_COVERED]
    covered = [job for job in reversed(jobs) if job.id in coverage]
    if not names or not covered:
        return None
    classes = ("bad", "warn", "busy", "ok", "dim", "ink")
    return {
        "x": [round(job.finished_at or job.created_at) for job in covered],
        "series": [
            {
                "label": name,
                "values": [_share(coverage[job.id].get(name)) for job in covered],
                "class": classes[place],
            }
            for place, name in enumerate(names)
        ],
    }


def _share(share: float | None) -> float | None:
    return None if share is None else round(share * 100, 1)


async def _drift(web: Web, row: ProjectionRow | None) -> dict[str, Any] | None:
    """Return the drift of the last run; None when there is none that waits for a decision."""
    if row is None or not row["drift"]:
        return None
    try:
        seen = await drift_of(web.store, row["source"])
    except BadOption:  # its profile was deleted
        return None
    drifted = set(seen["drift"])
    fields = [one for one in seen["fields"] if one["field"] in drifted] or seen["fields"][:20]
    return {**seen, "fields": fields, "texts": list(row["drift"])}


async def _changes(web: Web, jobs: Sequence[Job]) -> dict[str, Any] | None:
    ended = next((job for job in jobs if job.state not in OPEN_STATES), None)
    job = ended or next(iter(jobs), None)
    if job is None:
        return None
    found = await web.store.run_history.changed_records(
        job.id, listed=_LISTED_CHANGES, counted=_COUNTED_CHANGES
    )
    return {"job": job, "kinds": found, "most": _COUNTED_CHANGES}


async def _failures(web: Web, name: str) -> list[dict[str, Any]]:
    keys = [f"{name} {kind}" for kind in FailureKind]
    rows = await web.store.projections.rows("failures", keys=keys)
    return [{**row, "count": sum(row["attempts"].values())} for row in rows]


async def _schedule_lines(web: Web, name: str) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "trigger": _trigger_of(one),
            "paused": one.pause_reason if one.paused_at is not None else None,
            "is_paused": one.paused_at is not None,
        }
        for one in await web.store.schedules.list()
        if _target_of(one) == name
    ]


def _trigger_of(stored: StoredSchedule) -> str:
    try:
        return trigger_text(stored_schedule(stored), duration)
    except ConfigError:  # of another version of longline
        return ""


# ---------------- Run, check, accept


def _run_options(known: KnownSource) -> list[dict[str, Any]]:
    """Return the settings of a source that its run form offers."""
    if known.manifest is not None:
        return [
            {
                "name": name,
                "type": one.type,
                "about": one.about,
                "default": "" if one.default is None else one.default,
                "is_required": one.default is None,
            }
            for name, one in known.manifest.parameters.items()
        ]
    job: JobSpec | None = known.job_file
    given = known.last_options if job is None else job.options
    return [
        {"name": name, "type": "text", "about": "", "default": value, "is_required": False}
        for name, value in given.items()
    ]


@router.post("/sources/run")
async def run_source(request: Request, web: Home) -> Response:
    """Submit a run of a known source to the executor."""
    form = await read_form(request)
    known = await known_source(web, form.get("source", ""))
    with naming_fields(_LABELS):
        await launch_source(web, known, _run_params(known, form))
    return redirect(source_url(known.name), f"{known.name} was submitted")


def _run_params(known: KnownSource, form: Mapping[str, str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if limit := form.get("limit", "").strip():
        if not _number(limit):
            raise BadOption("limit", f"{limit!r:.40} is not a number of records from 1 on")
        params["limit"] = int(limit)
    if rate := form.get("rate", "").strip():
        params["rate"] = _rate(rate)
    chosen = dict(known.last_options) | {
        name.removeprefix("set."): value.strip()
        for name, value in form.items()
        if name.startswith("set.") and value.strip()
    }
    return {**params, "set": chosen} if chosen else params


def _rate(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # auto, unlimited, or an error that the settings of a job report


def _check_url(name: str) -> str:
    """Return where a check of a source is posted, with its name for `leave_check`."""
    return f"/sources/check?{urlencode({'name': name})}"


@router.post("/sources/check")
async def check_known_source(request: Request, web: Home) -> Response:
    """Run the first item of a known source through every layer, and show what was found."""
    form = await read_form(request)
    known = await known_source(web, form.get("source", ""))
    with naming_fields(_LABELS):
        spec = session_spec(reference_of(known), _run_params(known, form))
        checks = await try_source(request, web, spec)
    return render(
        request,
        "source_check.html",
        known=known,
        url=source_url(known.name),
        check_url=_check_url(known.name),
        **checks,
    )


async def try_source(request: Request, web: Web, spec: JobSpec) -> dict[str, Any]:
    """Return what one item of a source gives, or why there is none; nothing is stored."""

    async def check() -> Checks:
        async with open_session(web.settings, spec, web.clock) as session:
            return await check_source(session, web.clock, items=1)

    try:
        checks = await off_loop_of(request).run(check, seconds=TRY_SECONDS)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001  # code of a source, or the site: shown, not raised
        return {"checks": None, "check_problem": str(error) or repr(error)}
    return {"checks": checks, "check_problem": ""}


@router.post("/sources/accept")
async def accept_drift(request: Request, web: Home) -> Response:
    """Make the last run of a source the baseline of later ones."""
    name = (await read_form(request)).get("source", "")
    rows = await web.store.projections.rows("sources", keys=[name])
    if not rows or not rows[0]["drift"]:
        raise HTTPException(409, f"There is no drift of {name!r:.100} to accept.")
    await accept_profile(web.store, rows[0]["coverage_job"], web.clock.now())
    return redirect(source_url(name), "The last run is the new baseline")


LIVE = {"source": LivePart("source_status.html", read_status)}
