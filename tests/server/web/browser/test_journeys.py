"""What an operator does with the dashboard, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.http.proxies.proxy import Proxy
from longline.wiring import open_proxy_pool
from tests.server.web.browser.conftest import OpenVisitor
from tests.server.web.browser.served import Served
from tests.servers import free_port

pytestmark = [pytest.mark.real_time, pytest.mark.asyncio(loop_scope="session")]

SLOW = """
manifest: html
name: slow
rate: 2
start: {url}/redesign/never/
items: .lot a@href
key: {{url: 'lot/(\\d+)'}}
fields: {{title: .title}}
"""


async def test_a_schedule_is_paused_and_resumed(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)

    await me.click(me.page.get_by_role("navigation").get_by_role("link", name="Schedules"))
    await me.click(me.link("homes").first)
    await me.page.get_by_label("Reason of a pause").fill("the site is being rebuilt")
    await me.click(me.button("Pause"))
    await me.sees("the site is being rebuilt")
    await me.click(me.button("Resume"))

    await expect(me.button("Pause")).to_be_visible()


async def test_a_waiting_step_of_a_flow_is_approved(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)

    await me.click(me.page.get_by_role("navigation").get_by_role("link", name="Flows"))
    await me.click(me.link("flats-").first)
    await me.page.get_by_label("Comment").fill("looks right")
    await me.click(me.button("Approve"))
    await me.sees("5 of 5 steps ended")
    assert (demo.home / "flats.csv").read_text().count("\n") == 61

    await me.click(me.button("Undo"))
    await me.sees("compensated")
    assert not (demo.home / "flats.csv").exists()


async def test_a_flow_is_run_cancelled_and_retried(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)

    await me.go("/flows")
    await me.click(me.button("Run"))
    await me.click(me.button("Cancel"))
    await me.click(me.button("Retry"))
    await me.sees("is retried")

    await expect(me.button("Approve")).to_be_visible()


async def test_a_job_is_paused_resumed_and_cancelled(demo: Served, visit: OpenVisitor) -> None:
    url = demo.practice.replace("127.0.0.1", "localhost")  # a domain with a rate limit of its own
    (demo.home / "sources" / "slow.yaml").write_text(SLOW.format(url=url))
    me = await visit(demo)

    await me.go("/sources/slow")
    await me.click(me.button("Run now"))
    await me.click(me.link("Watch"))
    await me.click(me.button("Pause"))
    await me.click(me.button("Resume"))
    await expect(me.button("Pause")).to_be_visible()
    await me.click(me.button("Cancel"))

    await me.sees("cancelled")
    await expect(me.button("Cancel")).to_have_count(0)


async def test_a_circuit_breaker_is_reset(demo: Served, visit: OpenVisitor) -> None:
    domain = f"127.0.0.1:{free_port()}"  # where nobody responds
    down = SLOW.format(url=f"http://{domain}").replace("slow", "down")
    (demo.home / "sources" / "down.yaml").write_text(down)
    me = await visit(demo)

    await me.go("/sources/down")
    await me.click(me.button("Run now"))
    await me.click(me.page.get_by_role("table").get_by_role("link").first)
    await me.sees("could not list its items")
    await me.go(f"/domains?q={domain}")
    await me.click(me.button("Reset breaker"))

    await expect(me.button("Reset breaker")).to_have_count(0)


async def test_proxies_are_checked_removed_and_refreshed(demo: Served, visit: OpenVisitor) -> None:
    settings = Settings(home=demo.home)
    several = [Proxy("http", "127.0.0.1", free_port()) for _ in range(2)]
    async with open_proxy_pool(settings, SystemClock()) as pool:
        await pool.add(several)
    me = await visit(demo)

    await me.click(me.page.get_by_role("navigation").get_by_role("link", name="Proxies"))
    await me.sees("2 of 2 proxies are usable")
    await me.click(me.button("Check").first)
    await me.sees("is dead")
    await me.click(me.button("Remove").first)
    await me.sees("is removed")
    await me.click(me.button("Refresh"))
    await me.sees("no proxy passed the check")

    await expect(me.button("Check")).to_have_count(1)


async def test_a_manifest_is_tried_compared_and_saved(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)
    path = demo.home / "sources" / "quotes.yaml"

    await me.go("/sources/quotes")
    await me.click(me.link("Edit"))
    text = me.page.get_by_label("Text of the file")
    me.expected = ("status of 422",)
    await text.fill("nothing: valid")
    await me.click(me.button("Validate"))
    await me.sees("Line 1")
    await text.fill(f"# edited\n{path.read_text()}")
    await me.click(me.button("Try one page"))
    await me.sees("would be stored")
    await me.click(me.button("Review changes"))
    await me.sees("+# edited")
    await me.click(me.button("Save"))
    await me.sees("Saved")

    assert path.read_text().startswith("# edited")


async def test_a_token_opens_a_session_until_logout(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)
    await me.go("/settings")
    await me.page.get_by_label("Name").fill("alice")
    await me.click(me.button("Create token"))
    token = await me.page.get_by_role("region", name="New token").locator(".secret").inner_text()
    await me.page.context.clear_cookies()

    await me.go("/login")
    await me.page.get_by_label("Token").fill(token)
    await me.click(me.button("Log in"))
    await me.click(me.button("Log out"))

    await expect(me.button("Log in")).to_be_visible()


async def test_a_pair_of_duplicates_is_decided(demo: Served, visit: OpenVisitor) -> None:
    me = await visit(demo)

    await me.go("/flows")
    await me.click(me.link("flats-").last)
    await expect(me.page.locator("#step-compare")).to_contain_text("complete")
    await me.go("/duplicates")
    pair = me.page.get_by_role("region", name="Pair").first
    name = await pair.get_by_role("columnheader").nth(1).inner_text()
    await me.click(pair.get_by_role("button", name="Same thing"))
    await me.click(me.link("Confirmed"))

    await expect(me.page.get_by_role("region", name="Pair")).to_contain_text(name.splitlines()[0])
