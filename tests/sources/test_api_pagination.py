"""Every kind of API pagination, including GraphQL, and how lists end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from longline.core.errors import UnexpectedShape
from longline.http.errors import Rejected
from tests.sources.api_bench import ApiSite, Bench

PRODUCTS = [{"id": number, "name": f"product {number}"} for number in range(1, 8)]
Reply = Callable[[dict[str, str], bytes], Any]


def manifest(pagination: str, more: str = "") -> str:
    return f"""
endpoints:
  products:
    path: /products
    records: items
    key: id
    pagination: {pagination}
    {more}
"""


def keys_from(first: int) -> list[str]:
    return [str(one["id"]) for one in PRODUCTS[first - 1 :]]


ALL = keys_from(1)


def in_pages(size: int = 3) -> Reply:
    def reply(query: dict[str, str], _body: bytes) -> Any:
        page = int(query["page"])
        some = PRODUCTS[(page - 1) * size : page * size]
        return {"items": some, "total": 7, "pages": 3, "more": page < 3}

    return reply


def by_offset(size: int) -> Reply:
    def reply(query: dict[str, str], _body: bytes) -> Any:
        offset = int(query["offset"])
        return {"items": PRODUCTS[offset : offset + size], "total": "7"}

    return reply


def by_cursor(query: dict[str, str], _body: bytes) -> Any:
    first = int(query.get("after", "0"))
    following = f"{first + 3}" if first + 3 < 7 else None
    return {"items": PRODUCTS[first : first + 3], "meta": {"next": following}}


async def keys(bench: Bench, text: str) -> list[str]:
    return [item.key for item in await bench.find(text)]


# ---------------------------------------------------------------- pages and offsets


@pytest.mark.parametrize(
    ("ending", "requests"),
    [
        ("", 4),
        (", total: total", 3),
        (", total_pages: pages", 3),
        (", has_more: more", 3),
    ],
)
async def test_numbered_pages_end_as_the_manifest_says(
    api: ApiSite, bench: Bench, ending: str, requests: int
) -> None:
    api.says("/products", in_pages())

    found = await keys(bench, manifest(f"{{kind: page{ending}}}"))

    assert found == ALL
    assert [query["page"] for query in api.queries] == [str(n + 1) for n in range(requests)]
    assert bench.notes == bench.cuts == []


async def test_the_size_of_a_page_is_requested(api: ApiSite, bench: Bench) -> None:
    api.says("/products", in_pages())

    await keys(bench, manifest("{kind: page, size: 3, size_parameter: per_page, total: total}"))

    assert {query["per_page"] for query in api.queries} == {"3"}


async def test_an_api_that_returns_fewer_than_requested_loses_nothing(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", by_offset(2))

    found = await keys(bench, manifest("{kind: offset, size: 100}"))

    assert found == ALL
    assert [query["offset"] for query in api.queries] == ["0", "2", "4", "6", "7"]
    assert {query["limit"] for query in api.queries} == {"100"}


async def test_a_total_written_as_text_ends_the_offsets(api: ApiSite, bench: Bench) -> None:
    api.says("/products", by_offset(4))

    assert await keys(bench, manifest("{kind: offset, total: total}")) == ALL
    assert len(api.asked) == 2


async def test_a_list_shorter_than_its_total_is_cut(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": PRODUCTS[:2], "total": 9}, {"items": [], "total": 9})

    assert await keys(bench, manifest("{kind: page, total: total}")) == ["1", "2"]
    (cut,) = bench.cuts
    assert "products" in cut
    assert set(re.findall(r"\d+", cut)) == {"9", "2"}


async def test_an_api_that_ignores_the_page_is_not_requested_forever(
    api: ApiSite, bench: Bench
) -> None:
    api.says("/products", {"items": PRODUCTS})

    assert set(await keys(bench, manifest("{kind: page}"))) == set(ALL)
    assert len(api.asked) == 2
    assert len(bench.cuts) == 1


async def test_no_more_pages_are_requested_than_allowed(api: ApiSite, bench: Bench) -> None:
    api.says("/products", in_pages())

    found = await keys(bench, manifest("{kind: page, most_pages: 2}"))

    assert found == ALL[:6]
    assert len(bench.cuts) == 1


async def test_a_page_number_may_be_in_the_body(api: ApiSite, bench: Bench) -> None:
    def reply(_query: dict[str, str], body: bytes) -> Any:
        sent = orjson.loads(body)
        return in_pages()({"page": str(sent["page"])}, body) | {"echo": sent}

    api.says("/products", reply)
    text = manifest("{kind: page, into: body, total: total}", "body: {sort: name}")

    assert await keys(bench, text) == ALL
    assert orjson.loads(api.sent[0]) == {"sort": "name", "page": 1}


@pytest.mark.parametrize(
    ("ending", "problem"),
    [
        ("has_more: mroe", "'mroe'"),
        ("total: items", "'items'.*list.*3"),
    ],
)
async def test_a_misspelt_path_does_not_end_the_list_silently(
    api: ApiSite, bench: Bench, ending: str, problem: str
) -> None:
    api.says("/products", in_pages())

    with pytest.raises(UnexpectedShape, match=problem):
        await keys(bench, manifest(f"{{kind: page, {ending}}}"))


# ---------------------------------------------------------------- cursors


CURSOR = "{kind: cursor, path: meta.next, parameter: after}"


async def test_a_cursor_is_followed_to_its_end(api: ApiSite, bench: Bench) -> None:
    api.says("/products", by_cursor)

    assert await keys(bench, manifest(CURSOR)) == ALL
    assert api.queries == [{}, {"after": "3"}, {"after": "6"}]


async def test_an_empty_page_with_a_cursor_is_not_the_last(api: ApiSite, bench: Bench) -> None:
    api.says(
        "/products",
        {"items": [], "meta": {"next": "a"}},
        {"items": [], "meta": {"next": "b"}},
        {"items": PRODUCTS, "meta": {}},
    )

    assert await keys(bench, manifest(CURSOR)) == ALL


async def test_a_cursor_that_stays_while_records_change_is_followed(
    api: ApiSite, bench: Bench
) -> None:
    api.says(
        "/products",
        {"items": PRODUCTS[:3], "meta": {"next": "scroll"}},
        {"items": PRODUCTS[3:], "meta": {"next": "scroll"}},
        {"items": [], "meta": {}},
    )

    assert await keys(bench, manifest(CURSOR)) == ALL
    assert bench.notes == bench.cuts == []


async def test_cursors_in_a_circle_end(api: ApiSite, bench: Bench) -> None:
    def reply(query: dict[str, str], _body: bytes) -> Any:
        here = int(query.get("after", "0"))
        return {"items": [PRODUCTS[here]], "meta": {"next": str((here + 1) % 5)}}

    api.says("/products", reply)

    assert set(await keys(bench, manifest(CURSOR))) == set(ALL[:5])
    assert len(api.asked) < 20
    assert len(bench.cuts) == 1


async def test_a_cursor_that_is_an_object_is_refused(api: ApiSite, bench: Bench) -> None:
    api.says("/products", {"items": [], "meta": {"next": {"page": 2}}})

    with pytest.raises(UnexpectedShape, match=r"'meta\.next'.*object.*page"):
        await keys(bench, manifest(CURSOR))


# ---------------------------------------------------------------- addresses


async def test_the_link_header_is_followed(api: ApiSite, bench: Bench) -> None:
    last = f'<{api.url}/products?page=1>; rel=prev, </products?page=3>; rel="last"'
    following = f'<{api.url}/products?page=2&q=a,b>; title="a, \\"b\\""; rel="next last"'
    api.says(
        "/products",
        (200, {"items": PRODUCTS[:4]}, {"Link": following}),
        (200, {"items": PRODUCTS[4:]}, {"Link": last}),
    )

    assert await keys(bench, manifest("{kind: link}", "query: {q: x}")) == ALL
    assert api.queries == [{"q": "x"}, {"page": "2", "q": "a,b"}]


async def test_a_url_in_the_body_is_followed(api: ApiSite, bench: Bench) -> None:
    api.says(
        "/products",
        {"items": PRODUCTS[:3], "next": f"{api.url}/products?page=2"},
        {"items": PRODUCTS[3:5], "next": "/products?page=3#end"},
        {"items": PRODUCTS[5:], "next": ""},
    )

    assert await keys(bench, manifest("{kind: next, path: next}")) == ALL
    assert [query.get("page") for query in api.queries] == [None, "2", "3"]


@pytest.mark.parametrize(
    "address", ["http://elsewhere.test/products", "//elsewhere.test/p", "ftp://x/p", "file:///etc"]
)
async def test_a_url_of_another_host_is_not_followed(
    api: ApiSite, bench: Bench, address: str
) -> None:
    api.says("/products", {"items": [], "next": address})

    with pytest.raises(UnexpectedShape, match="hosts"):
        await keys(bench, manifest("{kind: next, path: next}"))


async def test_a_url_on_a_named_host_is_followed(api: ApiSite, bench: Bench) -> None:
    port = api.url.rpartition(":")[2]
    elsewhere = f"http://localhost:{port}/products"
    api.says("/products", {"items": PRODUCTS[:3], "next": elsewhere}, {"items": PRODUCTS[3:]})
    text = f"hosts: ['localhost:{port}']\n{manifest('{kind: next, path: next}')}"

    assert await keys(bench, text) == ALL


async def test_a_secret_that_the_api_repeats_is_not_kept(
    api: ApiSite, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "hush")
    api.says(
        "/products",
        {"items": PRODUCTS[:3], "next": f"{api.url}/products?page=2&key=hush"},
        {"items": PRODUCTS[3:]},
    )
    host = api.url.partition("//")[2]
    auth = f"auth: {{kind: query, name: key, value: env:SHOP_KEY, hosts: ['{host}']}}\n"

    found = await keys(bench, auth + manifest("{kind: next, path: next}"))

    assert found == ALL
    assert [query["key"] for query in api.queries] == ["hush", "hush"]
    assert "hush" not in str(bench.cursors)


# ---------------------------------------------------------------- going on


async def test_a_killed_run_goes_on_at_its_page(api: ApiSite, bench: Bench) -> None:
    api.says("/products", by_cursor)
    await bench.find(manifest(CURSOR))
    first = bench.cursors[0].value
    api.asked.clear()

    found = await bench.find(manifest(CURSOR), cursor=orjson.loads(orjson.dumps(first)))

    assert [item.key for item in found] == keys_from(4)
    assert api.queries == [{"after": "3"}, {"after": "6"}]


async def test_a_run_that_had_listed_all_sends_no_request(api: ApiSite, bench: Bench) -> None:
    api.says("/products", by_cursor)
    await bench.find(manifest(CURSOR))
    api.asked.clear()

    assert await bench.find(manifest(CURSOR), cursor=bench.cursors[-1].value) == []
    assert api.asked == []


async def found(bench: Bench, text: str) -> list[str]:
    return [item.key for item in await bench.find(text)]


GRAPHQL = """
parameters: {kind: boat}
endpoints:
  products:
    path: /graphql
    graphql:
      query: 'query($after: String, $kind: String) { products { nodes { id } } }'
      variables: {kind: '{kind}', size: 2}
    records: data.products.nodes
    key: id
    pagination: {kind: graphql, page_info: data.products.pageInfo}
"""


def connection(ids: list[int], cursor: str | None) -> dict[str, Any]:
    info = {"hasNextPage": cursor is not None, "endCursor": cursor or "end"}
    return {"data": {"products": {"nodes": [{"id": one} for one in ids], "pageInfo": info}}}


async def test_a_connection_is_followed_page_by_page(api: ApiSite, bench: Bench) -> None:
    api.says("/graphql", connection([1, 2], "abc"), connection([3], None))

    assert await found(bench, GRAPHQL) == ["1", "2", "3"]
    sent = [orjson.loads(body) for body in api.sent]
    assert sent[0]["variables"] == {"kind": "boat", "size": 2}
    assert sent[1]["variables"] == {"kind": "boat", "size": 2, "after": "abc"}
    assert sent[0]["query"].startswith("query($after: String, $kind: String) { products {")


async def test_graphql_errors_in_a_successful_response_are_a_failure(
    api: ApiSite, bench: Bench
) -> None:
    errors = [{"message": "no such\nfield"}, {"message": "x"}]
    api.says("/graphql", {**connection([1], None), "errors": errors})

    with pytest.raises(Rejected) as raised:
        await found(bench, GRAPHQL)

    assert "'no such field'" in raised.value.reason
    assert re.search(r"\b1\b", raised.value.reason)  # the number of the other errors


async def test_a_handler_sees_graphql_errors_first(api: ApiSite, bench: Bench) -> None:
    throttled = {"errors": [{"message": "slow", "extensions": {"code": "THROTTLED"}}]}
    api.says("/graphql", throttled, connection([1], None))
    rule = "{when: {body: \"errors[?extensions.code == 'THROTTLED']\"}, do: wait, after: 5}"

    assert await found(bench, f"{GRAPHQL}    handlers: [{rule}]") == ["1"]
