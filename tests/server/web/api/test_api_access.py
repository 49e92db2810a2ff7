"""Who may call the operations of the HTTP API: each of them is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import aiohttp
import pytest

from longline.core.clock import SystemClock
from longline.storage.access import CredentialKind, NewCredential, Role
from tests.server.web.api.operations import Operation, operations_of
from tests.server.web.conftest import Dashboard

_FEW = 9  # failed logins that one address may have
FOREIGN = {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}


@pytest.fixture
def operations(document: dict[str, Any]) -> list[Operation]:
    return operations_of(document)


@pytest.fixture
def changing(operations: list[Operation]) -> list[Operation]:
    return [one for one in operations if one.changes]


async def statuses_without(
    status: int, calls: AsyncIterator[tuple[Operation, int]]
) -> dict[str, int]:
    """Return the operations that have responded with another status."""
    return {str(operation): found async for operation, found in calls if found != status}


async def call_each(
    dashboard: Dashboard, operations: Iterable[Operation], headers: dict[str, str]
) -> AsyncIterator[tuple[Operation, int]]:
    """Call each operation with the session of the browser, if it has one."""
    for one in operations:
        answer = await dashboard.request(one.method, one.path, headers=headers)
        yield one, answer.status


async def call_each_with_token(
    dashboard: Dashboard, operations: list[Operation], token: str
) -> AsyncIterator[tuple[Operation, int]]:
    """Call each operation with a token, from other addresses after some failed logins."""
    headers = {"Authorization": f"Bearer {token}"}
    for start in range(0, len(operations), _FEW):
        address = aiohttp.TCPConnector(local_addr=(f"127.0.1.{start + 1}", 0))
        async with aiohttp.ClientSession(dashboard.url, connector=address) as session:
            for one in operations[start : start + _FEW]:
                async with session.request(one.method, one.path, headers=headers) as response:
                    yield one, response.status


async def test_without_a_token_nothing_responds(
    dashboard: Dashboard, operations: list[Operation]
) -> None:
    dashboard.session.cookie_jar.clear()

    assert await statuses_without(401, call_each(dashboard, operations, {})) == {}


async def test_an_expired_token_is_refused(
    dashboard: Dashboard, operations: list[Operation]
) -> None:
    new = NewCredential(CredentialKind.TOKEN, "old", Role.ADMIN, -1.0)
    _, token = await dashboard.store.credentials.create(new, SystemClock().now())

    calls = call_each_with_token(dashboard, operations, token)

    assert await statuses_without(401, calls) == {}


async def test_a_revoked_token_is_refused(
    dashboard: Dashboard, operations: list[Operation]
) -> None:
    await dashboard.api("GET", "/")
    await dashboard.store.credentials.revoke("test-admin", SystemClock().now())

    calls = call_each_with_token(dashboard, operations, dashboard.tokens[Role.ADMIN])

    assert await statuses_without(401, calls) == {}


async def test_a_read_token_changes_nothing(
    dashboard: Dashboard, changing: list[Operation]
) -> None:
    await dashboard.api("GET", "/", role=Role.READ)

    calls = call_each_with_token(dashboard, changing, dashboard.tokens[Role.READ])

    assert await statuses_without(403, calls) == {}


async def test_tokens_are_for_admins_only(
    dashboard: Dashboard, operations: list[Operation]
) -> None:
    await dashboard.api("GET", "/", role=Role.OPERATE)
    secured = [one for one in operations if one.is_for_admins]

    calls = call_each_with_token(dashboard, secured, dashboard.tokens[Role.OPERATE])

    assert await statuses_without(403, calls) == {}
    assert len(secured) == 3


async def test_a_foreign_host_is_refused_everywhere(
    dashboard: Dashboard, operations: list[Operation]
) -> None:
    calls = call_each(dashboard, operations, {"Host": "evil.example"})

    assert await statuses_without(421, calls) == {}


@pytest.mark.parametrize("headers", [FOREIGN, {}])
async def test_forms_of_other_sites_change_nothing(
    dashboard: Dashboard, changing: list[Operation], headers: dict[str, str]
) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", **headers}

    assert await statuses_without(403, call_each(dashboard, changing, form)) == {}
