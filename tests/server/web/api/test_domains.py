"""Domains in the API: limits, breakers, resets."""

from __future__ import annotations

import json

from longline.core.clock import SystemClock
from longline.core.errors import Blocked
from longline.limits.breaker import CircuitBreaker
from longline.services.domains import pin_limit
from longline.storage.access import Role
from longline.storage.events.events import EventFilter
from longline.wiring import open_domain_states
from tests.server.web.api.test_schedules import API, read, read_pages, refusals
from tests.server.web.conftest import Dashboard


async def pin(dashboard: Dashboard, *names: str) -> None:
    clock = SystemClock()
    async with open_domain_states(dashboard.settings, clock, dashboard.store) as states:
        for name in names:
            await pin_limit(dashboard.store, states, clock, name, rate=2.0)


async def ban(dashboard: Dashboard, name: str) -> None:
    clock = SystemClock()
    async with open_domain_states(dashboard.settings, clock, dashboard.store) as states:
        breaker = CircuitBreaker(backend=states.breakers)
        await breaker.record(name, Blocked(f"http://{name}/", "a challenge form"))


async def test_domains_are_listed_in_pages(dashboard: Dashboard) -> None:
    await pin(dashboard, "c.test", "a.test", "b.test:8080")

    found = await read_pages(dashboard, "/domains?limit=2")

    assert [one["domain"] for one in found] == ["a.test", "b.test:8080", "c.test"]
    assert [one["limit"]["origin"] for one in found] == ["pinned"] * 3


async def test_a_domain_has_its_limit_and_its_breaker(dashboard: Dashboard) -> None:
    await pin(dashboard, "a.test:8080")
    await ban(dashboard, "a.test:8080")

    found = await read(dashboard, "/domains/a.test:8080")

    assert (found["limit"]["rate"], found["limit"]["burst"]) == (2.0, 1)
    assert (found["breaker"]["phase"], found["breaker"]["is_ban"]) == ("open", True)
    assert len(found["problems"]) == 1


async def test_a_breaker_is_reset_with_its_event(dashboard: Dashboard) -> None:
    await ban(dashboard, "a.test")

    answer = await dashboard.api("POST", f"{API}/domains/a.test/reset", role=Role.OPERATE)

    reset = json.loads(answer.text)
    assert (reset["domain"]["breaker"]["phase"], reset["due_items"]) == ("closed", 0)
    closed = EventFilter(("breaker.closed",), subject="domain/a.test")
    assert len(await dashboard.store.events.last(closed, limit=5)) == 1


async def test_an_unknown_domain_is_not_found(dashboard: Dashboard) -> None:
    found = await refusals(
        dashboard, ("GET", "/domains/none.test"), ("POST", "/domains/none.test/reset")
    )

    assert found == [(404, "UnknownDomain"), (404, "NoBreaker")]
