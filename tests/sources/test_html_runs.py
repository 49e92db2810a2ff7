from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from longline.core.model import ItemState
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.sources.manifested import SITE, linked, source_of
from tests.sources.scripted import ScriptedWeb, collect, discovered
from tests.virtual import VirtualClock

SHOP = """
manifest: html
name: shop
rate: unlimited
parameters: {base_url: {about: Where the shop is.}}
start: "{base_url}/list"
items: h3 a
pages: a.next
key: {url: "/p/(.+)"}
fields:
  title: h1
  price: {css: .price, type: money, required: true}
"""


@pytest.fixture
def shop(tmp_path: Path, site: ScriptedSite) -> Path:
    """A manifest in a file, and a shop of three pages, the last without a price."""
    site.says("/list", linked("/p/1", "/p/2", more='<a class="next" href="/more">x</a>'))
    site.says("/more", linked("/p/3"))
    for number in (1, 2):
        site.says(f"/p/{number}", f"<h1>Item {number}</h1><b class='price'>€{number}.50</b>")
    site.says("/p/3", "<h1>Item 3</h1>")
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return path


async def test_a_manifest_is_run_from_its_file(
    shop: Path, site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    options = {"base_url": site.url}
    async with Orchestrator(str(shop), options, home=tmp_path, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        records = {key: await orchestrator.store.records.get(key) for key in ("1", "2")}
        finished = await orchestrator.store.queue.finished(report.job)

    states = {row["key"]: row["state"] for row in finished}
    assert records["1"]["data"] == {
        "title": "Item 1",
        "price": {"amount": 1.5, "currency": "EUR"},
    }
    assert records["2"]["about"]["provenance"]["title"] == f"page {site.url}/p/2 css h1"
    assert states == {
        "1": ItemState.STORED,
        "2": ItemState.STORED,
        "3": ItemState.QUARANTINED,
    }


async def test_elements_become_records_with_one_request_a_page(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    site.says("/robots.txt", "")
    site.says("/quotes", "<p><b>one</b></p><p><b>two</b></p><p></p>")
    path = tmp_path / "quotes.yaml"
    path.write_text(f"""
manifest: html
name: quotes
rate: unlimited
start: {site.url}/quotes
items: {{elements: p}}
fields: {{text: {{css: b, required: true}}}}
""")

    async with Orchestrator(str(path), home=tmp_path, clock=clock) as orchestrator:
        counts = (await orchestrator.execute()).as_dict()

    assert (counts["discovered"], counts["stored"], counts["quarantined"]) == (3, 2, 1)
    assert site.hits["/quotes"] == 1


def test_what_a_manifest_says_is_said_by_the_source() -> None:
    source = source_of(f"""
        start: {SITE}
        version: "4"
        about: All of it.
        rate: unlimited
        burst: 9
        headers: {{Accept-Language: en}}
        cache: true
        expects: [main]
        volatile: [title]
    """)

    kind = type(source)
    assert (kind.name, kind.version, kind.__doc__) == ("shop", "4", "All of it.")
    assert (kind.rate, kind.burst, kind.cache) == (None, 9, True)
    assert (kind.headers, kind.cookies, kind.auth) == ({"Accept-Language": "en"}, True, None)
    assert (kind.expects, kind.volatile) == (("main",), frozenset({"title"}))
    assert [one.name for one in kind.layers()] == ["page"]


Rendered = Callable[[str, str], Awaitable[list[bool]]]


@pytest.fixture
def rendered(clock: VirtualClock) -> Rendered:
    """Collect one item with a transport; say of each request whether it was for the browser."""

    async def run(transport: str, body: str) -> list[bool]:
        text = f"start: {SITE}/list\nitems: h3 a\ntransport: {transport}"
        web = ScriptedWeb({f"{SITE}/list": linked("/p/1"), f"{SITE}/p/1": body})
        source = source_of(text)
        items, _ = await discovered(source, web, clock)
        await collect(source, web, items[0], clock)
        return [request.is_rendered for request in web.requests]

    return run


async def test_plain_requests_are_for_no_browser(rendered: Rendered) -> None:
    assert await rendered("http", "") == [False, False]


async def test_a_browser_opens_every_page(rendered: Rendered) -> None:
    assert await rendered("browser", "<h1>x</h1>") == [True, True]


async def test_auto_uses_the_browser_only_for_pages_without_fields(rendered: Rendered) -> None:
    assert await rendered("auto", "<h1>x</h1>") == [False, False]
    assert await rendered("auto", "<div id=app></div>") == [False, False, True]


async def test_auto_opens_a_list_in_the_browser_when_nothing_is_on_it(
    clock: VirtualClock,
) -> None:
    text = f"start: {SITE}/list\nitems: h3 a\ntransport: auto"
    web = ScriptedWeb({f"{SITE}/list": ["<div id=app></div>", linked("/p/1")]})

    items, _ = await discovered(source_of(text), web, clock)

    assert [item.key for item in items] == ["/p/1"]
    assert [request.is_rendered for request in web.requests] == [False, True]
