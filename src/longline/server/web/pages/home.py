"""Home: what needs a person, what runs now, the last runs of each source, and what comes next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.core.model import Job, JobState
from longline.monitoring.reports.digest import (
    DigestInputs,
    Need,
    find_needs,
    find_troubled_domains,
    next_schedules,
    read_latest,
)
from longline.monitoring.reports.page import Level
from longline.scheduling.scheduler import LEADER
from longline.scheduling.upcoming import UpcomingRun
from longline.server.web.context import Home, Web
from longline.server.web.live import LivePart
from longline.server.web.machines import read_summary
from longline.server.web.pages.jobs import job_url, speed_of, waits_of
from longline.server.web.pages.schedules import schedule_url
from longline.server.web.rendering import render
from longline.server.web.source_files import source_url
from longline.storage.events.projections import ProjectionRow
from longline.storage.scheduling.launches import Launch, LaunchState

router = APIRouter(include_in_schema=False)

_DAY = 86_400.0
_RUNS = 20  # of each source, in the grid
_MOST_SOURCES = 60  # rows of the grid
_MOST_NEXT = 8
_MOST_NEEDS = 50
_MOST_RUNNING = 30
_MOST_DOMAINS = 20
_MOST_LAUNCHES = 500  # open ones
_SAMPLE = 200  # finished items, from which the speed of a resumed job is computed
_MOST_DETAILS = 3  # of a need
_WORDS = ("failed", "abandoned", "drifted", "quarantined", "partial", "paused", "late")
_TRIED_AGAIN = ("failed", "partial", "needs_attention")


@dataclass(frozen=True, slots=True)
class Action:
    """What a person can do about a need: a form that is posted, or a link."""

    text: str
    url: str
    fields: Mapping[str, str] = field(default_factory=dict)
    confirm: str | None = None
    is_link: bool = False


@router.get("/")
async def show_home(request: Request, web: Home) -> Response:
    """Show the home page."""
    return render(request, "home.html", **await read_home(web, {}))


async def read_home(web: Web, _arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the home page."""
    now, store = web.clock.now(), web.store
    latest = await read_latest(store, since=now - _DAY, now=now, domains=_MOST_DOMAINS + 1)
    submitted = await store.launches.list(is_open=True, limit=_MOST_LAUNCHES)
    coming = await asyncio.to_thread(next_schedules, latest.schedules, now, _MOST_NEXT)
    machines = await read_summary(web)
    needs = find_needs(latest, now)
    # An idle server on another machine is known by its scheduler only.
    if not machines["servers"] and await store.leaders.holder(LEADER, now) is None:
        needs = [*_needs_a_server(submitted, coming), *needs]
    sources = {row["source"]: row for row in latest.latest.sources}
    shown = needs[:_MOST_NEEDS]
    launches = {one.target: one for one in submitted}
    # A paused job is among the needs, unless it is about to continue.
    jobs = [
        one for one in latest.open_jobs if one.state is not JobState.PAUSED or one.id in launches
    ]
    jobs.sort(key=lambda job: job.state is not JobState.RUNNING)
    listed = jobs[:_MOST_RUNNING]
    keys = [row["job"] for one in shown if (row := _source_row(one, sources)) and row["job"]]
    keys += [job.id for job in listed]
    runs = {row["job"]: row for row in await store.projections.rows("runs", keys=keys)}
    domains = [*find_troubled_domains(latest.latest.domains, now - _DAY, now)]
    return {
        "needs": [_need(one, _source_row(one, sources), runs) for one in shown],
        "need_count": len(needs),
        "running": [
            await _running(web, job, runs.get(job.id), launches.get(job.id), latest, now)
            for job in listed
        ],
        "running_count": sum(
            job.state is JobState.RUNNING and job.id not in latest.abandoned for job in jobs
        ),
        "more_running": max(0, len(jobs) - _MOST_RUNNING),
        # Those that continue a job are listed with it.
        "queued": [
            one.name for one in submitted if one.state is LaunchState.QUEUED and one.target is None
        ],
        "grid": await store.run_history.strips(runs=_RUNS, sources=_MOST_SOURCES),
        "source_count": len(sources),
        "fresh_count": len(sources) - _late(needs),
        "changed": await store.run_history.changes_since(now - _DAY),
        "next_runs": coming,
        "domains": domains[:_MOST_DOMAINS],
        "has_more_domains": len(domains) > _MOST_DOMAINS,
        "machines": machines,
    }


# ---------------- What needs a person


def _needs_a_server(submitted: Sequence[Launch], coming: Sequence[UpcomingRun]) -> Iterator[Need]:
    """Yield a need if something is due, or will be, and no server will run it."""
    if submitted or any(one.paused is None for one in coming):
        text = "no server is running, so submitted runs wait and schedules do not start anything"
        yield Need("server", "stopped", Level.WARNING, text, None, "longline serve")


def _source_row(need: Need, sources: Mapping[str, ProjectionRow]) -> ProjectionRow | None:
    kind, _, name = need.subject.partition("/")
    return sources.get(name) if kind == "source" else None


def _need(
    need: Need, row: ProjectionRow | None, runs: Mapping[str, ProjectionRow]
) -> dict[str, Any]:
    kind, _, name = need.subject.partition("/")
    actions = _actions_of_source(need, row, runs) if row is not None else _other_actions(need)
    word, details = _worded(need)
    return {
        "kind": word.replace("_", " "),
        "level": need.level.value,
        "name": name or "this home",
        "url": _page_of(kind, name),
        "summary": need.summary,
        "details": details,
        "since": need.since,
        "actions": [*actions, Action("See why", _why(need, kind, name), is_link=True)],
    }


def _worded(need: Need) -> tuple[str, list[str]]:
    """Return the word for a need, and its details without those that repeat the summary."""
    others = [one.partition(": ") for one in need.details]
    kinds = {need.kind, *(kind for kind, _, _ in others)}
    word = next((one for one in _WORDS if one in kinds), need.kind)
    details = [
        f"{kind}: {news}"
        for kind, _, text in others
        if need.summary not in text and (news := _news(text, need.summary))
    ]
    return word, details[:_MOST_DETAILS]


def _news(text: str, summary: str) -> str:
    """Return the parts of a text that a summary does not have."""
    parts = text.split("; ")
    return "; ".join(one for one in parts if one.removeprefix("drift: ") not in summary)


def _page_of(kind: str, name: str) -> str:
    pages = {
        "source": source_url(name),
        "flow": f"/flows/{quote(name, safe='')}",
        "schedule": schedule_url(name),
        "domain": f"/domains?{urlencode({'q': name})}",
        "job": job_url(name),
        "home": "/workers",
        "server": "/workers",
    }
    return pages.get(kind, "/alerts")


def _why(need: Need, kind: str, name: str) -> str:
    """Return the page that explains a need: its run, if there is one."""
    if need.target is None:
        return _page_of(kind, name)
    if need.kind == "quarantined":
        return f"/quarantine?{urlencode({'job': need.target})}"
    target = quote(need.target, safe="")
    return f"/flows/{target}" if kind == "flow" else f"/jobs/{target}"


def _actions_of_source(
    need: Need, row: ProjectionRow, runs: Mapping[str, ProjectionRow]
) -> Iterator[Action]:
    source, job = row["source"], row["job"]
    kinds = {need.kind, *(one.partition(":")[0] for one in need.details)}
    if kinds & {"paused", "abandoned"}:
        yield Action("Resume", f"{job_url(job)}/resume")
    elif kinds & {"failed", "partial", "quarantined"}:
        items = runs[job]["items"] if job in runs else {}
        if items.get("failed") or items.get("quarantined"):
            yield Action("Retry", f"{job_url(job)}/retry")
        elif "failed" in kinds:  # it found no items
            yield Action("Run again", "/sources/run", {"source": source})
    elif "late" in kinds:
        yield Action("Run now", "/sources/run", {"source": source})
    if row["drift"]:
        question = f"Make the last run of {source[:60]} the baseline of later runs?"
        yield Action("Accept", "/sources/accept", {"source": source}, question)


def _other_actions(need: Need) -> Iterator[Action]:
    kind, _, name = need.subject.partition("/")
    if kind == "flow" and need.target is not None:
        url = f"/flows/{quote(need.target, safe='')}"
        if need.kind == "waits" and need.step is not None:
            question = f"Approve step {need.step} of {name[:60]}? {need.summary}"
            fields = {"decision": "approve", "step": need.step}
            yield Action("Approve", f"{url}/approve", fields, question)
        elif need.kind in _TRIED_AGAIN:
            yield Action("Retry", f"{url}/retry")
    elif kind == "schedule":
        yield Action("Resume", f"{schedule_url(name)}/resume")


def _late(needs: Sequence[Need]) -> int:
    return sum(one.kind == "late" or _is_also_late(one.details) for one in needs)


def _is_also_late(details: Sequence[str]) -> bool:
    return any(one.startswith("late: ") for one in details)


# ---------------- What runs


async def _running(  # noqa: PLR0917  # what was read of all jobs
    web: Web,
    job: Job,
    row: ProjectionRow | None,
    launch: Launch | None,
    latest: DigestInputs,
    now: float,
) -> dict[str, Any]:
    items: Mapping[str, int] = row["items"] if row else {}
    total = sum(items.values())
    done = total - items.get("open", 0)
    speed = await _speed(web, job, done, now)
    state = "abandoned" if job.id in latest.abandoned else job.state.value
    return {
        "job": job,
        "state": state,
        "waits": await waits_of(web, job, state, [launch] if launch else [], now),
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


async def _speed(web: Web, job: Job, done: int, now: float) -> float:
    """Return items per second: since the start, or lately if the job was paused in between."""
    if job.runs > 1:
        finished = await web.store.job_items.last_finished(job.id, limit=_SAMPLE)
        speed = speed_of(finished, now, sample=_SAMPLE)
        return speed["items"] if speed else 0.0
    seconds = now - (job.started_at or job.created_at)
    return done / seconds if seconds > 0 else 0.0


LIVE = {"home": LivePart("home_part.html", read_home)}
