"""Home: what needs a person, what runs now, the last runs of each source, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.core.model import Job, JobState
from longline.engine.owner import is_abandoned
from longline.monitoring.reports.digest import Digest, Need, Period, read_digest
from longline.server.web.context import Home, Web
from longline.server.web.live import LivePart
from longline.server.web.rendering import render

router = APIRouter(include_in_schema=False)

_DAY = 86_400.0
_RUNS = 20  # of each source, in the grid
_MOST_SOURCES = 60  # rows of the grid
_MOST_NEXT = 8
_PAGES = {
    "source": "/sources/{}",
    "flow": "/flows/{}",
    "schedule": "/schedules/{}",
    "domain": "/domains#{}",
    "job": "/jobs/{}",
}


@router.get("/")
async def show_home(request: Request, web: Home) -> Response:
    """Show the home page."""
    return render(request, "home.html", **await read_home(web, {}))


async def read_home(web: Web, _arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the home page."""
    now = web.clock.now()
    store = web.store
    digest = await read_digest(
        store, Period(now - _DAY, now), days=1, zone=ZoneInfo("UTC"), now=now
    )
    open_jobs = await store.jobs.list(limit=None, is_open=True)
    sources = await store.projections.rows("sources")
    grid = await store.run_history.strips(runs=_RUNS, sources=_MOST_SOURCES)
    return {
        "needs": [_need(one) for one in digest.needs],
        "running": [await _running(web, job, now) for job in open_jobs],
        "grid": grid,
        "source_count": len(sources),
        "fresh_count": len(sources) - _late(digest),
        "changed": _changed(digest),
        "next_runs": digest.next_runs[:_MOST_NEXT],
        "domains": digest.domains,
    }


def _need(need: Need) -> dict[str, Any]:
    kind, _, name = need.subject.partition("/")
    return {
        "kind": need.kind,
        "level": need.level.value,
        "name": name or need.subject,
        "url": _PAGES.get(kind, "/alerts").format(name),
        "summary": need.summary,
        "details": need.details,
        "since": need.since,
        "subject": kind,
    }


def _late(digest: Digest) -> int:
    return sum(one.kind == "late" for one in digest.needs)


def _changed(digest: Digest) -> int | None:
    new, changed = digest.totals.new, digest.totals.changed
    return None if new is None or changed is None else new + changed


async def _running(web: Web, job: Job, now: float) -> dict[str, Any]:
    row = next(iter(await web.store.projections.rows("runs", keys=[job.id])), None)
    items: Mapping[str, int] = row["items"] if row else {}
    total = sum(items.values())
    done = total - items.get("open", 0)
    seconds = now - (job.started_at or job.created_at)
    speed = done / seconds if seconds > 0 else 0.0
    is_lost = job.state is JobState.RUNNING and await is_abandoned(web.store, job, now)
    return {
        "job": job,
        "state": "abandoned" if is_lost else job.state.value,
        "total": total,
        "done": done,
        "ok": items.get("stored", 0) + items.get("unchanged", 0),
        "skipped": items.get("skipped", 0),
        "bad": items.get("failed", 0) + items.get("quarantined", 0),
        "is_discovered": job.is_discovered,
        "per_minute": speed * 60,
        "left": (total - done) / speed if speed and job.is_discovered else None,
        "requests": row["requests"] if row else 0,
    }


LIVE = {"home": LivePart("home_part.html", read_home)}
