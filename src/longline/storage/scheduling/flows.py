"""Runs of flows and their steps.

One process at a time has the lease of a run; each change is refused once another process has
leased it. What undoing a step needs is stored when the step begins, before its effect. Each change
appends its event in the same transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, func, insert, or_, select, tuple_, update

from longline.core.clock import utc_datetime
from longline.core.errors import ConflictError, NotFoundError, StoreError
from longline.storage.backends import sanitize_text, upsert
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import append_events, event_row
from longline.storage.schema import flow_runs, flow_steps


class FlowState(StrEnum):
    """The state of a run of a flow."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETE = "complete"
    PARTIAL = "partial"
    FAILED = "failed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    NEEDS_ATTENTION = "needs attention"


OPEN_FLOWS = (FlowState.RUNNING, FlowState.WAITING, FlowState.COMPENSATING)
"""The states of runs that have not ended."""


class StepState(StrEnum):
    """The state of a step; whether it was undone is another state."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETE = "complete"
    FAILED = "failed"
    SKIPPED = "skipped"


class UndoState(StrEnum):
    """How far a step was undone."""

    UNDOING = "undoing"
    UNDONE = "undone"
    FAILED = "failed"


class FlowLeaseLost(StoreError):
    """Another process has leased a run of a flow."""

    run: str
    message = "another process is running the flow run {run}"


class UnknownFlowRun(NotFoundError):
    """No run of a flow has this id; `fitting` is how many begin with it."""

    run: str
    fitting: int = 0
    hint = "`longline flow list` lists them."

    @property
    def message(self) -> str:  # type: ignore[override]  # depends on the fields
        if self.fitting:
            return "{fitting} ids of flow runs begin with {run!r}"
        return "there is no flow run {run!r} in this home"


class FlowNotChangeable(ConflictError):
    """What was asked for cannot be done with a run of a flow as it is."""

    run: str
    problem: str
    message = "flow run {run}: {problem}"
    hint = "`longline flow show {run}` shows its steps."


@dataclass(frozen=True, slots=True)
class NewFlowRun:
    """A run to create; with a `key`, it is created once, however often it is requested.

    `steps` are the names of its steps. `root` is the run that contains it, if one does.
    """

    flow: str
    definition: Mapping[str, Any]
    hash: str
    steps: Sequence[str]
    params: Mapping[str, Any]
    origin: str
    at: float
    key: str | None = None
    root: str | None = None


@dataclass(frozen=True, slots=True)
class FlowRun:
    """A run as it is stored."""

    id: str
    key: str | None
    root: str
    flow: str
    is_undoable: bool
    definition: Mapping[str, Any]
    hash: str
    params: Mapping[str, Any]
    origin: str
    state: FlowState
    reason: str | None
    stop: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    due_at: float | None
    owner: str | None
    until: float | None
    fence: int

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in OPEN_FLOWS

    @property
    def lease(self) -> FlowLease:
        """The lease of its present owner."""
        return FlowLease(self.id, self.fence)


@dataclass(frozen=True, slots=True)
class FlowLease:
    """The right to change a run: `fence` grows with each lease, so an older one is refused."""

    run: str
    fence: int


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A step of a run as it is stored; `undo` has what undoing it needs, in order."""

    run_id: str
    step: str
    state: StepState
    attempt: int
    starts: int
    due_at: float
    input_hash: str | None
    output: Any
    reason: str | None
    started_at: float | None
    ended_at: float | None
    undo: Sequence[Mapping[str, Any]]
    undo_state: UndoState | None
    undo_attempt: int
    undo_reason: str | None


@dataclass(frozen=True, slots=True)
class Approval:
    """The decision of a person about a step that waits for it."""

    is_approved: bool
    by: str
    comment: str | None = None


RunList = list[FlowRun]  # spelled out here: `Flows.list` hides the builtin below it


class Flows(Repository):
    """All runs of flows."""

    # ------------------------------------------------------------ runs

    @writes
    def create(self, connection: Connection, new: NewFlowRun) -> FlowRun:
        """Create a run, or return the one with the same key."""
        prefix = f"{new.flow}-{utc_datetime(new.at):%Y%m%d-%H%M%S}"
        name = f"{prefix}-{secrets.token_hex(2)}"
        while connection.scalar(select(flow_runs.c.id).where(flow_runs.c.id == name)) is not None:
            name = f"{prefix}-{secrets.token_hex(2)}"
        row = {
            "id": name,
            "key": new.key,
            "root": new.root or name,
            "flow": new.flow,
            "is_undoable": True,
            "definition": dict(new.definition),
            "hash": new.hash,
            "params": dict(new.params),
            "origin": new.origin,
            "state": FlowState.RUNNING,
            "created_at": new.at,
            "fence": 0,
        }
        added = (
            upsert(connection, flow_runs).values(row).on_conflict_do_nothing(index_elements=["key"])
        )
        if connection.scalar(added.returning(flow_runs.c.id)) is None:
            return _run_where(connection, flow_runs.c.key == new.key)
        steps = [
            {"run_id": name, "step": step, "state": StepState.PENDING, "attempt": 0}
            | {"starts": 0, "due_at": 0.0, "undo": [], "undo_attempt": 0}
            for step in new.steps
        ]
        connection.execute(insert(flow_steps), steps)
        data = {"run": name, "flow": new.flow, "hash": new.hash, "origin": new.origin}
        params = row["params"]
        append_events(connection, [event_row(None, new.at, "flow.created", params=params, **data)])
        return _run_where(connection, flow_runs.c.id == name)

    @reads
    def get(self, connection: Connection, run: str) -> FlowRun:
        """Return a run by its id, or by a prefix of it that only one run has.

        Raises:
            UnknownFlowRun: no run or several runs match.
        """
        return _find_run(connection, run)

    @reads
    def list(
        self,
        connection: Connection,
        *,
        flow: str | None = None,
        origin: str | None = None,
        is_open: bool = False,
        states: Collection[str] = (),
        before: tuple[float, str] | None = None,
        limit: int | None = 50,
    ) -> RunList:
        """Return the newest runs first; `before` is the creation time and the id of the last."""
        query = select(flow_runs).order_by(flow_runs.c.created_at.desc(), flow_runs.c.id.desc())
        if flow is not None:
            query = query.where(flow_runs.c.flow == flow)
        if origin is not None:
            query = query.where(flow_runs.c.origin == origin)
        if is_open:
            query = query.where(flow_runs.c.state.in_(OPEN_FLOWS))
        if states:
            query = query.where(flow_runs.c.state.in_([*states]))
        if before is not None:
            query = query.where(tuple_(flow_runs.c.created_at, flow_runs.c.id) < tuple_(*before))
        return [_run_of(row) for row in connection.execute(query.limit(limit))]

    @reads
    def steps(self, connection: Connection, run: str) -> dict[str, FlowStep]:
        """Return the steps of a run by name."""
        return _steps_of(connection, run)

    # ------------------------------------------------------------ leases

    @writes
    def lease(
        self,
        connection: Connection,
        owner: str,
        at: float,
        until: float,
        *,
        dead: Sequence[str] = (),
        root: str | None = None,
    ) -> RunList:
        """Lease the open runs that no live process has; of `root`, only it and what it contains.

        A waiting run is leased when it is due.
        """
        query = update(flow_runs).where(*_leasable(at, dead))
        if root is not None:
            query = query.where(flow_runs.c.root == root)
        started = func.coalesce(flow_runs.c.started_at, at)
        changed = query.values(
            owner=owner, until=until, fence=flow_runs.c.fence + 1, started_at=started
        )
        found = [_run_of(row) for row in connection.execute(changed.returning(flow_runs))]
        first = [run for run in found if run.fence == 1]
        append_events(
            connection,
            [event_row(None, at, "flow.running", run=run.id, flow=run.flow) for run in first],
        )
        return sorted(found, key=lambda run: (run.created_at, run.id))

    @writes
    def renew(self, connection: Connection, owner: str, until: float) -> frozenset[FlowLease]:
        """Renew all leases of a process; return those that it still has."""
        renewed = update(flow_runs).where(flow_runs.c.owner == owner).values(until=until)
        rows = connection.execute(renewed.returning(flow_runs.c.id, flow_runs.c.fence))
        return frozenset(FlowLease(row.id, row.fence) for row in rows)

    @writes
    def release(self, connection: Connection, leases: Iterable[FlowLease]) -> None:
        """Give up leases, so that another process can continue the runs immediately."""
        for lease in leases:
            is_same = (flow_runs.c.id == lease.run) & (flow_runs.c.fence == lease.fence)
            connection.execute(update(flow_runs).where(is_same).values(owner=None, until=None))

    @reads
    def owners(self, connection: Connection) -> frozenset[str]:
        """Return the processes that have leases."""
        is_open = flow_runs.c.state.in_(OPEN_FLOWS)
        owners = connection.scalars(select(flow_runs.c.owner).where(is_open).distinct())
        return frozenset(owner for owner in owners if owner is not None)

    @reads
    def is_leasable(self, connection: Connection, at: float, dead: Sequence[str] = ()) -> bool:
        """Return whether `lease` would lease a run, of any root."""
        query = select(flow_runs.c.id).where(*_leasable(at, dead)).limit(1)
        return connection.scalar(query) is not None

    @reads
    def is_active(self, connection: Connection) -> bool:
        """Return whether a run is performed or undone, or would be by a live process."""
        states = (FlowState.RUNNING, FlowState.COMPENSATING)
        query = select(flow_runs.c.id).where(flow_runs.c.state.in_(states)).limit(1)
        return connection.scalar(query) is not None

    # ------------------------------------------------------------ changes by the owner of a lease

    @writes
    def change_state(
        self,
        connection: Connection,
        lease: FlowLease,
        state: FlowState,
        at: float,
        *,
        reason: str | None = None,
        due_at: float | None = None,
    ) -> None:
        """Set the state of a run; one that ends or waits is released."""
        run = _locked(connection, lease)
        values: dict[str, Any] = {"state": state, "reason": _text(reason), "due_at": due_at}
        if state not in (FlowState.RUNNING, FlowState.COMPENSATING):
            values |= {"owner": None, "until": None}
        values["ended_at"] = None if state in OPEN_FLOWS else at
        connection.execute(update(flow_runs).where(flow_runs.c.id == lease.run).values(**values))
        if state not in OPEN_FLOWS:
            _wake_parents(connection, run, at)
        name = f"flow.{state.value.replace(' ', '_')}"
        event = event_row(None, at, name, run=run.id, flow=run.flow, reason=_text(reason))
        append_events(connection, [event])

    @writes
    def begin_step(
        self,
        connection: Connection,
        lease: FlowLease,
        step: str,
        at: float,
        *,
        input_hash: str,
        undo: Mapping[str, Any] | None,
    ) -> FlowStep:
        """Note that a step begins, and what undoing it needs; call it before the effect.

        After a crash the same attempt begins again. Of several references to the same `place`,
        the first is kept: it describes what was there before.
        """
        found = _locked_step(connection, lease, step)
        is_again = found.state is StepState.RUNNING
        references = [*found.undo]
        if undo is not None and all(one["place"] != undo["place"] for one in references):
            references.append(undo)
        values = {
            "state": StepState.RUNNING,
            "attempt": found.attempt + (not is_again),
            "starts": found.starts + 1 if is_again else 1,
            "input_hash": input_hash,
            "reason": None,
            "started_at": found.started_at if is_again else at,
            "ended_at": None,
            "undo": [dict(one) for one in references],
        }
        return _change_step(
            connection, lease, step, values, at=at, event="" if is_again else "step.running"
        )

    @writes
    def wait_for_approval(
        self, connection: Connection, lease: FlowLease, step: str, at: float, due_at: float | None
    ) -> FlowStep:
        """Note that a step waits for a person, at most until `due_at`."""
        values = {
            "state": StepState.WAITING,
            "attempt": 1,
            "due_at": due_at or 0.0,
            "started_at": at,
        }
        return _change_step(connection, lease, step, values, at=at, event="step.waiting")

    @writes
    def complete_step(
        self, connection: Connection, lease: FlowLease, step: str, at: float, output: Any
    ) -> FlowStep:
        """Note that a step is complete, with its output."""
        values = {"state": StepState.COMPLETE, "output": output, "ended_at": at, "reason": None}
        return _change_step(connection, lease, step, values, at=at, event="step.complete")

    @writes
    def fail_step(
        self,
        connection: Connection,
        lease: FlowLease,
        step: str,
        at: float,
        reason: str,
        *,
        attempt: int,
        retry_at: float | None = None,
    ) -> FlowStep:
        """Note that an attempt has failed; without `retry_at`, there is no further one."""
        is_last = retry_at is None
        values = {
            "attempt": attempt,
            "state": StepState.FAILED if is_last else StepState.PENDING,
            "reason": _text(reason),
            "ended_at": at,
            "due_at": retry_at or 0.0,
        }
        more = {} if is_last else {"retry_at": retry_at}
        return _change_step(connection, lease, step, values, at=at, event="step.failed", **more)

    @writes
    def skip_step(
        self, connection: Connection, lease: FlowLease, step: str, at: float, reason: str
    ) -> FlowStep:
        """Note that a step is not run."""
        values = {"state": StepState.SKIPPED, "reason": _text(reason), "ended_at": at}
        return _change_step(connection, lease, step, values, at=at, event="step.skipped")

    @writes
    def begin_undo(
        self, connection: Connection, lease: FlowLease, step: str, at: float
    ) -> FlowStep:
        """Note that a step is being undone."""
        found = _locked_step(connection, lease, step)
        is_again = found.undo_state is UndoState.UNDOING
        values = {
            "undo_state": UndoState.UNDOING,
            "undo_attempt": found.undo_attempt + (not is_again),
            "undo_reason": None,
        }
        return _change_step(
            connection, lease, step, values, at=at, event="" if is_again else "step.undoing"
        )

    @writes
    def end_undo(
        self,
        connection: Connection,
        lease: FlowLease,
        step: str,
        at: float,
        *,
        reason: str | None = None,
        retry_at: float | None = None,
    ) -> FlowStep:
        """Note that a step was undone, or why it could not be; it is tried again at `retry_at`."""
        state = UndoState.UNDONE if reason is None else UndoState.FAILED
        values = {
            "undo_state": None if retry_at is not None else state,
            "undo_reason": _text(reason),
            "due_at": retry_at or 0.0,
        }
        name = "step.undone" if reason is None else "step.undo_failed"
        more = {} if retry_at is None else {"retry_at": retry_at}
        return _change_step(connection, lease, step, values, at=at, event=name, **more)

    @reads
    def undoable_before(self, connection: Connection, run: FlowRun) -> RunList:
        """Return the ended runs of a flow before this one that can be undone, with sub-flows."""
        older = select(flow_runs.c.id).where(
            flow_runs.c.flow == run.flow,
            flow_runs.c.is_undoable.is_(True),
            flow_runs.c.created_at <= run.created_at,
            flow_runs.c.id != run.id,
            flow_runs.c.id == flow_runs.c.root,
            flow_runs.c.state.not_in(OPEN_FLOWS),
        )
        query = select(flow_runs).where(flow_runs.c.root.in_(older))
        return [_run_of(row) for row in connection.execute(query)]

    @writes
    def end_undoable(self, connection: Connection, runs: Iterable[str]) -> None:
        """Note that runs cannot be undone any more."""
        chosen = update(flow_runs).where(flow_runs.c.id.in_([*runs]))
        connection.execute(chosen.values(is_undoable=False))

    # ------------------------------------------------------------ changes by a person

    @writes
    def approve(
        self, connection: Connection, run: str, step: str | None, approval: Approval, at: float
    ) -> FlowStep:
        """Decide about a step that waits for it, or the only one that does.

        Raises:
            UnknownFlowRun: there is no such run.
            FlowNotChangeable: no such step waits.
        """
        found = _locked_for_person(connection, run)
        waiting = [
            one
            for one in _steps_of(connection, found.id).values()
            if one.state is StepState.WAITING and step in (None, one.step)
        ]
        if len(waiting) != 1 or found.state not in OPEN_FLOWS:
            names = ", ".join(one.step for one in waiting)
            problem = f"several steps wait for approval: {names}"
            if not waiting:
                one_step = "no step waits" if step is None else f"step {step!r} does not wait"
                problem = f"{one_step} for approval"
            raise FlowNotChangeable(found.id, problem)
        (one,) = waiting
        output = {"by": approval.by, "comment": approval.comment}
        values: dict[str, Any] = {"state": StepState.COMPLETE, "output": output, "ended_at": at}
        if not approval.is_approved:
            why = f": {approval.comment}" if approval.comment else ""
            reason = _text(f"rejected by {approval.by}{why}")
            values |= {"state": StepState.FAILED, "reason": reason}
        _reopen(connection, found, at, FlowState.RUNNING, "approve", steps=[one.step])
        name = "step.complete" if approval.is_approved else "step.failed"
        return _change_step(connection, found.lease, one.step, values, at=at, event=name)

    @writes
    def cancel(self, connection: Connection, run: str, reason: str, at: float) -> FlowRun:
        """Ask the process that runs a flow to stop it; its failure policy then applies.

        Raises:
            UnknownFlowRun: there is no such run.
            FlowNotChangeable: it has ended, or is being undone.
        """
        found = _locked_for_person(connection, run)
        if found.state not in (FlowState.RUNNING, FlowState.WAITING):
            raise FlowNotChangeable(found.id, f"it is {found.state} and cannot be cancelled")
        _reopen(connection, found, at, FlowState.RUNNING, "cancel", stop=_text(reason))
        return _find_run(connection, found.id)

    @writes
    def retry(self, connection: Connection, run: str, at: float) -> FlowRun:
        """Run the failed and skipped steps of a run again, or undo again what could not be undone.

        Raises:
            UnknownFlowRun: there is no such run.
            FlowNotChangeable: it has not ended, or nothing of it failed.
        """
        found = _locked_for_person(connection, run)
        steps = _steps_of(connection, found.id).values()
        undos = [one.step for one in steps if one.undo_state is UndoState.FAILED]
        if undos:
            return _retry_undo(connection, found, undos, at)
        if found.state not in (FlowState.PARTIAL, FlowState.FAILED, FlowState.NEEDS_ATTENTION):
            raise FlowNotChangeable(found.id, f"it is {found.state}: there is nothing to retry")
        again = (StepState.FAILED, StepState.SKIPPED)
        names = [one.step for one in steps if one.state in again]
        _reset(connection, found.id, names)
        _reopen(connection, found, at, FlowState.RUNNING, "retry", steps=names, stop=None)
        return _find_run(connection, found.id)

    @writes
    def undo(self, connection: Connection, run: str, at: float) -> FlowRun:
        """Undo the steps of a run that has ended.

        Raises:
            UnknownFlowRun: there is no such run.
            FlowNotChangeable: it has not ended, was undone, or a later run is complete.
        """
        found = _locked_for_person(connection, run)
        if found.state in OPEN_FLOWS or found.state is FlowState.COMPENSATED:
            raise FlowNotChangeable(found.id, f"it is {found.state} and cannot be undone")
        if not found.is_undoable:
            raise FlowNotChangeable(found.id, _NOT_UNDOABLE)
        steps = _steps_of(connection, found.id).values()
        names = [one.step for one in steps if one.undo_state is UndoState.FAILED]
        return _retry_undo(connection, found, names, at)

    @writes
    def upgrade(
        self,
        connection: Connection,
        run: str,
        definition: Mapping[str, Any],
        new_hash: str,
        *,
        steps: Sequence[str],
        again: Collection[str],
        at: float,
        dead: Collection[str] = (),
    ) -> FlowRun:
        """Replace the definition of a run; `again` are the steps that are run again.

        `dead` are owners of leases whose processes have ended.

        Raises:
            UnknownFlowRun: there is no such run.
            FlowNotChangeable: a live process runs it, or it was undone.
        """
        found = _locked_for_person(connection, run)
        stored = _steps_of(connection, found.id)
        if found.state in (FlowState.COMPENSATING, FlowState.COMPENSATED):
            raise FlowNotChangeable(found.id, f"it is {found.state} and cannot be upgraded")
        if found.owner is not None and found.owner not in dead and (found.until or 0.0) > at:
            raise FlowNotChangeable(
                found.id, "another process is running it; stop that process first"
            )
        for name in steps:
            if name not in stored:
                row = {"run_id": found.id, "step": name, "state": StepState.PENDING, "attempt": 0}
                row |= {"starts": 0, "due_at": 0.0, "undo": [], "undo_attempt": 0}
                connection.execute(insert(flow_steps), row)
        _reset(connection, found.id, [name for name in again if name in stored])
        connection.execute(
            update(flow_runs)
            .where(flow_runs.c.id == found.id)
            .values(definition=dict(definition), hash=new_hash)
        )
        names = sorted(again)
        more = {"hash": new_hash}
        _reopen(connection, found, at, FlowState.RUNNING, "upgrade", steps=names, stop=None, **more)
        return _find_run(connection, found.id)


def cancel_flow(connection: Connection, run: str, reason: str, at: float) -> None:
    """Cancel a run in the caller's transaction; nothing happens if it has ended."""
    found = _locked_for_person(connection, run)
    if found.state in (FlowState.RUNNING, FlowState.WAITING):
        _reopen(connection, found, at, FlowState.RUNNING, "cancel", stop=_text(reason))


def _leasable(at: float, dead: Sequence[str]) -> tuple[Any, ...]:
    """Return the conditions of runs that a process may lease."""
    is_free = or_(
        flow_runs.c.owner.is_(None), flow_runs.c.until < at, flow_runs.c.owner.in_([*dead])
    )
    is_due = or_(flow_runs.c.state != FlowState.WAITING, flow_runs.c.due_at <= at)
    return flow_runs.c.state.in_(OPEN_FLOWS), is_free, is_due


_NOT_UNDOABLE = "a later run of the flow is complete, so the data that this one replaced is gone"
_RUN_COLUMNS = tuple(one.name for one in fields(FlowRun))


def _text(text: str | None) -> str | None:
    return None if text is None else sanitize_text(text).replace("\x00", "\ufffd")


def _run_of(row: Row[Any]) -> FlowRun:
    values = {name: getattr(row, name) for name in _RUN_COLUMNS}
    return FlowRun(**{**values, "state": FlowState(row.state)})


def _run_where(connection: Connection, clause: Any) -> FlowRun:
    return _run_of(connection.execute(select(flow_runs).where(clause)).one())


def _find_run(connection: Connection, run: str) -> FlowRun:
    query = select(flow_runs.c.id).where(flow_runs.c.id.startswith(run, autoescape=True))
    names = list(connection.scalars(query))
    if run in names:
        names = [run]
    if len(names) != 1 or not run:
        raise UnknownFlowRun(run, len(names))
    return _run_where(connection, flow_runs.c.id == names[0])


def _locked(connection: Connection, lease: FlowLease) -> FlowRun:
    """Return a run, locked until the transaction ends; raise if the lease is outdated."""
    query = select(flow_runs).where(
        flow_runs.c.id == lease.run,
        flow_runs.c.fence == lease.fence,
        flow_runs.c.owner.is_not(None),
    )
    row = connection.execute(query.with_for_update(key_share=True)).one_or_none()
    if row is None:
        raise FlowLeaseLost(lease.run)
    return _run_of(row)


def _locked_for_person(connection: Connection, run: str) -> FlowRun:
    name = _find_run(connection, run).id
    query = select(flow_runs).where(flow_runs.c.id == name).with_for_update(key_share=True)
    return _run_of(connection.execute(query).one())


def _steps_of(connection: Connection, run: str) -> dict[str, FlowStep]:
    rows = connection.execute(select(flow_steps).where(flow_steps.c.run_id == run))
    return {row.step: _step_of(row) for row in rows}


def _step_of(row: Row[Any]) -> FlowStep:
    undo_state = None if row.undo_state is None else UndoState(row.undo_state)
    values = {"state": StepState(row.state), "undo": row.undo or [], "undo_state": undo_state}
    return FlowStep(**{**row._asdict(), **values})


def _is_step(run: str, step: str) -> Any:
    return (flow_steps.c.run_id == run) & (flow_steps.c.step == step)


def _locked_step(connection: Connection, lease: FlowLease, step: str) -> FlowStep:
    _locked(connection, lease)
    return _step_of(connection.execute(select(flow_steps).where(_is_step(lease.run, step))).one())


def _change_step(
    connection: Connection,
    lease: FlowLease,
    step: str,
    values: Mapping[str, Any],
    *,
    at: float,
    event: str,
    **data: Any,
) -> FlowStep:
    """Change a step and append an event; an empty name of it is none."""
    # A person changes a run without its lease.
    is_current = (flow_runs.c.id == lease.run) & (flow_runs.c.fence == lease.fence)
    query = select(flow_runs.c.flow).where(is_current).with_for_update(key_share=True)
    flow = connection.scalar(query)
    if flow is None:
        raise FlowLeaseLost(lease.run)
    changed = update(flow_steps).where(_is_step(lease.run, step)).values(**values)
    found = _step_of(connection.execute(changed.returning(flow_steps)).one())
    if event:
        is_undo = event.startswith("step.und")
        reason = found.undo_reason if is_undo else found.reason
        about = {"run": lease.run, "flow": flow, "step": step, "reason": reason}
        attempt = found.undo_attempt if is_undo else found.attempt
        append_events(connection, [event_row(None, at, event, attempt=attempt, **about, **data)])
    return found


def _reset(connection: Connection, run: str, steps: Collection[str]) -> None:
    """Make steps pending; what undoing them needs is kept."""
    pending = {"state": StepState.PENDING, "attempt": 0, "starts": 0, "due_at": 0.0}
    pending |= {"reason": None, "ended_at": None}
    is_named = (flow_steps.c.run_id == run) & flow_steps.c.step.in_([*steps])
    connection.execute(update(flow_steps).where(is_named).values(**pending))


def _retry_undo(connection: Connection, run: FlowRun, steps: Collection[str], at: float) -> FlowRun:
    is_named = (flow_steps.c.run_id == run.id) & flow_steps.c.step.in_([*steps])
    again = {"undo_state": None, "undo_attempt": 0, "due_at": 0.0}
    connection.execute(update(flow_steps).where(is_named).values(**again))
    _reopen(connection, run, at, FlowState.COMPENSATING, "undo", steps=sorted(steps))
    return _find_run(connection, run.id)


def _reopen(
    connection: Connection,
    run: FlowRun,
    at: float,
    state: FlowState,
    action: str,
    *,
    steps: Sequence[str] = (),
    **values: Any,
) -> None:
    """Let a run go on in a state; its lease, if it has one, stays valid."""
    _wake_parents(connection, run, at)
    changed = {"state": state, "ended_at": None, "due_at": None, **values}
    if not (action == "cancel" and run.state is FlowState.RUNNING):
        changed["reason"] = None
    stored = {name: value for name, value in changed.items() if name != "hash"}
    connection.execute(update(flow_runs).where(flow_runs.c.id == run.id).values(**stored))
    data: dict[str, Any] = {"run": run.id, "flow": run.flow, "action": action}
    data["steps"] = list(steps)
    if "hash" in values:
        data["hash"] = values["hash"]
    append_events(connection, [event_row(None, at, "flow.reopened", **data)])


def _wake_parents(connection: Connection, run: FlowRun, at: float) -> None:
    """Let the runs go on that wait only because a run that they contain does."""
    origin = run.origin
    while origin.startswith("flow/"):
        parent = origin.split("/")[1]
        is_waiting = (flow_runs.c.id == parent) & (flow_runs.c.state == FlowState.WAITING)
        running = {"state": FlowState.RUNNING, "due_at": None}
        woken = update(flow_runs).where(is_waiting).values(**running).returning(flow_runs.c.flow)
        for flow in connection.scalars(woken):
            append_events(connection, [event_row(None, at, "flow.running", run=parent, flow=flow)])
        found = connection.scalar(select(flow_runs.c.origin).where(flow_runs.c.id == parent))
        origin = found or ""
