"""Flows and their runs: create and follow them, and what a person decides about them."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Request

from longline.core.redaction import KNOWN_SECRETS
from longline.scheduling.flow import FrozenFlow
from longline.scheduling.flow_files import FlowFile
from longline.scheduling.flow_runner import check_open, upgrade_from_file
from longline.scheduling.flow_steps import check_undoable
from longline.server.models import (
    Flow,
    FlowApproval,
    FlowCancel,
    FlowResume,
    FlowRun,
    FlowRunCreate,
    FlowRunDetails,
    FlowStep,
    Page,
)
from longline.server.web.access import AnyCaller
from longline.server.web.api.requests import (
    CursorText,
    Limit,
    api_router,
    page_in_memory,
    page_of,
    read_cursor,
)
from longline.server.web.context import Home, Web
from longline.server.web.definitions import flow_files_of
from longline.storage.scheduling.flows import Approval, FlowState
from longline.storage.scheduling.flows import FlowRun as StoredRun

router = api_router("flows")


@router.get("/flows")
async def list_flows(
    request: Request, web: Home, limit: Limit = 100, cursor: CursorText = None
) -> Page[Flow]:
    """List the flows in the folders of flows by name, and the files that are invalid."""
    files = await asyncio.to_thread(flow_files_of(request, web).read)
    found = {one.name: _flow(one) for one in files}
    return page_in_memory(found.values(), limit, cursor, lambda one: (one.name,))


def _flow(file: FlowFile) -> Flow:
    spec = None if file.flow is None else file.flow.spec
    return Flow(
        name=file.name,
        about="" if spec is None else spec.about,
        steps=[] if spec is None else [*spec.order],
        params={} if spec is None else spec.params,
        problem=None if file.problem is None else KNOWN_SECRETS.text(file.problem),
    )


@router.get("/flow-runs")
async def list_flow_runs(
    web: Home,
    flow: Annotated[str | None, Query(description="Only runs of this flow.")] = None,
    state: Annotated[FlowState | None, Query(description="Only runs in this state.")] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[FlowRun]:
    """List runs of flows, newest first."""
    key = read_cursor(cursor, float, str)
    found = await web.store.flows.list(
        flow=flow,
        states=() if state is None else (state,),
        before=None if key is None else (key[0], key[1]),
        limit=limit + 1,
    )
    some, following = page_of(found, limit, lambda one: (one.created_at, one.id))
    return Page(items=[FlowRun.model_validate(one) for one in some], next=following)


@router.post("/flow-runs", status_code=202)
async def create_flow_run(request: Request, web: Home, body: FlowRunCreate) -> FlowRunDetails:
    """Create a run of a flow, which an executor performs."""
    files, now = flow_files_of(request, web), web.clock.now()
    run = await files.start(web.store, body.flow, body.params, at=now, origin="api")
    return await _details(web, run)


@router.get("/flow-runs/{run}")
async def get_flow_run(web: Home, run: str) -> FlowRunDetails:
    """Return a run with its steps."""
    return await _details(web, await web.store.flows.get(run))


@router.post("/flow-runs/{run}/approve")
async def approve_flow_run(
    web: Home, run: str, body: FlowApproval, caller: AnyCaller
) -> FlowRunDetails:
    """Approve or reject a step that waits for a person."""
    approval = Approval(body.is_approved, caller.name, body.comment or None)
    decided = await web.store.flows.approve(run, body.step, approval, web.clock.now())
    return await _details(web, await web.store.flows.get(decided.run_id))


@router.post("/flow-runs/{run}/cancel")
async def cancel_flow_run(
    web: Home, run: str, caller: AnyCaller, body: FlowCancel | None = None
) -> FlowRunDetails:
    """Cancel a run and stop its steps; the failure policy of the flow then applies."""
    comment = body.comment if body else None
    reason = f"cancelled by {caller.name}" + (f": {comment}" if comment else "")
    return await _details(web, await web.store.flows.cancel(run, reason, web.clock.now()))


@router.post("/flow-runs/{run}/retry")
async def retry_flow_run(web: Home, run: str) -> FlowRunDetails:
    """Run the failed and skipped steps of a run again, or undo again what could not be undone."""
    return await _details(web, await web.store.flows.retry(run, web.clock.now()))


@router.post("/flow-runs/{run}/undo")
async def undo_flow_run(web: Home, run: str) -> FlowRunDetails:
    """Undo the steps of a run in reverse order."""
    found = await web.store.flows.get(run)
    await check_undoable(web.store, found)
    return await _details(web, await web.store.flows.undo(found.id, web.clock.now()))


@router.post("/flow-runs/{run}/resume")
async def resume_flow_run(web: Home, run: str, body: FlowResume | None = None) -> FlowRunDetails:
    """Continue a run, with `upgrade_from` also one that has ended, with its changed file.

    An executor continues open runs by itself, so without a body this only checks that it is open.
    """
    found = await web.store.flows.get(run)
    step = body.upgrade_from if body else None
    if step is None:
        check_open(found)
    else:
        now = web.clock.now()
        found = await upgrade_from_file(web.store, web.settings, found, step, now)
    return await _details(web, found)


# ---------------- Values


async def _details(web: Web, run: StoredRun) -> FlowRunDetails:
    rows = await web.store.flows.steps(run.id)
    order = FrozenFlow.from_dict(run.definition).spec.order
    steps = [FlowStep.model_validate(rows[name]) for name in order]
    return FlowRunDetails(**FlowRun.model_validate(run).model_dump(), steps=steps)
