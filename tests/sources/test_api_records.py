"""Records of an API: keys, fields, details, child lists and duplicate keys."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import web

from longline.core.errors import Deferred, DiscoveryFailed, Gone, UnexpectedShape
from longline.core.model import Item, OutcomeAction
from tests.sources.api_bench import ApiSite, Bench


def listing(more: str = "") -> str:
    return f"""
endpoints:
  products:
    path: /products
    records: items
    key: id
    {more}
"""


TREE = """
endpoints:
  shops: {path: /shops, records: shops, key: code, collect: false}
  shelves:
    parent: shops
    path: /shops/{parent.code}/shelves
    records: '@'
    key: ['{parent.code}', no]
    collect: false
  goods:
    parent: shelves
    path: /shops/{parent.parent.code}/shelves/{parent.no}/goods
    records: '@'
    key: id
    fields: {id: id, shop: '{parent.parent.code}', shelf: '{parent.no}'}
"""


def grow(api: ApiSite) -> None:
    api.says("/shops", {"shops": [{"code": "n", "x": "y" * 500}, {"code": "s"}]})
    for shop in "ns":
        api.says(f"/shops/{shop}/shelves", [{"no": 1}, {"no": 2}])
        for shelf in (1, 2):
            api.says(f"/shops/{shop}/shelves/{shelf}/goods", [{"id": f"{shop}{shelf}"}])


# ---------------------------------------------------------------- what is asked


async def test_parameters_fill_url_query_headers_and_body(api: ApiSite, bench: Bench) -> None:
    api.says("/v1/a/b c/search", {"items": []})
    text = """
base_url: '{base}/v1/'
may_be_empty: true
parameters: {base: {type: text}, kind: b c, size: 5, tags: {type: text, default: x}}
endpoints:
  products:
    path: a/{kind}/search
    method: POST
    query: {on: true, n: '{size}', tag: [a, '{tags}'], none: null}
    headers: {X-Kind: 'kind {kind}'}
    body: {size: '{size}', deep: [{text: 'of {kind}', 'true': true}]}
    records: items
    key: id
"""
    await bench.find(text, base=api.url, size=7)

    assert api.asked == [("/v1/a/b c/search", {"on": "true", "n": "7", "tag": "a"})]
    assert orjson.loads(api.sent[0]) == {"size": 7, "deep": [{"text": "of b c", "true": True}]}
    assert api.headers[0]["X-Kind"] == "kind b c"
    assert api.headers[0]["Content-Type"] == "application/json"


async def test_a_body_may_be_a_form(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": []})

    text = listing("body: {a: 'x y', b: [1, 2]}\n    body_as: form")
    await bench.find(f"may_be_empty: true\n{text}")

    assert api.sent == [b"a=x+y&b=1&b=2"]
    assert api.headers[0]["Content-Type"] == "application/x-www-form-urlencoded"


async def test_a_value_cannot_lead_elsewhere(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": ".."}, {"id": "a/../b?c"}]})
    api.says("/products/a/../b?c", {})
    text = listing("detail: product") + "  product: {path: '/products/{parent.id}'}"

    found = await bench.run(text)

    assert found[0].action is OutcomeAction.QUARANTINE
    assert "{parent.id}" in str(found[0].reason)
    assert "'..'" in str(found[0].reason)
    assert found[1].record is not None
    assert found[1].record.url == f"{api.url}/products/a%2F..%2Fb%3Fc"


async def test_bad_bytes_in_json_are_replaced_and_noted(api: ApiSite, bench: Bench) -> None:
    body = '{"items": [{"id": 1, "name": "Dorsch für 90 €?"}]}'.encode().replace(b"?", b"\xff")
    kind = {"Content-Type": "application/json"}

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers=kind)

    api.site.answers["/products"] = answer

    (found,) = await bench.run(listing())

    assert found.record is not None
    assert found.record.data["name"] == "Dorsch für 90 €\ufffd"
    assert len(bench.notes) == len(bench.warnings) == 1


# ---------------------------------------------------------------- keys and fields


async def test_a_record_is_kept_whole_without_fields(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": 5, "deep": {"list": [1, None]}}]})

    found = await bench.run(listing())

    assert found[0].record is not None
    assert found[0].record.key == "5"
    assert found[0].record.data == {"id": 5, "deep": {"list": [1, None]}}
    assert found[0].record.provenance["id"] == f"record {api.url}/products"
    assert api.paths == ["/products"]


async def test_fields_are_found_typed_and_explained(api: ApiSite, bench: Bench) -> None:
    record = {
        "id": 1,
        "price": {"text": "12.50"},
        "on": "2024-05-01",
        "tags": [{"n": "1"}, {"n": "2"}],
    }
    api.says("/products", {"items": [record | {"odd": "many"}]})
    fields = """fields:
      number: id
      price: {path: price.text, type: number}
      day: {path: 'on', type: date}
      tags: {path: 'tags[].n', type: integer, many: true}
      currency: {path: currency, default: EUR}
      stock: {path: stock, type: integer}
      odd: {path: odd, type: integer}
"""
    found = await bench.run(listing(fields))

    assert found[0].record is not None
    assert found[0].record.data == {
        "number": 1,
        "price": 12.5,
        "day": "2024-05-01",
        "tags": [1, 2],
        "currency": "EUR",
        "stock": None,
        "odd": None,
    }
    notes = {note.field: note.text for note in found[0].record.notes}
    assert notes.keys() == {"currency", "stock", "odd"}
    assert "'currency'" in notes["currency"]
    assert "default" in notes["currency"]
    assert "'stock'" in notes["stock"]
    assert "default" not in notes["stock"]
    assert "'many'" in notes["odd"]
    assert "integer" in notes["odd"]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({"id": 1}, "'price'"),
        ({"id": 1, "price": "dear"}, "'dear'"),
    ],
)
async def test_a_record_without_a_required_field_is_quarantined(
    api: ApiSite, bench: Bench, record: dict[str, Any], problem: str
) -> None:
    api.says("/products", {"items": [record]})
    fields = "fields: {price: {path: price, type: number, required: true}}"

    found = await bench.run(listing(fields))

    assert found[0].action is OutcomeAction.QUARANTINE
    assert problem in str(found[0].reason)


@pytest.mark.parametrize("odd", [{"name": "x"}, {"id": None}, {"id": ""}, {"id": [1]}, "text"])
async def test_a_record_without_a_key_is_quarantined_and_does_not_end_the_list(
    api: ApiSite, bench: Bench, odd: Any
) -> None:
    api.says("/products", {"items": [odd, {"id": 2}]})

    lost, kept = await bench.run(listing())

    assert (lost.action, kept.action) == (
        OutcomeAction.QUARANTINE,
        OutcomeAction.STORE,
    )
    assert "'id'" in str(lost.reason)


async def test_a_key_may_have_several_parts_and_a_record_its_own_url(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", {"items": [{"a": "x", "b": {"c": 2}, "link": "/p/x"}]})

    items = await bench.find(listing("url: link").replace("key: id", "key: [a, b.c]"))

    assert [(item.key, item.url) for item in items] == [("x/2", f"{api.url}/p/x")]


async def test_a_key_that_several_records_have_is_noted(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": 1, "size": "s"}, {"id": 1, "size": "m"}]})

    await bench.find(listing())

    assert bench.notes[0].startswith("products: ")
    assert "key" in bench.notes[0]
    assert "pages" not in bench.notes[0]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({"data": []}, "'items'.*object.*data"),
        ({"items": {"a": {}}}, r"'items'.*object.*values\(items\)"),
        ({"items": "none"}, "'items'.*'none'"),
        ([1], "'items'.*list.*1"),
    ],
)
async def test_a_response_without_a_list_describes_its_content(
    api: ApiSite, bench: Bench, answer: Any, problem: str
) -> None:
    api.says("/products", answer)

    with pytest.raises(UnexpectedShape, match=problem):
        await bench.find(listing())


async def test_an_item_that_no_list_gave_is_quarantined(api: ApiSite, bench: Bench) -> None:
    _, collector = bench.open(listing())

    found = await collector.collect(Item("1", f"{api.url}/products"))

    assert found.action is OutcomeAction.QUARANTINE
    assert api.asked == []


# ---------------------------------------------------------------- details and what is embedded


DETAILED = """
    detail: product
    embed: {reviews: reviews}
    fields: {id: id, name: name}
  product:
    path: /products/{parent.id}
    records: product
    fields: {text: text, from: '{parent.name}'}
  reviews:
    path: /products/{parent.id}/reviews
    records: reviews
    fields: {stars: stars}
    pagination: {kind: page, has_more: more}
"""


async def test_a_record_is_completed_by_its_detail_and_by_what_is_embedded(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", {"items": [{"id": 1, "name": "a"}]})
    api.says("/products/1", {"product": {"text": "long"}})
    pages = [{"reviews": [{"stars": n}], "more": n < 2} for n in (1, 2)]
    api.says("/products/1/reviews", *pages)

    found = await bench.run(listing(DETAILED.strip()))

    assert found[0].record is not None
    assert found[0].record.data == {
        "id": 1,
        "name": "a",
        "text": "long",
        "from": "a",
        "reviews": [{"stars": 1}, {"stars": 2}],
    }
    assert found[0].record.provenance["text"] == f"ask_product {api.url}/products/1 path text"
    assert found[0].record.provenance["name"] == f"record {api.url}/products path name"
    assert found[0].record.url == f"{api.url}/products/1"


async def test_a_record_whose_detail_has_gone_is_skipped(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": 1}]})

    found = await bench.run(listing(DETAILED.strip()))

    assert found[0].action is OutcomeAction.SKIP


async def test_an_optional_part_that_fails_leaves_an_empty_field_and_a_note(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", {"items": [{"id": 1, "name": "a"}]})
    api.says("/products/1", {"product": {"text": "long"}})
    api.says("/products/1/reviews", (403, {}))
    text = listing(DETAILED.strip()).replace(
        "records: reviews", "records: reviews\n    optional: true"
    )

    found = await bench.run(text)

    assert found[0].record is not None
    assert found[0].record.data["reviews"] is None
    assert "403" in next(note.text for note in found[0].record.notes if note.field == "ask_reviews")


async def test_a_detail_that_is_a_list_of_several_is_refused(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": 1}]})
    api.says("/products/1", {"product": [{}, {}]})

    found = await bench.run(listing(DETAILED.strip()))

    assert found[0].action is OutcomeAction.QUARANTINE
    assert "'product'" in str(found[0].reason)
    assert "2" in str(found[0].reason).partition("'product'")[2]


# ---------------------------------------------------------------- parents and children


async def test_lists_below_lists_give_records_that_know_where_they_hang(
    api: ApiSite, bench: Bench
) -> None:
    grow(api)

    records = await bench.records(TREE)

    assert sorted(records, key=lambda one: str(one["id"])) == [
        {"id": f"{shop}{shelf}", "shop": shop, "shelf": shelf} for shop in "ns" for shelf in (1, 2)
    ]
    assert len(api.asked) == 1 + 2 + 4


async def test_a_killed_fan_out_requests_no_committed_list_again(
    api: ApiSite, bench: Bench
) -> None:
    grow(api)
    await bench.find(TREE)
    after_shops = bench.cursors[0].value
    api.asked.clear()

    found = await bench.find(TREE, cursor=orjson.loads(orjson.dumps(after_shops)))

    assert {item.key for item in found} == {"n1", "n2", "s1", "s2"}
    assert "/shops" not in api.paths
    assert "y" * 500 not in str(after_shops)  # only what the lists below need is kept


async def test_records_of_several_lists_have_keys_of_their_own(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": 1}]})
    api.says("/products/1/sizes", [{"id": 1}])
    child = "  sizes: {parent: products, path: '/products/{parent.id}/sizes', key: id}"

    items = await bench.find(listing() + child)

    assert [item.key for item in items] == ["products:1", "sizes:1"]


async def test_a_parent_that_has_gone_has_no_children(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": 1}, {"id": 2}]})
    api.says("/products/2/sizes", [{"id": 9}])
    child = "  sizes: {parent: products, path: '/products/{parent.id}/sizes', key: id}"

    items = await bench.find(listing("collect: false") + child)

    assert [item.key for item in items] == ["9"]
    assert "404" in bench.notes[0]


async def test_a_list_that_has_gone_itself_is_an_error(api: ApiSite, bench: Bench) -> None:
    del api

    with pytest.raises(Gone):
        await bench.find(listing())


async def test_a_parent_that_lacks_what_its_children_need_is_quarantined(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", {"items": [{"name": "x"}]})
    child = "  sizes: {parent: products, path: '/products/{parent.id}/sizes', key: id}"

    found = await bench.run(listing("collect: false") + child)

    assert found[0].action is OutcomeAction.QUARANTINE
    assert "{parent.id}" in str(found[0].reason)


async def test_an_error_among_many_lists_comes_as_itself(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [{"id": n} for n in range(4)]})
    child = "  sizes: {parent: products, path: 'http://127.0.0.1:9/{parent.id}', key: id}"

    with pytest.raises(Deferred):
        await bench.find(f"hosts: ['127.0.0.1:9']\n{listing('collect: false')}{child}")


def listing_doubles(more: str = "") -> str:
    return f"""
endpoints:
  products:
    path: /products
    records: items
    key: id
    {more}
"""


async def test_a_key_of_different_records_on_different_pages_is_noted_once(
    api: ApiSite, bench: Bench
) -> None:
    pages = [[{"id": 1, "size": size}, {"id": n}] for n, size in enumerate("smlx", 2)]
    api.says("/products", lambda query, _: {"items": [*pages, []][int(query["page"]) - 1]})

    items = await bench.find(listing_doubles("pagination: {kind: page}"))

    assert len({item.key for item in items}) == 5
    (note,) = bench.notes
    assert note.startswith("products: ")
    assert "key" in note
    assert "pages" in note


async def test_a_record_that_comes_again_as_it_was_is_not_noted(api: ApiSite, bench: Bench) -> None:
    pages = [[{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 3}], []]
    api.says("/products", lambda query, _: {"items": pages[int(query["page"]) - 1]})

    await bench.find(listing_doubles("pagination: {kind: page}"))

    assert bench.notes == []


async def test_a_list_without_a_record_is_a_failure(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": []})

    with pytest.raises(DiscoveryFailed, match="may_be_empty"):
        await bench.find(listing_doubles())


async def test_a_list_that_may_be_empty_is_fine(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": []})

    assert await bench.find(f"may_be_empty: true\n{listing_doubles()}") == []
