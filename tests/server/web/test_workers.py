"""The page of workers and health."""

from __future__ import annotations

import os
import time

from longline.engine.owner import this_run
from longline.services.background import heartbeat_path
from longline.storage.scheduling.launches import LaunchLimits, NewLaunch
from tests.server.web.conftest import Dashboard

ELSEWHERE = "other-machine~ab12:77:1.00:abcdef"


async def lease(dashboard: Dashboard, name: str, owner: str) -> None:
    now = time.time()
    await dashboard.store.launches.place(NewLaunch("source", name, {"source": name}, "test", now))
    await dashboard.store.launches.lease(owner, now, now + 30, LaunchLimits())


def touch_heartbeat(dashboard: Dashboard, pid: int, *, ago: float = 0.0) -> None:
    path = heartbeat_path(dashboard.settings.home, pid)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.utime(path, (time.time() - ago,) * 2)


async def test_a_new_home_works(dashboard: Dashboard) -> None:
    page = await dashboard.get("/workers")

    assert page.status == 200
    assert page.text.count('class="row check"') >= 8
    assert 'class="tag bad"' not in page.text


async def test_a_server_shows_what_it_runs(dashboard: Dashboard) -> None:
    touch_heartbeat(dashboard, os.getpid())
    await lease(dashboard, "shop", this_run())

    page = await dashboard.get("/workers")

    assert page.text.count("✓ alive</span> <span") == 1
    assert f"<strong>{os.getpid()}</strong>" in page.text
    assert "shop" in page.text.partition('data-label="Runs now"')[2].partition("</td>")[0]


async def test_a_silent_server_is_marked_with_a_remedy(dashboard: Dashboard) -> None:
    touch_heartbeat(dashboard, os.getpid(), ago=300)

    page = await dashboard.get("/workers")

    assert page.text.count("▲ silent") == 1
    assert f"kill {os.getpid()}" in page.text


async def test_a_server_of_another_machine_is_listed(dashboard: Dashboard) -> None:
    await lease(dashboard, "shop", ELSEWHERE)

    page = await dashboard.get("/workers")

    assert page.text.count("other-machine") == 2
    assert "ab12" not in page.text


async def test_workers_are_listed_with_their_machine(dashboard: Dashboard) -> None:
    now = time.time()
    await dashboard.store.workers.renew("w1", ELSEWHERE, now, now + 30)
    await dashboard.store.workers.renew("<b>w2", ELSEWHERE, now - 90, now - 60)

    page = await dashboard.get("/workers")

    assert page.text.count("✓ alive") == page.text.count("▲ lost") == 1
    assert "&lt;b&gt;w2" in page.text


async def test_checks_run_once_for_several_visitors(dashboard: Dashboard) -> None:
    first = await dashboard.get("/workers")
    touch_heartbeat(dashboard, os.getpid(), ago=300)

    second = await dashboard.get("/workers")

    assert first.text == second.text
