"""Jobs with their items and failures, and launches: what is to be run, and what runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Path, Query

from longline.core.errors import FailureKind
from longline.core.logging import redact_data
from longline.core.model import OPEN_STATES, ItemState, JobState
from longline.core.model import Job as StoredJob
from longline.scheduling.launch_groups import cancel_launch as cancel_stored_launch
from longline.scheduling.launch_groups import find_launch
from longline.server.models import (
    FailedAttempt,
    Job,
    JobCreate,
    JobDetails,
    JobItem,
    JobLaunch,
    JobRetry,
    Launch,
    Page,
)
from longline.server.web.api.requests import (
    CursorText,
    Limit,
    RepetitionKey,
    api_router,
    page_of,
    read_cursor,
    write_cursor,
)
from longline.server.web.context import Home, Web
from longline.server.web.source_files import known_source, launch_source
from longline.storage.events.projections import ProjectionRow
from longline.storage.scheduling.launches import Launch as StoredLaunch

router = api_router("jobs")

_LARGEST = 2**63 - 1
_JobId = Annotated[
    str, Path(description="The id of a job, or a prefix of it that no other job has.")
]
_LaunchId = Annotated[int, Path(ge=1, le=_LARGEST, description="The number of a launch.")]
_Kind = Annotated[FailureKind | None, Query(description="Only failures of this kind.")]


# ---------------- Jobs


@router.get("/jobs")
async def list_jobs(
    web: Home,
    source: Annotated[str | None, Query(description="Only jobs of this source.")] = None,
    state: Annotated[
        JobState | Literal["open"] | None,
        Query(description="Only jobs in this state; open: pending, running or paused."),
    ] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Job]:
    """List jobs, the newest first."""
    place = read_cursor(cursor, float, str)
    states = () if state is None else OPEN_STATES if state == "open" else (state,)
    found = await web.store.jobs.page(
        source=source or None,
        states=states,
        before=None if place is None else (place[0], place[1]),
        limit=limit + 1,
    )
    some, following = page_of(found, limit, lambda one: (one.created_at, one.id))
    rows = await web.store.projections.rows("runs", keys=[job.id for job in some])
    runs = {row["job"]: row for row in rows}
    return Page(items=[_job(job, runs.get(job.id)) for job in some], next=following)


@router.post("/jobs", status_code=202)
async def create_job(web: Home, body: JobCreate, key: RepetitionKey) -> Launch:
    """Submit a source to `longline serve`; the launch names its job once it has begun."""
    known = await known_source(web, body.source)
    params = body.model_dump(exclude_unset=True, exclude={"source", "priority"})
    given = {name: value for name, value in params.items() if value is not None}
    launch = await launch_source(web, known, given, priority=body.priority, key=key)
    return Launch.model_validate(launch)


@router.get("/jobs/{job}")
async def get_job(web: Home, job: _JobId) -> JobDetails:
    """Return a job with its settings and statistics."""
    found = await web.store.jobs.get(job)
    return JobDetails(
        **_values(found, await _run_of(web, found)),
        settings=redact_data(dict(found.settings)),
        statistics=await web.store.events.statistics(found.id),
    )


@router.post("/jobs/{job}/pause")
async def pause_job(web: Home, job: _JobId) -> JobLaunch:
    """Pause a job in all processes."""
    return await _job_launch(web, await web.orchestrator.pause(job))


@router.post("/jobs/{job}/resume")
async def resume_job(web: Home, job: _JobId) -> JobLaunch:
    """Have `longline serve` resume an unfinished job."""
    found = await web.store.jobs.get(job)
    launch = await web.orchestrator.launch_resume(found.id)
    return await _job_launch(web, await web.store.jobs.get(found.id), launch)


@router.post("/jobs/{job}/cancel")
async def cancel_job(web: Home, job: _JobId) -> JobLaunch:
    """End a job before its work is done; its records stay."""
    return await _job_launch(web, await web.orchestrator.cancel(job))


@router.post("/jobs/{job}/retry")
async def retry_job(web: Home, job: _JobId, body: JobRetry | None = None) -> JobLaunch:
    """Queue failed items of a job again, and have `longline serve` run it."""
    wanted = body or JobRetry()
    found = await web.store.jobs.get(job)
    launch = await web.orchestrator.launch_retry(
        found.id,
        kind=wanted.kind,
        state=None if wanted.state is None else ItemState(wanted.state),
        key=wanted.key,
    )
    return await _job_launch(web, await web.store.jobs.get(found.id), launch)


async def _run_of(web: Web, job: StoredJob) -> ProjectionRow | None:
    rows = await web.store.projections.rows("runs", keys=[job.id])
    return rows[0] if rows else None


async def _job_launch(web: Web, job: StoredJob, launch: StoredLaunch | None = None) -> JobLaunch:
    placed = None if launch is None else Launch.model_validate(launch)
    return JobLaunch(job=_job(job, await _run_of(web, job)), launch=placed)


def _job(job: StoredJob, run: ProjectionRow | None) -> Job:
    return Job(**_values(job, run))


def _values(job: StoredJob, run: ProjectionRow | None) -> dict[str, Any]:
    """Return the fields of a job; the counts of its items are those of the projection of runs."""
    counts: Mapping[str, int] = run["items"] if run else {}
    own = {name: getattr(job, name) for name in Job.model_fields if name != "items"}
    return {**own, "items": {state: count for state, count in counts.items() if count}}


# ---------------- Items and failures


@router.get("/jobs/{job}/items")
async def list_job_items(
    web: Home,
    job: _JobId,
    *,
    state: Annotated[ItemState | None, Query(description="Only items in this state.")] = None,
    kind: _Kind = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[JobItem]:
    """List the items of a job by key; a filtered page may be short, or empty, before the last."""
    place = read_cursor(cursor, str)
    found = await web.store.jobs.get(job)
    rows, following = await web.store.job_items.by_key(
        found.id, state=state, kind=kind, after=None if place is None else place[0], limit=limit
    )
    return Page(
        items=[JobItem.model_validate(one) for one in rows],
        next=None if following is None else write_cursor([following]),
    )


@router.get("/jobs/{job}/failures")
async def list_job_failures(
    web: Home,
    job: _JobId,
    kind: _Kind = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[FailedAttempt]:
    """List the failed attempts of a job: those of discovery, then by item.

    A filtered page may be short, or empty, before the last.
    """
    place = read_cursor(cursor, str, int)
    found = await web.store.jobs.get(job)
    rows, following = await web.store.failures.attempts(
        found.id,
        kind=kind,
        # Items have keys that are not empty.
        after=None if place is None else (place[0] or None, place[1]),
        limit=limit,
    )
    return Page(
        items=[FailedAttempt.model_validate(one) for one in rows],
        next=None if following is None else write_cursor([following[0] or "", following[1]]),
    )


# ---------------- Launches


@router.get("/launches")
async def list_launches(
    web: Home,
    *,
    origin: Annotated[
        str | None, Query(description="Only launches of this origin, such as schedule/NAME.")
    ] = None,
    is_open: Annotated[
        bool, Query(alias="open", description="Only launches that have not ended.")
    ] = False,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Launch]:
    """List launches, the newest first."""
    place = read_cursor(cursor, int)
    found = await web.store.launches.list(
        origin=origin or None,
        is_open=is_open,
        before=None if place is None else place[0],
        limit=limit + 1,
    )
    some, following = page_of(found, limit, lambda one: (one.id,))
    return Page(items=[Launch.model_validate(one) for one in some], next=following)


@router.get("/launches/{launch}")
async def get_launch(web: Home, launch: _LaunchId) -> Launch:
    """Return a launch."""
    return Launch.model_validate(await find_launch(web.store, launch))


@router.post("/launches/{launch}/cancel")
async def cancel_launch(web: Home, launch: _LaunchId) -> Launch:
    """Cancel a launch, and its job or flow run if it has begun."""
    reason = "cancelled by the user"
    return Launch.model_validate(await cancel_stored_launch(web.store, launch, reason))
