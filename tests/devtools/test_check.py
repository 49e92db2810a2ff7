"""One page through every layer: what an author is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import load_settings
from longline.core.errors import DiscoveryFailed
from longline.core.model import Item, OutcomeAction
from longline.devtools.check import Checks, check_source
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


async def test_requests_of_the_search_and_of_the_item_are_told_apart(
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


async def test_each_layer_tells_how_long_it_took(
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
