"""What a user writes about an API: every slip is one sentence, told before the first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from longline.config.documents import check, parse_document
from longline.config.manifests.api import ApiManifest
from longline.errors import BadFile

LIST: dict[str, Any] = {"path": "/products", "records": "items", "key": "id"}
INCREMENTAL = {"field": "updated_at", "parameter": "since", "start": "2020-01-01"}


def manifest_of(**values: Any) -> ApiManifest:
    usual = {"name": "shop", "base_url": "https://api.shop.test", "endpoints": {"products": LIST}}
    return ApiManifest.model_validate({**usual, **values})


def listing(**values: Any) -> ApiManifest:
    """Return a manifest with one list that says this besides."""
    return manifest_of(endpoints={"products": {**LIST, **values}})


def problem_of(**values: Any) -> str:
    with pytest.raises(ValidationError) as told:
        manifest_of(**values)
    first = told.value.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"


def problem_of_list(**values: Any) -> str:
    return problem_of(endpoints={"products": {**LIST, **values}})


def test_a_manifest_comes_back_from_what_a_job_keeps() -> None:
    manifest = listing(
        fields={"price": {"path": "price", "type": "money"}, "name": "title"},
        pagination={"kind": "offset", "size": 50},
        incremental={**INCREMENTAL, "look_back": "1d"},
        handlers=[{"when": {"status": "5xx"}, "do": "wait", "after": "2m"}],
        accept=404,
    )

    kept = manifest.model_dump(mode="json")

    assert ApiManifest.model_validate(kept) == manifest
    assert manifest.endpoints["products"].handlers[0].after == 120


def test_times_may_be_written_with_a_unit() -> None:
    manifest = listing(incremental={**INCREMENTAL, "look_back": "1d"})

    assert manifest.endpoints["products"].incremental is not None
    assert manifest.endpoints["products"].incremental.look_back == 86_400


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"records": "items["}, "records: 'items[' is not a path as jmespath has them"),
        ({"fields": {"a": {"path": "]"}}}, "fields.a.path: ']' is not a path"),
        ({"fields": {"a": {"path": "b", "type": "colour"}}}, "fields.a.type: Input should be"),
        ({"fields": {"a": {"path": "b", "locale": "klingon"}}}, "is not a locale known here"),
        ({"pagination": {"kind": "leaf"}}, "kind must be one of page, offset, cursor, link"),
        ({"pagination": {"kind": "cursor"}}, "pagination.cursor.path: Field required"),
        ({"pagination": {"kind": "page", "short_page_is_last": True}}, "needs size"),
        ({"pagination": {"kind": "page", "size_parameter": "n"}}, "size_parameter needs size"),
        ({"pagination": {"kind": "graphql", "page_info": "p"}}, "needs graphql with a query"),
        ({"pagination": {"kind": "page", "into": "body"}}, "say method: POST"),
        ({"pagination": {"kind": "page", "into": "variables"}}, "needs graphql with a query"),
        ({"body": {"a": 1}, "method": "GET"}, "a body is not sent with GET"),
        ({"body": [1], "body_as": "form"}, "a form has names and values"),
        ({"graphql": {"query": "{a}"}, "body": {"a": 1}}, "has a body of its own"),
        ({"query": {"key": "env:KEY"}}, "key in query holds a secret"),
        ({"headers": {"Authorization": "x"}}, "write it under auth"),
        ({"incremental": {"field": "at"}}, "needs the name of the query parameter"),
        ({"incremental": {**INCREMENTAL, "start": "May"}}, "start is not of the type datetime"),
        ({"incremental": {**INCREMENTAL, "look_back": "soon"}}, "written as 30s, 15m"),
        ({"handlers": [{"when": {}, "do": "skip"}]}, "at least one of status, body and header"),
        ({"handlers": [{"when": {"status": "6xx"}, "do": "skip"}]}, "a class of them such as 5xx"),
        ({"handlers": [{"when": {"status": 409}, "do": "skip", "after": 1}]}, "skip waits for"),
        (
            {"handlers": [{"when": {"header": {"x": "("}}, "do": "fail"}]},
            "not a regular expression",
        ),
        ({"handlers": [{"when": {"status": 409}, "do": "cry"}]}, "handlers.0.do: Input should be"),
        ({"handlers": [{"when": {"status": 419}, "do": "refresh"}]}, "oauth2 or login"),
        ({"rate": 5}, "rate: it is above that of the source, 2"),
        ({"key": None}, "key is missing"),
        ({"optional": True}, "optional: this is for a detail"),
        ({"path": "/{category}"}, "path: {category} is no parameter; known are none"),
        ({"query": {"a": "{b}"}}, "query.a: {b} is no parameter"),
        ({"query": {"a": "{since}"}}, "query.a: {since} is no parameter"),
        ({"path": "/{parent.id}"}, "{parent.id} needs parent:"),
        ({"fields": {"a": "{parent.id}"}}, "{parent.id} needs parent:"),
        ({"parent": "shops"}, "parent: there is no endpoint 'shops'; there are products"),
        ({"detail": "product"}, "detail: there is no endpoint 'product'"),
        ({"embed": {"reviews": "r"}}, "embed.reviews: there is no endpoint 'r'"),
        ({"colour": 1}, "there is no setting 'colour' here"),
    ],
)
def test_a_slip_in_an_endpoint_is_told(values: dict[str, Any], problem: str) -> None:
    assert problem in problem_of_list(**values)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"base_url": "api.shop.test"}, "base_url is an address such as"),
        ({"base_url": "https://a.test?x=1"}, "write parameters under query"),
        ({"base_url": "https://{host}"}, "base_url: {host} is no parameter"),
        ({"transport": "browser"}, "an API is asked over http"),
        ({"parameters": {"since": 1}}, "the parameter since needs another name"),
        ({"endpoints": {}}, "at least 1 item"),
        ({"endpoints": {"a-b": LIST}}, "needs a name of letters"),
        ({"endpoints": {"products": {**LIST, "collect": False}}}, "no endpoint collects anything"),
    ],
)
def test_a_slip_in_the_whole_is_told(values: dict[str, Any], problem: str) -> None:
    assert problem in problem_of(**values)


@pytest.mark.parametrize(
    ("endpoints", "circle"),
    [
        ({"a": {**LIST, "parent": "a"}}, "a → a"),
        ({"a": {**LIST, "parent": "b"}, "b": {**LIST, "parent": "a"}}, "a → b → a"),
        ({"a": {**LIST, "embed": {"x": "b"}}, "b": {**LIST, "embed": {"y": "a"}}}, "a → b → a"),
    ],
)
def test_endpoints_that_need_each_other_in_a_circle_are_told(
    endpoints: dict[str, Any], circle: str
) -> None:
    assert f"in a circle: {circle};" in problem_of(endpoints=endpoints)


def test_an_endpoint_is_a_list_below_another_or_a_part_of_it_and_not_both() -> None:
    endpoints = {"a": {**LIST, "parent": "b"}, "b": {**LIST, "detail": "a"}}

    assert "a.parent: this endpoint completes the records of another" in problem_of(
        endpoints=endpoints
    )


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"pagination": {"kind": "link"}}, "a detail is one answer"),
        ({"collect": False}, "no records of its own"),
        ({"incremental": INCREMENTAL}, "completes the records of another"),
    ],
)
def test_a_detail_is_one_answer(part: dict[str, Any], problem: str) -> None:
    endpoints = {"products": {**LIST, "detail": "product"}, "product": {"path": "/p", **part}}

    assert problem in problem_of(endpoints=endpoints)


def test_only_a_list_without_a_parent_is_incremental() -> None:
    below = {**LIST, "parent": "products", "incremental": INCREMENTAL}

    assert "without a parent" in problem_of(endpoints={"products": LIST, "sizes": below})


def test_an_embedded_name_is_not_a_field_as_well() -> None:
    above = {**LIST, "fields": {"reviews": "n"}, "embed": {"reviews": "reviews"}}

    assert "embed.reviews: fields has this name, too" in problem_of(
        endpoints={"products": above, "reviews": {"path": "/r"}}
    )


def test_a_problem_between_endpoints_is_told_with_its_line() -> None:
    text = yaml.safe_dump(
        {
            "manifest": "api",
            "name": "shop",
            "base_url": "https://api.shop.test",
            "endpoints": {"products": {**LIST, "detail": "product"}},
        },
        sort_keys=False,
    )

    with pytest.raises(BadFile) as told:
        check(parse_document(text.encode(), Path("shop.yaml")), ApiManifest)

    assert told.value.line == 1 + text.splitlines().index("    detail: product")
    assert "endpoints.products.detail" in str(told.value)
