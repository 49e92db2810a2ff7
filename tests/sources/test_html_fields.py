"""Fields of HTML pages: places, words, records in scripts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from longline.core.errors import UnexpectedShape
from longline.http.messages import Page
from longline.sources.html.items import ItemFinder
from longline.sources.html.manifest import HtmlManifest
from longline.sources.html.places import PageScope
from tests.sources.manifested import SITE, manifest_of, read
from tests.sources.scripted import notes_on, unexplained
from tests.virtual import VirtualClock

PAGE = """
<html><head><base href="/shop/">
<script type="application/ld+json">
{"@graph": [{"@type": "WebSite"}, {"@type": ["Thing", "schema:Product"], "name": "Cod
line", "offers": [{"price": "12.50", "priceCurrency": "EUR"}], "brand": {"@type": "Brand",
"name": "Gull"}}]}
</script>
<script id="state" type="application/json">{"stock": {"count": 7}, "tags": ["a", "b"]}</script>
<script>window.shop = {"id": 42}; window.other = 1;</script>
</head><body>
<h1 id="t1">  Cod <b>line</b>
strong </h1>
<div class="empty"> </div><span class="old">9,99 €</span>
<p class="about">One<br>two<script>no()</script><i>three</i></p>
<ul><li class="tag">red</li><li class="tag"> </li><li class="tag">blue</li></ul>
<table><tr><td>Hook</td><td>3</td></tr><tr><td>Reel</td><td>many</td></tr></table>
<a class="photo" href="photo.jpg">photo</a>
</body></html>
"""


async def test_a_text_is_the_text_of_the_first_element(clock: VirtualClock) -> None:
    data, _ = await read("fields: {title: h1, about: p.about}", PAGE, clock)

    assert data == {"title": "Cod line strong", "about": "One twothree"}


async def test_an_attribute_and_html_are_selected_with_an_at_sign(clock: VirtualClock) -> None:
    data, _ = await read("fields: {id: h1@id, html: .tag@html}", PAGE, clock)

    assert data == {"id": "t1", "html": "red"}


async def test_of_several_selectors_the_first_that_has_something_wins(
    clock: VirtualClock,
) -> None:
    data, visit = await read("fields: {price: [.price, .empty, .old]}", PAGE, clock)

    assert data == {"price": "9,99 €"}
    assert visit.origins == {"price": f"page {SITE}/p/1 css .old"}


async def test_what_is_not_there_is_none_and_says_where_it_was_looked_for(
    clock: VirtualClock,
) -> None:
    data, visit = await read("fields: {price: [.price, .empty]}", PAGE, clock)

    assert data == {"price": None}
    (note,) = notes_on(visit, "price")
    assert "css .price, css .empty" in note


async def test_a_default_is_used_only_if_written_and_with_a_note(
    clock: VirtualClock,
) -> None:
    data, visit = await read("fields: {price: {css: .price, default: 0}}", PAGE, clock)

    assert data == {"price": 0}
    assert visit.origins == {"price": f"page {SITE}/p/1 default"}
    assert "default" in notes_on(visit, "price")[0]


async def test_a_written_default_of_nothing_is_a_default_too(clock: VirtualClock) -> None:
    data, visit = await read("fields: {price: {css: .price, default: null}}", PAGE, clock)

    assert data == {"price": None}
    assert visit.origins == {"price": f"page {SITE}/p/1 default"}


async def test_a_record_without_a_required_field_is_no_record(clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match=r"price.*css \.price"):
        await read("fields: {price: {css: .price, required: true}}", PAGE, clock)


async def test_a_required_field_that_cannot_be_read_is_quoted(clock: VirtualClock) -> None:
    with pytest.raises(UnexpectedShape, match=r"price.*'Cod line strong'"):
        await read("fields: {price: {css: h1, type: money, required: true}}", PAGE, clock)


async def test_a_value_that_cannot_be_read_is_none_with_a_note_that_quotes_it(
    clock: VirtualClock,
) -> None:
    data, visit = await read("fields: {price: {css: h1, type: number}}", PAGE, clock)

    assert data == {"price": None}
    (note,) = notes_on(visit, "price")
    assert "'Cod line strong'" in note
    assert "number" in note


async def test_the_locale_of_the_site_holds_where_a_field_has_none(clock: VirtualClock) -> None:
    text = """
    locale: de
    fields:
      german: {css: p, type: number}
      english: {css: p, type: number, locale: en}
    """

    data, _ = await read(text, "<p>1.234</p>", clock)

    assert data == {"german": 1234.0, "english": 1.234}


async def test_a_list_has_all_that_is_not_empty(clock: VirtualClock) -> None:
    data, _ = await read("fields: {tags: {css: .tag, many: true}}", PAGE, clock)

    assert data == {"tags": ["red", "blue"]}


async def test_a_list_leaves_out_unreadable_values_and_notes_them(clock: VirtualClock) -> None:
    text = "fields: {counts: {css: 'td:last-child', many: true, type: integer}}"

    data, visit = await read(text, PAGE, clock)

    assert data == {"counts": [3]}
    (note,) = notes_on(visit, "counts")
    assert "'many'" in note
    assert "integer" in note


async def test_objects_have_fields_of_their_own(clock: VirtualClock) -> None:
    text = """
    fields:
      parts:
        css: tr
        many: true
        fields:
          name: td
          count: {css: "td:last-child", type: integer}
    """

    data, visit = await read(text, PAGE, clock)

    assert data["parts"] == [{"name": "Hook", "count": 3}, {"name": "Reel", "count": None}]
    assert notes_on(visit, "parts[1].count") != []


async def test_an_object_that_is_not_there_is_none(clock: VirtualClock) -> None:
    text = "fields: {maker: {css: .maker, fields: {name: b}}}"

    data, visit = await read(text, PAGE, clock)

    assert data == {"maker": None}
    assert unexplained(data, visit) == []


async def test_json_ld_is_found_by_its_type_wherever_it_is_nested(clock: VirtualClock) -> None:
    text = """
    fields:
      name: {json_ld: Product.name, type: text}
      brand: {json_ld: Brand.name}
      price: {json_ld: Product, path: "offers[0]", type: money}
      isbn: {json_ld: Book.isbn}
    """

    data, visit = await read(text, PAGE, clock)

    assert data == {
        "name": "Cod line",
        "brand": "Gull",
        "price": {"amount": 12.5, "currency": "EUR"},
        "isbn": None,
    }
    assert visit.origins["brand"] == f"page {SITE}/p/1 json-ld Brand.name"


async def test_a_list_from_json_ld_has_what_every_object_gives(clock: VirtualClock) -> None:
    html = """<script type="application/ld+json">[{"@type": "Review", "author": "Ann"},
    {"@type": "Review", "author": ["Bob", "Cy"]}]</script>"""

    data, _ = await read("fields: {by: {json_ld: Review.author, many: true}}", html, clock)

    assert data == {"by": ["Ann", "Bob", "Cy"]}


async def test_half_a_character_in_json_does_not_spoil_the_record(clock: VirtualClock) -> None:
    html = r'<script>x={"name": "cod \ud83d"}</script>'

    data, _ = await read("fields: {name: {after: 'x=', path: name}}", html, clock)

    assert data == {"name": "cod ?"}


async def test_json_in_scripts_is_found_by_selector_or_by_the_text_before_it(
    clock: VirtualClock,
) -> None:
    text = r"""
    fields:
      stock: {script: "#state", path: stock.count}
      tags: {script: "#state", path: tags, many: true}
      id: {after: 'window\.shop\s*=', path: id}
    """

    data, _ = await read(text, PAGE, clock)

    assert data == {"stock": 7, "tags": ["a", "b"], "id": 42}


async def test_a_field_may_come_from_the_url(clock: VirtualClock) -> None:
    data, _ = await read("fields: {number: {url: '/p/(\\d+)', type: integer}}", PAGE, clock)

    assert data == {"number": 1}


async def test_different_places_are_tried_in_order(clock: VirtualClock) -> None:
    text = "fields: {name: [.name, {json_ld: Book.name}, {url: '/p/(x)'}, h1@id]}"

    data, _ = await read(text, PAGE, clock)

    assert data == {"name": "t1"}


async def test_a_relative_url_is_resolved_with_the_base_of_the_page(clock: VirtualClock) -> None:
    data, _ = await read("fields: {photo: {css: .photo@href, type: url}}", PAGE, clock)

    assert data == {"photo": f"{SITE}/shop/photo.jpg"}


async def test_a_pattern_selects_a_part_of_the_text(clock: VirtualClock) -> None:
    text = "fields: {word: {css: h1, match: 'Cod (\\w+)'}, none: {css: h1, match: Hake}}"

    data, visit = await read(text, PAGE, clock)

    assert data == {"word": "line", "none": None}
    assert "Hake" in notes_on(visit, "none")[0]


@pytest.mark.parametrize("html", ["", "<<<", "<p>" * 5000, "\x00\x01"])
async def test_a_broken_page_has_no_fields_but_reasons(html: str, clock: VirtualClock) -> None:
    text = """
    fields:
      title: h1
      linked: {json_ld: X.y}
      embedded: {after: 'x=', path: y}
      nested: {css: h1, fields: {name: b}}
    """

    data, visit = await read(text, html, clock)

    assert set(data.values()) == {None}
    assert unexplained(data, visit) == []


async def test_a_note_says_that_bytes_of_the_page_were_replaced(clock: VirtualClock) -> None:
    body = "<h1>Reel für Dorsche, 90 €</h1>".encode().replace(b"</h1>", b"\xe9</h1>")

    data, visit = await read("fields: {title: h1}", body, clock)

    assert data == {"title": "Reel für Dorsche, 90 €\ufffd"}
    assert len(notes_on(visit, "page")) == 1


async def test_a_page_without_bad_bytes_has_no_note(clock: VirtualClock) -> None:
    _, visit = await read("fields: {title: h1}", "<h1>Reel für Dorsche</h1>", clock)

    assert visit.notes == []


PAGE_WORDS = "<h1>Продава  Двустаен апартамент</h1><p>Prefabricated  PANELS</p><i>1</i><i>?</i>"


async def test_a_word_is_mapped_to_its_value_in_any_case(clock: VirtualClock) -> None:
    text = """
        fields:
          rooms: {css: h1, match: 'Продава (\\w+)', words: {едностаен: 1, двустаен: 2}}
          kind: {css: p, words: {prefabricated panels: panel}}
    """

    data, visit = await read(text, PAGE_WORDS, clock)

    assert data == {"rooms": 2, "kind": "panel"}
    assert visit.notes == []


async def test_a_word_that_is_not_explained_is_empty_with_a_note(clock: VirtualClock) -> None:
    data, visit = await read("fields: {kind: {css: p, words: {brick: b}}}", PAGE_WORDS, clock)

    assert data == {"kind": None}
    (note,) = notes_on(visit, "kind")
    assert "PANELS" in note


async def test_of_many_words_the_unexplained_ones_are_left_out(clock: VirtualClock) -> None:
    data, visit = await read(
        "fields: {all: {css: i, many: true, words: {'1': one}}}", PAGE_WORDS, clock
    )

    assert data == {"all": ["one"]}
    assert len(notes_on(visit, "all")) == 1


@pytest.mark.parametrize(
    "field", ["{css: p, words: {a: 1}, type: integer}", "{fields: {x: p}, words: {a: 1}}"]
)
def test_words_and_a_type_or_fields_do_not_go_together(field: str) -> None:
    with pytest.raises(ValidationError, match="words"):
        manifest_of(f"fields: {{one: {field}}}\nstart: https://shop.test/")


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
