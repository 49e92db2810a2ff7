"""Run flows: lease their runs, perform their steps, and undo them after a failure.

Everything that a run needs is in the database, so that another process continues it after a kill.
Steps that do not wait for each other are performed concurrently.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from longline.config.settings import Settings
from longline.core.clock import Clock, backoff, sleep_or_wake
from longline.core.errors import LonglineError, StoreError, error_text
from longline.core.logging import LogContext, redact_text
from longline.engine.owner import dead_among, this_run
from longline.engine.runtime import HEARTBEAT, LEASE
from longline.engine.webhooks import WebhookSender
from longline.scheduling.flow import FrozenFlow, Retry, load_flow
from longline.scheduling.flow_plan import end_of, end_of_undo, next_undo, plan_steps
from longline.scheduling.flow_steps import (
    POLL,
    Enrich,
    RunLaunch,
    StepRun,
    StepTools,
    abort,
    context_of,
    drop_references,
    find_reference,
    passed_pivot,
    perform,
    undo_step,
)
from longline.storage.scheduling.flows import (
    FlowLease,
    FlowLeaseLost,
    FlowNotChangeable,
    FlowRun,
    FlowState,
    FlowStep,
    NewFlowRun,
    StepState,
)
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)
_MOST_STARTS = 10  # of one attempt: after that, the step is what ends the processes


async def start_flow(
    store: Store,
    flow: FrozenFlow,
    params: Mapping[str, Any],
    *,
    at: float,
    origin: str,
    key: str | None = None,
) -> FlowRun:
    """Create a run of a flow, which a `FlowRunner` then performs; with a key, only once.

    Raises:
        BadOption: there is no such parameter.
    """
    given = flow.check_params(params)
    return await store.flows.create(
        NewFlowRun(
            flow=flow.name,
            definition=flow.as_dict(),
            hash=flow.hash,
            steps=flow.spec.order,
            params=given,
            origin=origin,
            at=at,
            key=key,
        )
    )


async def upgrade_from_file(
    store: Store, settings: Settings, run: FlowRun, step: str, at: float
) -> FlowRun:
    """Read the file of a run's flow again, and run a step and all that follow it again.

    Raises:
        FlowNotChangeable: as `upgrade_run`, or its definition is not in a file.
        BadFile: the file is invalid.
    """
    file = FrozenFlow.from_dict(run.definition).file
    if file is None:
        raise FlowNotChangeable(run.id, "its definition is not in a file")
    flow = await asyncio.to_thread(load_flow, file, settings)
    return await upgrade_run(store, run, flow, step, at)


def check_open(run: FlowRun) -> None:
    """Check that a run can be continued.

    Raises:
        FlowNotChangeable: it has ended.
    """
    if not run.is_open:
        raise FlowNotChangeable(run.id, f"it is {run.state}: there is nothing to resume")


async def upgrade_run(
    store: Store, run: FlowRun, flow: FrozenFlow, step: str, at: float
) -> FlowRun:
    """Give a run another definition, and run a step and all that follow it again.

    Failed and skipped steps are run again, too. What was kept to undo steps stays.

    Raises:
        FlowNotChangeable: there is no such step, or a step that is not run again has changed.
    """
    old = FrozenFlow.from_dict(run.definition)
    if step not in flow.spec.by_name:
        raise FlowNotChangeable(run.id, f"the changed flow has no step {step!r}")
    again = {step, *flow.spec.descendants(step)}
    for name in flow.spec.order:
        if name not in again and _described(old, name) != _described(flow, name):
            problem = f"step {name!r} has changed as well; name it, or an earlier one"
            raise FlowNotChangeable(run.id, problem)
    stored = await store.flows.steps(run.id)
    bad = (StepState.FAILED, StepState.SKIPPED)
    again |= {name for name, row in stored.items() if row.state in bad}
    return await store.flows.upgrade(
        run.id,
        flow.as_dict(),
        flow.hash,
        steps=flow.spec.order,
        again=again & {*flow.spec.order},
        at=at,
        dead=dead_among(await store.flows.owners()),
    )


def _described(flow: FrozenFlow, name: str) -> Any:
    step = flow.spec.by_name.get(name)
    if step is None:
        return None
    values = step.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return values, flow.spec.parents[name], flow.resolved.get(name)


async def perform_run(
    runner: FlowRunner,
    store: Store,
    run: str,
    *,
    is_stopping: Callable[[], bool] = lambda: False,
    on_look: Callable[[FlowRun], Awaitable[None]] | None = None,
) -> FlowRun:
    """Perform a run until it ends, waits for a person, or `is_stopping`; return it.

    If another process has it, wait for that one. `on_look` is called about once per second.
    """
    while True:
        delay = await runner.tick()
        found = await store.flows.get(run)
        if on_look is not None:
            await on_look(found)
        # One that waits has an owner again when a timeout is over.
        waits = found.state is FlowState.WAITING and found.owner is None
        if waits or not found.is_open or is_stopping():
            return found
        await runner.wait(POLL if delay is None else delay)


class FlowRunner:
    """Performs the open runs of a database: an async context manager.

    Several processes may do so; each run is performed by one of them. At its end, the runs are
    released to others.

    Args:
        store: the database.
        clock: the time; on a cluster, a `SharedClock`.
        settings: of the home.
        sender: sends to webhooks.
        enrich: runs enrichment tasks.
        run_launch: runs launches of its steps in this process; None: an executor does.
        root: perform only this run, and those that it contains.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: Settings,
        *,
        sender: WebhookSender,
        enrich: Enrich,
        run_launch: RunLaunch | None = None,
        root: str | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._root = root
        self._owner = this_run()
        self._tools = StepTools(
            store, clock, settings, self._owner, sender, enrich, self._lease_runs, run_launch
        )
        self._group = asyncio.TaskGroup()
        self._drivers: dict[FlowLease, asyncio.Task[None]] = {}
        self._ended = asyncio.Event()
        self._renewed_at = -LEASE

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leases = list(self._drivers)
        for task in self._drivers.values():
            task.cancel()
        await self._group.__aexit__(kind, error, trace)
        with contextlib.suppress(StoreError):  # they expire
            await self._store.flows.release(leases)

    @property
    def running(self) -> int:
        """How many runs it performs now."""
        return len(self._drivers)

    async def tick(self) -> float | None:
        """Renew leases and begin to perform runs; return the seconds until the next call is due.

        Raises:
            StoreError: the database cannot be used.
        """
        now = self._clock.now()
        if not 0 <= now - self._renewed_at < HEARTBEAT:
            await self._renew(now)
            self._renewed_at = now
        await self._lease_runs()
        return POLL

    async def _renew(self, now: float) -> None:
        if self._drivers:
            kept = await self._store.flows.renew(self._owner, now + LEASE)
            for lease, task in self._drivers.items():
                if lease not in kept and not task.done():
                    _LOG.warning("the lease of flow run %s was lost", lease.run)
                    task.cancel()
        if self._tools.run_launch is not None:
            await self._store.launches.renew(self._owner, now + LEASE)
            dead = dead_among(await self._store.launches.owners())
            await self._store.launches.reclaim(now, dead)

    async def wait(self, seconds: float) -> None:
        """Wait, but not longer than until a run ends or waits."""
        await sleep_or_wake(seconds, self._ended)
        self._ended.clear()

    async def _lease_runs(self) -> None:
        now = self._clock.now()
        dead = dead_among(await self._store.flows.owners())
        if not await self._store.flows.is_leasable(now, dead):
            return
        found = await self._store.flows.lease(
            self._owner, now, now + LEASE, dead=dead, root=self._root
        )
        for run in found:
            with LogContext(flow=run.id):  # for the whole task
                self._drivers[run.lease] = self._group.create_task(self._drive(run))

    async def _drive(self, run: FlowRun) -> None:
        try:
            await _Driver(self._tools, run).drive()
        except* StoreError as several:
            _LOG.warning("this process stops flow run %s: %s", run.id, several.exceptions[0])
            with contextlib.suppress(StoreError):
                await self._store.flows.release([run.lease])
        except* Exception as several:  # noqa: BLE001  # the edge of a run: the others go on
            _LOG.exception("flow run %s failed", run.id)
            problem = f"internal error: {several.exceptions[0]!r}"
            with contextlib.suppress(StoreError):
                await self._store.flows.change_state(
                    run.lease, FlowState.NEEDS_ATTENTION, self._clock.now(), reason=problem
                )
        finally:
            self._drivers.pop(run.lease, None)
            self._ended.set()


class _Driver:
    """Performs one run while this process has its lease."""

    def __init__(self, tools: StepTools, run: FlowRun) -> None:
        self._tools = tools
        self._flows = tools.store.flows
        self._lease = run.lease
        self._flow = FrozenFlow.from_dict(run.definition)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._limits: dict[str, asyncio.Timeout] = {}
        self._resting: set[str] = set()  # steps that only wait for a person
        self._stop: str | None = None
        self._wake = asyncio.Event()

    async def drive(self) -> None:
        """Perform steps until the run ends or waits.

        Raises:
            ExceptionGroup: of a StoreError: another process has the run, or the database is away.
        """
        async with asyncio.TaskGroup() as group:
            while (pause := await self._advance(group)) is not None:
                await sleep_or_wake(pause, self._wake)
                self._wake.clear()
            for task in self._tasks.values():
                task.cancel()

    async def _advance(self, group: asyncio.TaskGroup) -> float | None:
        """Do what is due; return the seconds until the next look, None at the end."""
        run = await self._flows.get(self._lease.run)
        if run.fence != self._lease.fence:
            raise FlowLeaseLost(run.id)
        # Before the steps are read: one that ends meanwhile is not taken for one of a dead process.
        running = frozenset(self._tasks)
        steps = await self._flows.steps(run.id)
        if run.state is FlowState.COMPENSATING:
            return await self._advance_undo(group, run, steps)
        return await self._advance_steps(group, run, steps, running)

    # ------------------------------------------------------------ forward

    async def _advance_steps(
        self,
        group: asyncio.TaskGroup,
        run: FlowRun,
        steps: Mapping[str, FlowStep],
        running: frozenset[str],
    ) -> float | None:
        now, spec = self._tools.clock.now(), self._flow.spec
        if run.stop is not None and self._stop is None:
            self._stop = run.stop
            for limit in self._limits.values():
                _expire(limit)
        context = context_of(run, self._flow, steps)
        plan = plan_steps(spec, steps, context, now, running=running, stop=run.stop)
        for name, reason in plan.skips.items():
            await self._flows.skip_step(self._lease, name, now, reason)
        for name, reason in plan.failures.items():
            await abort(self._step_run(run, name, context))
            await self._flows.fail_step(
                self._lease, name, now, reason, attempt=max(1, steps[name].attempt)
            )
        for name in plan.waits:
            timeout = spec.by_name[name].timeout
            due_at = None if timeout is None else now + timeout
            await self._flows.wait_for_approval(self._lease, name, now, due_at)
        for name in plan.starts:
            one = self._step_run(run, name, context)
            self._tasks[name] = group.create_task(self._perform(one, steps[name]))
        if plan.is_over:
            return await self._end(run, steps)
        if plan.has_changes:
            return 0.0
        if running <= self._resting and self._needs_person(steps, running, now):
            due_at = self._next_limit(steps, running, plan.wake_at)
            await self._flows.change_state(self._lease, FlowState.WAITING, now, due_at=due_at)
            return None
        return POLL if plan.wake_at is None else min(POLL, max(0.0, plan.wake_at - now))

    def _needs_person(
        self, steps: Mapping[str, FlowStep], running: frozenset[str], now: float
    ) -> bool:
        """Return whether only a person can make the run go on."""
        rows = list(steps.values())
        if any(row.state is StepState.PENDING and row.due_at > now for row in rows):
            return False  # it waits for its next attempt
        return bool(running) or any(row.state is StepState.WAITING for row in rows)

    def _next_limit(
        self, steps: Mapping[str, FlowStep], running: frozenset[str], wake_at: float | None
    ) -> float | None:
        """Return when the first timeout of a step ends; None: none has one."""
        limits = [] if wake_at is None else [wake_at]
        for name in running:
            timeout = self._flow.spec.by_name[name].timeout
            limits += [] if timeout is None else [(steps[name].started_at or 0.0) + timeout]
        return min(limits, default=None)

    async def _end(self, run: FlowRun, steps: Mapping[str, FlowStep]) -> float | None:
        now, spec = self._tools.clock.now(), self._flow.spec
        pivot = passed_pivot(self._flow, steps)
        state, reason = end_of(spec, steps, stop=run.stop, pivot=pivot)
        if state is FlowState.COMPLETE and run.root == run.id:
            await self._drop_older(run)
        await self._flows.change_state(self._lease, state, now, reason=reason)
        return 0.0 if state is FlowState.COMPENSATING else None

    def _step_run(self, run: FlowRun, name: str, context: Mapping[str, Any]) -> StepRun:
        def rest(is_resting: bool) -> None:  # noqa: FBT001  # the only argument
            if is_resting:
                self._resting.add(name)
                self._wake.set()
            else:
                self._resting.discard(name)

        step = self._flow.spec.by_name[name]
        return StepRun(self._tools, run, self._flow, step, context, rest=rest)

    async def _perform(self, one: StepRun, row: FlowStep) -> None:
        """Perform a step and store its end."""
        name = one.step.name
        one = replace(one, attempt=row.attempt + (row.state is not StepState.RUNNING))
        try:
            output = await self._attempt(one, row)
        except StoreError:
            raise
        except LonglineError as error:
            await self._fail(one, str(error))
        except Exception as error:  # noqa: BLE001  # the edge of a step, which runs code of others
            _LOG.warning("step %s of %s failed: %r", name, one.run.id, error)
            await self._fail(one, f"{type(error).__name__}: {error_text(error)}")
        else:
            await self._flows.complete_step(self._lease, name, self._tools.clock.now(), output)
        finally:
            self._limits.pop(name, None)
            self._resting.discard(name)
            self._tasks.pop(name, None)
            self._wake.set()

    async def _attempt(self, one: StepRun, row: FlowStep) -> Any:
        name, now = one.step.name, self._tools.clock.now()
        input_hash = one.input_hash()
        is_known = row.undo and row.input_hash == input_hash
        reference = None if is_known else await find_reference(one)
        row = await self._flows.begin_step(
            self._lease, name, now, input_hash=input_hash, undo=reference
        )
        if row.starts > _MOST_STARTS:
            raise _TooManyStarts(row.starts - 1)
        begun = row.started_at or now
        timeout = one.step.timeout
        left = None if timeout is None else max(0.0, begun + timeout - now)
        try:
            async with asyncio.timeout(left) as limit:
                self._limits[name] = limit
                if self._stop is not None:
                    _expire(limit)
                return await perform(replace(one, started_at=begun, references=row.undo))
        except TimeoutError:
            if not limit.expired():
                raise
            await abort(one)
            if self._stop is not None:
                raise _Stopped(self._stop) from None
            raise _TimedOut(timeout or 0.0) from None

    async def _fail(self, one: StepRun, reason: str) -> None:
        """Store that an attempt failed, and when the next one is due."""
        now, retry = self._tools.clock.now(), one.step.retry
        retry_at = None
        if one.attempt < retry.attempts and self._stop is None:
            retry_at = now + _wait_after(one.attempt, retry)
        problem = redact_text(reason)  # it may quote a site or a setting
        await self._flows.fail_step(
            self._lease, one.step.name, now, problem, attempt=one.attempt, retry_at=retry_at
        )

    # ------------------------------------------------------------ backward

    async def _advance_undo(
        self, group: asyncio.TaskGroup, run: FlowRun, steps: Mapping[str, FlowStep]
    ) -> float | None:
        now, spec = self._tools.clock.now(), self._flow.spec
        if self._tasks:
            return POLL
        name = next_undo(spec, steps)
        if name is None:
            state, problem = end_of_undo(spec, steps)
            reason = "; ".join(filter(None, (run.reason, problem))) or None
            await self._flows.change_state(self._lease, state, now, reason=reason)
            return None
        if steps[name].due_at > now:
            return min(POLL, steps[name].due_at - now)
        one = self._step_run(run, name, context_of(run, self._flow, steps))
        self._tasks[name] = group.create_task(self._undo(one))
        return POLL

    async def _undo(self, one: StepRun) -> None:
        """Undo a step and store how that ended."""
        name, clock = one.step.name, self._tools.clock
        try:
            row = await self._flows.begin_undo(self._lease, name, clock.now())
            for reference in reversed(row.undo):
                await undo_step(one, reference)
        except StoreError:
            raise
        except LonglineError as error:
            await self._fail_undo(name, str(error))
        except Exception as error:  # noqa: BLE001  # the edge of a step, which runs code of others
            _LOG.warning("step %s of %s was not undone: %r", name, one.run.id, error)
            await self._fail_undo(name, f"{type(error).__name__}: {error_text(error)}")
        else:
            await self._flows.end_undo(self._lease, name, clock.now())
        finally:
            self._tasks.pop(name, None)
            self._wake.set()

    async def _fail_undo(self, name: str, reason: str) -> None:
        now, retry = self._tools.clock.now(), self._flow.spec.undo_retry
        attempt = (await self._flows.steps(self._lease.run))[name].undo_attempt
        retry_at = now + _wait_after(attempt, retry) if attempt < retry.attempts else None
        problem = redact_text(reason)
        await self._flows.end_undo(self._lease, name, now, reason=problem, retry_at=retry_at)

    # ------------------------------------------------------------ what earlier runs have kept

    async def _drop_older(self, run: FlowRun) -> None:
        """Delete what earlier runs of the flow kept to be undone; failures are only logged."""
        older = await self._flows.undoable_before(run)
        for one in older:
            try:
                flow = FrozenFlow.from_dict(one.definition)
            except (KeyError, ValueError) as error:
                _LOG.warning(
                    "data replaced by %s is not deleted: its definition is damaged: %r",
                    one.id,
                    error,
                )
                continue
            steps = await self._flows.steps(one.id)
            context = context_of(one, flow, steps)
            for name, step in flow.spec.by_name.items():
                row = steps.get(name)
                try:
                    kept = row.undo if row is not None else ()
                    await drop_references(StepRun(self._tools, one, flow, step, context), kept)
                except StoreError:
                    raise
                except LonglineError as error:
                    _LOG.warning(
                        "data replaced by %s of %s is not deleted: %s", name, one.id, error
                    )
        if older:
            await self._flows.end_undoable([one.id for one in older])


def _expire(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time())


def _wait_after(attempt: int, retry: Retry) -> float:
    return backoff(attempt, base=retry.base, ceiling=retry.max)


class _TooManyStarts(LonglineError):
    """A step ends the processes that perform it."""

    starts: int
    message = "{starts} processes died while running it"


class _TimedOut(LonglineError):
    """A step has taken longer than its timeout."""

    seconds: float
    message = "it took more than {seconds:g} s"


class _Stopped(LonglineError):
    """A step was stopped, because its run was cancelled."""

    reason: str
    message = "{reason}"
