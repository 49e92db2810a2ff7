"""Runs of flows: leased by one process, undo before effect, and an event for each change."""

from __future__ import annotations

from typing import Any

import pytest

from longline.storage.events.events import EventFilter
from longline.storage.scheduling.flows import (
    Approval,
    FlowLease,
    FlowLeaseLost,
    FlowNotChangeable,
    FlowRun,
    FlowState,
    NewFlowRun,
    StepState,
    UndoState,
    UnknownFlowRun,
)
from longline.storage.store import Store
from tests.virtual import EPOCH

REFERENCE = {"place": "a.csv", "existed": True}


def new(**values: Any) -> NewFlowRun:
    given: dict[str, Any] = {"flow": "nightly", "definition": {"x": 1}, "hash": "abc"}
    given |= {"steps": ["a", "b"], "params": {"n": 1}, "origin": "command", "at": EPOCH}
    return NewFlowRun(**{**given, **values})


async def leased(store: Store, owner: str = "me", at: float = EPOCH, **how: Any) -> list[FlowRun]:
    return await store.flows.lease(owner, at, at + 20, **how)


async def begun(store: Store) -> FlowLease:
    """Return the lease of a new run whose step `a` has begun."""
    await store.flows.create(new())
    (run,) = await leased(store)
    await store.flows.begin_step(run.lease, "a", EPOCH, input_hash="x", undo=REFERENCE)
    return run.lease


async def waiting(store: Store) -> FlowRun:
    """Return a run whose step `a` waits for a person."""
    await store.flows.create(new())
    (run,) = await leased(store)
    await store.flows.wait_for_approval(run.lease, "a", EPOCH, None)
    await store.flows.change_state(run.lease, FlowState.WAITING, EPOCH)
    return await store.flows.get(run.id)


async def failed(store: Store) -> FlowRun:
    """Return a run that has failed at step `a`."""
    lease = await begun(store)
    await store.flows.fail_step(lease, "a", EPOCH, "no", attempt=1)
    await store.flows.skip_step(lease, "b", EPOCH, "a failed")
    await store.flows.change_state(lease, FlowState.FAILED, EPOCH, reason="a failed")
    return await store.flows.get(lease.run)


async def test_a_run_with_a_key_is_created_once(store: Store) -> None:
    first = await store.flows.create(new(key="launch/1"))
    again = await store.flows.create(new(key="launch/1"))
    other = await store.flows.create(new())

    assert (first.id, first.params, first.state) == (again.id, {"n": 1}, FlowState.RUNNING)
    assert {run.id for run in await store.flows.list()} == {first.id, other.id}
    assert list(await store.flows.steps(first.id)) == ["a", "b"]


async def test_a_run_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    run = await store.flows.create(new())
    await store.flows.create(new(flow="other"))

    assert (await store.flows.get("nightly")).id == run.id
    with pytest.raises(UnknownFlowRun):
        await store.flows.get("nosuch")


async def test_one_process_has_a_run(store: Store) -> None:
    await store.flows.create(new())

    first = await leased(store)
    second = await leased(store, "other")

    assert (len(first), second) == (1, [])


async def test_an_expired_or_dead_owner_loses_its_run(store: Store) -> None:
    await store.flows.create(new())
    (old,) = await leased(store)
    (young,) = await leased(store, "late", EPOCH + 21)
    (third,) = await leased(store, "other", EPOCH + 21, dead=["late"])

    with pytest.raises(FlowLeaseLost):
        await store.flows.begin_step(old.lease, "a", EPOCH, input_hash="x", undo=None)
    with pytest.raises(FlowLeaseLost):
        await store.flows.complete_step(young.lease, "a", EPOCH, {})
    assert await store.flows.renew("late", EPOCH + 60) == frozenset()
    assert await store.flows.renew("other", EPOCH + 60) == {third.lease}


async def test_a_lease_that_came_back_is_another_one(store: Store) -> None:
    await store.flows.create(new())
    (first,) = await leased(store)
    await leased(store, "other", EPOCH + 21)
    (again,) = await leased(store, "me", EPOCH + 42)

    with pytest.raises(FlowLeaseLost):
        await store.flows.change_state(first.lease, FlowState.COMPLETE, EPOCH)
    await store.flows.change_state(again.lease, FlowState.COMPLETE, EPOCH)


async def test_only_the_runs_below_a_root_are_leased(store: Store) -> None:
    root = await store.flows.create(new())
    child = await store.flows.create(new(flow="child", root=root.id))
    await store.flows.create(new(flow="other"))

    found = await leased(store, root=root.id)

    assert {run.id for run in found} == {root.id, child.id}


async def test_the_undo_reference_is_there_before_the_effect(store: Store) -> None:
    lease = await begun(store)

    step = (await store.flows.steps(lease.run))["a"]

    assert (step.state, step.attempt, step.undo) == (StepState.RUNNING, 1, [REFERENCE])


async def test_the_first_reference_to_a_place_is_kept(store: Store) -> None:
    lease = await begun(store)
    await store.flows.fail_step(lease, "a", EPOCH, "no", attempt=1, retry_at=EPOCH + 5)
    for place in ("a.csv", "b.csv"):
        undo = {"place": place, "existed": False}
        await store.flows.begin_step(lease, "a", EPOCH, input_hash="x", undo=undo)

    step = (await store.flows.steps(lease.run))["a"]
    assert step.undo == [REFERENCE, {"place": "b.csv", "existed": False}]
    assert (step.attempt, step.starts) == (2, 2)


async def test_a_waiting_run_is_leased_when_it_is_due(store: Store) -> None:
    await store.flows.create(new())
    (run,) = await leased(store)
    await store.flows.change_state(run.lease, FlowState.WAITING, EPOCH, due_at=EPOCH + 60)

    assert not await store.flows.is_leasable(EPOCH + 59)
    assert await leased(store, at=EPOCH + 59) == []
    assert len(await leased(store, at=EPOCH + 60)) == 1


async def test_an_approved_run_goes_on(store: Store) -> None:
    run = await waiting(store)

    nothing = await leased(store)
    step = await store.flows.approve(run.id, None, Approval(is_approved=True, by="me"), EPOCH)

    assert nothing == []
    assert (step.state, step.output) == (StepState.COMPLETE, {"by": "me", "comment": None})
    assert [one.id for one in await leased(store)] == [run.id]


async def test_a_rejected_step_has_failed(store: Store) -> None:
    run = await waiting(store)

    step = await store.flows.approve(run.id, "a", Approval(is_approved=False, by="me"), EPOCH)

    assert step.state is StepState.FAILED
    with pytest.raises(FlowNotChangeable):
        await store.flows.approve(run.id, "a", Approval(is_approved=True, by="me"), EPOCH)


async def test_a_retry_runs_failed_and_skipped_steps(store: Store) -> None:
    run = await failed(store)

    again = await store.flows.retry(run.id, EPOCH)

    steps = await store.flows.steps(run.id)
    assert (again.state, again.ended_at) == (FlowState.RUNNING, None)
    assert {one.state for one in steps.values()} == {StepState.PENDING}
    assert (steps["a"].attempt, steps["a"].undo) == (0, [REFERENCE])


async def test_an_undo_that_failed_can_be_retried(store: Store) -> None:
    run = await failed(store)
    await store.flows.undo(run.id, EPOCH)
    (mine,) = await leased(store)
    await store.flows.begin_undo(mine.lease, "a", EPOCH)
    await store.flows.end_undo(mine.lease, "a", EPOCH, reason="no")
    await store.flows.change_state(mine.lease, FlowState.NEEDS_ATTENTION, EPOCH, reason="no")
    before = (await store.flows.steps(run.id))["a"]

    again = await store.flows.retry(run.id, EPOCH)

    after = (await store.flows.steps(run.id))["a"]
    assert (before.undo_state, after.undo_state) == (UndoState.FAILED, None)
    assert again.state is FlowState.COMPENSATING


async def test_what_has_not_ended_cannot_be_retried_or_undone(store: Store) -> None:
    run = await store.flows.create(new())

    for change in (store.flows.retry, store.flows.undo):
        with pytest.raises(FlowNotChangeable):
            await change(run.id, EPOCH)


async def test_only_an_open_run_is_cancelled(store: Store) -> None:
    run = await waiting(store)

    cancelled = await store.flows.cancel(run.id, "not today", EPOCH)
    (mine,) = await leased(store)
    await store.flows.change_state(mine.lease, FlowState.FAILED, EPOCH)

    assert (cancelled.stop, cancelled.state) == ("not today", FlowState.RUNNING)
    with pytest.raises(FlowNotChangeable):
        await store.flows.cancel(run.id, "again", EPOCH)


async def test_an_upgrade_replaces_the_definition(store: Store) -> None:
    run = await failed(store)

    names = {"steps": ["a", "b", "c"], "again": ["b", "c"]}
    changed = await store.flows.upgrade(run.id, {"x": 2}, "def", **names, at=EPOCH)

    steps = await store.flows.steps(run.id)
    assert (changed.hash, changed.definition, changed.state) == ("def", {"x": 2}, "running")
    assert {name: one.state.value for name, one in steps.items()} == {
        "a": "failed",
        "b": "pending",
        "c": "pending",
    }


async def test_a_run_that_is_being_run_is_not_upgraded(store: Store) -> None:
    lease = await begun(store)

    with pytest.raises(FlowNotChangeable):
        await store.flows.upgrade(lease.run, {}, "def", steps=["a"], again=["a"], at=EPOCH)


async def test_each_change_is_an_event_about_the_run(store: Store) -> None:
    run = await failed(store)

    events, _ = await store.events.read(0, EventFilter(subject=f"flow/{run.id}"))

    assert [event.type for event in events] == [
        *("flow.created", "flow.running", "step.running", "step.failed", "step.skipped"),
        "flow.failed",
    ]
