"""Lists in a browser: an action that replaces what was shown, and pages that a click brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from longline.core.model import JobState
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.storage.query import RecordQuery
from tests.http.browsing import skip_without_browser
from tests.scripted_site import ScriptedSite
from tests.sources.clicked_site import PAGES, SIZE, build, rows_of

pytestmark = pytest.mark.real_time
ALL = sorted(row for page in range(1, PAGES + 1) for row in rows_of(page))


@pytest.fixture
def lists(site: ScriptedSite) -> ScriptedSite:
    skip_without_browser()
    build(site)
    return site


async def run(folder: Path, start: str, **said: Any) -> tuple[JobReport, list[str]]:
    """Run a manifest of the list at an address; return how that ended, and what was stored."""
    manifest = {
        "manifest": "html",
        "name": "things",
        "rate": "unlimited",
        "start": start,
        "items": {"elements": ".item"},
        "key": "b",
        "fields": {"title": "b"},
        "transport": "browser",
        **said,
    }
    path = folder / "things.yaml"
    path.write_text(yaml.safe_dump(manifest))
    async with Orchestrator(str(path), home=folder / "home") as longline:
        report = await longline.execute()
        rows = list(longline.store.records.stream(RecordQuery()))
    return report, sorted(row["data"]["title"] for row in rows)


@pytest.mark.parametrize("address", ["/static/1", "/posted", "/app", "/app?mode=address"])
async def test_an_action_that_replaces_the_list_makes_the_job_partial(
    lists: ScriptedSite, tmp_path: Path, address: str
) -> None:
    actions = [{"click": ".next"}]

    report, titles = await run(
        tmp_path, lists.url + address, browser={"wait": ".item", "actions": actions}
    )

    assert titles == sorted(rows_of(2))
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert len(report.caveats.cuts) == 1
    assert str(SIZE) in report.caveats.cuts[0]


@pytest.mark.parametrize("address", ["/static/1", "/app"])
async def test_an_action_may_be_meant_to_replace_the_list(
    lists: ScriptedSite, tmp_path: Path, address: str
) -> None:
    actions = [{"click": ".next", "replaces": True}]

    report, titles = await run(
        tmp_path, lists.url + address, browser={"wait": ".item", "actions": actions}
    )

    assert titles == sorted(rows_of(2))
    assert (report.state, report.caveats.cuts) == (JobState.COMPLETE, ())


async def test_an_action_that_adds_to_the_list_is_complete(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    actions = [{"click": "text=nothing of this kind", "optional": True}]
    actions += [{"click": ".next", "repeat": 10}]

    report, titles = await run(
        tmp_path, f"{lists.url}/app?mode=append", browser={"wait": ".item", "actions": actions}
    )

    assert titles == ALL
    assert (report.state, report.caveats.cuts) == (JobState.COMPLETE, ())


async def test_an_action_that_leads_away_from_the_page_of_an_item_is_a_warning(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    report, titles = await run(
        tmp_path,
        f"{lists.url}/static/1",
        items=None,
        key=None,
        browser={"wait": ".item", "actions": [{"click": ".next"}]},
    )

    assert titles == [rows_of(2)[0]]
    assert report.state is JobState.COMPLETE
    assert len(report.caveats.warnings) == 1


CLICK = {"browser": {"wait": ".item"}, "pages": {"click": ".next"}}


@pytest.mark.parametrize(
    "address",
    [
        "/static/1",
        "/posted",
        "/app",
        "/app?end=disabled",
        "/app?end=nothing",
        "/app?end=loop",
        "/app?mode=address",
        "/app?mode=slow",
        "/app?mode=append",
    ],
)
async def test_every_page_that_a_click_shows_is_read(
    lists: ScriptedSite, tmp_path: Path, address: str
) -> None:
    report, titles = await run(tmp_path, lists.url + address, **CLICK)

    assert titles == ALL
    assert (report.state, report.exit_code) == (JobState.COMPLETE, 0)
    assert (report.caveats.cuts, report.caveats.warnings) == ((), ())


@pytest.mark.parametrize("address", ["/static/1", "/posted", "/app"])
async def test_a_list_of_clicks_that_is_cut_by_most_pages_is_partial(
    lists: ScriptedSite, tmp_path: Path, address: str
) -> None:
    pages = {"click": ".next", "most_pages": 2}

    report, titles = await run(tmp_path, lists.url + address, **{**CLICK, "pages": pages})

    assert titles == sorted(rows_of(1) + rows_of(2))
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert len(report.caveats.cuts) == 1


@pytest.mark.parametrize(
    ("address", "opened"), [("/app?pages=14&end=disabled", 2), ("/static/1?pages=14", 1)]
)
async def test_a_long_list_is_read_in_several_visits(
    lists: ScriptedSite, tmp_path: Path, address: str, opened: int
) -> None:
    report, titles = await run(tmp_path, lists.url + address, **CLICK)

    assert len(titles) == 14 * SIZE
    assert (report.state, report.caveats.cuts) == (JobState.COMPLETE, ())
    assert lists.hits[address.partition("?")[0]] == opened


async def test_a_request_that_fails_after_a_click_is_tried_again(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    rows = lists.answers["/rows"]

    async def failing_once(request: web.Request) -> web.StreamResponse:
        is_first = lists.hits["/rows"] == 3
        return web.Response(status=500) if is_first else await rows(request)

    lists.answers["/rows"] = failing_once
    report, titles = await run(tmp_path, f"{lists.url}/app", **CLICK)

    assert titles == ALL
    assert report.state is JobState.COMPLETE


async def test_a_list_whose_next_page_always_fails_is_not_complete(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    rows = lists.answers["/rows"]

    async def failing(request: web.Request) -> web.StreamResponse:
        is_third = request.query["page"] == "3"
        return web.Response(status=403) if is_third else await rows(request)

    lists.answers["/rows"] = failing
    report, _ = await run(tmp_path, f"{lists.url}/app", **CLICK)

    assert report.state is not JobState.COMPLETE
    assert report.exit_code != 0


async def test_a_page_that_is_missing_behind_a_click_makes_the_job_partial(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    lists.says("/static/3", status=404)

    report, titles = await run(tmp_path, f"{lists.url}/static/1", **CLICK)

    assert titles == sorted(rows_of(1) + rows_of(2))
    assert (report.state, len(report.caveats.cuts)) == (JobState.PARTIAL, 1)


async def test_a_button_that_is_on_no_page_is_a_warning(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    report, titles = await run(
        tmp_path, f"{lists.url}/static/1", **{**CLICK, "pages": {"click": ".onward"}}
    )

    assert titles == sorted(rows_of(1))
    assert len(report.caveats.warnings) == 1


async def test_a_click_does_not_lead_where_robots_txt_forbids(
    lists: ScriptedSite, tmp_path: Path
) -> None:
    lists.says("/robots.txt", "User-agent: *\nDisallow: /static/2")

    report, _ = await run(tmp_path, f"{lists.url}/static/1", **CLICK)

    assert (report.state, report.exit_code) == (JobState.PAUSED, 4)
    assert lists.hits["/static/2"] == 0
    assert report.closed_host is not None
