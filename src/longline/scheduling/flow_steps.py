"""What the steps of flows do, and how they are undone.

A step may be interrupted by a kill at any time and is then performed again, so each kind is
idempotent: a launch and a sub-flow have a key, an export replaces its destination atomically,
commands and webhooks get an idempotency key that is the same for all attempts.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import orjson

from longline.analysis.duplicates import find_duplicates
from longline.analysis.match_rules import Rules
from longline.config.expressions import find, names_in
from longline.config.settings import Settings
from longline.config.validation import StrictModel
from longline.core.clock import Clock, utc_datetime
from longline.core.errors import BadOption, LonglineError, UnexpectedShape
from longline.core.model import OPEN_STATES, Event
from longline.engine.runtime import LEASE
from longline.engine.webhooks import WebhookSender
from longline.enrichment.phase import PhaseReport, PhaseState
from longline.enrichment.task_files import AnyTask, EnrichTask, LocalTask
from longline.export.export import ExportRequest, export_records
from longline.export.previous import (
    delete_export,
    drop_previous,
    find_previous,
    keep_previous,
    place_of,
    restore_previous,
)
from longline.export.redaction import home_redactor
from longline.scheduling.flow import (
    DELETE,
    INNER_FLOW,
    ApproveStep,
    CheckStep,
    CommandStep,
    EachStep,
    EnrichStep,
    ExportStep,
    FrozenFlow,
    RecordSelection,
    RunStep,
    StepSpec,
    SubFlowStep,
    Undo,
    WebhookStep,
    fill_values,
    job_settings,
    load_function,
)
from longline.sources.command import Overlong, lines_of, start_problem
from longline.sources.loader import survey
from longline.storage.events.webhooks import UnknownWebhook, Webhook
from longline.storage.query import RecordQuery, parse_condition
from longline.storage.scheduling.flows import FlowRun, FlowState, FlowStep, NewFlowRun, StepState
from longline.storage.scheduling.launches import Launch, LaunchState, NewLaunch
from longline.storage.store import Store

POLL = 1.0
"""Seconds between two polls of a launch or a sub-flow."""
_MOST_LINES = 20  # of the output of a command that are stored
_LONGEST_LINE = 500  # characters
_SUCCESS = {
    "complete": ("complete",),
    "partial": ("complete", "partial"),
    "any": ("complete", "partial", "failed", "cancelled"),
}

RunLaunch = Callable[[Launch], Awaitable[None]]
"""Runs a leased launch in this process to its end, and stores its result."""
Enrich = Callable[[AnyTask, int | None], Awaitable[PhaseReport]]
"""Runs an enrichment task, with at most this many questions."""


class StepFailed(LonglineError):
    """A step has failed."""

    reason: str
    message = "{reason}"


@dataclass(frozen=True, slots=True)
class StepTools:
    """What steps use; without `run_launch`, an executor runs the launches.

    `advance` begins to perform sub-flows that were just created or changed.
    """

    store: Store
    clock: Clock
    settings: Settings
    owner: str
    sender: WebhookSender
    enrich: Enrich
    advance: Callable[[], Awaitable[None]]
    run_launch: RunLaunch | None = None


@dataclass(frozen=True, slots=True)
class StepRun:
    """A step of a run, when it is performed or undone.

    `context` has the values for templates. `rest` is called with whether the step only waits for a
    person, as that of a sub-flow.
    """

    tools: StepTools
    run: FlowRun
    flow: FrozenFlow
    step: StepSpec
    context: Mapping[str, Any]
    attempt: int = 1
    started_at: float = 0.0
    references: Sequence[Mapping[str, Any]] = ()
    rest: Callable[[bool], None] = lambda _is_resting: None

    @property
    def key(self) -> str:
        """The idempotency key: the same for all attempts."""
        return f"{self.run.id}/{self.step.name}"

    @property
    def origin(self) -> str:
        """The origin of its launches and sub-flows."""
        return f"flow/{self.run.id}/{self.step.name}"

    @property
    def folder(self) -> Path:
        """The folder of the flow."""
        return Path(self.flow.folder)

    def filled(self, work: StrictModel) -> Any:
        """Return settings with the names in their texts replaced.

        Raises:
            StepFailed: a name has no value.
        """
        values = work.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return type(work).model_validate(self.fill(values))

    def fill(self, values: Any, **more: Any) -> Any:
        """Return values with the names in their texts replaced.

        Raises:
            StepFailed: a name has no value.
        """
        try:
            return fill_values(values, {**self.context, **more})
        except KeyError as error:
            raise StepFailed(f"there is no value for {{{error.args[0]}}}") from None

    def input_hash(self) -> str:
        """Return a hash of what the step is given."""
        values = self.step.work.model_dump(by_alias=True, mode="json", exclude_unset=True)
        if self.step.kind != "each":
            values = self.fill(values)
        content = [values, self.flow.resolved.get(self.step.name)]
        text = orjson.dumps(content, option=orjson.OPT_SORT_KEYS, default=str)
        return hashlib.sha256(text).hexdigest()[:16]


def context_of(run: FlowRun, flow: FrozenFlow, steps: Mapping[str, FlowStep]) -> dict[str, Any]:
    """Return the values that templates and conditions of a run can name."""
    params = dict(run.params)
    outer: Mapping[str, Any] = {}
    if flow.name == INNER_FLOW:
        outer = params.pop("outer", {})
    own = {
        name: {"state": step.state.value, "attempt": step.attempt, "output": step.output}
        for name, step in steps.items()
    }
    return {
        "params": outer.get("params", params),
        "steps": {**outer.get("steps", {}), **own},
        "flow": run.flow,
        "run": run.id,
        **({"item": params["item"], "index": params["index"]} if outer else {}),
    }


# ---------------- Performing


async def perform(one: StepRun) -> Any:
    """Perform a step and return its output.

    Raises:
        LonglineError: it has failed.
    """
    return await _PERFORM[one.step.kind](one)


async def _run(one: StepRun) -> dict[str, Any]:
    tools, work = one.tools, cast("RunStep", one.filled(one.step.work))
    resolved = one.flow.resolved.get(one.step.name)
    if resolved is None:  # its source has a placeholder
        found = await asyncio.to_thread(job_settings, work, one.folder, tools.settings)
        resolved = found
    spec = dict(resolved["spec"])
    spec |= {name: one.fill(spec[name]) for name in ("set", "params")}
    # Attempts are counted from 1 again when a person retries the run.
    key = f"{one.origin}/{one.attempt}@{utc_datetime(one.started_at).isoformat()}"
    # A person may have upgraded or retried the run while an earlier attempt was under way.
    await _cancel_launches(one, "another attempt of its step begins", but=key)
    now, priority = tools.clock.now(), work.priority
    new = NewLaunch("source", resolved["name"], spec, one.origin, now, key=key, priority=priority)
    launch = await _follow_launch(one, await tools.store.launches.place(new))
    if launch.result not in _SUCCESS[work.states]:
        why = f": {launch.reason}" if launch.reason else ""
        raise StepFailed(f"job {launch.target or '(none)'} is {launch.result}{why}")
    output = {"job": launch.target, "state": launch.result, "reason": launch.reason}
    rows = await tools.store.projections.rows("runs", keys=[launch.target or ""])
    return {**output, **(rows[0]["items"] if rows else {})}


async def _follow_launch(one: StepRun, number: int) -> Launch:
    """Wait until a launch has ended; run it, if this process does that itself."""
    tools = one.tools
    while True:
        launch = await tools.store.launches.get(number)
        if launch is None:
            raise StepFailed("its launch was deleted")
        if launch.state is LaunchState.ENDED:
            return launch
        now = tools.clock.now()
        if tools.run_launch is not None and launch.state is LaunchState.QUEUED:
            until = now + LEASE
            leased = await tools.store.launches.lease_one(number, tools.owner, now, until)
            if leased is not None:
                await tools.run_launch(leased)
                continue
        await tools.clock.sleep(POLL)


async def _match(one: StepRun) -> dict[str, Any]:
    rules = Rules.model_validate(one.flow.resolved[one.step.name])
    found = await find_duplicates(one.tools.store.matches, rules, clock=one.tools.clock)
    return {"records": found.records, "compared": found.compared, "matched": found.matched}


async def _enrich(one: StepRun) -> dict[str, Any]:
    values = one.flow.resolved[one.step.name]
    kind: type[AnyTask] = LocalTask if "enricher" in values else EnrichTask
    task = kind.model_validate(values)
    report = await one.tools.enrich(task, cast("EnrichStep", one.step.work).limit)
    if report.state not in (PhaseState.COMPLETE, PhaseState.LIMITED):
        raise StepFailed(f"the task is {report.state}: {report.reason or 'some records failed'}")
    return report.as_dict()


async def _export(one: StepRun) -> dict[str, Any]:
    work = cast("ExportStep", one.filled(one.step.work))
    request = await _export_request(one, work)
    for reference in one.references:
        if reference.get("kind") == "export" and reference["place"] == place_of(request):
            await asyncio.to_thread(keep_previous, request, reference)
            request = replace(request, previous_table=_previous_table(reference))
    query = RecordQuery(
        source=work.source,
        job=work.job,
        min_score=work.min_score,
        where=tuple(parse_condition(text) for text in work.where),
        limit=work.limit,
    )
    done = await asyncio.to_thread(export_records, one.tools.store, request, query)
    if done is None:
        raise StepFailed("nothing was exported")
    return {"path": done.path, "records": done.records, "notes": list(done.notes)}


async def _export_request(one: StepRun, work: ExportStep) -> ExportRequest:
    if not work.redact:
        return work.request()
    jobs = await one.tools.store.jobs.list(limit=None)
    redactor, _ = home_redactor(one.tools.settings, jobs, ignore_unreadable=False)
    return work.request(redactor=redactor)


def _previous_table(reference: Mapping[str, Any]) -> str | None:
    part = reference["parts"][0]
    return part["backup"] if "path" not in part and part["existed"] else None


async def _check(one: StepRun) -> dict[str, Any]:
    work = cast("CheckStep", one.filled(one.step.work))
    store = one.tools.store
    problems: list[str] = []
    facts: dict[str, Any] = {}
    if work.source is not None:
        rows = await store.projections.rows("sources", keys=[work.source])
        facts = _check_source(work, rows[0] if rows else {}, one.tools.clock.now(), problems)
    if work.job is not None:
        rows = await store.projections.rows("runs", keys=[work.job])
        facts |= _check_job(work, rows[0] if rows else {}, problems)
    if work.function is not None:
        problem = await _call_function(one, work.function)
        problems += [problem] if problem else []
    if problems:
        raise StepFailed("; ".join(problems))
    return facts


def _check_source(
    work: CheckStep, row: Mapping[str, Any], now: float, problems: list[str]
) -> dict[str, Any]:
    if work.records and (problem := work.records.problem(row.get("records"))):
        problems.append(f"the number of records {problem}")
    coverage = row.get("coverage") or {}
    for field, least in work.coverage.items():
        found = coverage.get(field)
        if found is None or found < least:
            shown = "unknown" if found is None else f"{found:.1%}"
            problems.append(f"the coverage of {field} is {shown}, expected at least {least:.1%}")
    last = row.get("last_good_at")
    if work.fresh is not None and (last is None or now - last > work.fresh):
        age = "there is no complete run" if last is None else f"the data is {now - last:.0f} s old"
        problems.append(f"{age}, expected at most {work.fresh:.0f} s")
    return {name: row.get(name) for name in ("records", "coverage", "last_good_at")}


def _check_job(work: CheckStep, row: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    items: Mapping[str, int] = row.get("items") or {}
    for state, bounds in work.items.items():
        if problem := bounds.problem(items.get(state)):
            problems.append(f"the number of {state} items {problem}")
    collected = items.get("stored", 0) + items.get("unchanged", 0)
    share = items["stored"] / collected if collected else None
    if work.changes and (problem := work.changes.problem(share)):
        problems.append(f"the share of changed items {problem}")
    return {"items": dict(items), "changes": share}


async def _call_function(one: StepRun, reference: str) -> str | None:
    """Call the function of a check; return what is wrong."""
    function = await asyncio.to_thread(load_function, reference, one.folder)
    if inspect.iscoroutinefunction(function):
        result = await function(one.context)
    else:
        result = await asyncio.to_thread(function, one.context)
    if isinstance(result, str):
        return result or None
    return f"{reference} returned False" if result is False else None


async def _command(one: StepRun) -> dict[str, Any]:
    return await _call_command(one, cast("CommandStep", one.step.work), one.key)


async def _call_command(one: StepRun, work: CommandStep, key: str) -> dict[str, Any]:
    filled = cast("CommandStep", one.filled(work))
    environment = {
        "LONGLINE_IDEMPOTENCY_KEY": key,
        "LONGLINE_FLOW_RUN": one.run.id,
        "LONGLINE_FLOW_STEP": one.step.name,
        "LONGLINE_FLOW_ATTEMPT": str(one.attempt),
    }
    folder = one.folder / (filled.folder or "")
    running = lines_of(filled.argv, folder=str(folder), environment=environment)
    lines: list[str] = []
    try:
        async with aclosing(running) as output:
            async for line in output:
                content = line.start if isinstance(line, Overlong) else line
                lines = [*lines, content.decode(errors="replace")][-_MOST_LINES:]
    except UnexpectedShape as error:
        raise StepFailed(str(error)) from error
    result = None
    if lines and lines[-1].startswith("{"):
        try:
            result = orjson.loads(lines[-1])
        except orjson.JSONDecodeError:
            result = None
    return {"lines": [line[:_LONGEST_LINE] for line in lines], "result": result}


async def _webhook(one: StepRun) -> dict[str, Any]:
    return await _call_webhook(one, cast("WebhookStep", one.step.work), one.key)


async def _call_webhook(one: StepRun, work: WebhookStep, key: str) -> dict[str, Any]:
    filled = cast("WebhookStep", one.filled(work))
    if filled.name is not None:
        webhook = await one.tools.store.webhooks.get(filled.name)
    else:
        secrets = (filled.secret or "",)
        webhook = Webhook(one.step.name, filled.url or "", secrets, filled.allow_private)
    data = {"run": one.run.id, "flow": one.run.flow, "step": one.step.name, **filled.data}
    subject = f"flow/{one.run.id}"
    event = Event(0, None, one.tools.clock.now(), "custom.flow", None, data, subject=subject)
    # A signed id must not contain a dot.
    sent = await one.tools.sender.send_once(webhook, re.sub(r"[^\w/-]", "_", key), event)
    if sent.error is not None:
        raise StepFailed(f"the webhook failed: {sent.error}")
    return {"status": sent.status, "id": sent.message_id}


async def _flow(one: StepRun) -> dict[str, Any]:
    work = cast("SubFlowStep", one.filled(one.step.work))
    flow = FrozenFlow.from_dict(one.flow.resolved[one.step.name])
    child = await _start_child(one, flow, flow.check_params(work.params), 0)
    await one.tools.advance()
    child = await _follow_child(one, child)
    if child.state not in (FlowState.COMPLETE, FlowState.PARTIAL):
        raise StepFailed(f"flow run {child.id} is {child.state}: {child.reason or 'no reason'}")
    steps = await one.tools.store.flows.steps(child.id)
    outputs = {name: step.output for name, step in steps.items()}
    return {"run": child.id, "state": child.state.value, "steps": outputs}


async def _start_child(
    one: StepRun, flow: FrozenFlow, params: Mapping[str, Any], index: int
) -> FlowRun:
    """Create a sub-flow, or find it after a crash; one that failed before this attempt is retried.

    After one that was compensated, another one is created.
    """
    flows, at = one.tools.store.flows, one.tools.clock.now()
    is_inner = flow.name == INNER_FLOW
    new = NewFlowRun(
        flow=f"{one.run.flow}.{one.step.name}" if is_inner else flow.name,
        definition=flow.as_dict(),
        hash=flow.hash,
        steps=flow.spec.order,
        params=params,
        origin=one.origin,
        at=at,
        key=f"{one.origin}/{index}",
        root=one.run.root,
    )
    child = await flows.create(new)
    if child.ended_at is None or child.ended_at >= one.started_at:
        return child
    if child.state is FlowState.COMPENSATED:
        return await flows.create(replace(new, key=f"{new.key}/{one.attempt}"))
    return child if child.state is FlowState.COMPLETE else await flows.retry(child.id, at)


async def _follow_child(one: StepRun, child: FlowRun) -> FlowRun:
    while child.is_open:
        one.rest(child.state is FlowState.WAITING)
        await one.tools.clock.sleep(POLL)
        child = await one.tools.store.flows.get(child.id)
    one.rest(False)
    return child


async def _each(one: StepRun) -> dict[str, Any]:
    work = cast("EachStep", one.step.work)
    (items,) = [one_ref["items"] for one_ref in one.references if one_ref["kind"] == "runs"]
    flow = FrozenFlow.from_dict(one.flow.resolved[one.step.name])
    waiting = list(enumerate(items))
    children: dict[int, FlowRun] = {}
    while True:
        for index, child in children.items():
            if child.is_open:
                children[index] = await one.tools.store.flows.get(child.id)
        failed = [one for one in children.values() if _is_bad(one)]
        running = [one for one in children.values() if one.is_open]
        while waiting and len(running) < work.concurrency and not failed:
            index, item = waiting.pop(0)
            params = _params_of_item(one, flow, item, index)
            children[index] = await _start_child(one, flow, params, index)
            running += [children[index]] if children[index].is_open else []
            failed += [children[index]] if _is_bad(children[index]) else []
        if not running:
            break
        await one.tools.advance()
        one.rest(all(child.state is FlowState.WAITING for child in running))
        await one.tools.clock.sleep(POLL)
    one.rest(False)
    if failed:
        first = failed[0]
        problem = f"{len(failed)} of {len(items)} failed; {first.id} is {first.state}"
        raise StepFailed(f"{problem}: {first.reason or 'no reason'}")
    return {"items": len(items), "runs": [children[index].id for index in sorted(children)]}


def _is_bad(child: FlowRun) -> bool:
    return not child.is_open and child.state not in (FlowState.COMPLETE, FlowState.PARTIAL)


def _params_of_item(one: StepRun, flow: FrozenFlow, item: Any, index: int) -> dict[str, Any]:
    work = cast("EachStep", one.step.work)
    if work.flow is not None:
        return flow.check_params(one.fill(work.flow.params, item=item, index=index))
    outer = {"params": one.context["params"], "steps": one.context["steps"]}
    return {"item": item, "index": index, "outer": outer}


async def _find_items(one: StepRun) -> list[Any]:
    """Return the items that a step fans out over."""
    work = cast("EachStep", one.step.work)
    if work.items is not None:
        return cast("list[Any]", one.fill(list(work.items)))
    if work.values is not None:
        found = find(work.values, one.context)
        if not isinstance(found, list):
            raise StepFailed(f"{work.values} is not a list")
        return found
    if work.records is not None:
        chosen = cast("RecordSelection", one.filled(work.records))
        where = tuple(parse_condition(text) for text in chosen.where)
        query = RecordQuery(source=chosen.source, job=chosen.job, where=where, limit=chosen.limit)
        rows = await one.tools.store.records.list(query)
        return [{name: row[name] for name in ("source", "key", "url", "data")} for row in rows]
    entries = (await asyncio.to_thread(survey, one.tools.settings)).entries
    return [str(entry.document.path.absolute()) for entry in entries.values()]


async def _approve(one: StepRun) -> Any:
    """Return nothing: the runner waits for a person, and never performs this step."""
    raise StepFailed(f"{one.step.name} needs the approval of a person")


_PERFORM: Mapping[str, Callable[[StepRun], Awaitable[Any]]] = {
    "run": _run,
    "match": _match,
    "enrich": _enrich,
    "export": _export,
    "check": _check,
    "command": _command,
    "webhook": _webhook,
    "approve": _approve,
    "flow": _flow,
    "each": _each,
}


async def abort(one: StepRun) -> None:
    """Stop what a step has started elsewhere: its launches and sub-flows."""
    store, now = one.tools.store, one.tools.clock.now()
    reason = f"the flow run {one.run.id} was stopped"
    await _cancel_launches(one, reason)
    for child in await store.flows.list(origin=one.origin, is_open=True, limit=None):
        if child.state is not FlowState.COMPENSATING and child.stop is None:
            await store.flows.cancel(child.id, reason, now)


async def _cancel_launches(one: StepRun, reason: str, *, but: str | None = None) -> None:
    """Cancel the open launches of a step, but that with the key `but`."""
    store, now = one.tools.store, one.tools.clock.now()
    for launch in await store.launches.list(origin=one.origin, is_open=True, limit=None):
        if launch.key is not None and launch.key == but:
            continue
        if await store.launches.cancel(launch.id, now, reason):
            continue
        found = await store.launches.get(launch.id)
        if found is not None and found.target is not None:
            job = await store.jobs.get(found.target)
            if job.state in OPEN_STATES:
                await store.jobs.cancel(job.id, now, reason)


# ---------------- Undoing


async def find_reference(one: StepRun) -> dict[str, Any] | None:
    """Return what undoing a step needs, to be stored before the step is performed.

    Raises:
        LonglineError: it cannot be found out; the step must not be performed.
    """
    undo = one.step.undo
    if one.step.kind == "flow":
        return {"kind": "runs", "place": "runs"}
    if one.step.kind == "each":
        return {"kind": "runs", "place": "runs", "items": await _find_items(one)}
    if undo is None:
        return None
    if isinstance(undo, Undo):
        await _check_undo(one, undo)
        kind = "command" if undo.command is not None else "webhook"
        return {"kind": kind, "place": kind}
    if one.step.kind == "run":
        return {"kind": "records", "place": "records"}
    work = cast("ExportStep", one.filled(one.step.work))
    request = work.request()
    found = await asyncio.to_thread(find_previous, request, one.key)
    return {"kind": "export", **found}


async def _check_undo(one: StepRun, undo: Undo) -> None:
    """Check that the webhook, or the program on the search path, of an undo exists.

    A program in a folder may be one that the step itself creates.
    """
    problem = None
    if undo.command is not None and "/" not in (program := undo.command.argv[0]):
        problem = None if names_in(program) else start_problem([program])
    elif undo.webhook is not None and (name := undo.webhook.name) and not names_in(name):
        try:
            await one.tools.store.webhooks.get(name)
        except UnknownWebhook as error:
            problem = str(error)
    if problem is not None:
        raise StepFailed(f"not started, because its undo cannot work: {problem}")


async def undo_step(one: StepRun, reference: Mapping[str, Any]) -> None:
    """Undo what a step has done, all of it, some of it or nothing.

    Raises:
        LonglineError: it could not be undone.
    """
    await _UNDO[reference["kind"]](one, reference)


async def _undo_command(one: StepRun, _reference: Mapping[str, Any]) -> None:
    work = cast("Undo", one.step.undo).command
    await _call_command(one, cast("CommandStep", work), f"{one.key}/undo")


async def _undo_webhook(one: StepRun, _reference: Mapping[str, Any]) -> None:
    work = cast("Undo", one.step.undo).webhook
    await _call_webhook(one, cast("WebhookStep", work), f"{one.key}/undo")


async def _undo_records(one: StepRun, _reference: Mapping[str, Any]) -> None:
    store = one.tools.store
    await abort(one)
    while await store.launches.list(origin=one.origin, is_open=True, limit=1):
        await one.tools.clock.sleep(POLL)  # it may still store records
    for launch in await store.launches.list(origin=one.origin, limit=None):  # newest first
        if launch.target is not None:
            await store.records.restore(launch.target, one.tools.clock.now())


async def _undo_export(one: StepRun, reference: Mapping[str, Any]) -> None:
    work = cast("ExportStep", one.filled(one.step.work))
    undo = delete_export if one.step.undo == DELETE else restore_previous
    await asyncio.to_thread(undo, _request_at(work, reference), reference)


def _request_at(work: ExportStep, reference: Mapping[str, Any]) -> ExportRequest:
    """Return a request to the destination of a reference, which an upgrade may have changed."""
    request = work.request()
    is_file = "://" not in reference["place"].partition(" table ")[0]
    return replace(request, output=reference["place"]) if is_file else request


async def _undo_runs(one: StepRun, _reference: Mapping[str, Any]) -> None:
    flows = one.tools.store.flows
    await abort(one)
    begun: set[str] = set()
    while True:
        children = await flows.list(origin=one.origin, limit=None)  # newest first
        left = [child for child in children if child.state is not FlowState.COMPENSATED]
        if not left:
            return
        child = left[0]
        if not child.is_open:
            if child.id in begun:
                raise StepFailed(f"flow run {child.id} is {child.state}: {child.reason}")
            await check_undoable(one.tools.store, child)
            await flows.undo(child.id, one.tools.clock.now())
            await one.tools.advance()
            begun.add(child.id)
        await one.tools.clock.sleep(POLL)


_UNDO: Mapping[str, Callable[[StepRun, Mapping[str, Any]], Awaitable[None]]] = {
    "command": _undo_command,
    "webhook": _undo_webhook,
    "records": _undo_records,
    "export": _undo_export,
    "runs": _undo_runs,
}


def passed_pivot(flow: FrozenFlow, steps: Mapping[str, FlowStep]) -> str | None:
    """Return the pivot that is complete; None: the steps of a run can be undone."""
    pivots = (name for name, step in flow.spec.by_name.items() if step.pivot)
    done = (name for name in pivots if name in steps and steps[name].state is StepState.COMPLETE)
    return next(done, None)


async def check_undoable(store: Store, run: FlowRun) -> None:
    """Check that a run has not passed its pivot.

    Raises:
        BadOption: it has.
    """
    flow = FrozenFlow.from_dict(run.definition)
    pivot = passed_pivot(flow, await store.flows.steps(run.id))
    if pivot is not None:
        problem = f"{run.id} cannot be undone: its pivot {pivot!r} is complete"
        raise BadOption("RUN", problem)


async def drop_references(one: StepRun, references: Sequence[Mapping[str, Any]]) -> None:
    """Delete what is kept to undo a step of an earlier run.

    Raises:
        LonglineError: it could not be deleted.
    """
    for reference in references:
        if reference["kind"] == "export":
            work = cast("ExportStep", one.filled(one.step.work))
            await asyncio.to_thread(drop_previous, _request_at(work, reference), reference)


def approval_text(run: FlowRun, steps: Mapping[str, FlowStep], name: str) -> str:
    """Return what a person is asked to approve; a name without a value stays as it is."""
    flow = FrozenFlow.from_dict(run.definition)
    message = cast("ApproveStep", flow.spec.by_name[name].work).message
    try:
        return cast("str", fill_values(message, context_of(run, flow, steps)))
    except KeyError:
        return message
