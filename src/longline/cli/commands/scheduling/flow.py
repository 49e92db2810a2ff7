"""longline flow: run flows, follow their runs, approve, retry and undo them."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.log_options import log_options
from longline.cli.options import (
    COUNT,
    PAIR,
    ParsedText,
    common_options,
    settings_of,
    typed_values,
    wants_json,
)
from longline.cli.output import (
    TextTable,
    duration_text,
    iso_time,
    one_line,
    print_facts,
    print_line,
    print_result,
    time_text,
)
from longline.cli.progress import STOPPED
from longline.cli.queries import uses_store
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.json import as_text
from longline.engine.runtime import handling_signals
from longline.orchestrator import Orchestrator
from longline.scheduling.flow import FrozenFlow, graph_lines, load_flow, mermaid_lines
from longline.scheduling.flow_runner import (
    check_open,
    perform_run,
    start_flow,
    upgrade_from_file,
)
from longline.scheduling.flow_steps import approval_text, check_undoable
from longline.sources.loader import SUFFIXES
from longline.storage.scheduling.flows import (
    Approval,
    FlowRun,
    FlowState,
    FlowStep,
    StepState,
)
from longline.storage.scheduling.launches import Launch
from longline.storage.store import Store
from longline.wiring import open_flow_runner

_EXIT_CODES = {
    FlowState.COMPLETE: ExitCode.OK,
    FlowState.PARTIAL: ExitCode.PARTIAL,
    FlowState.FAILED: ExitCode.FAILED,
    FlowState.NEEDS_ATTENTION: ExitCode.FAILED,
}  # others, as waiting and compensated: 4
_ORIGIN = "command"
_STOPPING = "Finishing work in flight. Press Ctrl-C again to stop immediately."
_WIDTH = 10


def _parse_run(value: Any) -> str:
    if not value:
        raise BadOption("RUN", "it is empty; `longline flow list` lists the runs")
    return str(value)


RUN = ParsedText("RUN", _parse_run)
upgrade_option = click.option(
    "--upgrade-from",
    metavar="STEP",
    help="Reload the flow's file, and run STEP and all steps after it again.",
)


@click.group("flow")
def flow_command() -> None:
    """Run flows: steps that are retried, approved and undone together."""


@flow_command.command("run")
@click.argument("flow")
@click.option("--param", "params", type=PAIR, multiple=True, help="Set a parameter. Repeatable.")
@click.option("--fresh", is_flag=True, help="Start a new run even if an unfinished one exists.")
@click.option("--detach", is_flag=True, help="Create the run and exit; `longline serve` runs it.")
@log_options
@common_options
def run_flow(flow: str, *, params: tuple[tuple[str, str], ...], fresh: bool, detach: bool) -> None:
    """Run FLOW in this process until it ends or waits for a person.

    An unfinished run of FLOW is resumed. FLOW is a file (YAML, or Python as file.py:name), or the
    name of a flow in the folders of the setting `flows`. Exit codes: 0 complete, 1 failed or needs
    attention, 3 partial, 4 waiting or compensated, 130 interrupted.
    """
    settings = settings_of()
    frozen = load_flow(flow, settings)
    given = frozen.check_params(typed_values(params))

    async def find(store: Store) -> FlowRun:
        found = None if fresh else await _unfinished(store, frozen, given)
        at = SystemClock().now()
        return found or await start_flow(store, frozen, given, at=at, origin=_ORIGIN)

    sys.exit(_perform_here(settings, find, is_detached=detach))


@flow_command.command("resume")
@click.argument("run", type=RUN)
@upgrade_option
@log_options
@common_options
def resume_flow(run: str, *, upgrade_from: str | None) -> None:
    """Continue RUN in this process until it ends or waits for a person.

    A changed file affects only new runs, unless --upgrade-from is used.
    """
    settings = settings_of()

    async def find(store: Store) -> FlowRun:
        found, at = await store.flows.get(run), SystemClock().now()
        if upgrade_from is not None:
            return await upgrade_from_file(store, settings, found, upgrade_from, at)
        check_open(found)
        return found

    sys.exit(_perform_here(settings, find))


@flow_command.command("retry")
@click.argument("run", type=RUN)
@upgrade_option
@log_options
@common_options
def retry_flow(run: str, *, upgrade_from: str | None) -> None:
    """Run the failed and skipped steps of RUN again in this process.

    If steps could not be undone, the undo is attempted again instead.
    """
    settings = settings_of()

    async def find(store: Store) -> FlowRun:
        found, at = await store.flows.get(run), SystemClock().now()
        if upgrade_from is not None:
            return await upgrade_from_file(store, settings, found, upgrade_from, at)
        return await store.flows.retry(found.id, at)

    sys.exit(_perform_here(settings, find))


@flow_command.command("undo")
@click.argument("run", type=RUN)
@log_options
@common_options
def undo_flow(run: str) -> None:
    """Undo the steps of RUN in reverse order.

    RUN must have ended. It can be undone until a later run of the flow is complete.
    """

    async def find(store: Store) -> FlowRun:
        found = await store.flows.get(run)
        await check_undoable(store, found)
        return await store.flows.undo(found.id, SystemClock().now())

    sys.exit(_perform_here(settings_of(), find))


@flow_command.command("approve")
@click.argument("run", type=RUN)
@click.argument("step", required=False)
@click.option("--reject", is_flag=True, help="Reject the step, which then fails.")
@click.option(
    "--by", metavar="NAME", show_default="your user name", help="Who approves or rejects."
)
@click.option("--comment", metavar="TEXT", help="Reason for the decision.")
@common_options
@uses_store
async def approve_flow(
    store: Store, run: str, step: str | None, *, reject: bool, by: str | None, comment: str | None
) -> None:
    """Approve the step of RUN that waits for a person.

    The server or `longline flow resume RUN` continues the run.
    """
    approval = Approval(not reject, by or getpass.getuser(), comment)
    decided = await store.flows.approve(run, step, approval, SystemClock().now())
    word = "rejected" if reject else "approved"
    values = {"run": decided.run_id, "step": decided.step, "state": decided.state.value}
    print_result(values, lambda: print_line(f"step {decided.step} of {decided.run_id} is {word}"))


@flow_command.command("cancel")
@click.argument("run", type=RUN)
@click.option("--comment", metavar="TEXT", help="Reason for cancelling.")
@common_options
@uses_store
async def cancel_flow(store: Store, run: str, *, comment: str | None) -> None:
    """Cancel RUN and stop its steps.

    The process that runs it stops within seconds; then the setting `on_failure` of the flow
    applies.
    """
    reason = f"cancelled by {getpass.getuser()}" + (f": {comment}" if comment else "")
    found = await store.flows.cancel(run, reason, SystemClock().now())
    values = {"run": found.id, "state": found.state.value, "stop": found.stop}
    print_result(values, lambda: print_line(f"{found.id} is being cancelled"))


@flow_command.command("list")
@click.option("--flow", metavar="NAME", help="Only runs of this flow.")
@click.option("--open", "is_open", is_flag=True, help="Only runs that have not ended.")
@click.option("--limit", type=COUNT, default=20, help="Maximum number of runs.")
@common_options
@uses_store
async def list_flows(store: Store, *, flow: str | None, is_open: bool, limit: int) -> None:
    """List runs of flows, newest first."""
    runs = await store.flows.list(flow=flow, is_open=is_open, limit=limit)
    rows = [_run_json(run) for run in runs]
    print_result(rows, lambda: _print_runs(runs))


@flow_command.command("show")
@click.argument("run", type=RUN)
@common_options
@uses_store
async def show_flow(store: Store, run: str) -> None:
    """Show RUN with its steps, their attempts and outputs."""
    found = await store.flows.get(run)
    steps = await store.flows.steps(found.id)
    print_result(_full_json(found, steps), lambda: _print_run(found, steps))


@flow_command.command("graph")
@click.argument("flow", metavar="FLOW|RUN")
@click.option("--mermaid", is_flag=True, help="Print a Mermaid diagram.")
@common_options
@uses_store
async def graph_flow(store: Store, flow: str, *, mermaid: bool) -> None:
    """Draw the steps of a flow; for a run, with their states."""
    settings = settings_of()
    states: dict[str, str] = {}
    try:
        frozen = await asyncio.to_thread(load_flow, flow, settings)
    except BadOption:
        if flow.partition(":")[0].endswith((*SUFFIXES, ".py")):
            raise
        run = await store.flows.get(flow)
        frozen = FrozenFlow.from_dict(run.definition)
        rows = await store.flows.steps(run.id)
        states = {name: _state_text(row) for name, row in rows.items()}
    lines = list((mermaid_lines if mermaid else graph_lines)(frozen, states))
    values = {"flow": frozen.name, "steps": dict(frozen.spec.parents), "states": states}

    def print_lines() -> None:
        for line in lines:
            click.echo(one_line(line) if not mermaid else line)

    print_result(values, print_lines)


# ---------------- Performing a run in the foreground


class _Foreground:
    """Performs a run in this process, including the sources that it runs."""

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._launches = 0
        self._states: dict[str, str] = {}
        self.is_interrupted = False

    async def run_launch(self, launch: Launch) -> None:
        """Run a launch; after an interrupt, it is left to the next process."""
        self._launches += 1
        try:
            await self._orchestrator.run_launch(launch)
        finally:
            self._launches -= 1
        if self.is_interrupted:
            await asyncio.Event().wait()  # until this step is cancelled

    def is_stopping(self) -> bool:
        """Return whether the process can end: jobs have committed what was in flight."""
        return self.is_interrupted and not self._launches

    def interrupt(self) -> None:
        """Begin nothing more."""
        self.is_interrupted = True
        self._orchestrator.interrupt()

    async def print_changes(self, run: FlowRun) -> None:
        """Print the states of steps that have changed."""
        if wants_json():
            return
        steps = await self._orchestrator.store.flows.steps(run.id)
        for name in FrozenFlow.from_dict(run.definition).spec.order:
            state = _state_text(steps[name])
            if state != self._states.get(name, StepState.PENDING):
                click.echo(f"{name}: {state}", err=True)
            self._states[name] = state


FindRun = Callable[[Store], Awaitable[FlowRun]]


def _perform_here(settings: Settings, find: FindRun, *, is_detached: bool = False) -> int:
    """Find a run, perform it, and print it; return the exit code."""
    try:
        return asyncio.run(_perform(settings, find, is_detached=is_detached))
    except asyncio.CancelledError:  # the second Ctrl-C
        click.echo(STOPPED, err=True)
        return ExitCode.INTERRUPTED


async def _perform(settings: Settings, find: FindRun, *, is_detached: bool) -> int:
    clock = SystemClock()
    async with Orchestrator(settings=settings, clock=clock) as orchestrator:
        store = orchestrator.store
        run = await find(store)
        foreground = _Foreground(orchestrator)
        if not is_detached:
            if not wants_json():
                click.echo(f"flow run {run.id} (Ctrl-C stops safely)", err=True)
            async with open_flow_runner(
                settings, store, clock, run_launch=foreground.run_launch, root=run.root
            ) as runner:
                with handling_signals(foreground.interrupt, _say_stopping):
                    run = await perform_run(
                        runner,
                        store,
                        run.id,
                        is_stopping=foreground.is_stopping,
                        on_look=foreground.print_changes,
                    )
        steps = await store.flows.steps(run.id)
    print_result(_full_json(run, steps), lambda: _print_end(run, steps))
    if foreground.is_interrupted and run.is_open:
        return ExitCode.INTERRUPTED
    return ExitCode.OK if is_detached else _EXIT_CODES.get(run.state, ExitCode.PAUSED)


def _say_stopping() -> None:
    click.echo(_STOPPING, err=True)


async def _unfinished(store: Store, flow: FrozenFlow, params: Mapping[str, Any]) -> FlowRun | None:
    """Return the newest unfinished run of the same definition and parameters."""
    for run in await store.flows.list(flow=flow.name, origin=_ORIGIN, is_open=True, limit=None):
        if run.hash == flow.hash and dict(run.params) == dict(params):
            return run
    return None


# ---------------- Output


def _state_text(step: FlowStep) -> str:
    if step.undo_state is not None:
        return "undo failed" if step.undo_state == "failed" else step.undo_state.value
    return step.state.value


def _run_json(run: FlowRun) -> dict[str, Any]:
    return {
        "run": run.id,
        "flow": run.flow,
        "state": run.state.value,
        "reason": run.reason,
        "origin": run.origin,
        "hash": run.hash,
        "params": dict(run.params),
        "created_at": iso_time(run.created_at),
        "started_at": iso_time(run.started_at),
        "ended_at": iso_time(run.ended_at),
    }


def _full_json(run: FlowRun, steps: Mapping[str, FlowStep]) -> dict[str, Any]:
    order = FrozenFlow.from_dict(run.definition).spec.order
    return {**_run_json(run), "steps": [_step_json(steps[name]) for name in order]}


def _step_json(step: FlowStep) -> dict[str, Any]:
    return {
        "step": step.step,
        "state": step.state.value,
        "attempt": step.attempt,
        "reason": step.reason,
        "started_at": iso_time(step.started_at),
        "ended_at": iso_time(step.ended_at),
        "output": step.output,
        "undo": None if step.undo_state is None else step.undo_state.value,
        "undo_attempt": step.undo_attempt,
        "undo_reason": step.undo_reason,
    }


def _print_runs(runs: list[FlowRun]) -> None:
    table = TextTable("run", "state", "created (UTC)", "origin", "reason", note="reason")
    for run in runs:
        table.add(run.id, run.state.value, time_text(run.created_at), run.origin, run.reason or "")
    table.print("no flow has been run yet; see docs/flows.md")


def _print_run(run: FlowRun, steps: Mapping[str, FlowStep]) -> None:
    facts: dict[str, object] = {
        "run": run.id,
        "state": run.state.value,
        "reason": run.reason or "",
        "origin": run.origin,
        "created": time_text(run.created_at, seconds=True),
        "params": as_text(dict(run.params)),
        "hash": run.hash,
    }
    print_facts(facts, width=_WIDTH)
    _print_steps(run, steps)


def _print_steps(run: FlowRun, steps: Mapping[str, FlowStep]) -> None:
    table = TextTable("step", "kind", "state", "attempts", "time", "result", note="result")
    spec = FrozenFlow.from_dict(run.definition).spec
    for name in spec.order:
        step = steps[name]
        begun, ended = step.started_at, step.ended_at
        seconds = "" if begun is None or ended is None else duration_text(ended - begun)
        result = step.undo_reason or step.reason or ""
        if not result and step.state is StepState.WAITING:
            result = approval_text(run, steps, name)
        if not result and step.output is not None:
            result = as_text(step.output)
        kind = spec.by_name[name].kind
        table.add(name, kind, _state_text(step), step.attempt or None, seconds, one_line(result))
    table.print("no steps")


def _print_end(run: FlowRun, steps: Mapping[str, FlowStep]) -> None:
    _print_steps(run, steps)
    print_line(f"{run.id} is {run.state.value}" + (f": {run.reason}" if run.reason else ""))
    is_asked = any(one.state is StepState.WAITING for one in steps.values())
    hints = {
        FlowState.WAITING: f"longline flow approve {run.id}"
        if is_asked
        else "longline flow list --open, and approve the runs in it that wait",
        FlowState.FAILED: f"longline flow retry {run.id}",
        FlowState.NEEDS_ATTENTION: f"longline flow retry {run.id}",
    }
    if run.state in hints:
        click.echo(f"next: {hints[run.state]}", err=True)
