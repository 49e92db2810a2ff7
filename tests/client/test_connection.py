"""Requests of the client to servers that fail, are gone, or are something else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from longline.client import (
    Client,
    ServerBusy,
    ServerConflict,
    ServerError,
    ServerRefused,
    ServerUnreachable,
)
from longline.core.clock import Clock
from longline.core.errors import BadOption, ConflictError
from longline.server.models import JobCreate, TokenCreate
from tests.scripted_site import ScriptedSite

LAUNCH = {
    "id": 7,
    "kind": "source",
    "name": "shop",
    "origin": "api",
    "priority": 0,
    "state": "queued",
    "created_at": "2026-11-18T08:00:00Z",
    "started_at": None,
    "ended_at": None,
    "target": None,
    "result": None,
    "reason": None,
}
EVENT: dict[str, Any] = {
    "at": "2026-11-18T08:00:00Z",
    "type": "job.started",
    "job": "shop-1",
    "key": None,
    "subject": "job/shop-1",
    "version": 1,
    "data": {},
}


class ImpatientClock(Clock):
    """Waits not at all, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        return sum(self.waits)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def waiting() -> ImpatientClock:
    return ImpatientClock()


@pytest.fixture
async def client(site: ScriptedSite, waiting: ImpatientClock) -> AsyncIterator[Client]:
    async with Client(f"{site.url}/", token="ll_x", clock=waiting) as client:  # noqa: S106  # not one
        yield client


def problem(status: int, **values: str) -> web.Response:
    body = {"type": "about:blank", "title": "x", "status": status, "detail": "no", **values}
    return web.json_response(body, status=status)


def test_the_client_imports_no_code_of_the_server() -> None:
    code = "import longline.client, sys; print(*sys.modules)"

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    loaded = set(answer.stdout.split())
    ours = {one for one in loaded if one.startswith("longline.s")}
    assert ours == {"longline.server", "longline.server.models"}
    assert {"fastapi", "sqlalchemy", "click"} & loaded == set()


async def test_a_repeated_request_has_the_same_key(site: ScriptedSite, client: Client) -> None:
    keys: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        keys.append(request.headers["Idempotency-Key"])
        if len(keys) == 1:
            assert request.transport is not None
            request.transport.close()
        return web.json_response(LAUNCH, status=202) if len(keys) > 2 else problem(503)

    site.answers["/api/v1/jobs"] = answer

    launch = await client.create_job(JobCreate(source="shop"))

    assert launch.id == 7
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_only_given_values_are_sent(site: ScriptedSite, client: Client) -> None:
    bodies: list[bytes] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.read())
        return web.json_response(LAUNCH, status=202)

    site.answers["/api/v1/jobs"] = answer

    await client.create_job(JobCreate(source="shop", limit=2), idempotency_key="mine")

    assert json.loads(bodies[0]) == {"source": "shop", "limit": 2}


async def test_a_request_without_a_key_is_sent_once(site: ScriptedSite, client: Client) -> None:
    site.says_in_turn("/api/v1/tokens", 503)

    with pytest.raises(ServerBusy):
        await client.create_token(TokenCreate(name="ci"))

    assert site.hits["/api/v1/tokens"] == 1


async def test_a_key_in_use_is_waited_for(
    site: ScriptedSite, client: Client, waiting: ImpatientClock
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return problem(409, kind="KeyInUse")

    site.answers["/api/v1/jobs"] = answer

    with pytest.raises(ServerBusy):
        await client.create_job(JobCreate(source="shop"))

    assert len(waiting.waits) == 2


async def test_other_conflicts_are_not_repeated(site: ScriptedSite, client: Client) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return problem(409, kind="NotResumable")

    site.answers["/api/v1/jobs/shop-1/pause"] = answer

    with pytest.raises(ServerConflict) as refused:
        await client.pause_job("shop-1")

    assert isinstance(refused.value, ConflictError)
    assert refused.value.kind == "NotResumable"
    assert site.hits["/api/v1/jobs/shop-1/pause"] == 1


@pytest.mark.parametrize("status", [200, 302, 418, 500])
async def test_another_server_is_recognised(
    site: ScriptedSite, client: Client, status: int
) -> None:
    headers = {"Location": f"{site.url}/elsewhere"}
    site.says("/api/v1/jobs", "<h1>Welcome</h1>", status=status, headers=headers)

    with pytest.raises(ServerError) as other:
        await client.list_jobs()

    assert site.url in other.value.detail
    assert site.hits["/elsewhere"] == 0


async def test_a_long_error_is_cut(site: ScriptedSite, client: Client) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return problem(422, detail="x" * 100_000)

    site.answers["/api/v1/jobs"] = answer

    with pytest.raises(ServerRefused) as refused:
        await client.list_jobs()

    assert len(str(refused.value)) < 3000


async def test_a_server_that_is_gone_is_tried_three_times(waiting: ImpatientClock) -> None:
    async with Client("http://127.0.0.1:1", clock=waiting) as client:
        with pytest.raises(ServerUnreachable) as gone:
            await client.list_jobs()

    assert gone.value.exit_code == 2
    assert len(waiting.waits) == 2


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8400", "ftp://a", "http://", "http://a:x", "http://u:p@a", "http://a?b"]
)
def test_what_is_not_an_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(BadOption):
        Client(url)


def test_a_token_cannot_add_headers() -> None:
    with pytest.raises(BadOption):
        Client("http://127.0.0.1:1", token="a\r\nX-Other: 1")  # noqa: S106  # not a secret


# ---------------- The stream of events


async def test_a_broken_stream_continues_after_the_last_event(
    site: ScriptedSite, client: Client
) -> None:
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Last-Event-ID"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        number = 40 + len(asked)
        # The first part has only a cursor, as after a silence.
        text = f"retry: 2000\nid: {number}\n\n: still here\n\n"
        if len(asked) > 1:
            event = json.dumps({"id": number, **EVENT})
            text += f"id: {number}\ndata: {event[:9]}"
            await response.write(text.encode())
            text = event[9:] + "\n\n"
        await response.write(text.encode())
        return response

    site.answers["/api/v1/events/stream"] = answer

    events = client.events(types=["job.*"])
    found = [(await anext(events)).id, (await anext(events)).id]
    await events.aclose()

    assert found == [42, 43]
    assert asked[:3] == [None, "41", "42"]


async def test_a_stream_that_never_opens_is_an_error(waiting: ImpatientClock) -> None:
    async with Client("http://127.0.0.1:1", clock=waiting) as client:
        events = client.events(after=3)
        with pytest.raises(ServerUnreachable):
            await anext(events)

    assert len(waiting.waits) == 2


async def test_a_stream_waits_for_a_server_that_restarts(
    site: ScriptedSite, client: Client, waiting: ImpatientClock
) -> None:
    statuses = iter([200, 503, 503, 503, 503, 200])

    async def answer(request: web.Request) -> web.StreamResponse:
        status = next(statuses)
        if status != 200:
            return problem(status)
        response = web.StreamResponse()
        await response.prepare(request)
        number = 50 - len(waiting.waits)
        await response.write(f"data: {json.dumps({'id': number, **EVENT})}\n\n".encode())
        return response

    site.answers["/api/v1/events/stream"] = answer

    events = client.events()
    found = [(await anext(events)).id, (await anext(events)).id]
    await events.aclose()

    assert found == [50, 45]
    assert waiting.waits == sorted(waiting.waits)
