"""longline.client has every operation of the API, and a running server answers its calls."""

from __future__ import annotations

import asyncio
import inspect
import typing
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from fastapi import FastAPI

from longline.client import (
    Client,
    NotAuthenticated,
    NotPermitted,
    ServerRefused,
    SyncClient,
    UnknownToServer,
)
from longline.core.clock import SystemClock
from longline.server.models import JobCreate, JobRetry, Page, SchedulePause, TokenCreate
from longline.server.web.api import routers
from longline.server.web.api.openapi import openapi_document, operations
from longline.server.web.api.requests import IDEMPOTENCY_KEY
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.events.events import event_row
from tests.server.web.conftest import Dashboard

EXTRA = {"stream_events": "events"}  # methods that are named otherwise
NOT_GIVEN = {"stream_events": {"last-event-id"}}  # the method sends it after a broken connection
NAMES = {"is_open": "open"}


def document() -> dict[str, Any]:
    app = FastAPI()
    for router in routers():
        app.include_router(router)
    return openapi_document(app)


DOCUMENT = document()
OPERATIONS = {one["operationId"]: (path, one) for path, _, one in operations(DOCUMENT)}


def method_of(operation: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(Client, EXTRA.get(operation, operation))
    return method


def schema_name(content: dict[str, Any]) -> str:
    return str(content["application/json"]["schema"]["$ref"]).rpartition("/")[2]


def model_name(model: Any) -> str:
    return str(model.__name__).replace("[", "_").replace("]", "_")


def parameters_of(operation: str) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(method_of(operation)).parameters)
    return {NAMES.get(name, name): one for name, one in found.items() if name != "self"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_has_a_method_with_its_parameters(operation: str) -> None:
    path, described = OPERATIONS[operation]
    parameters = parameters_of(operation)
    wanted = {one["name"] for one in described.get("parameters", [])}
    body = described.get("requestBody")

    given = set(parameters) - {"body", "idempotency_key"}
    assert given == wanted - {IDEMPOTENCY_KEY} - NOT_GIVEN.get(operation, set()), path
    assert ("body" in parameters) == (body is not None)
    needed = {one["name"] for one in described.get("parameters", []) if one["required"]}
    empty = inspect.Parameter.empty
    assert {name for name, one in parameters.items() if one.default is empty} - {"body"} == needed


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_method_has_the_models_of_its_operation(operation: str) -> None:
    _, described = OPERATIONS[operation]
    hints = typing.get_type_hints(method_of(operation))
    success = next(one for status, one in described["responses"].items() if status < "300")

    if "requestBody" in described:
        body = typing.get_args(hints["body"]) or (hints["body"],)
        schema = described["requestBody"]["content"]["application/json"]["schema"]
        known = [one["$ref"] for one in schema.get("anyOf", [schema]) if "$ref" in one]
        assert known == [f"#/components/schemas/{body[0].__name__}"]
    if "application/json" in success["content"]:
        assert model_name(hints["return"]) == schema_name(success["content"])


def test_every_method_is_an_operation() -> None:
    own = {name for name, one in vars(Client).items() if inspect.iscoroutinefunction(one)}

    named = {EXTRA.get(one, one) for one in OPERATIONS}
    assert {one for one in own if not one.startswith("_")} == named - {"events"}


def test_the_blocking_client_has_every_operation() -> None:
    assert {EXTRA.get(one, one) for one in OPERATIONS} <= set(vars(SyncClient))


# ---------------- A running server


async def token_of(dashboard: Dashboard, role: Role) -> str:
    new = NewCredential(CredentialKind.TOKEN, f"client-{role}", role, None)
    _, secret = await dashboard.store.credentials.create(new, SystemClock().now())
    return secret


@pytest.fixture
async def client(dashboard: Dashboard) -> AsyncIterator[Client]:
    token = await token_of(dashboard, Role.ADMIN)
    async with Client(dashboard.url, token=token) as client:
        yield client


LISTS = sorted(
    one
    for one in OPERATIONS
    if one.startswith("list_")
    and all(
        parameter.default is not inspect.Parameter.empty
        for parameter in parameters_of(one).values()
    )
)


async def test_the_server_answers_every_list_of_an_empty_home(client: Client) -> None:
    pages = [await getattr(client, name)(limit=5) for name in LISTS]

    assert {type(one).__mro__[1] for one in pages} == {Page}


async def test_health_and_metrics_are_read(client: Client) -> None:
    assert (await client.get_health()).checks
    assert "longline_" in await client.get_metrics()


async def test_a_source_is_submitted_and_its_launch_cancelled(
    client: Client, dashboard: Dashboard
) -> None:
    launch = await client.create_job(JobCreate(source="n8n", limit=3), idempotency_key="once")
    again = await client.create_job(JobCreate(source="n8n", limit=3), idempotency_key="once")

    assert again == launch
    assert [one.id for one in (await client.list_launches(is_open=True)).items] == [launch.id]
    assert (await client.cancel_launch(launch.id)).result == "cancelled"
    assert [one async for one in client.each(client.list_launches, is_open=True)] == []
    assert await dashboard.store.launches.get(launch.id) is not None


async def test_all_pages_of_a_list_are_read(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.create_token(TokenCreate(name=name))

    found = [one.name async for one in client.each(client.list_tokens, limit=1)]

    assert sorted(found) == ["a", "b", "c", "client-admin"]


async def test_a_name_with_a_slash_is_one_part_of_the_path(client: Client) -> None:
    with pytest.raises(UnknownToServer) as refused:
        await client.get_source("../jobs")

    assert refused.value.status == 404


async def test_unknown_names_and_conflicts_are_errors(client: Client) -> None:
    with pytest.raises(UnknownToServer) as unknown:
        await client.get_job("nothing")
    with pytest.raises(ServerRefused):
        await client.list_jobs(cursor="x")
    with pytest.raises(UnknownToServer):
        await client.pause_schedule("nothing", SchedulePause(reason="why"))
    with pytest.raises(UnknownToServer):
        await client.retry_job("nothing", JobRetry(key="a"))

    assert unknown.value.kind == "UnknownJob"
    assert unknown.value.exit_code == 2


async def test_wrong_tokens_and_roles_are_errors(dashboard: Dashboard) -> None:
    async with Client(dashboard.url, token="ll_wrong") as stranger:  # noqa: S106  # not a secret
        with pytest.raises(NotAuthenticated) as refused:
            await stranger.list_jobs()
    async with Client(dashboard.url, token=await token_of(dashboard, Role.READ)) as reader:
        with pytest.raises(NotPermitted) as forbidden:
            await reader.create_job(JobCreate(source="n8n"))

    assert (refused.value.exit_code, forbidden.value.exit_code) == (2, 2)
    assert "operate" in forbidden.value.detail


async def test_events_are_followed_from_an_id(client: Client, dashboard: Dashboard) -> None:
    for number in range(3):
        row = event_row(None, 1.0 + number, "access.opened", caller=f"c{number}", client="other")
        await dashboard.store.events.append(row)
    listed = (await client.list_events(types=["access.opened"])).items
    first = next(one for one in listed if one.data["caller"] == "c0")

    events = client.events(after=first.id, types=["access.opened"])
    found = [(await anext(events)).data["caller"], (await anext(events)).data["caller"]]
    await events.aclose()

    assert found == ["c1", "c2"]


async def test_code_without_an_event_loop_uses_a_server(dashboard: Dashboard) -> None:
    token = await token_of(dashboard, Role.READ)

    def use() -> tuple[list[str], str, str]:
        with SyncClient(dashboard.url, token=token) as client:
            events = client.events(after=0, types=["access.opened"])
            caller = next(events).data["caller"]
            events.close()
            names = [one.name for one in client.each(client.list_sources, limit=2)]
            return names, client.get_health().state, caller

    names, state, caller = await asyncio.to_thread(use)

    assert "n8n" in names
    assert state in {"ok", "degraded", "failed"}
    assert caller == "local"  # the fixture has logged in
