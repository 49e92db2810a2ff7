"""Lists in a browser: pages behind a button, and actions that replace a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from pydantic import ValidationError

from longline.core.model import Cursor, Item, JobState, Usage
from longline.engine.report import JobReport
from longline.http.browser.transport import BrowserPage, Clicked, Shown, clicked_in, with_clicked
from longline.http.messages import Middleware, Page, Request
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.source import html_source
from longline.storage.query import RecordQuery
from tests.http.browsing import skip_without_browser
from tests.scripted_site import ScriptedSite
from tests.sources.clicked_site import PAGES, SIZE, build, rows_of
from tests.sources.manifested import SITE
from tests.virtual import VirtualClock

MANIFEST: dict[str, Any] = {
    "name": "shop",
    "start": f"{SITE}/list",
    "items": {"elements": ".item"},
    "key": "b",
    "fields": {"title": "b"},
    "transport": "browser",
    "pages": {"click": ".next"},
}


class Clicking(Middleware):
    """A list of so many pages that clicks lead to, as the browser gives it."""

    def __init__(self, pages: int, *, has_address: bool = False) -> None:
        self._pages = pages
        self._has_address = has_address
        self.asked: list[tuple[str, int, int]] = []

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        assert request.clicks is not None
        clicks = request.clicks
        self.asked.append((request.url.removeprefix(SITE), clicks.skip, clicks.most))
        opened = int(request.url.partition("#")[2] or 1)
        first = opened + clicks.skip
        last = min(first + clicks.most - 1, self._pages)
        shown = tuple(
            Shown(f"{SITE}/list#{number}", f"<p class=item><b>{number}</b></p>")
            for number in range(first, last + 1)
        )
        end = "more" if last < self._pages else "last"
        clicked = Clicked(shown, end, self._has_address)
        return BrowserPage(request.url, 200, {}, b"", clicked=clicked)


async def discover(
    link: Clicking, clock: VirtualClock, cursor: Cursor | None = None, **said: Any
) -> tuple[list[str], list[Cursor], Visit]:
    manifest = HtmlManifest.model_validate({**MANIFEST, **said})
    source = html_source(manifest).with_options({})
    visit = Visit(link, clock, cursor=cursor.value if cursor else None)
    found = [one async for one in source.discover(visit)]
    keys = [one.key for one in found if isinstance(one, Item)]
    return keys, [one for one in found if isinstance(one, Cursor)], visit


async def test_each_visit_clicks_further_than_the_last(clock: VirtualClock) -> None:
    link = Clicking(45)

    keys, _, visit = await discover(link, clock)

    assert keys == [str(number) for number in range(1, 46)]
    assert link.asked == [("/list", 0, 10), ("/list", 10, 20), ("/list", 30, 40)]
    assert visit.cuts == []


async def test_pages_with_a_url_are_not_clicked_through_again(clock: VirtualClock) -> None:
    link = Clicking(45, has_address=True)

    keys, _, _ = await discover(link, clock)

    assert keys == [str(number) for number in range(1, 46)]
    assert link.asked == [("/list", 0, 10), ("/list#10", 1, 20), ("/list#30", 1, 40)]


@pytest.mark.parametrize("has_address", [False, True])
async def test_a_discovery_goes_on_after_the_last_visit_that_was_committed(
    clock: VirtualClock, *, has_address: bool
) -> None:
    _, cursors, _ = await discover(Clicking(45, has_address=has_address), clock)

    keys, _, _ = await discover(Clicking(45, has_address=has_address), clock, cursors[0])

    assert keys == [str(number) for number in range(11, 46)]


async def test_most_pages_bounds_the_clicks_and_is_reported(clock: VirtualClock) -> None:
    link = Clicking(45)

    keys, _, visit = await discover(link, clock, pages={"click": ".next", "most_pages": 13})

    assert len(keys) == 13
    assert [most for _, _, most in link.asked] == [10, 3]
    assert len(visit.cuts) == 1


async def test_most_pages_of_the_source_bounds_the_clicks_too(clock: VirtualClock) -> None:
    keys, _, visit = await discover(Clicking(45), clock, most_pages=12)

    assert len(keys) == 12
    assert len(visit.cuts) == 1


async def test_a_list_that_has_become_shorter_is_reported(clock: VirtualClock) -> None:
    class Shorter(Clicking):
        async def __call__(self, request: Request, usage: Usage) -> Page:
            page = await super().__call__(request, usage)
            assert request.clicks is not None
            if not request.clicks.skip:
                return page
            return BrowserPage(page.url, 200, {}, b"", clicked=Clicked((), "only 4 pages"))

    keys, _, visit = await discover(Shorter(45), clock)

    assert len(keys) == 10
    assert len(visit.cuts) == 1


def test_pages_of_clicks_survive_an_archive() -> None:
    shown = (Shown(f"{SITE}/1", "<b>1</b><script>1</script>"), Shown(f"{SITE}/2", "<b>ö</b>"))
    clicked = Clicked(shown, "more", has_address=True)
    body = with_clicked("<html><b>2</b></html>", clicked).encode()

    archived = Page(SITE, 200, {"content-type": "text/html; charset=utf-8"}, body)

    assert clicked_in(archived) == clicked


def test_clicks_need_a_browser() -> None:
    with pytest.raises(ValidationError, match="transport: browser"):
        HtmlManifest.model_validate({**MANIFEST, "transport": "http"})


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
    ("address", "opened"), [("/app?pages=5&end=disabled", 2), ("/static/1?pages=5", 1)]
)
async def test_a_long_list_is_read_in_several_visits(
    lists: ScriptedSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    opened: int,
) -> None:
    monkeypatch.setattr("longline.sources.html.source._FIRST_CLICKS", 3)

    report, titles = await run(tmp_path, lists.url + address, **CLICK)

    assert len(titles) == 5 * SIZE
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


async def test_a_missing_page_after_a_click_makes_the_job_partial(
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
