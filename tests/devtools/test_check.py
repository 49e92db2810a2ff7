"""One page through every layer: what an author is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import load_settings
from longline.core.errors import BadFile, DiscoveryFailed
from longline.core.model import Item, OutcomeAction
from longline.devtools.check import Checks, cases_in, check_source, record_case, replay_case
from longline.devtools.session import open_session, session_spec
from longline.http.errors import RobotsDisallowed
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

MANIFEST = """
manifest: html
name: things
start: {site}/list
items: a.thing
fields:
  title: {{css: h1, required: true}}
  price: {{css: .price, type: number}}
  colour: .colour
"""
LIST = '<a class="thing" href="/1">1</a><a class="thing" href="/2">2</a>'
HTML = {"content-type": "text/html"}


async def checked(home: Path, clock: VirtualClock, source: str, **more: Any) -> Checks:
    options = more.pop("set", {})
    spec = session_spec(source, {"set": options})
    async with open_session(load_settings(home=home), spec, clock) as bench:
        return await check_source(bench, clock, **more)


@pytest.fixture
def things(tmp_path: Path, site: ScriptedSite) -> str:
    """A manifest of things; the first is whole, the second has no title."""
    site.says("/list", LIST, headers=HTML)
    site.says("/1", "<h1>One</h1><p class=price>5</p>", headers=HTML)
    site.says("/2", "<p class=price>cheap</p>", headers=HTML)
    path = tmp_path / "things.yaml"
    path.write_text(MANIFEST.format(site=site.url))
    return str(path)


async def test_a_crawl_is_checked_on_the_first_item_that_its_pages_lead_to(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    site.says("/", '<a href="/c/1">more</a>', headers=HTML)
    site.says("/c/1", '<a href="/p/1">one</a>', headers=HTML)
    site.says("/p/1", "<h1>One</h1>", headers=HTML)
    path = tmp_path / "crawled.yaml"
    path.write_text(
        "manifest: html\nname: crawled\ncrawl: {items: {allow: /p/}}\n"
        f"start: {site.url}/\nfields: {{title: h1}}\n"
    )

    checks = await checked(tmp_path, clock, str(path))

    (check,) = checks.items
    assert (check.item.key, check.action) == ("/p/1", OutcomeAction.STORE)
    assert len(checks.discovery) == 2


async def test_a_field_is_shown_with_its_selector_and_why_it_is_empty(
    tmp_path: Path, clock: VirtualClock, things: str
) -> None:
    checks = await checked(tmp_path, clock, things)

    (check,) = checks.items
    fields = {one.name: one for one in check.fields}
    assert (checks.exit_code, check.action) == (0, OutcomeAction.STORE)
    assert (fields["title"].value, fields["price"].value) == ("One", 5.0)
    assert "h1" in (fields["title"].origin or "")
    assert fields["colour"].value is None
    assert fields["colour"].notes != ()
    assert check.quality is not None
    assert check.quality.score < 100


async def test_requests_of_discovery_and_item_are_listed_separately(
    tmp_path: Path, clock: VirtualClock, things: str, site: ScriptedSite
) -> None:
    checks = await checked(tmp_path, clock, things)

    (found,) = checks.discovery
    (asked,) = checks.items[0].exchanges
    assert (found.request.url, found.status, found.requests) == (f"{site.url}/list", 200, 2)
    assert (asked.request.url, asked.status, asked.requests) == (f"{site.url}/1", 200, 1)
    assert asked.as_dict()["bytes"] == 32
    assert site.hits["/2"] == 0


async def test_a_required_field_that_is_missing_is_exit_code_3(
    tmp_path: Path, clock: VirtualClock, things: str, site: ScriptedSite
) -> None:
    item = Item("2", f"{site.url}/2")

    checks = await checked(tmp_path, clock, things, only=item)

    (check,) = checks.items
    assert (check.action, checks.exit_code) == (OutcomeAction.QUARANTINE, 3)
    assert "title" in (check.reason or "")
    assert check.layers[0].end.startswith("failed")
    assert site.hits["/list"] == 0


async def test_a_page_that_is_gone_is_exit_code_1(
    tmp_path: Path, clock: VirtualClock, things: str, site: ScriptedSite
) -> None:
    checks = await checked(tmp_path, clock, things, only=Item("3", f"{site.url}/3"))

    (check,) = checks.items
    (asked,) = check.exchanges
    assert (check.action, checks.exit_code) == (OutcomeAction.SKIP, 1)
    assert (asked.status, asked.as_dict()["bytes"]) == (404, None)


async def test_the_worst_of_several_items_decides(
    tmp_path: Path, clock: VirtualClock, things: str
) -> None:
    checks = await checked(tmp_path, clock, things, items=2)

    assert [one.exit_code for one in checks.items] == [0, 3]
    assert checks.exit_code == 3


async def test_each_layer_has_its_duration(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    site.says("/item/0", "more")
    site.says("/extra", "extra text")
    source = {"set": {"site": site.url, "count": 1}}

    (check,) = (await checked(tmp_path, clock, "tests.sample_sources:PageSource", **source)).items

    assert [(one.name, one.end) for one in check.layers] == [("page", "ok"), ("extra", "ok")]
    assert all(one.seconds is not None for one in check.layers)
    assert [one.request.url for one in check.exchanges] == [
        f"{site.url}/item/0",
        f"{site.url}/extra",
    ]


async def test_data_that_the_model_refuses_is_shown_with_the_reason(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    site.says("/item/0", "[1]")
    source = {"set": {"site": site.url, "count": 1}}

    (check,) = (await checked(tmp_path, clock, "tests.sample_sources:PageSource", **source)).items

    assert check.exit_code == 3
    assert "text" in (check.reason or "")
    assert check.data == {"text": [1], "extra": None}


async def test_a_source_without_items_is_an_error(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite
) -> None:
    with pytest.raises(DiscoveryFailed) as failed:
        await checked(
            tmp_path, clock, "tests.sample_sources:PageSource", set={"site": site.url, "count": 0}
        )

    assert failed.value.source == "pages"


async def test_robots_txt_is_obeyed_by_a_check(
    tmp_path: Path, clock: VirtualClock, things: str, site: ScriptedSite
) -> None:
    site.says("/robots.txt", "User-agent: *\nDisallow: /\n")

    with pytest.raises(RobotsDisallowed):
        await checked(tmp_path, clock, things)
    assert site.hits["/list"] == 0


CASE_MANIFEST = """
manifest: html
name: things
start: {site}/1
fields:
  title: {{css: h1, required: true}}
  price: {{css: .price, type: number}}
"""
CASE_HTML = {"content-type": "text/html", "set-cookie": "session=secret"}


async def record(folder: Path, home: Path, clock: VirtualClock, source: str, item: Item) -> None:
    spec = session_spec(source)
    async with open_session(load_settings(home=home), spec, clock) as bench:
        (check,) = (await check_source(bench, clock, only=item)).items
    record_case(folder, spec, check, clock.now())


@pytest.fixture
async def case(tmp_path: Path, clock: VirtualClock, site: ScriptedSite) -> Path:
    """A recorded page, and its manifest beside the folder of cases."""
    site.says("/1", "<h1>One</h1><p class=price>5</p>", headers=CASE_HTML)
    source = tmp_path / "things.yaml"
    source.write_text(CASE_MANIFEST.format(site=site.url))
    folder = tmp_path / "cases" / "one"
    await record(folder, tmp_path / "home", clock, str(source), Item("1", f"{site.url}/1"))
    return folder


async def test_a_recorded_page_gives_the_same_record_without_a_request(
    case: Path, site: ScriptedSite
) -> None:
    asked = sum(site.hits.values())

    result = await replay_case(case)

    assert result.is_same
    assert sum(site.hits.values()) == asked


async def test_a_secret_that_the_site_echoes_is_neither_shown_nor_kept(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THINGS_TOKEN", "t0ken/of+mine")
    echoes = "<h1>for t0ken/of+mine</h1><a href='/?t=t0ken%2Fof%2Bmine'>on</a>"
    site.says("/1", echoes, headers={**CASE_HTML, "x-echo": "t0ken/of+mine"})
    source = tmp_path / "things.yaml"
    auth = f"auth: {{kind: bearer, token: env:THINGS_TOKEN, hosts: ['{site.url[7:]}']}}"
    source.write_text(CASE_MANIFEST.format(site=site.url) + auth)
    spec, home = session_spec(str(source)), load_settings(home=tmp_path / "home")

    async with open_session(home, spec, clock) as bench:
        checks = await check_source(bench, clock, items=1)
    record_case(tmp_path / "case", spec, checks.items[0], clock.now())

    kept = b"".join(path.read_bytes() for path in (tmp_path / "case").iterdir())
    shown = json.dumps(checks.as_dict())
    assert checks.items[0].data["title"] == "for ***"
    assert all(word not in shown.encode() + kept for word in (b"t0ken/of", b"t0ken%2F"))
    assert (await replay_case(tmp_path / "case")).is_same


async def test_a_change_of_the_source_is_reported_field_by_field(case: Path) -> None:
    source = case.parent.parent / "things.yaml"
    source.write_text(source.read_text().replace("price: {css: .price, type: number}", "p: .price"))

    result = await replay_case(case)

    removed, added = result.differences
    assert removed.startswith("price: ")
    assert "5.0" in removed
    assert added.startswith("p: ")
    assert '"5"' in added


async def test_a_page_that_changes_in_the_files_is_another_record(case: Path) -> None:
    answer = next(case.glob("answer-*.html"))
    answer.write_text(answer.read_text().replace("One", "Two"))

    result = await replay_case(case)

    (difference,) = result.differences
    assert difference.startswith("title: ")
    assert difference.index('"One"') < difference.index('"Two"')


async def test_a_record_that_is_lost_is_reported_with_the_reason(case: Path) -> None:
    next(case.glob("answer-*.html")).write_text("<p>nothing</p>")

    (difference,) = (await replay_case(case)).differences

    assert OutcomeAction.QUARANTINE in difference
    assert OutcomeAction.STORE in difference
    assert "title" in difference


async def test_a_request_that_was_not_recorded_is_an_error_and_not_made(
    case: Path, site: ScriptedSite
) -> None:
    shown = json.loads((case / "case.json").read_text())
    shown["item"]["url"] = f"{site.url}/2"
    (case / "case.json").write_text(json.dumps(shown))

    (difference,) = (await replay_case(case)).differences

    assert f"GET {site.url}/2" in difference
    assert site.hits["/2"] == 0


async def test_cookies_are_not_written_down(case: Path) -> None:
    assert "secret" not in (case / "case.json").read_text()


@pytest.mark.usefixtures("case")
async def test_source_and_cases_may_be_moved_together(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "things.yaml").rename(elsewhere / "things.yaml")
    (tmp_path / "cases").rename(elsewhere / "cases")

    assert (await replay_case(elsewhere / "cases" / "one")).is_same


async def test_a_page_that_is_gone_can_be_a_case_too(
    tmp_path: Path, clock: VirtualClock, site: ScriptedSite, case: Path
) -> None:
    folder = case.parent / "gone"

    await record(
        folder, tmp_path / "home", clock, str(tmp_path / "things.yaml"), Item("2", f"{site.url}/2")
    )

    assert json.loads((folder / "expected.json").read_text())["action"] == "skip"
    assert (await replay_case(folder)).is_same
    assert cases_in(case.parent) == [folder, case]


def test_a_folder_without_a_case_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"case\.json"):
        cases_in(tmp_path)


async def test_a_broken_case_is_refused(case: Path) -> None:
    (case / "case.json").write_text("{}")

    with pytest.raises(BadFile) as refused:
        await replay_case(case)

    assert refused.value.path.startswith(str(case))
