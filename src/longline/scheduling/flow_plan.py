"""What happens next in a run of a flow: policies on the states of its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from longline.config.expressions import find
from longline.scheduling.flow import FailurePolicy, FlowSpec, StepSpec
from longline.storage.scheduling.flows import FlowState, FlowStep, StepState, UndoState

Steps = Mapping[str, FlowStep]
_DONE = (StepState.COMPLETE, StepState.SKIPPED, StepState.FAILED)
_FALSE: tuple[Any, ...] = (None, False, "", [], {})  # what JMESPath takes as false
_EXPIRED = "it was not approved in time"


@dataclass(slots=True)
class Plan:
    """What is to be done now.

    `starts` are performed, `waits` wait for a person, `skips` and `failures` have their reasons.
    `wake_at` is when something else is due. With `is_over`, no step is left.
    """

    starts: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    skips: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    wake_at: float | None = None
    is_over: bool = False

    @property
    def has_changes(self) -> bool:
        """Whether the states of steps change."""
        return bool(self.starts or self.waits or self.skips or self.failures)

    def wake_by(self, at: float) -> None:
        """Note that something is due at a time."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def plan_steps(
    spec: FlowSpec,
    steps: Steps,
    context: Mapping[str, Any],
    now: float,
    *,
    running: Collection[str] = (),
    stop: str | None = None,
) -> Plan:
    """Decide which steps are started, skipped and so on.

    Args:
        spec: the flow.
        steps: their states.
        context: the values for conditions.
        now: the time.
        running: the steps that this process performs.
        stop: why the run was cancelled; None: it was not.
    """
    plan = Plan()
    failed = _failed(spec, steps)
    is_stopping = stop is not None or (bool(failed) and spec.on_failure != FailurePolicy.CONTINUE)
    for name in spec.order:
        row = steps[name]
        if name in running or row.state in _DONE:
            continue
        if is_stopping:
            _plan_stop(plan, row, stop, failed)
        elif row.state is StepState.RUNNING:  # by a process that is gone
            plan.starts.append(name)
        elif row.state is StepState.WAITING:
            _plan_waiting(plan, row, now)
        elif all(steps[one].state in _DONE for one in spec.parents[name]):
            blockers = [one for one in spec.order if one in failed and one in spec.ancestors(name)]
            _plan_ready(plan, spec.by_name[name], row, context, blockers=blockers, now=now)
    is_done = all(steps[name].state in _DONE for name in spec.order)
    plan.is_over = is_done and not running and not plan.has_changes
    return plan


def _failed(spec: FlowSpec, steps: Steps) -> list[str]:
    return [
        name
        for name in spec.order
        if steps[name].state is StepState.FAILED and not spec.by_name[name].optional
    ]


def _plan_stop(plan: Plan, row: FlowStep, stop: str | None, failed: list[str]) -> None:
    if stop is not None and row.state is StepState.RUNNING:
        plan.failures[row.step] = stop
    elif row.state is StepState.RUNNING:
        plan.starts.append(row.step)  # its effect may be there in part: it is finished first
    elif row.attempt and row.state is StepState.PENDING:  # it waits for another attempt
        plan.failures[row.step] = row.reason or "an attempt failed"
    else:
        plan.skips[row.step] = stop if stop is not None else f"{failed[0]} failed"


def _plan_waiting(plan: Plan, row: FlowStep, now: float) -> None:
    if not row.due_at:
        return
    if row.due_at <= now:
        plan.failures[row.step] = _EXPIRED
    else:
        plan.wake_by(row.due_at)


def _plan_ready(
    plan: Plan,
    step: StepSpec,
    row: FlowStep,
    context: Mapping[str, Any],
    *,
    blockers: list[str],
    now: float,
) -> None:
    """Decide about a pending step whose parents are done."""
    if blockers:
        plan.skips[step.name] = f"{blockers[0]} failed"
        return
    if step.when is not None and not row.attempt:
        try:
            is_wanted = find(step.when, context) not in _FALSE
        except ValueError as error:
            plan.failures[step.name] = str(error)
            return
        if not is_wanted:
            plan.skips[step.name] = "its condition is false"
            return
    if row.due_at > now:
        plan.wake_by(row.due_at)
    elif step.kind == "approve":
        plan.waits.append(step.name)
    else:
        plan.starts.append(step.name)


def end_of(
    spec: FlowSpec, steps: Steps, *, stop: str | None, pivot: str | None
) -> tuple[FlowState, str | None]:
    """Return the state after the last step, and the reason; compensating is one that goes on.

    `pivot` is the pivot that is complete, if there is one.
    """
    failed = _failed(spec, steps)
    bad = [name for name in spec.order if steps[name].state is StepState.FAILED]
    reasons = [f"{name}: {steps[name].reason}" for name in bad]
    if stop is not None:
        reasons.insert(0, stop)
    reason = "; ".join(reasons) or None
    if not failed and stop is None:
        return (FlowState.PARTIAL if bad else FlowState.COMPLETE), reason
    if spec.on_failure is FailurePolicy.COMPENSATE:
        if pivot is None:
            return FlowState.COMPENSATING, reason
        return FlowState.NEEDS_ATTENTION, f"{reason}; after the pivot {pivot}, nothing is undone"
    has_result = any(steps[name].state is StepState.COMPLETE for name in spec.order)
    if spec.on_failure is FailurePolicy.CONTINUE and stop is None and has_result:
        return FlowState.PARTIAL, reason
    return FlowState.FAILED, reason


def next_undo(spec: FlowSpec, steps: Steps) -> str | None:
    """Return the next step to undo, the last one first; None when none is left."""
    for name in reversed(spec.order):
        row = steps[name]
        if row.undo and row.undo_state not in (UndoState.UNDONE, UndoState.FAILED):
            return name
    return None


def end_of_undo(spec: FlowSpec, steps: Steps) -> tuple[FlowState, str | None]:
    """Return the state after the last undo, and the reason."""
    failed = [name for name in spec.order if steps[name].undo_state is UndoState.FAILED]
    if not failed:
        return FlowState.COMPENSATED, None
    reasons = "; ".join(f"{name}: {steps[name].undo_reason}" for name in failed)
    return FlowState.NEEDS_ATTENTION, f"not undone: {reasons}"
