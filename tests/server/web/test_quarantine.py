"""The pages of quarantine: reasons, items of a job, one item, retry."""

from __future__ import annotations

import pytest

from longline.storage.access import Role
from tests.server.web.conftest import Dashboard
from tests.server.web.filled_home import quarantined, run_job, skipped

OUTCOMES = [
    *[quarantined("price: too low"), quarantined("price: too low"), quarantined("title: empty")],
    skipped(),
]


async def test_an_empty_home_has_a_page_of_quarantine(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/quarantine")).status == 200


async def test_items_are_grouped_by_job_and_reason(dashboard: Dashboard) -> None:
    await run_job(dashboard.store, OUTCOMES)
    await run_job(dashboard.store, OUTCOMES, source="news")

    page = await dashboard.get("/quarantine")
    of_source = await dashboard.get("/quarantine?source=news")
    of_reason = await dashboard.get("/quarantine?reason=title")

    counts = [one.text.count('class="row reasons"') for one in (page, of_source, of_reason)]
    assert counts == [4, 2, 2]


async def test_the_items_of_a_job_are_listed(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, OUTCOMES)

    page = await dashboard.get(f"/quarantine?job={job}")

    assert page.text.count(f"/quarantine/item?job={job}") == 3


async def test_an_item_shows_what_it_was_made_of(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, [quarantined("price: too low", {"price": -7.25})])

    page = await dashboard.get(f"/quarantine/item?job={job}&key=k0")

    assert page.status == 200
    assert "-7.25" in page.text
    assert "price: too low" in page.text


@pytest.mark.parametrize("query", ["", "job=nothing&key=k0", "job=JOB&key=nothing", "job=JOB"])
async def test_an_unknown_item_is_refused(dashboard: Dashboard, query: str) -> None:
    job = await run_job(dashboard.store, OUTCOMES)

    answer = await dashboard.get(f"/quarantine/item?{query.replace('JOB', job)}")

    assert answer.status in (404, 422)


async def test_a_reader_retries_nothing(dashboard: Dashboard) -> None:
    job = await run_job(dashboard.store, OUTCOMES)

    answer = await dashboard.api("POST", "/quarantine/retry", role=Role.READ, data={"job": job})

    assert answer.status == 403
    assert await dashboard.store.launches.list() == []
