"""The OpenAPI document: complete, and true."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from longline.server.web.api.requests import NOT_REPEATABLE
from tests.server.web.api.filled import Filled
from tests.server.web.api.operations import Operation, operations_of
from tests.server.web.conftest import Dashboard

PROBLEM = "application/problem+json"
TYPICAL_ERRORS = {"400", "401", "403", "404", "409", "413", "421", "422", "429", "503"}
LISTS = [
    "sources",
    "jobs",
    "jobs/{job}/items",
    "jobs/{job}/failures",
    "launches",
    "records",
    "records/1/history",
    "exports?job={job}",
    "tokens",
    "schedules",
    "next-runs",
    "occurrences",
    "flows",
    "flow-runs",
    "events",
    "domains",
    "quarantine",
    "quarantine/items?job={job}",
    "drift",
    "duplicates",
    "alerts",
    "silences",
    "logs",
    "workers",
]
SINGLES = [
    "sources/shop",
    "jobs/{job}",
    "launches/1",
    "records/1",
    "records/1/diff",
    "schedules/daily",
    "flow-runs/{run}",
    "health",
]


def successes(operation: Operation) -> dict[str, Any]:
    """Return the responses that are not errors, by status."""
    found = operation.about["responses"].items()
    return {status: one for status, one in found if status.startswith("2")}


def bodies_of(operation: Operation) -> dict[str, Any]:
    """Return the body of its request, and of its responses that are not errors."""
    return {**successes(operation), "request": operation.about.get("requestBody", {})}


def schema_of(document: dict[str, Any], path: str) -> dict[str, Any]:
    """Return the schema of the response to GET, with the components that it refers to."""
    [success] = [
        one
        for operation in operations_of(document)
        if operation.method == "GET" and is_path_of(operation.template, path)
        for one in successes(operation).values()
    ]
    return with_components(document, success["content"]["application/json"]["schema"])


def with_components(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "components": document["components"]}


def errors_in(value: Any, schema: dict[str, Any]) -> list[str]:
    return [one.message for one in Draft202012Validator(schema).iter_errors(value)]


def is_path_of(template: str, path: str) -> bool:
    steps, wanted = template.split("/"), path.partition("?")[0].split("/")
    pairs = zip(steps, wanted, strict=len(steps) == len(wanted))
    return len(steps) == len(wanted) and all(a == b or a.startswith("{") for a, b in pairs)


def test_every_operation_has_a_summary_and_a_text(document: dict[str, Any]) -> None:
    bare = [
        str(one)
        for one in operations_of(document)
        if not one.about.get("summary") or not one.about.get("description")
    ]

    assert bare == []


def test_the_ids_of_operations_are_unique(document: dict[str, Any]) -> None:
    ids = [one.about["operationId"] for one in operations_of(document)]

    assert len(ids) == len(set(ids)) > 50
    assert all(one.isidentifier() for one in ids)


def test_every_body_has_an_example_that_fits(document: dict[str, Any]) -> None:
    contents = {
        f"{operation} {name}": part["content"]["application/json"]
        for operation in operations_of(document)
        for name, part in bodies_of(operation).items()
        if "application/json" in part.get("content", {})
    }

    wrong = {
        name: errors
        for name, one in contents.items()
        if (errors := errors_in(one["example"], with_components(document, one["schema"])))
    }

    assert wrong == {}


def test_every_operation_documents_its_errors(document: dict[str, Any]) -> None:
    incomplete = [
        str(one)
        for one in operations_of(document)
        if not {
            status
            for status, response in one.about["responses"].items()
            if PROBLEM in response.get("content", {})
        }
        >= TYPICAL_ERRORS
    ]

    assert incomplete == []


def test_every_parameter_is_explained(document: dict[str, Any]) -> None:
    unexplained = [
        f"{operation} {one['name']}"
        for operation in operations_of(document)
        for one in operation.about.get("parameters", [])
        if one["in"] == "query" and not one.get("description")
    ]

    assert unexplained == []


def test_only_posts_without_secrets_are_repeatable(document: dict[str, Any]) -> None:
    repeatable = {
        (one.method, one.template)
        for one in operations_of(document)
        if "Idempotency-Key" in [name["name"] for name in one.about.get("parameters", [])]
    }

    posts = {one.template for one in operations_of(document) if one.method == "POST"}
    assert repeatable == {("POST", path) for path in posts - NOT_REPEATABLE}


async def test_the_server_sends_the_document(
    dashboard: Dashboard, document: dict[str, Any]
) -> None:
    answer = await dashboard.api("GET", "/api/v1/openapi.json")

    assert answer.status == 200
    assert json.loads(answer.text) == document


async def test_responses_are_as_documented(
    dashboard: Dashboard, filled: Filled, document: dict[str, Any]
) -> None:
    paths = [
        f"/api/v1/{one.format(job=filled.ended_job, run=filled.flow_run)}"
        for one in (*LISTS, *SINGLES)
    ]

    answers = {path: await dashboard.api("GET", path) for path in paths}

    wrong = {
        path: errors
        for path, answer in answers.items()
        if (errors := errors_in(json.loads(answer.text), schema_of(document, path)))
    }
    assert wrong == {}
    assert {answer.status for answer in answers.values()} == {200}


async def test_malformed_pages_are_refused(dashboard: Dashboard, filled: Filled) -> None:
    urls = [f"/api/v1/{one.format(job=filled.ended_job)}" for one in LISTS]
    queries = ("cursor=x", "cursor=W10", "limit=0", "limit=501")

    answers = {
        (url, query): await dashboard.api("GET", f"{url}{'&' if '?' in url else '?'}{query}")
        for url in urls
        for query in queries
    }

    accepted = {place: one.status for place, one in answers.items() if one.status != 422}
    assert accepted == {}
    assert {one.headers["Content-Type"] for one in answers.values()} == {PROBLEM}
