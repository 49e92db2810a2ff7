"""Runs of flows in the API: create, follow, decide, continue."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import Settings
from longline.storage.access import Role
from longline.storage.scheduling.flows import FlowState
from tests.server.web.api.test_schedules import API, read, read_pages, refusals
from tests.server.web.conftest import Dashboard
from tests.server.web.test_flows import start, wait_for_approval, write_flow


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    """The settings of a home with a folder of flows."""
    (tmp_path / "flows").mkdir()
    return Settings(home=tmp_path / "home", sources=(), flows=(tmp_path / "flows",))


async def change(dashboard: Dashboard, run: str, action: str, **body: Any) -> Any:
    path = f"{API}/flow-runs/{run}/{action}"
    answer = await dashboard.api("POST", path, role=Role.OPERATE, json=body)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


async def end(dashboard: Dashboard, run: str, state: FlowState) -> None:
    """End a run in a state, as the process that performs it does."""
    [leased] = await dashboard.store.flows.lease("me", time.time(), time.time() + 60)
    assert leased.id == run
    await dashboard.store.flows.change_state(leased.lease, state, time.time())


async def test_flows_are_listed_with_invalid_files(dashboard: Dashboard) -> None:
    path = write_flow(dashboard)
    path.with_name("wrong.yaml").write_text("flow: wrong\nsteps: 1\n")

    [publish, wrong] = await read_pages(dashboard, "/flows?limit=1")

    assert (publish["name"], publish["problem"]) == ("publish", None)
    assert publish["steps"] == ["first", "left", "right", "ask"]
    assert set(publish["params"]) == {"region", "count"}
    assert (wrong["name"], wrong["steps"], wrong["problem"] is None) == ("wrong", [], False)


async def test_a_run_is_created_with_its_parameters(dashboard: Dashboard) -> None:
    write_flow(dashboard)
    body = {"flow": "publish", "params": {"region": "south"}}

    answer = await dashboard.api("POST", f"{API}/flow-runs", json=body)

    created = json.loads(answer.text)
    assert answer.status == 202
    assert created["params"] == {"region": "south", "count": 3}
    assert [one["step"] for one in created["steps"]] == ["first", "left", "right", "ask"]
    assert await read(dashboard, f"/flow-runs/{created['id']}") == created


async def test_an_unusable_run_is_refused(dashboard: Dashboard) -> None:
    path = write_flow(dashboard)
    bodies: list[dict[str, Any]] = [
        {"flow": "none"},
        {"flow": str(path)},
        {"flow": "publish", "params": {"moon": 1}},
        {"flow": "publish", "origin": "x"},
    ]

    answers = [await dashboard.api("POST", f"{API}/flow-runs", json=one) for one in bodies]

    assert [one.status for one in answers] == [422] * 4
    assert await dashboard.store.flows.list() == []


async def test_runs_are_listed_in_pages(dashboard: Dashboard) -> None:
    runs = [await start(dashboard, name) for name in ("a", "b", "c")]

    found = await read_pages(dashboard, "/flow-runs?limit=2")
    waiting = await read(dashboard, "/flow-runs?state=waiting")
    own = await read(dashboard, "/flow-runs?flow=b&state=running")

    assert [one["id"] for one in found] == [one.id for one in reversed(runs)]
    assert waiting["items"] == []
    assert [one["flow"] for one in own["items"]] == ["b"]


async def test_an_unknown_run_is_not_found(dashboard: Dashboard) -> None:
    actions = ("approve", "cancel", "retry", "undo", "resume")
    requests = [("POST", f"/flow-runs/none/{one}") for one in actions]

    found = await refusals(dashboard, ("GET", "/flow-runs/none"), *requests, json={})

    assert found == [(404, "UnknownFlowRun")] * 6


@pytest.mark.parametrize(
    ("decision", "state"), [({}, "complete"), ({"is_approved": False}, "failed")]
)
async def test_a_waiting_step_is_decided(
    dashboard: Dashboard, decision: dict[str, Any], state: str
) -> None:
    run = await wait_for_approval(dashboard)

    found = await change(dashboard, run.id, "approve", **decision, comment="seen")

    step = found["steps"][-1]
    assert (step["step"], step["state"]) == ("ask", state)
    assert step["output"] == {"by": "test-operate", "comment": "seen"}


async def test_a_decision_about_no_waiting_step_conflicts(dashboard: Dashboard) -> None:
    run = await start(dashboard)

    found = await refusals(dashboard, ("POST", f"/flow-runs/{run.id}/approve"), json={})

    assert found == [(409, "FlowNotChangeable")]


async def test_a_run_is_cancelled_with_its_caller(dashboard: Dashboard) -> None:
    run = await start(dashboard)

    await change(dashboard, run.id, "cancel", comment="by mistake")

    stop = (await dashboard.store.flows.get(run.id)).stop
    assert stop == "cancelled by test-operate: by mistake"


async def test_a_failed_run_is_retried(dashboard: Dashboard) -> None:
    run = await start(dashboard)
    await end(dashboard, run.id, FlowState.FAILED)

    found = await change(dashboard, run.id, "retry")

    assert (found["state"], found["ended_at"]) == ("running", None)


async def test_an_ended_run_is_undone(dashboard: Dashboard) -> None:
    run = await start(dashboard)
    await end(dashboard, run.id, FlowState.COMPLETE)

    found = await change(dashboard, run.id, "undo")

    assert found["state"] == "compensating"


async def test_an_open_run_is_neither_retried_nor_undone(dashboard: Dashboard) -> None:
    run = await start(dashboard)
    requests = [("POST", f"/flow-runs/{run.id}/{one}") for one in ("retry", "undo")]

    assert await refusals(dashboard, *requests) == [(409, "FlowNotChangeable")] * 2


async def test_an_open_run_is_resumed_and_an_ended_one_is_not(dashboard: Dashboard) -> None:
    run = await start(dashboard)

    before = await change(dashboard, run.id, "resume")
    await end(dashboard, run.id, FlowState.FAILED)
    after = await dashboard.api("POST", f"{API}/flow-runs/{run.id}/resume")

    assert (before["state"], after.status) == ("running", 409)


async def test_a_run_continues_with_its_changed_file(dashboard: Dashboard) -> None:
    run = await start(dashboard)
    await end(dashboard, run.id, FlowState.FAILED)
    path = write_flow(dashboard)
    path.write_text(path.read_text().replace("Publish", "Print"))

    found = await change(dashboard, run.id, "resume", upgrade_from="ask")

    upgraded = await dashboard.store.flows.get(run.id)
    assert found["state"] == "running"
    assert upgraded.hash != run.hash
