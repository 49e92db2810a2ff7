"""The page of proxies, and their API."""

from __future__ import annotations

import json
from typing import Any

from longline.core.clock import SystemClock
from longline.http.proxies.choice import Score
from longline.http.proxies.pool import CheckResult, SeenDomain
from longline.http.proxies.proxy import Proxy
from longline.storage.access import Role
from longline.wiring import open_limit_backends, open_proxy_pool
from tests.server.web.conftest import Dashboard

DEAD = "http://127.0.0.1:9"


async def fill(dashboard: Dashboard, **fields: Any) -> None:
    """Add an alive proxy, a dead one and an unchecked one; `fields` are of the alive one."""
    result = CheckResult(True, 1.0, latency=0.5, anonymity="elite", exit_address="198.51.100.7")
    results = {
        Proxy("socks5", "10.0.0.1", 1080, **fields): result,
        Proxy("http", "127.0.0.1", 9): CheckResult(False, 1.0, problem="no connection to it"),
        Proxy("http", "10.0.0.3", 80): None,
    }
    async with open_proxy_pool(dashboard.settings, SystemClock(), dashboard.store) as pool:
        await pool.add(results)
        for proxy, checked in results.items():
            if checked is not None:
                await pool.record_check(proxy.address, checked)


async def test_an_empty_home_has_a_page_of_proxies(dashboard: Dashboard) -> None:
    page = await dashboard.get("/proxies")

    assert (page.status, "The pool has no proxies" in page.text) == (200, True)
    assert "<code>longline proxies add</code>" in page.text
    assert 'type="search"' not in page.text  # there is nothing to search


async def test_proxies_are_listed_by_state_and_searched(dashboard: Dashboard) -> None:
    await fill(dashboard, tier="paid", country="BG", credentials="env:SECRET_NAME")

    every = await dashboard.get("/proxies")
    dead = await dashboard.get("/proxies?show=dead")
    found = await dashboard.get("/proxies?q=paid")
    unknown = await dashboard.get("/proxies?show=good")

    assert every.text.count('class="key"><strong') == 3
    assert all(text in every.text for text in ("0.50 s", "198.51.100.7", "with credentials"))
    assert "SECRET_NAME" not in every.text
    assert (dead.text.count('class="key"><strong'), "no connection" in dead.text) == (1, True)
    assert "socks5://10.0.0.1:1080" in found.text
    assert DEAD not in found.text
    assert unknown.status == 422


async def test_failures_and_bans_of_a_proxy_are_counted(dashboard: Dashboard) -> None:
    await fill(dashboard)
    score, seen = Score(requests=1200, failed=3, bans=1), SeenDomain(1.0)
    async with open_limit_backends(dashboard.settings, SystemClock(), dashboard.store) as opened:
        scores = opened.proxies.scores("shop.test")
        await scores.change("socks5://10.0.0.1:1080", lambda _old, _now: (score, None))
        await opened.proxies.domains.change("shop.test", lambda _old, _now: (seen, None))

    page = await dashboard.get("/proxies")

    assert all(text in page.text for text in ("1,200", "◆ 3 failed", "▲ 1 ban<"))


async def test_a_proxy_is_checked_and_removed(dashboard: Dashboard) -> None:
    await fill(dashboard)

    checked = await dashboard.post("/proxies/check", {"address": DEAD})
    removed = await dashboard.post("/proxies/remove", {"address": DEAD, "show": "dead"})
    again = await dashboard.post("/proxies/remove", {"address": DEAD})

    assert "is dead" in checked.text
    assert "No proxy matches" in removed.text
    assert again.status == 404


async def test_a_refresh_is_begun_and_shown(dashboard: Dashboard) -> None:
    nothing = await dashboard.post("/proxies/refresh")
    await fill(dashboard)

    begun = await dashboard.post("/proxies/refresh")

    assert nothing.status == 422
    assert "A refresh is running" in begun.text
    assert (await dashboard.store.proxy_refreshes.last()) is not None


async def test_a_reader_sees_no_buttons_and_changes_nothing(dashboard: Dashboard) -> None:
    await fill(dashboard)

    answer = await dashboard.api("POST", "/api/v1/proxies/refresh", role=Role.READ)

    assert answer.status == 403
    assert await dashboard.store.proxy_refreshes.last() is None


async def test_the_api_lists_and_refreshes(dashboard: Dashboard) -> None:
    await fill(dashboard, credentials="env:SECRET_NAME")

    before = await dashboard.api("GET", "/api/v1/proxies/refresh", role=Role.READ)
    listed = await dashboard.api("GET", "/api/v1/proxies?limit=2", role=Role.READ)
    page = json.loads(listed.text)
    rest = await dashboard.api("GET", f"/api/v1/proxies?cursor={page['next']}", role=Role.READ)
    begun = await dashboard.api("POST", "/api/v1/proxies/refresh", role=Role.OPERATE)
    shown = await dashboard.api("GET", "/api/v1/proxies/refresh", role=Role.READ)

    assert before.status == 404
    several = page["items"] + json.loads(rest.text)["items"]
    assert [one["state"] for one in several] == ["unchecked", "dead", "alive"]
    assert (several[2]["has_credentials"], "SECRET_NAME" in listed.text) == (True, False)
    assert json.loads(begun.text) == json.loads(shown.text)
    assert json.loads(shown.text)["step"] == "collect"
    assert "plan" not in json.loads(shown.text)


async def test_the_judge_is_off_by_default(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/judge")).status == 404
