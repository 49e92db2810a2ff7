"""The endpoint of metrics and health: who may read it, and what a supervisor is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from longline.monitoring.endpoint import (
    AddressUnusable,
    MonitoringEndpoint,
    Readiness,
    Responders,
)

TOKEN = "token-of-the-test"  # noqa: S105  # of this test only
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Parts:
    """What the endpoint asks."""

    def __init__(self) -> None:
        self.is_ready = True
        self.accepted: list[str] = []

    async def metrics(self, accept: str) -> tuple[bytes, str]:
        self.accepted.append(accept)
        return b"longline_records 5\n", "text/plain; version=0.0.4; charset=utf-8"

    async def readiness(self) -> Readiness:
        return Readiness(self.is_ready, {"state": "ok" if self.is_ready else "failed"})


@pytest.fixture
def parts() -> Parts:
    return Parts()


@asynccontextmanager
async def served(
    parts: Parts, *, token: str | None = None, address: str = "127.0.0.1:0"
) -> AsyncIterator[str]:
    responders = Responders(parts.metrics, parts.readiness)
    secret = None if token is None else SecretStr(token)
    async with MonitoringEndpoint(address, responders, secret).listening() as port:
        yield f"http://127.0.0.1:{port}"


async def get(url: str, **headers: str) -> tuple[int, str, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        return response.status, await response.text(), response.headers


async def test_metrics_are_served_to_this_machine(parts: Parts) -> None:
    async with served(parts) as url:
        status, text, headers = await get(f"{url}/metrics", Accept="text/plain")

    assert (status, text) == (200, "longline_records 5\n")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert headers["Cache-Control"] == "no-store"
    assert parts.accepted == ["text/plain"]


async def test_a_process_is_alive_even_if_it_is_not_ready(parts: Parts) -> None:
    parts.is_ready = False

    async with served(parts) as url:
        live = await get(f"{url}/livez")
        ready = await get(f"{url}/readyz")

    assert (live[0], ready[0]) == (200, 503)
    assert ready[1].strip() == '{"state":"failed"}'


async def test_a_ready_process_says_so(parts: Parts) -> None:
    async with served(parts) as url:
        assert (await get(f"{url}/readyz"))[0] == 200


async def test_without_the_token_only_the_status_is_shown(parts: Parts) -> None:
    async with served(parts, token=TOKEN) as url:
        refused = await get(f"{url}/metrics")
        wrong = await get(f"{url}/metrics", Authorization="Bearer wrong")
        other = await get(f"{url}/metrics", Authorization=f"Basic {TOKEN}")
        ready = await get(f"{url}/readyz")
        live = await get(f"{url}/livez")

    assert [one[0] for one in (refused, wrong, other)] == [401, 401, 401]
    assert refused[2]["WWW-Authenticate"] == "Bearer"
    assert (ready[0], ready[1], live[0]) == (200, "ready\n", 200)
    assert parts.accepted == []


async def test_the_token_shows_all(parts: Parts) -> None:
    async with served(parts, token=TOKEN) as url:
        metrics = await get(f"{url}/metrics", **BEARER)
        ready = await get(f"{url}/readyz", **BEARER)

    assert (metrics[0], ready[1].strip()) == (200, '{"state":"ok"}')


@pytest.mark.parametrize("host", ["evil.test", "evil.test:80", "127.0.0.1.evil.test", "[2001::1]"])
async def test_another_host_is_refused_on_this_machine(parts: Parts, host: str) -> None:
    async with served(parts) as url:
        answers = [await get(f"{url}/{one}", Host=host) for one in ("metrics", "livez", "readyz")]

    assert [status for status, _, _ in answers] == [421, 421, 421]
    assert parts.accepted == []


@pytest.mark.parametrize("host", ["localhost", "localhost:9464", "127.0.0.1", "[::1]:9464"])
async def test_names_of_this_machine_are_accepted(parts: Parts, host: str) -> None:
    async with served(parts) as url:
        assert (await get(f"{url}/livez", Host=host))[0] == 200


async def test_any_host_is_accepted_on_other_addresses(parts: Parts) -> None:
    async with served(parts, token=TOKEN, address="0.0.0.0:0") as url:
        status, _, _ = await get(f"{url}/metrics", Host="metrics.test", **BEARER)

    assert status == 200


async def test_other_paths_and_methods_do_not_exist(parts: Parts) -> None:
    async with served(parts) as url, aiohttp.ClientSession() as session:
        missing = await session.get(f"{url}/healthz")
        posted = await session.post(f"{url}/metrics")

    assert (missing.status, posted.status) == (404, 405)


async def test_an_address_in_use_is_reported(parts: Parts) -> None:
    async with served(parts) as url:
        address = url.removeprefix("http://")
        with pytest.raises(AddressUnusable) as caught:
            async with served(parts, address=address):
                pass

    assert caught.value.address == address
    assert caught.value.problem == "Address already in use"
