"""The pages of jobs: list, one job, items, report, actions."""

from __future__ import annotations

import time

import pytest

from longline.core.errors import FailureKind
from longline.core.model import Item, JobState
from longline.storage.access import Role
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.scheduling.launches import Launch
from tests.server.web.conftest import Dashboard
from tests.server.web.filled_home import failed, quarantined, run_job, skipped
from tests.server.web.test_sources import write_manifest

MIXED = [
    *[failed("a refused"), failed("a refused"), failed("b timed out", FailureKind.TIMEOUT)],
    *[quarantined(), skipped()],
]


async def launches(dashboard: Dashboard) -> list[Launch]:
    return await dashboard.store.launches.list(is_open=True)


async def job_of_file(dashboard: Dashboard) -> str:
    """Start a job whose source is a file, so that it can be resumed."""
    path = write_manifest(dashboard, "shop")
    store = dashboard.store
    job = await store.jobs.create(NewJob("shop", {"source": str(path)}, {}, 1.0))
    await store.jobs.start(job.id, 2.0)
    return job.id


async def test_an_empty_home_has_a_page_of_jobs(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/jobs")).status == 200


async def test_pages_list_every_job_once(dashboard: Dashboard) -> None:
    for place in range(120):
        await dashboard.store.jobs.create(NewJob(f"s{place % 7}", {}, {}, float(place // 3)))
    found: list[str] = []
    url = "/jobs"

    while url:
        text = (await dashboard.get(url)).text
        found += [one.partition('"')[0] for one in text.split('class="key"><a href="')[1:]]
        url = text.partition('<p class="more"><a class="text" href="')[2].partition('"')[0]
        url = url.replace("&amp;", "&")

    assert len(found) == len(set(found)) == 120


async def test_jobs_are_filtered(dashboard: Dashboard) -> None:
    await run_job(dashboard.store, MIXED, source="shop")
    await run_job(dashboard.store, [failed()], source="news")
    await run_job(dashboard.store, source="news")

    by_source = await dashboard.get("/jobs?source=news")
    by_state = await dashboard.get("/jobs?state=failed")
    unfinished = await dashboard.get("/jobs?state=open")

    counts = [one.text.count('class="key"') for one in (by_source, by_state, unfinished)]
    assert counts == [2, 1, 1]


@pytest.mark.parametrize("query", ["state=x", "before=x", "before=nan~a", "before=1e999~a"])
async def test_a_malformed_list_is_refused(dashboard: Dashboard, query: str) -> None:
    assert (await dashboard.get(f"/jobs?{query}")).status == 422


async def test_failures_are_grouped_by_kind_and_reason(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, MIXED)

    page = (await dashboard.get(f"/jobs/{job}")).text

    groups = page.partition("<h2>Failures")[2].partition("<h2>Log")[0]
    assert groups.count('class="group"') == 4
    assert "2 × a refused" in groups
    assert groups.count(f'action="/jobs/{job}/retry"') == 4


async def test_a_job_has_charts_of_its_requests(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, MIXED)

    page = (await dashboard.get(f"/jobs/{job}")).text

    assert page.count("<figure class=") >= 3


@pytest.mark.parametrize(
    ("state", "count"), [("failed", 3), ("quarantined", 1), ("skipped", 1), ("stored", 0)]
)
async def test_items_are_listed_by_state(dashboard: Dashboard, state: str, count: int) -> None:
    job = await run_job(dashboard.store, MIXED)

    page = await dashboard.get(f"/jobs/{job}/items?state={state}")

    assert page.text.count('class="key"') == count


async def test_leased_items_are_not_counted_as_queued(dashboard: Dashboard) -> None:
    store, now = dashboard.store, time.time()
    job = await store.jobs.create(NewJob("shop", {"source": "shop"}, {}, now))
    await store.jobs.start(job.id, now)
    items = [Item(key, "http://x.test/") for key in "abc"]
    await store.queue.enqueue(Discovered(job.id, items, now))
    await store.queue.lease(Claim(job.id, "me", 1, now, now + 60))

    page = (await dashboard.get(f"/jobs/{job.id}/items?state=queued")).text

    assert (page.count(">queued 2<"), page.count(">leased 1<")) == (1, 1)


@pytest.mark.parametrize("path", ["", "/items", "/report"])
async def test_a_source_with_a_slash_has_pages_of_jobs(dashboard: Dashboard, path: str) -> None:
    job = await run_job(dashboard.store, MIXED, source="shop/de")

    quoted = await dashboard.get(f"/jobs/{job.replace('/', '%2F')}{path}")
    plain = await dashboard.get(f"/jobs/{job}{path}")

    assert (quoted.status, plain.status) == (200, 200)


async def test_a_report_can_run_nothing(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, MIXED)

    report = await dashboard.get(f"/jobs/{job}/report")

    assert report.status == 200
    assert report.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")


async def test_a_job_is_paused_and_cancelled(dashboard: Dashboard) -> None:
    job = await job_of_file(dashboard)

    paused = await dashboard.post(f"/jobs/{job}/pause", allow_redirects=False)
    state = (await dashboard.store.jobs.get(job)).state
    cancelled = await dashboard.post(f"/jobs/{job}/cancel", allow_redirects=False)

    assert (paused.status, cancelled.status) == (303, 303)
    assert state is JobState.PAUSED
    assert (await dashboard.store.jobs.get(job)).state is JobState.CANCELLED


async def test_a_paused_job_is_resumed_by_the_executor(dashboard: Dashboard) -> None:
    job = await job_of_file(dashboard)
    await dashboard.store.jobs.pause(job, 3.0, "by a person")

    answer = await dashboard.post(f"/jobs/{job}/resume", allow_redirects=False)

    [launch] = await launches(dashboard)
    assert answer.status == 303
    assert launch.target == job


@pytest.mark.parametrize("action", ["pause", "resume", "cancel", "retry"])
async def test_an_action_on_an_unknown_job_is_refused(dashboard: Dashboard, action: str) -> None:
    assert (await dashboard.post(f"/jobs/nothing/{action}")).status == 404


async def test_an_action_without_a_job_is_refused(dashboard: Dashboard) -> None:
    job = await job_of_file(dashboard)

    assert (await dashboard.post("/jobs//cancel")).status == 422
    assert (await dashboard.store.jobs.get(job)).state is JobState.RUNNING


async def test_a_retry_of_an_unknown_kind_is_refused(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, MIXED)

    assert (await dashboard.post(f"/jobs/{job}/retry", {"kind": "x"})).status == 422
    assert await launches(dashboard) == []


async def test_a_reader_changes_no_job(dashboard: Dashboard) -> None:
    job = await job_of_file(dashboard)

    page = await dashboard.api("GET", f"/jobs/{job}", role=Role.READ)
    answer = await dashboard.api("POST", f"/jobs/{job}/cancel", role=Role.READ)

    assert (page.status, answer.status) == (200, 403)
    assert "<form" not in page.text.partition("<main")[2]
    assert (await dashboard.store.jobs.get(job)).state is JobState.RUNNING
