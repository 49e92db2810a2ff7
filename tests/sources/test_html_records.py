"""HTML manifests whose items are records in a script, and fields next to their element."""

from __future__ import annotations

from typing import Any

import pytest

from longline.http.messages import Page
from longline.sources.html.items import ItemFinder
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.places import PageScope

URL = "http://shop.test/list"


def items_of(manifest: dict[str, Any], html: str) -> list[dict[str, Any]]:
    finder = ItemFinder(HtmlManifest.model_validate({"name": "shop", "start": URL, **manifest}))
    page = Page(URL, 200, {"content-type": "text/html"}, html.encode())
    return [one.data["fields"] for one in finder.on_page(PageScope(page)).items]


def test_records_in_a_script_are_items() -> None:
    html = '<script id="__NEXT_DATA__">{"props": {"all": [{"n": 1}, {"n": 2}]}}</script>'
    items = {"script": "#__NEXT_DATA__", "records": "props.all"}

    found = items_of({"items": items, "fields": {"n": {"path": "n"}}}, html)

    assert found == [{"n": 1}, {"n": 2}]


def test_records_after_an_assignment_are_items() -> None:
    html = '<script>var a = 1;</script><script>window.state = [{"n": 1}, {"n": 2}];</script>'
    items = {"after": r"window\.state *= *", "records": "@"}

    found = items_of({"items": items, "fields": {"n": {"path": "n"}}}, html)

    assert found == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("script", ["", "no JSON", '{"props": 5}', '{"props": {"all": "text"}}'])
def test_a_script_without_records_has_no_items(script: str) -> None:
    items = {"script": "script", "records": "props.all"}

    found = items_of({"items": items, "fields": {"n": {"path": "n"}}}, f"<script>{script}</script>")

    assert found == []


@pytest.mark.parametrize(
    "items",
    [
        {"records": "props.all"},
        {"script": "#__NEXT_DATA__"},
        {"elements": "li", "records": "props.all", "script": "script"},
    ],
)
def test_records_and_script_go_together(items: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="records"):
        items_of({"items": items, "fields": {"n": {"path": "n"}}}, "")


LIST = """<dl><dt>A</dt><dd>first <a href="/1">one</a></dd><dt>B</dt><dd>second</dd>
<dt>C</dt><p>third</p></dl>"""


def test_a_field_may_be_in_the_element_after_its_item() -> None:
    fields = {"term": "@text", "text": "+ dd", "url": "+ dd a@href"}

    found = items_of({"items": {"elements": "dt"}, "fields": fields}, LIST)

    assert found == [
        {"term": "A", "text": "first one", "url": "/1"},
        {"term": "B", "text": "second", "url": None},
        {"term": "C", "text": None, "url": None},
    ]


def test_several_steps_lead_to_a_later_element() -> None:
    html = "<h2>A</h2><p>one</p><p>two</p>"

    found = items_of({"items": {"elements": "h2"}, "fields": {"text": "+ p + p"}}, html)

    assert found == [{"text": "two"}]


@pytest.mark.parametrize("selector", ["+", "+ ", "+ + dd", "+ dd["])
def test_a_broken_selector_after_an_item_is_refused(selector: str) -> None:
    with pytest.raises(ValueError, match="CSS"):
        items_of({"items": {"elements": "dt"}, "fields": {"text": selector}}, LIST)
