"""HTML that is made to stop a parser: it costs its page, and ordinary pages pay nothing for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.errors import FailureKind, UnexpectedShape
from longline.core.model import ItemState, Usage
from longline.http.errors import BadAnswer
from longline.http.messages import Middleware, Page, Request
from longline.http.middleware.html_guard import HtmlGuard, HtmlProbe, is_suspicious
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

URL = "http://site.test/page"
HTML = {"content-type": "text/html; charset=utf-8"}
ROW = '<tr><td class="name"><a href="/p/{0}">Item {0}</a><td><b>{0}</b><br></td></tr>\n'


def numbered(text: str, count: int) -> str:
    return "".join(text.format(number) for number in range(count))


HOSTILE = {
    "nested elements": "<div>" * 30_000,
    "nested lists": "<ul><li>" * 15_000,
    "nested formatting elements": "<b>" * 60_000,
    "formatting elements that are opened again": numbered("<p><b id={}>", 3_000),
    "formatting elements closed by nothing": numbered("<b a={}>", 2_500) + "<div></b>" * 2_500,
    "links with blocks": "<a><div>" * 20_000,
    "nested tables": "<table><tr><td>" * 20_000,
    "nested images": "<svg>" * 60_000,
    "nested formulas": "<math>" * 60_000,
    "nested templates": "<template>" * 100_000,
    "nested options": "<select>" + "<optgroup><option>" * 15_000,
    "end tags of nothing": "<div>" * 20_000 + "</x>" * 60_000,
    "attributes": "<p " + numbered("a{}=1 ", 30_000) + ">",
    "attributes of the body": numbered("<body a{}=1>", 20_000),
    "too many elements": "<p>x" * 3_000_000,
    "balanced by end tags that close nothing": numbered("<div></b>", 40_000) + "<b>" * 40_000,
}
HARMLESS = {
    "a page": "<h1>x</h1>" + numbered(ROW, 50),
    "a long text": "<p>" + "words of a text " * 10_000,
    "a long script": "<script>" + "x=1;" * 50_000 + "</script><p>x",
    "a long table": "<table>" + numbered(ROW, 20_000) + "</table>",
    "unclosed list items": "<ul>" + "<li>x" * 30_000,
    "unterminated comment": "<!--" * 50_000,
    "entities": "&amp;&notit;&#x1F600;" * 30_000,
    "one attribute again and again": "<p " + "a=1 " * 30_000 + ">",
    "a huge attribute": f"<p title='{'x' * 1_000_000}'>",
}


class Given(Middleware):
    """Answers every request with one page."""

    def __init__(self, html: str, headers: dict[str, str] | None = None) -> None:
        self.page = Page(URL, 200, HTML if headers is None else headers, html.encode())

    async def __call__(self, _request: Request, _account: Usage) -> Page:
        return self.page


class Counting:
    """Finds all texts good, and counts them."""

    calls = 0

    def __call__(self, _text: bytes) -> bool:
        self.calls += 1
        return True


@pytest.fixture(scope="module")
def probe() -> Iterator[HtmlProbe]:
    probe = HtmlProbe()
    yield probe
    probe.close()


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_html_is_an_invalid_answer(name: str, probe: HtmlProbe) -> None:
    with pytest.raises(BadAnswer) as caught:
        await HtmlGuard(Given(HOSTILE[name]), probe)(Request(URL), Usage())

    assert caught.value.kind is FailureKind.INVALID


@pytest.mark.parametrize("name", HARMLESS)
async def test_html_that_is_only_long_is_passed_on(name: str, probe: HtmlProbe) -> None:
    given = Given(HARMLESS[name])

    page = await HtmlGuard(given, probe)(Request(URL), Usage())

    assert page is given.page


async def test_ordinary_pages_are_not_probed() -> None:
    probe = Counting()
    pages = ["", "<p>x", "<h1>x</h1>" + numbered(ROW, 300), HARMLESS["a long text"]]

    for html in pages:
        await HtmlGuard(Given(html), probe)(Request(URL), Usage())

    assert probe.calls == 0


async def test_json_is_not_probed_and_has_no_tree() -> None:
    probe = Counting()
    given = Given("<div>" * 30_000, {"content-type": "application/json"})

    page = await HtmlGuard(given, probe)(Request(URL), Usage())

    assert probe.calls == 0
    with pytest.raises(UnexpectedShape):
        _ = page.tree


def test_a_probe_works_again_after_it_was_killed() -> None:
    probe = HtmlProbe()

    found = [probe(text.encode()) for text in ("<p>x", HOSTILE["nested elements"], "<p>x")]
    probe.close()

    assert found == [True, False, True]


def test_the_counts_pass_over_small_pages() -> None:
    assert not is_suspicious(b"<div>" * 1_500)
    assert is_suspicious(HOSTILE["nested elements"].encode())


async def test_a_hostile_page_costs_its_item_and_no_other(
    site: ScriptedSite, tmp_path: Path, clock: VirtualClock
) -> None:
    pages = {"/p/1": "<h1>One</h1>", "/p/2": "<h1>Two</h1>" + "<div>" * 20_000, "/p/3": "<h1>x"}
    site.says("/", "".join(f"<h3><a href={path}>x</a></h3>" for path in pages))
    for address, html in pages.items():
        site.says(address, html, headers={"content-type": "text/html"})
    path = tmp_path / "shop.yaml"
    path.write_text(f"""
manifest: html
name: shop
rate: unlimited
start: {site.url}/
items: h3 a
key: {{url: "/p/(.+)"}}
fields: {{title: h1}}
""")

    async with Orchestrator(str(path), home=tmp_path, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        finished = await orchestrator.store.queue.finished(report.job)

    states = {row["key"]: row["state"] for row in finished}
    assert states == {
        "1": ItemState.STORED,
        "2": ItemState.QUARANTINED,
        "3": ItemState.STORED,
    }
