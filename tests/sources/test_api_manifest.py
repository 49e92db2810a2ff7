"""What a user writes about an API: each mistake is reported before the first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from longline.config.documents import check, parse_document
from longline.core.errors import BadFile
from longline.sources.api.manifest import ApiManifest
from tests.config.messages import absent

LIST: dict[str, Any] = {"path": "/products", "records": "items", "key": "id"}
INCREMENTAL = {"field": "updated_at", "parameter": "since", "start": "2020-01-01"}


def manifest_of(**values: Any) -> ApiManifest:
    usual = {"name": "shop", "base_url": "https://api.shop.test", "endpoints": {"products": LIST}}
    return ApiManifest.model_validate({**usual, **values})


def listing(**values: Any) -> ApiManifest:
    """Return a manifest with one list that says this besides."""
    return manifest_of(endpoints={"products": {**LIST, **values}})


def problem_of(**values: Any) -> str:
    with pytest.raises(ValidationError) as raised:
        manifest_of(**values)
    first = raised.value.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def problem_of_list(**values: Any) -> str:
    return problem_of(endpoints={"products": {**LIST, **values}})


def test_a_manifest_comes_back_from_what_a_job_keeps() -> None:
    manifest = listing(
        fields={"price": {"path": "price", "type": "money"}, "name": "title"},
        pagination={"kind": "offset", "size": 50},
        incremental={**INCREMENTAL, "look_back": "1d"},
        handlers=[{"when": {"status": "5xx"}, "do": "wait", "after": "2m"}],
    )

    kept = manifest.model_dump(mode="json")

    assert ApiManifest.model_validate(kept) == manifest
    assert manifest.endpoints["products"].handlers[0].after == 120


def test_times_may_be_written_with_a_unit() -> None:
    manifest = listing(incremental={**INCREMENTAL, "look_back": "1d"})

    assert manifest.endpoints["products"].incremental is not None
    assert manifest.endpoints["products"].incremental.look_back == 86_400


@pytest.mark.parametrize(
    ("values", "data"),
    [
        ({"records": "items["}, "records: 'items[' jmespath"),
        ({"fields": {"a": {"path": "]"}}}, "fields.a.path: ']'"),
        ({"fields": {"a": {"path": "b", "type": "colour"}}}, "fields.a.type:"),
        ({"fields": {"a": {"path": "b", "locale": "klingon"}}}, "fields.a.locale: 'klingon'"),
        ({"pagination": {"kind": "leaf"}}, "kind page offset cursor link"),
        ({"pagination": {"kind": "cursor"}}, "pagination.cursor.path:"),
        ({"pagination": {"kind": "page", "size_parameter": "n"}}, "size_parameter size"),
        ({"pagination": {"kind": "graphql", "page_info": "p"}}, "graphql query"),
        ({"pagination": {"kind": "page", "into": "body"}}, "method: POST"),
        ({"pagination": {"kind": "page", "into": "variables"}}, "graphql query"),
        ({"body": {"a": 1}, "method": "GET"}, "body GET"),
        ({"body": [1], "body_as": "form"}, "form"),
        ({"graphql": {"query": "{a}"}, "body": {"a": 1}}, "graphql body"),
        ({"query": {"key": "env:KEY"}}, "key query secret"),
        ({"headers": {"Authorization": "x"}}, "Authorization auth"),
        ({"incremental": {"field": "at"}}, "incremental parameter"),
        ({"incremental": {**INCREMENTAL, "start": "May"}}, "start datetime"),
        ({"incremental": {**INCREMENTAL, "look_back": "soon"}}, "look_back 30s 15m"),
        ({"handlers": [{"when": {}, "do": "skip"}]}, "status body header"),
        ({"handlers": [{"when": {"status": "6xx"}, "do": "skip"}]}, "status 5xx"),
        ({"handlers": [{"when": {"status": 409}, "do": "skip", "after": 1}]}, "skip"),
        (
            {"handlers": [{"when": {"header": {"x": "("}}, "do": "fail"}]},
            "handlers.0.when.header",
        ),
        ({"handlers": [{"when": {"status": 409}, "do": "cry"}]}, "handlers.0.do:"),
        ({"handlers": [{"when": {"status": 419}, "do": "refresh"}]}, "oauth2 login"),
        ({"rate": 5}, "rate: 2"),
        ({"key": None}, "key"),
        ({"optional": True}, "optional: detail"),
        ({"path": "/{category}"}, "path: {category}"),
        ({"query": {"a": "{b}"}}, "query.a: {b}"),
        ({"query": {"a": "{since}"}}, "query.a: {since}"),
        ({"path": "/{parent.id}"}, "{parent.id} parent:"),
        ({"fields": {"a": "{parent.id}"}}, "{parent.id} parent:"),
        ({"parent": "shops"}, "parent: 'shops' products"),
        ({"detail": "product"}, "detail: 'product'"),
        ({"embed": {"reviews": "r"}}, "embed.reviews: 'r'"),
        ({"colour": 1}, "'colour'"),
    ],
)
def test_a_mistake_in_an_endpoint_is_refused(values: dict[str, Any], data: str) -> None:
    assert absent(problem_of_list(**values), data) == []


@pytest.mark.parametrize(
    ("values", "data"),
    [
        ({"base_url": "api.shop.test"}, "base_url"),
        ({"base_url": "https://a.test?x=1"}, "base_url query"),
        ({"base_url": "https://{host}"}, "base_url: {host}"),
        ({"transport": "browser"}, "transport http"),
        ({"parameters": {"since": 1}}, "parameter since"),
        ({"endpoints": {}}, "endpoints: 1"),
        ({"endpoints": {"a-b": LIST}}, "a-b name"),
        ({"endpoints": {"products": {**LIST, "collect": False}}}, "endpoint collect"),
    ],
)
def test_a_mistake_in_the_whole_is_refused(values: dict[str, Any], data: str) -> None:
    assert absent(problem_of(**values), data) == []


@pytest.mark.parametrize(
    ("endpoints", "circle"),
    [
        ({"a": {**LIST, "parent": "a"}}, "a → a"),
        ({"a": {**LIST, "parent": "b"}, "b": {**LIST, "parent": "a"}}, "a → b → a"),
        ({"a": {**LIST, "embed": {"x": "b"}}, "b": {**LIST, "embed": {"y": "a"}}}, "a → b → a"),
    ],
)
def test_endpoints_that_need_each_other_in_a_circle_are_refused(
    endpoints: dict[str, Any], circle: str
) -> None:
    assert problem_of(endpoints=endpoints).endswith(f": {circle}")


def test_an_endpoint_is_a_list_below_another_or_a_part_of_it_and_not_both() -> None:
    endpoints = {"a": {**LIST, "parent": "b"}, "b": {**LIST, "detail": "a"}}

    assert "a.parent: " in problem_of(endpoints=endpoints)


@pytest.mark.parametrize(
    ("part", "data"),
    [
        ({"pagination": {"kind": "link"}}, "product detail"),
        ({"collect": False}, "product records"),
        ({"incremental": INCREMENTAL}, "product incremental"),
    ],
)
def test_a_detail_is_one_response(part: dict[str, Any], data: str) -> None:
    endpoints = {"products": {**LIST, "detail": "product"}, "product": {"path": "/p", **part}}

    assert absent(problem_of(endpoints=endpoints), data) == []


def test_only_a_list_without_a_parent_is_incremental() -> None:
    below = {**LIST, "parent": "products", "incremental": INCREMENTAL}

    problem = problem_of(endpoints={"products": LIST, "sizes": below})

    assert absent(problem, "sizes incremental parent") == []


def test_an_embedded_name_is_not_a_field_as_well() -> None:
    above = {**LIST, "fields": {"reviews": "n"}, "embed": {"reviews": "reviews"}}

    problem = problem_of(endpoints={"products": above, "reviews": {"path": "/r"}})

    assert absent(problem, "embed.reviews: fields") == []


def test_a_problem_between_endpoints_is_reported_with_its_line() -> None:
    text = yaml.safe_dump(
        {
            "manifest": "api",
            "name": "shop",
            "base_url": "https://api.shop.test",
            "endpoints": {"products": {**LIST, "detail": "product"}},
        },
        sort_keys=False,
    )

    with pytest.raises(BadFile) as raised:
        check(parse_document(text.encode(), Path("shop.yaml")), ApiManifest)

    assert raised.value.line == 1 + text.splitlines().index("    detail: product")
    assert "endpoints.products.detail" in str(raised.value)
