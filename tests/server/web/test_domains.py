"""The page of domains: limits, breakers, and what a person changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from longline.core.clock import SystemClock
from longline.core.errors import Blocked
from longline.limits.breaker import CircuitBreaker
from longline.limits.learning import Learned
from longline.storage.access import Role
from longline.wiring import open_domain_states
from tests.server.web.conftest import Dashboard


async def limits_of(dashboard: Dashboard) -> Mapping[str, Learned]:
    async with open_domain_states(dashboard.settings, SystemClock(), dashboard.store) as states:
        return await states.limits.all()


async def trip(dashboard: Dashboard, domain: str = "shop.test") -> None:
    """Open the breaker of a domain."""
    async with open_domain_states(dashboard.settings, SystemClock(), dashboard.store) as states:
        breaker = CircuitBreaker(backend=states.breakers)
        await breaker.record(domain, Blocked(f"http://{domain}/", "a challenge"))


async def test_an_empty_home_has_a_page_of_domains(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/domains")).status == 200


async def test_a_limit_is_pinned_and_forgotten(dashboard: Dashboard) -> None:
    form = {"domain": "https://shop.test/list", "rate": "2.5", "burst": "3"}

    pinned = await dashboard.post("/domains/pin", form, allow_redirects=False)
    limit = (await limits_of(dashboard))["shop.test"]
    page = await dashboard.get("/domains?show=pinned")
    forgotten = await dashboard.post(
        "/domains/forget", {"domain": "shop.test"}, allow_redirects=False
    )

    assert (pinned.status, forgotten.status) == (303, 303)
    assert (limit.rate, limit.origin) == (2.5, "pinned")
    assert page.text.count('class="key"') == 1
    assert await limits_of(dashboard) == {}


@pytest.mark.parametrize(
    "form",
    [
        {"rate": "fast"},
        {"rate": "nan"},
        {"rate": "-1"},
        {"burst": "1.5"},
        {"domain": ""},
        {"domain": "<b>"},
    ],
)
async def test_an_invalid_limit_is_refused(dashboard: Dashboard, form: dict[str, str]) -> None:
    answer = await dashboard.post("/domains/pin", {"domain": "shop.test", "rate": "1", **form})

    assert answer.status == 422
    assert await limits_of(dashboard) == {}


async def test_domains_in_trouble_come_first_and_are_reset(dashboard: Dashboard) -> None:
    await dashboard.post("/domains/pin", {"domain": "a.test", "rate": "1"})
    await trip(dashboard)

    before = (await dashboard.get("/domains")).text
    answer = await dashboard.post("/domains/reset", {"domain": "shop.test"}, allow_redirects=False)
    after = (await dashboard.get("/domains")).text

    assert before.index("<strong>shop.test") < before.index("<strong>a.test")
    assert 'action="/domains/reset"' in before
    assert answer.status == 303
    assert "In trouble 0" in after


async def test_domains_are_searched(dashboard: Dashboard) -> None:
    await dashboard.post("/domains/pin", {"domain": "a.test", "rate": "1"})
    await dashboard.post("/domains/pin", {"domain": "b.test", "rate": "1"})

    page = await dashboard.get("/domains?q=B.")

    assert page.text.count('class="key"') == 1


async def test_an_unknown_domain_is_not_reset(dashboard: Dashboard) -> None:
    assert (await dashboard.post("/domains/reset", {"domain": "none.test"})).status == 404
    assert (await dashboard.post("/domains/forget", {"domain": "none.test"})).status in (404, 422)


@pytest.mark.parametrize("action", ["pin", "reset", "forget"])
async def test_a_reader_changes_no_domain(dashboard: Dashboard, action: str) -> None:
    form = {"domain": "a.test", "rate": "1"}

    answer = await dashboard.api("POST", f"/domains/{action}", role=Role.READ, data=form)

    assert answer.status == 403
    assert await limits_of(dashboard) == {}
