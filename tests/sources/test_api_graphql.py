"""GraphQL over POST: connections page by page, and errors in answers that look fine."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from longline.http.errors import Rejected
from tests.sources.api_bench import ApiSite, Bench


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
      keep_partial: PARTIAL
    records: data.products.nodes
    key: id
    pagination: {kind: graphql, page_info: data.products.pageInfo}
"""


def connection(ids: list[int], cursor: str | None) -> dict[str, Any]:
    info = {"hasNextPage": cursor is not None, "endCursor": cursor or "end"}
    return {"data": {"products": {"nodes": [{"id": one} for one in ids], "pageInfo": info}}}


def graphql(*, partial: bool = False) -> str:
    return GRAPHQL.replace("PARTIAL", str(partial).lower())


async def test_a_connection_is_followed_page_by_page(api: ApiSite, bench: Bench) -> None:
    api.says("/graphql", connection([1, 2], "abc"), connection([3], None))

    assert await found(bench, graphql()) == ["1", "2", "3"]
    sent = [orjson.loads(body) for body in api.sent]
    assert sent[0]["variables"] == {"kind": "boat", "size": 2}
    assert sent[1]["variables"] == {"kind": "boat", "size": 2, "after": "abc"}
    assert sent[0]["query"].startswith("query($after: String, $kind: String) { products {")


async def test_errors_in_a_good_answer_are_a_failure(api: ApiSite, bench: Bench) -> None:
    errors = [{"message": "no such\nfield"}, {"message": "x"}]
    api.says("/graphql", {**connection([1], None), "errors": errors})

    with pytest.raises(Rejected) as raised:
        await found(bench, graphql())

    assert "'no such field'" in raised.value.reason
    assert re.search(r"\b1\b", raised.value.reason)  # the number of the other errors


async def test_partial_data_is_kept_when_the_manifest_says_so(api: ApiSite, bench: Bench) -> None:
    api.says("/graphql", {**connection([1], None), "errors": [{"message": "slow"}]})

    assert await found(bench, graphql(partial=True)) == ["1"]
    assert "'slow'" in bench.notes[0]


async def test_without_data_there_is_no_part_to_keep(api: ApiSite, bench: Bench) -> None:
    api.says("/graphql", {"data": None, "errors": [{"message": "slow"}]})

    with pytest.raises(Rejected):
        await found(bench, graphql(partial=True))


async def test_a_rule_sees_graphql_errors_first(api: ApiSite, bench: Bench) -> None:
    throttled = {"errors": [{"message": "slow", "extensions": {"code": "THROTTLED"}}]}
    api.says("/graphql", throttled, connection([1], None))
    rule = "{when: {body: \"errors[?extensions.code == 'THROTTLED']\"}, do: wait, after: 5}"

    assert await found(bench, f"{graphql()}    handlers: [{rule}]") == ["1"]
