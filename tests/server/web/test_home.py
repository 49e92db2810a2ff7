"""The home page: what needs a person, with its buttons, and what runs."""

from __future__ import annotations

import time

import pytest

from longline.core.model import Item, Outcome, OutcomeAction
from longline.scheduling.flow import load_flow
from longline.scheduling.flow_runner import start_flow
from longline.storage.access import Role
from longline.storage.jobs import NewJob
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState
from longline.storage.profiles import DriftResult
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.scheduling.flows import StepState
from longline.storage.scheduling.launches import SOURCE, NewLaunch
from tests.server.web.conftest import Dashboard
from tests.server.web.filled_home import failed, quarantined, run_job, skipped


def forms_of(page: str) -> list[str]:
    """Return the addresses of the forms in the panel of needs."""
    part = page.partition('aria-label="Needs you"')[2].partition("</section>")[0]
    return [one.partition('"')[0] for one in part.split('action="')[1:]]


async def test_an_empty_home_greets(dashboard: Dashboard) -> None:
    page = await dashboard.get("/")

    assert page.status == 200
    assert 'href="/sources/new"' in page.text
    assert 'aria-label="Needs you"' not in page.text


@pytest.mark.parametrize(
    "outcomes", [[failed(), skipped()], [failed(), failed()], [quarantined(), skipped()]]
)
async def test_a_bad_run_has_a_button_to_retry(
    dashboard: Dashboard, outcomes: list[Outcome]
) -> None:
    job = await run_job(dashboard.store, outcomes)

    page = await dashboard.get("/")

    assert page.text.count('class="row need"') == 1
    assert forms_of(page.text) == [f"/jobs/{job}/retry"]


async def test_what_has_drifted_is_said_once(dashboard: Dashboard) -> None:
    drift = DriftResult({"records": 1, "fields": {}}, drift=("price is lost", "title is short"))
    await run_job(dashboard.store, [quarantined(), skipped()], drift=drift)
    alert = Alert(
        rule="drift",
        subject="source/shop",
        state=AlertState.FIRING,
        severity="critical",
        summary="shop: the records have drifted: price is lost; title is short",
        evidence={},
        action="longline drift show shop",
        since=1.0,
        seen_at=1.0,
    )
    await dashboard.store.alerts.change(lambda _open: [AlertChange(alert)], 1.0)

    page = (await dashboard.get("/")).text

    assert "1 of 2 items was quarantined" in page
    assert page.count("price is lost") == 1


async def test_a_run_without_items_is_run_again(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store)
    await dashboard.store.jobs.fail(job, time.time(), "no list")

    page = await dashboard.get("/")

    assert forms_of(page.text) == ["/sources/run"]


async def test_a_paused_run_has_a_button_to_resume(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store)
    await dashboard.store.jobs.pause(job, time.time(), "low disk")

    page = await dashboard.get("/")

    assert forms_of(page.text) == [f"/jobs/{job}/resume"]
    assert page.text.count("low disk") == 1


async def test_a_healed_source_needs_nothing(dashboard: Dashboard) -> None:
    await run_job(dashboard.store, [failed(), skipped()])
    await run_job(dashboard.store, [skipped()])

    page = await dashboard.get("/")

    assert forms_of(page.text) == []
    assert page.text.count('class="cell ') == 2


FLOW = "flow: publish\nsteps:\n  - name: ask\n    approve: Publish?\n"


async def start_flow_run(dashboard: Dashboard) -> str:
    path = dashboard.settings.home / "publish.yaml"
    path.write_text(FLOW)
    flow = load_flow(str(path), dashboard.settings)
    run = await start_flow(dashboard.store, flow, {}, at=time.time(), origin="test")
    return run.id


async def test_a_flow_that_waits_is_approved_from_here(dashboard: Dashboard) -> None:
    run = await start_flow_run(dashboard)
    flows, now = dashboard.store.flows, time.time()
    [leased] = await flows.lease("me", now, now + 60)
    await flows.wait_for_approval(leased.lease, "ask", now, None)
    await flows.release([leased.lease])

    page = await dashboard.get("/")
    [path] = forms_of(page.text)
    await dashboard.post(path, {"decision": "approve", "step": "ask"})

    [step] = (await flows.steps(run)).values()
    assert path == f"/flows/{run}/approve"
    assert "Publish?" in page.text
    assert step.state is not StepState.WAITING


async def test_what_a_flow_has_to_fill_in_is_asked_on_its_page(dashboard: Dashboard) -> None:
    path = dashboard.settings.home / "publish.yaml"
    path.write_text(
        "flow: publish\nparams: {region: north}\n"
        "steps:\n  - name: ask\n    approve: Publish {params.region}?\n"
    )
    flow = load_flow(str(path), dashboard.settings)
    run = await start_flow(dashboard.store, flow, {}, at=time.time(), origin="test")
    flows, now = dashboard.store.flows, time.time()
    [leased] = await flows.lease("me", now, now + 60)
    await flows.wait_for_approval(leased.lease, "ask", now, None)
    await flows.release([leased.lease])

    page = await dashboard.get("/")

    assert forms_of(page.text) == []
    assert f'href="/flows/{run.id}"' in page.text


async def test_an_idle_server_on_another_machine_runs_what_is_submitted(
    dashboard: Dashboard,
) -> None:
    store, now = dashboard.store, time.time()
    spec = {"source": "shop"}
    await store.launches.place(NewLaunch(SOURCE, "shop", spec, "test", now, key="one"))
    without = await dashboard.get("/")
    await store.leaders.acquire("scheduler", "other:1", now, now + 60)

    page = await dashboard.get("/")

    assert without.text.count('class="row need"') == 1
    assert page.text.count('class="row need"') == 0


async def test_a_reader_sees_reasons_without_buttons(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, [failed(), skipped()])

    page = await dashboard.api("GET", "/", role=Role.READ, headers={"Accept": "text/html"})

    assert forms_of(page.text) == []
    assert f'href="/jobs/{job}"' in page.text


async def test_a_running_job_says_what_it_waits_for(dashboard: Dashboard) -> None:
    store, now = dashboard.store, time.time()
    job = await store.jobs.create(NewJob("shop", {"source": "shop"}, {}, now))
    await store.jobs.start(job.id, now)
    await store.queue.enqueue(Discovered(job.id, [Item("k", "http://x.test/")], now, is_last=True))
    [lease] = await store.queue.lease(Claim(job.id, "me", 1, now, now + 60))
    deferred = Outcome(OutcomeAction.DEFER, reason="the site asks to wait", due=now + 500, at=now)
    await store.queue.complete_all([(lease, deferred)])

    page = await dashboard.get("/")

    assert page.text.count("x.test: the site asks to wait") == 1


async def test_the_speed_of_a_resumed_job_is_the_present_one(dashboard: Dashboard) -> None:
    store, now = dashboard.store, time.time()
    job = await store.jobs.create(NewJob("shop", {"source": "shop"}, {}, now - 36_000))
    await store.jobs.start(job.id, now - 36_000)
    await store.jobs.pause(job.id, now - 35_990, "low disk")
    await store.jobs.start(job.id, now - 30)
    items = [Item(f"k{place}", "http://x.test/") for place in range(40)]
    await store.queue.enqueue(Discovered(job.id, items, now, is_last=True))
    leases = await store.queue.lease(Claim(job.id, "me", 20, now, now + 60))
    await store.queue.complete_all([(one, Outcome(OutcomeAction.SKIP, at=now)) for one in leases])

    page = (await dashboard.get("/")).text

    assert "min left" not in page
    assert "s left" in page


async def test_not_all_is_well_if_no_server_runs_what_was_submitted(dashboard: Dashboard) -> None:
    await run_job(dashboard.store, [skipped()])
    before = await dashboard.get("/")
    await dashboard.store.launches.place(NewLaunch(SOURCE, "shop", {}, "command", time.time()))
    after = await dashboard.get("/")

    assert [page.text.count('class="row need"') for page in (before, after)] == [0, 1]


async def test_a_run_that_waits_for_a_server_is_counted(dashboard: Dashboard) -> None:
    new = NewLaunch(SOURCE, "shop", {}, "command", time.time())
    await dashboard.store.launches.place(new)

    page = await dashboard.get("/")

    assert "1 submitted run" in page.text


async def test_the_machine_is_shown(dashboard: Dashboard) -> None:
    page = await dashboard.get("/")

    assert page.text.count('class="row machine"') == 1
