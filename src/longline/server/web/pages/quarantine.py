"""Quarantine: items by job and reason, one item with what it was made of, and other attempts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import Response

from longline.analysis.reextract import copy_notice
from longline.analysis.replay import Replay, replay, source_now
from longline.core.errors import BadOption, ConfigError, LonglineError
from longline.core.model import ItemState, Job, JobState
from longline.core.output import count_text
from longline.pipeline.pipeline import unpack_material
from longline.server.web.context import Home, Web
from longline.server.web.forms import read_form, redirect
from longline.server.web.off_loop import off_loop_of
from longline.server.web.pages.jobs import cursor_of, job_url
from longline.server.web.rendering import json_text, render
from longline.storage.queue.quarantine import HoldingJob, QuarantinedItem
from longline.storage.store import open_store
from longline.wiring import open_archive

router = APIRouter(include_in_schema=False)

_JOBS = 15  # of a page
_GROUPED = 1000  # items of each job, and state, that are grouped
_GROUPS = 10  # of each job
_ITEMS = 50  # of a page
_MOST_TEXT = 100_000  # characters of the material
_SECONDS = 60.0  # of a replay
_RETRIED = (ItemState.QUARANTINED, ItemState.FAILED)


class NotReplayed(ConfigError):
    """The code of a source failed outside of an item."""

    problem: str
    message = "the items were not reprocessed: {problem}"
    hint = "Reprocess them with the command line, which shows more: longline quarantine replay."


# ---------------- The list


@router.get("/quarantine")
async def show_quarantine(request: Request, web: Home) -> Response:
    """List the reasons for quarantine, by job."""
    given = request.query_params
    source, text = given.get("source", ""), given.get("reason", "").strip()
    if name := given.get("job", "").strip():
        job = await web.store.jobs.get(name)
        return await _show_of_job(request, web, job, text)
    found = await web.store.quarantine.jobs(
        source=source or None, before=cursor_of(given.get("before", "")), limit=_JOBS + 1
    )
    sources = await web.store.projections.rows("sources")
    return render(
        request,
        "quarantine.html",
        jobs=[one for job in found[:_JOBS] if (one := await _groups_of(web, job, text))],
        sources=sorted(row["source"] for row in sources if row["source"]),
        given={"source": source, "reason": text},
        next_url=_next_url(given, found[_JOBS - 1]) if len(found) > _JOBS else None,
    )


async def _groups_of(web: Web, job: HoldingJob, text: str) -> dict[str, Any] | None:
    groups = await web.store.quarantine.reasons(job.id, text=text, most=_GROUPED)
    if not groups:  # its items have failed, and nothing can be done without a request
        return None
    return {
        "id": job.id,
        "source": job.source,
        "created_at": job.created_at,
        "items": max(job.quarantined if not text else 0, sum(one.count for one in groups)),
        "groups": groups[:_GROUPS],
        "more": max(0, len(groups) - _GROUPS),
    }


def _next_url(given: QueryParams, last: HoldingJob) -> str:
    kept = {name: given[name] for name in ("source", "reason") if given.get(name)}
    return f"/quarantine?{urlencode({**kept, 'before': f'{last.created_at!r}~{last.id}'})}"


async def _show_of_job(request: Request, web: Web, job: Job, text: str) -> Response:
    after = request.query_params.get("after", "0")
    if not (after.isascii() and after.isdigit()):
        raise HTTPException(422, "This address has an invalid position in a list.")
    found = await web.store.quarantine.held(
        job.id, text=text, after=min(int(after), 2**63 - 1), limit=_ITEMS + 1
    )
    more = {"job": job.id, "reason": text, "after": found[_ITEMS - 1].id if found[_ITEMS:] else 0}
    return render(
        request,
        "quarantine_job.html",
        job=job,
        items=found[:_ITEMS],
        text=text,
        notice=copy_notice(job),
        is_running=job.state is JobState.RUNNING,
        next_url=f"/quarantine?{urlencode(more)}" if found[_ITEMS:] else None,
    )


# ---------------- One item


@router.get("/quarantine/item")
async def show_item(request: Request, web: Home) -> Response:
    """Show what a quarantined item was made of."""
    given = request.query_params
    job = await web.store.jobs.get(given.get("job", ""))
    held = await _held(web, job, given.get("key", ""))
    material = unpack_material(held.raw)
    return render(
        request,
        "quarantine_item.html",
        job=job,
        held=held,
        problems=list(material.problems) or [held.reason],
        layers=dict(material.layers),
        notes=material.notes,
        results=[(name, _text_of(fields)) for name, fields in material.results.items()],
        found=_text_of(held.item.data) if held.item.data else "",
        is_running=job.state is JobState.RUNNING,
        notice=copy_notice(job),
    )


async def _held(web: Web, job: Job, key: str) -> QuarantinedItem:
    try:
        return await web.store.quarantine.get(job.id, key)
    except BadOption as error:
        raise HTTPException(404, str(error)) from error


def _text_of(value: Any) -> str:
    text = json_text(value, is_indented=True)
    rest = len(text) - _MOST_TEXT
    return text if rest <= 0 else f"{text[:_MOST_TEXT]}\n… {rest:,} more characters"


# ---------------- Actions


@router.post("/quarantine/retry")
async def retry_items(request: Request, web: Home) -> Response:
    """Collect quarantined items of a job again, in a process of the executor."""
    form = await read_form(request)
    job = await web.store.jobs.get(form.get("job", ""))
    key = form.get("key", "")
    held = await _held(web, job, key) if key else None
    state = held.state if held is not None else ItemState.QUARANTINED
    if state not in _RETRIED:
        raise HTTPException(409, "This item is not in quarantine any more.")
    await web.orchestrator.launch_retry(job.id, state=state, key=key or None)
    return redirect(job_url(job.id), "The retry is queued")


@router.post("/quarantine/replay")
async def replay_items(request: Request, web: Home) -> Response:
    """Process quarantined items of a job again with the source as it is now; send no request."""
    form = await read_form(request)
    job = await web.store.jobs.get(form.get("job", ""))
    keys = [form["key"]] if form.get("key") else []
    if keys:
        await _held(web, job, keys[0])

    async def work() -> Replay:
        source = source_now(job, None)
        archive = open_archive(web.settings) if web.settings.archive.is_dir() else nullcontext()
        with open_store(web.settings.database) as store:
            async with archive as opened:
                return await replay(store, job, source, web.clock, archive=opened, keys=keys)

    try:
        result = await off_loop_of(request).run(work, seconds=_SECONDS)
    except LonglineError:
        raise
    except Exception as error:  # code of a source
        raise NotReplayed(str(error) or repr(error)) from error
    return redirect(_after_replay(job, keys, result), _replay_text(result))


def _after_replay(job: Job, keys: Sequence[str], result: Replay) -> str:
    is_held = bool(result.still or result.left)
    if keys and is_held:
        return f"/quarantine/item?{urlencode({'job': job.id, 'key': keys[0]})}"
    return f"/quarantine?{urlencode({'job': job.id})}" if is_held else job_url(job.id)


def _replay_text(result: Replay) -> str:
    parts = [f"{count} {state}" for state, count in result.ends.items()]
    if result.left:
        reason = next(iter(result.left.values()))
        parts.append(f"{len(result.left)} not reprocessed: {reason}")
    return f"{count_text(result.items, 'item')} reprocessed: {', '.join(parts) or 'nothing to do'}"
