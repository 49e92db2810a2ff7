"""JSON-LD as sites write it, microdata and Open Graph as places of fields."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from selectolax.lexbor import LexborHTMLParser

from longline.sources.html.content import Microdata, open_graph_of, read_json_ld
from tests.sources.manifested import SITE, manifest_of, read
from tests.sources.scripted import notes_on
from tests.virtual import VirtualClock

SHOP = """
<head><meta property="og:title" content="Cod line"><meta property="og:image" content="/1.jpg">
<meta property="og:image" content="/2.jpg"><meta property="og:empty" content=" ">
<meta name="product:price:amount" content="12.50"></head>
<div itemscope itemtype="https://schema.org/Product" itemref="more">
 <h1 itemprop="name">Cod <b>line</b></h1><p><img itemprop="image" src="/cod.jpg">
 <div itemprop="offers" itemscope itemtype="http://schema.org/Offer">
  <meta itemprop="priceCurrency" content="EUR"><span itemprop="price" content="12.5">12,50 €</span>
  <link itemprop="availability" href="https://schema.org/InStock">
 </div>
 <time itemprop="releaseDate" datetime="2024-05-01">May</time>
 <p itemprop="color">red</p><p itemprop="color">blue</p>
</div>
<div id="more"><span itemprop="sku">A-1</span></div>
"""


@pytest.mark.parametrize(
    "text",
    [
        '// made by a plugin\n{"@type": "Product", "name": "a//b"}',
        '/* <b> */ {"@type": "Product", /* x */ "name": "a//b"}',
        '<!-- made by a plugin -->{"@type": "Product", "name": "a//b"}',
        '<!--\n{"@type": "Product", "name": "a//b"}\n-->',
        '<![CDATA[{"@type": "Product", "name": "a//b"}]]>',
        '//<![CDATA[\n{"@type": "Product", "name": "a//b"}\n//]]>',
        '// <![CDATA[ {"@type": "Product", "name": "a//b"} // ]]>',
        '/*<![CDATA[*/{"@type": "Product", "name": "a//b"}/*]]>*/',
        '{"@type": "Product", "name": "a//b",}',
        '{"@type": "Product", "name": "a//b", // end\n}',
        '\ufeff{"@type": "Product", "name": "a//b"}',
        '{"@type": "Product", "name": "a//b"};',
        '{"@type": "Product", "name": "a\\/\\/b"}\n',
        "{&quot;@type&quot;: &quot;Product&quot;, &quot;name&quot;: &quot;a//b&quot;}",
    ],
)
def test_json_ld_with_common_errors_is_read(text: str) -> None:
    assert read_json_ld(text) == [{"@type": "Product", "name": "a//b"}]


def test_texts_of_json_ld_are_kept_as_they_are() -> None:
    text = r"""{"a": "x, ]", "b": "<!-- no -->", "c": "/* no */", "d": "it\'s \\ \"x\"",}"""

    assert read_json_ld(text) == [
        {"a": "x, ]", "b": "<!-- no -->", "c": "/* no */", "d": 'it\'s \\ "x"'}
    ]


def test_several_objects_in_one_script_are_read() -> None:
    assert read_json_ld('{"a": 1}\n{"b": 2},{"c": 3}{broken') == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize(
    "text", ["", "nothing", "{", '{"a": ', "/*" * 50_000, "<!--" * 50_000, '{"' + '\\"' * 50_000]
)
def test_what_is_no_json_ld_gives_nothing(text: str) -> None:
    assert read_json_ld(text) == []


async def test_the_type_of_a_script_may_have_parameters(clock: VirtualClock) -> None:
    html = '<script type="Application/LD+JSON; charset=utf-8">{"@type": "Product", "name": "a",}'

    data, _ = await read("fields: {name: {json_ld: Product.name}}", html, clock)

    assert data == {"name": "a"}


async def test_fields_are_read_from_microdata(clock: VirtualClock) -> None:
    text = """
    fields:
      name: {microdata: Product.name}
      price: {microdata: Product.offers.price, type: number}
      currency: {microdata: Offer.priceCurrency}
      stock: {microdata: Product.offers.availability}
      image: {microdata: Product.image}
      day: {microdata: Product.releaseDate, type: date}
      colours: {microdata: Product.color, many: true}
      sku: {microdata: Product, path: sku}
      brand: {microdata: Product.brand}
    """
    data, visit = await read(text, SHOP, clock)

    assert data == {
        "name": "Cod line",
        "price": 12.5,
        "currency": "EUR",
        "stock": "https://schema.org/InStock",
        "image": f"{SITE}/cod.jpg",
        "day": "2024-05-01",
        "colours": ["red", "blue"],
        "sku": "A-1",
        "brand": None,
    }
    assert visit.origins["name"] == f"page {SITE}/p/1 microdata Product.name"
    assert len(notes_on(visit, "brand")) == 1


async def test_fields_are_read_from_open_graph(clock: VirtualClock) -> None:
    text = """
    fields:
      title: {open_graph: "og:title"}
      images: {open_graph: "og:image", many: true}
      price: {open_graph: "product:price:amount", type: number}
      first: [h2, {open_graph: "og:title"}]
      none: {open_graph: "og:empty"}
    """
    data, visit = await read(text, SHOP, clock)

    assert data == {
        "title": "Cod line",
        "images": ["/1.jpg", "/2.jpg"],
        "price": 12.5,
        "first": "Cod line",
        "none": None,
    }
    assert visit.origins["title"] == f"page {SITE}/p/1 open-graph og:title"


def test_microdata_of_an_element_is_only_its_own() -> None:
    tree = LexborHTMLParser(
        "<ul>" + "".join(f"<li itemscope><b itemprop=n>{n}</b></li>" for n in "ab") + "</ul>"
    )
    data = Microdata(tree, SITE)

    assert [list(data.within(node)) for node in tree.css("li")] == [[{"n": "a"}], [{"n": "b"}]]


def test_items_that_refer_to_each_other_do_not_run_in_circles() -> None:
    tree = LexborHTMLParser(
        "<div id=a><i itemscope itemprop=x itemref=b></i></div>"
        "<div id=b><i itemscope itemprop=y itemref=a></i></div>"
    )

    assert list(Microdata(tree, SITE).within(None)) == [{}, {}]


def test_open_graph_needs_a_prefix() -> None:
    tree = LexborHTMLParser('<meta name="viewport" content="x"><meta property="og:a" content="b">')

    assert open_graph_of(tree) == {"og:a": ["b"]}


@pytest.mark.parametrize(
    "place",
    [
        "{microdata: .name}",
        "{microdata: 'Product.a['}",
        "{json_ld: 'Product.a['}",
        "{open_graph: title}",
        "{json_ld: Product, microdata: Product}",
    ],
)
def test_a_place_that_cannot_be_used_is_refused(place: str) -> None:
    with pytest.raises(ValidationError):
        manifest_of(f"start: {SITE}\nfields: {{a: {place}}}")
