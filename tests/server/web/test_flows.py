"""The pages of flows: definitions, runs, the graph, decisions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import start_flow
from longline.server.web.flow_graph import draw
from longline.storage.access import Role
from longline.storage.scheduling.flows import FlowRun, FlowState, StepState
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE

FLOW = """\
flow: {name}
about: "<script>alert(1)</script>"
params: {{region: north, count: 3}}
steps:
  - name: first
    command: ["true"]
  - name: left
    command: ["true"]
    after: first
  - name: right
    command: ["true"]
    after: first
    optional: true
  - name: ask
    approve: "Publish <b>all</b>?"
    after: [left, right]
"""


@pytest.fixture
def web_settings(tmp_path: Path) -> Settings:
    """The settings of a home with a folder of flows."""
    (tmp_path / "flows").mkdir()
    return Settings(home=tmp_path / "home", sources=(), flows=(tmp_path / "flows",))


def write_flow(dashboard: Dashboard, name: str = "publish") -> Path:
    [folder] = dashboard.settings.flows
    path = folder / f"{name}.yaml"
    path.write_text(FLOW.format(name=name))
    return path


async def start(dashboard: Dashboard, name: str = "publish") -> FlowRun:
    path = write_flow(dashboard, name)
    flow = load_flow(str(path), dashboard.settings)
    return await start_flow(dashboard.store, flow, {}, at=time.time(), origin="test")


async def wait_for_approval(dashboard: Dashboard) -> FlowRun:
    run = await start(dashboard)
    [leased] = await dashboard.store.flows.lease("me", time.time(), time.time() + 60)
    await dashboard.store.flows.wait_for_approval(leased.lease, "ask", time.time(), None)
    await dashboard.store.flows.release([leased.lease])
    return run


async def test_flows_and_invalid_files_are_listed(dashboard: Dashboard) -> None:
    write_flow(dashboard)
    write_flow(dashboard, "broken").write_text("flow: broken\nsteps: <i>\n")

    answer = await dashboard.get("/flows")

    assert answer.status == 200
    assert 'href="/flows/publish"' in answer.text
    assert answer.text.count("▲") == 1
    assert "<script>alert" not in answer.text
    assert "<i>" not in answer.text


async def test_an_empty_home_has_a_page_of_flows(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/flows")).status == 200


async def test_a_flow_has_a_page_by_its_name(dashboard: Dashboard) -> None:
    write_flow(dashboard)

    answer = await dashboard.get("/flows/publish")

    assert answer.status == 200
    assert answer.text.count('<rect class="box"') == 4
    assert 'name="param.region"' in answer.text


async def test_a_run_shows_its_steps_as_a_graph(dashboard: Dashboard) -> None:
    run = await start(dashboard)

    answer = await dashboard.get(f"/flows/{run.id}")

    assert answer.status == 200
    assert answer.text.count('<rect class="box"') == 4
    assert answer.text.count('<path class="edge') == 4
    assert answer.text.count('<tr id="step-') == 4


async def test_steps_that_wait_for_the_same_share_a_layer(dashboard: Dashboard) -> None:
    flow = load_flow(str(write_flow(dashboard)), dashboard.settings)

    graph = draw(flow.spec, {})

    first, left, right, ask = graph.nodes
    assert left.x == right.x
    assert first.x < left.x < ask.x
    assert left.y < right.y


async def test_an_unknown_run_is_not_found(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/flows/none")).status == 404
    assert (await dashboard.post("/flows/none/retry")).status == 404


async def test_runs_have_pages(dashboard: Dashboard) -> None:
    for _ in range(51):
        await start(dashboard)

    first = await dashboard.get("/flows")
    older = first.text.partition('class="more"><a class="text" href="')[2].partition('"')[0]
    second = await dashboard.get(older.replace("&amp;", "&"))

    assert first.text.count('<a href="/flows/publish-') == 50
    assert second.text.count('<a href="/flows/publish-') == 1


async def test_a_flow_is_run_with_parameters(dashboard: Dashboard) -> None:
    write_flow(dashboard)

    answer = await dashboard.post(
        "/flows/run",
        {"flow": "publish", "param.region": "south", "param.count": "5"},
        allow_redirects=False,
    )

    [run] = await dashboard.store.flows.list()
    assert answer.status == 303
    assert run.params == {"region": "south", "count": 5}


@pytest.mark.parametrize("flow", ["none", "", "../publish.yaml", "/etc/passwd.yaml", "os.py:x"])
async def test_only_flows_of_the_folders_are_run(dashboard: Dashboard, flow: str) -> None:
    write_flow(dashboard)

    answer = await dashboard.post("/flows/run", {"flow": flow})

    assert answer.status == 422
    assert await dashboard.store.flows.list() == []


@pytest.mark.parametrize(
    ("decision", "state"), [("approve", StepState.COMPLETE), ("reject", StepState.FAILED)]
)
async def test_a_step_is_decided_by_the_caller(
    dashboard: Dashboard, decision: str, state: StepState
) -> None:
    run = await wait_for_approval(dashboard)
    before = await dashboard.get(f"/flows/{run.id}")

    answer = await dashboard.post(
        f"/flows/{run.id}/approve",
        {"step": "ask", "decision": decision, "comment": HOSTILE},
        allow_redirects=False,
    )

    step = (await dashboard.store.flows.steps(run.id))["ask"]
    after = await dashboard.get(f"/flows/{run.id}")
    assert 'value="approve"' in before.text
    assert "<b>all</b>" not in before.text
    assert answer.status == 303
    assert (step.state, step.output["by"]) == (state, "local")
    assert "<img src=x" not in after.text
    assert "\x1b" not in after.text


async def test_a_step_is_decided_once(dashboard: Dashboard) -> None:
    run = await wait_for_approval(dashboard)
    await dashboard.post(f"/flows/{run.id}/approve", {"decision": "approve"})

    answer = await dashboard.post(f"/flows/{run.id}/approve", {"decision": "reject"})

    assert answer.status == 409


async def test_a_run_is_cancelled_with_a_reason(dashboard: Dashboard) -> None:
    run = await start(dashboard)

    answer = await dashboard.post(f"/flows/{run.id}/cancel", {"comment": HOSTILE})

    assert answer.status == 200
    assert (await dashboard.store.flows.get(run.id)).stop is not None
    assert "<img src=x" not in answer.text


@pytest.mark.parametrize("action", ["retry", "undo"])
async def test_a_running_flow_is_neither_retried_nor_undone(
    dashboard: Dashboard, action: str
) -> None:
    run = await start(dashboard)

    answer = await dashboard.post(f"/flows/{run.id}/{action}")

    assert answer.status == 409


async def test_a_failed_run_is_retried_and_undone(dashboard: Dashboard) -> None:
    run = await start(dashboard)
    [leased] = await dashboard.store.flows.lease("me", time.time(), time.time() + 60)
    await dashboard.store.flows.change_state(
        leased.lease, FlowState.FAILED, time.time(), reason=HOSTILE
    )
    page = await dashboard.get(f"/flows/{run.id}")

    retried = await dashboard.post(f"/flows/{run.id}/retry", allow_redirects=False)

    state = (await dashboard.store.flows.get(run.id)).state
    assert f'action="/flows/{run.id}/retry"' in page.text
    assert f'action="/flows/{run.id}/undo"' in page.text
    assert "<img src=x" not in page.text
    assert (retried.status, state) == (303, FlowState.RUNNING)


async def test_a_read_token_approves_nothing(dashboard: Dashboard) -> None:
    run = await wait_for_approval(dashboard)

    answer = await dashboard.api("POST", f"/flows/{run.id}/approve", role=Role.READ)

    assert answer.status == 403
