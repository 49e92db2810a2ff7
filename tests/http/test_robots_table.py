"""Every case of the RFC 9309 table, through the middleware and over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from longline.core.model import Usage
from longline.http.errors import RobotsDisallowed
from longline.http.messages import Middleware, Request
from longline.http.robots import RobotsMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from tests.http.robots_table import CASES, Case
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


@pytest.fixture
async def robots(clock: VirtualClock) -> AsyncIterator[Middleware]:
    transport = HttpTransport(HttpOptions(), clock)
    yield RobotsMiddleware(transport, clock)
    await transport.close()


async def is_let_through(robots: Middleware, url: str) -> bool:
    try:
        await robots(Request(url), Usage())
    except RobotsDisallowed:
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_a_rule_is_understood_as_rfc_9309_means_it(
    site: ScriptedSite, robots: Middleware, case: Case
) -> None:
    async def robots_txt(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=case.body, content_type="text/plain")

    site.answers["/robots.txt"] = robots_txt

    is_allowed = await is_let_through(robots, f"{site.url}{case.path}")

    assert is_allowed == case.is_allowed
    assert sum(site.hits.values()) == 1 + case.is_allowed


def test_the_table_is_as_long_as_it_claims_and_names_no_case_twice() -> None:
    assert len(CASES) >= 100
    assert len({case.name for case in CASES}) == len(CASES)
