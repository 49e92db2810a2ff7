"""Alerts, silences, logs, workers, health and metrics in the API."""

from __future__ import annotations

import json
import logging
import time

from longline.storage.access import Role
from longline.storage.monitoring.logs import LogLine
from tests.server.web.api.test_schedules import API, read, read_pages, refusals
from tests.server.web.conftest import Dashboard
from tests.server.web.test_alerts import raise_alerts
from tests.server.web.test_logs import add_lines, line
from tests.storage.given import queued

# ---------------- Alerts and silences


async def test_alerts_are_filtered(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard, 3)
    queries = ("", "state=firing", "state=pending", "state=any&rule=run_failed", "rule=late")

    found = [await read_pages(dashboard, f"/alerts?limit=2&{one}") for one in queries]

    assert [len({one["id"] for one in page}) for page in found] == [3, 3, 0, 3, 0]


async def test_resolved_alerts_are_listed_on_request(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard, is_resolved=True)

    opened, resolved = [await read(dashboard, f"/alerts?state={one}") for one in ("open", "any")]

    assert opened["items"] == []
    assert [one["state"] for one in resolved["items"]] == ["resolved"]


async def test_an_alert_is_silenced_until_the_silence_ends(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard, 2)
    body = {"seconds": 3600, "reason": "rebuilt"}

    answer = await dashboard.api("POST", f"{API}/alerts/1/silence", role=Role.OPERATE, json=body)
    silenced = [(await read(dashboard, f"/alerts/{one}"))["is_silenced"] for one in (1, 2)]
    added = json.loads(answer.text)
    listed = await read(dashboard, "/silences")
    ended = await dashboard.api("DELETE", f"{API}/silences/{added['id']}")

    assert silenced == [True, False]
    assert (added["rule"], added["subject"]) == ("run_failed", "source/shop0")
    assert listed["items"] == [added]
    assert json.loads(ended.text)["id"] == added["id"]
    assert (await read(dashboard, "/silences"))["items"] == []


async def test_an_unknown_alert_is_refused(dashboard: Dashboard) -> None:
    found = await refusals(
        dashboard,
        ("GET", "/alerts/1"),
        ("POST", "/alerts/1/silence"),
        ("DELETE", "/silences/1"),
        ("GET", "/alerts/0"),
        ("GET", f"/alerts/{2**63}"),
        json={"seconds": 60},
    )

    assert [status for status, _ in found] == [404, 404, 404, 422, 422]


async def test_a_silence_has_a_bounded_duration(dashboard: Dashboard) -> None:
    await raise_alerts(dashboard)
    bodies = [{"seconds": one} for one in (0, -1, 1e9, "soon")]

    answers = [await dashboard.api("POST", f"{API}/alerts/1/silence", json=one) for one in bodies]

    assert [one.status for one in answers] == [422] * 4


# ---------------- Logs and workers


_FOUND = {
    "": 4,
    "level=error": 1,
    "search=SLOW": 1,
    "source=shop": 2,
    "domain=shop.test": 1,
    "since=1h": 3,
    "until=1h": 1,
    "search=none": 0,
}


async def test_log_lines_are_filtered(dashboard: Dashboard) -> None:
    job = await queued(dashboard.store)
    now = time.time()
    await add_lines(
        dashboard,
        line("slow response"),
        line("old", ago=7200),
        LogLine(now, logging.ERROR, "test", "failed", job=job.id, domain="shop.test"),
        LogLine(now, logging.WARNING, "test", "drifted", source="shop"),
    )

    found = {one: len(await read_pages(dashboard, f"/logs?limit=2&{one}")) for one in _FOUND}

    assert found == _FOUND


async def test_lines_of_a_job_are_found_by_the_beginning_of_its_id(dashboard: Dashboard) -> None:
    job = await queued(dashboard.store)
    await add_lines(dashboard, line(), LogLine(time.time(), 40, "test", "failed", job=job.id))

    [found] = (await read(dashboard, f"/logs?job={job.id[:-1]}"))["items"]

    assert (found["job"], found["level"], found["message"]) == (job.id, "error", "failed")


async def test_a_wrong_query_of_logs_is_refused(dashboard: Dashboard) -> None:
    queries = ("job=none", "level=debug", "since=soon", "until=%00")

    found = await refusals(dashboard, *(("GET", f"/logs?{one}") for one in queries))

    assert [status for status, _ in found] == [404, 422, 422, 422]


async def test_workers_are_listed_by_name(dashboard: Dashboard) -> None:
    for name in ("second", "first"):
        await dashboard.store.workers.renew(name, f"host-1:47:{name}", 1.0, 60.0)

    found = await read_pages(dashboard, "/workers?limit=1")

    assert [(one["name"], one["host"], one["pid"]) for one in found] == [
        ("first", "host-1", 47),
        ("second", "host-1", 47),
    ]


# ---------------- Health and metrics


async def test_health_has_the_finding_of_each_check(dashboard: Dashboard) -> None:
    found = await read(dashboard, "/health", role=Role.READ)

    checks = {one["check"]: one["state"] for one in found["checks"]}
    assert checks["database"] == "ok"
    assert found["state"] in {"ok", "degraded"}


async def test_metrics_are_text_for_prometheus(dashboard: Dashboard) -> None:
    answers = [
        await dashboard.api("GET", path, role=Role.READ) for path in (f"{API}/metrics", "/metrics")
    ]

    types = [one.headers["Content-Type"].partition(";")[0] for one in answers]
    assert types == ["text/plain"] * 2
    assert all("\nlongline_build_info{" in one.text for one in answers)


async def test_probes_need_no_token_and_metrics_do(dashboard: Dashboard) -> None:
    dashboard.session.cookie_jar.clear()

    answers = [await dashboard.get(one) for one in ("/livez", "/readyz", "/metrics")]

    assert [one.status for one in answers] == [200, 200, 401]
    assert [one.text for one in answers[:2]] == ["ok\n", "ready\n"]


async def test_a_home_that_is_gone_is_not_ready(dashboard: Dashboard) -> None:
    home = dashboard.settings.home
    home.rename(home.with_name("moved"))
    home.write_text("not a folder")

    live, ready = [await dashboard.get(one) for one in ("/livez", "/readyz")]

    assert (live.status, ready.status) == (200, 503)
    assert ready.text == "not ready\n"
