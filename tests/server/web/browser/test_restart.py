"""`kill -9` of the server while jobs run and pages are open."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from longline.core.model import JobState
from tests.server.served_home import ServedHome
from tests.server.web.browser.conftest import OpenVisitor
from tests.server.web.browser.served import server_running

pytestmark = [pytest.mark.real_time, pytest.mark.asyncio(loop_scope="session")]

JOBS = int(os.environ.get("LONGLINE_TEST_JOBS", "6"))  # 20 take minutes on a busy machine
STARTS = 120_000.0  # milliseconds for the start of so many processes
SETTINGS = {"LONGLINE_EXECUTOR_JOBS": str(JOBS), "LONGLINE_EXECUTOR_JOBS_PER_SOURCE": str(JOBS)}


async def test_a_page_is_live_though_one_of_its_scripts_comes_late(
    visit: OpenVisitor, tmp_path: Path
) -> None:
    home = ServedHome(tmp_path)
    async with server_running(tmp_path) as served:
        me = await visit(served)
        me.expected = ("net::ERR_", "htmx:sse:error")  # at the end, without its server

        async def come_late(route: Route) -> None:
            await me.page.wait_for_function("() => document.readyState == 'interactive'")
            await route.continue_()

        await me.page.route("**/hx-sse*", come_late)
        await me.go("/")
        await asyncio.to_thread(home.place, items=1, waits=0)
        await me.sees("steered")


@pytest.mark.timeout(300)
async def test_jobs_and_open_pages_survive_a_kill_of_the_server(
    browser: Browser, visit: OpenVisitor, tmp_path: Path
) -> None:
    del browser  # without one, nothing is started
    home = ServedHome(tmp_path)
    async with server_running(tmp_path, **SETTINGS) as served:
        me, log = await visit(served), await visit(served)
        me.expected = log.expected = ("net::ERR_", "htmx:sse:error")  # while there is no server
        await log.go("/events")
        launches = [
            await asyncio.to_thread(home.place, items=2 + number, waits=1) for number in range(JOBS)
        ]
        await me.sees(f"{JOBS} jobs running", patience=STARTS)

        await served.kill()
        await served.start()
        home.go()

        # Both pages were opened before, and nobody has touched them since.
        await me.sees("Nothing is running.", patience=STARTS)
        newest = await asyncio.to_thread(home.read, lambda store: store.events.newest())
        await expect(log.page.locator(f"#event-{newest}")).to_be_visible()

    jobs = await asyncio.to_thread(lambda: [home.job(launch) for launch in launches])
    assert {job.state for job in jobs} == {JobState.COMPLETE}
