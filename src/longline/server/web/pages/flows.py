"""Flows: definitions, runs with a live graph of their steps, and what a person decides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from longline.core.json import typed_value
from longline.scheduling.flow import FrozenFlow, StepSpec
from longline.scheduling.flow_steps import approval_text, check_undoable
from longline.server.web.access import AnyCaller
from longline.server.web.context import Home, Web
from longline.server.web.definitions import flow_files_of
from longline.server.web.flow_graph import draw
from longline.server.web.forms import naming_fields, read_form, redirect
from longline.server.web.live import LivePart
from longline.server.web.rendering import render
from longline.storage.scheduling.flows import (
    Approval,
    FlowRun,
    FlowState,
    FlowStep,
    StepState,
    UnknownFlowRun,
)

router = APIRouter(include_in_schema=False)

_RUNS = 50
_PARAM = "param."  # prefix of the fields of a form that are parameters
_RETRYABLE = (FlowState.PARTIAL, FlowState.FAILED, FlowState.NEEDS_ATTENTION)
_STATES = [one.value for one in FlowState]


# ---------------- Pages


@router.get("/flows")
async def show_flows(request: Request, web: Home) -> Response:
    """List the flows and their runs."""
    query = request.query_params
    state = query.get("state", "")
    runs = await web.store.flows.list(
        flow=query.get("flow") or None,
        states=[state] if state in _STATES else (),
        before=_cursor(query.get("before", "")),
        limit=_RUNS + 1,
    )
    files = await asyncio.to_thread(flow_files_of(request, web).read)
    return render(
        request,
        "flows.html",
        files=files,
        runs=runs[:_RUNS],
        states=_STATES,
        older=_older(runs, {"flow": query.get("flow", ""), "state": state}),
        folders=[str(one) for one in web.settings.flows],
    )


@router.get("/flows/{run}")
async def show_flow(request: Request, web: Home, run: str) -> Response:
    """Show one run, or a flow by its name with its runs."""
    try:
        found = await web.store.flows.get(run)
    except UnknownFlowRun:
        return await _show_definition(request, web, run)
    if found.flow == run != found.id:  # the ids of its runs begin with the name of a flow
        return await _show_definition(request, web, run)
    return render(request, "flow.html", **await read_run(web, {"id": found.id}))


async def _show_definition(request: Request, web: Web, name: str) -> Response:
    files = await asyncio.to_thread(flow_files_of(request, web).read)
    file = next((one for one in files if one.name == name), None)
    runs = await web.store.flows.list(flow=name, limit=20)
    if file is None and not runs:
        raise UnknownFlowRun(name)
    flow = FrozenFlow.from_dict(runs[0].definition) if file is None else file.flow
    return render(
        request,
        "flow_definition.html",
        name=name,
        file=file,
        flow=flow,
        graph=None if flow is None else draw(flow.spec, {}),
        runs=runs,
    )


async def read_run(web: Web, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the page of a run."""
    run = await web.store.flows.get(arguments.get("id", ""))
    rows = await web.store.flows.steps(run.id)
    spec = FrozenFlow.from_dict(run.definition).spec
    steps = [_step(run, rows, spec.by_name[name]) for name in spec.order]
    return {
        "run": run,
        "about": spec.about,
        "graph": draw(spec, {one["name"]: one["state"] for one in steps}),
        "steps": steps,
        "waiting": [one for one in steps if one["is_waiting"]] if run.is_open else [],
        "done": sum(one["row"].ended_at is not None for one in steps),
        "can_retry": run.state in _RETRYABLE
        or any(one["row"].undo_state == "failed" for one in steps),
        "can_undo": run.is_undoable and not run.is_open and run.state is not FlowState.COMPENSATED,
        "can_cancel": run.state in (FlowState.RUNNING, FlowState.WAITING) and run.stop is None,
    }


LIVE = {"flow": LivePart("flow_part.html", read_run)}


# ---------------- Actions


@router.post("/flows/run")
async def run_flow(request: Request, web: Home) -> Response:
    """Create a run of a flow of the folders, which the server performs."""
    form = await read_form(request)
    name = form.get("flow", "")
    given = {
        key.removeprefix(_PARAM): typed_value(text)
        for key, text in form.items()
        if key.startswith(_PARAM) and text
    }
    files = flow_files_of(request, web)
    with naming_fields({"flow": "Flow"}):
        run = await files.start(web.store, name, given, at=web.clock.now(), origin="web")
    return redirect(f"/flows/{run.id}", f"{run.id} was created")


@router.post("/flows/{run}/approve")
async def approve(request: Request, web: Home, run: str, caller: AnyCaller) -> Response:
    """Approve or reject a step that waits for a person."""
    form = await read_form(request)
    is_approved = form.get("decision") == "approve"
    comment = form.get("comment", "").strip()[:1000] or None
    decided = await web.store.flows.approve(
        run, form.get("step") or None, Approval(is_approved, caller.name, comment), web.clock.now()
    )
    word = "approved" if is_approved else "rejected"
    return redirect(f"/flows/{decided.run_id}", f"step {decided.step} is {word}")


@router.post("/flows/{run}/retry")
async def retry(web: Home, run: str) -> Response:
    """Run failed and skipped steps again."""
    found = await web.store.flows.retry(run, web.clock.now())
    return redirect(f"/flows/{found.id}", f"{found.id} is retried")


@router.post("/flows/{run}/undo")
async def undo(web: Home, run: str) -> Response:
    """Undo the steps of a run in reverse order."""
    found = await web.store.flows.get(run)
    await check_undoable(web.store, found)
    await web.store.flows.undo(found.id, web.clock.now())
    return redirect(f"/flows/{found.id}", f"{found.id} is being undone")


@router.post("/flows/{run}/cancel")
async def cancel(request: Request, web: Home, run: str, caller: AnyCaller) -> Response:
    """Cancel a run and stop its steps."""
    comment = (await read_form(request)).get("comment", "").strip()[:1000]
    reason = f"cancelled by {caller.name}" + (f": {comment}" if comment else "")
    found = await web.store.flows.cancel(run, reason, web.clock.now())
    return redirect(f"/flows/{found.id}", f"{found.id} is being cancelled")


# ---------------- Values


def _step(run: FlowRun, rows: Mapping[str, FlowStep], spec: StepSpec) -> dict[str, Any]:
    row = rows[spec.name]
    is_waiting = row.state is StepState.WAITING
    return {
        "name": row.step,
        "kind": spec.kind,
        "state": state_of(row),
        "row": row,
        "is_waiting": is_waiting,
        "question": approval_text(run, rows, spec.name) if is_waiting else "",
        "seconds": None
        if row.started_at is None or row.ended_at is None
        else row.ended_at - row.started_at,
        "job": _job_of(row.output),
    }


def state_of(row: FlowStep) -> str:
    """Return the state of a step, or how far it was undone."""
    if row.undo_state is None:
        return row.state.value
    return "undo failed" if row.undo_state == "failed" else row.undo_state.value


def _job_of(output: Any) -> str | None:
    job = output.get("job") if isinstance(output, dict) else None
    return job if isinstance(job, str) else None


def _cursor(text: str) -> tuple[float, str] | None:
    at, _, run = text.partition("~")
    try:
        return (float(at), run) if run else None
    except ValueError:
        return None


def _older(runs: list[FlowRun], filters: Mapping[str, str]) -> str | None:
    if len(runs) <= _RUNS:
        return None
    last = runs[_RUNS - 1]
    kept = {**filters, "before": f"{last.created_at!r}~{last.id}"}
    return "/flows?" + "&".join(f"{name}={quote(text)}" for name, text in kept.items() if text)
