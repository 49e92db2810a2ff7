"""Schedules in the API: lists, next runs, occurrences, and what changes them."""

from __future__ import annotations

import json
import time
from typing import Any

from longline.storage.access import Role
from tests.server.web.conftest import Dashboard
from tests.server.web.test_schedules import save, start
from tests.server.web.test_sources import write_manifest

API = "/api/v1"


async def read(dashboard: Dashboard, path: str, **options: Any) -> Any:
    answer = await dashboard.api("GET", API + path, **options)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


async def refusals(
    dashboard: Dashboard, *requests: tuple[str, str], **options: Any
) -> list[tuple[int, str | None]]:
    """Return status and kind of the error of each request, given as method and path."""
    answers = [await dashboard.api(method, API + path, **options) for method, path in requests]
    return [(one.status, json.loads(one.text).get("kind")) for one in answers]


async def read_pages(dashboard: Dashboard, path: str) -> list[Any]:
    """Return the entries of all pages of a list, by its cursors."""
    found = await read(dashboard, path)
    items = found["items"]
    while found["next"] is not None:
        found = await read(dashboard, f"{path}&cursor={found['next']}")
        items += found["items"]
    return list(items)


async def test_schedules_are_listed_in_pages(dashboard: Dashboard) -> None:
    for name in ("c", "a", "b"):
        await save(dashboard, name)

    found = await read_pages(dashboard, "/schedules?limit=2")

    assert [one["name"] for one in found] == ["a", "b", "c"]
    assert all(one["next_at"].endswith("Z") and one["is_enabled"] for one in found)


async def test_an_invalid_definition_is_listed_with_its_problem(dashboard: Dashboard) -> None:
    await dashboard.store.schedules.save("old", {"name": "old", "moon": 1}, time.time())

    found = await read(dashboard, "/schedules/old")

    assert (found["next_at"], found["is_enabled"]) == (None, False)
    assert "moon" in found["problem"]


async def test_an_unknown_schedule_is_not_found(dashboard: Dashboard) -> None:
    found = await refusals(
        dashboard,
        ("GET", "/schedules/none"),
        ("POST", "/schedules/none/pause"),
        ("POST", "/schedules/none/resume"),
        ("POST", "/schedules/none/run"),
        ("GET", "/occurrences?schedule=none"),
    )

    assert found == [(404, "UnknownSchedule")] * 5


async def test_a_schedule_is_paused_and_resumed(dashboard: Dashboard) -> None:
    await save(dashboard)
    path = f"{API}/schedules/nightly"

    paused = await dashboard.api("POST", f"{path}/pause", json={"reason": "rebuilt"})
    resumed = await dashboard.api("POST", f"{path}/resume", role=Role.OPERATE)

    assert json.loads(paused.text)["pause_reason"] == "rebuilt"
    assert json.loads(resumed.text)["paused_at"] is None


async def test_a_pause_without_a_reason_names_the_caller(dashboard: Dashboard) -> None:
    await save(dashboard)

    paused = await dashboard.api("POST", f"{API}/schedules/nightly/pause", role=Role.OPERATE)

    assert "test-operate" in json.loads(paused.text)["pause_reason"]


async def test_a_schedule_is_run_once_per_key(dashboard: Dashboard) -> None:
    write_manifest(dashboard)
    await save(dashboard)
    path, headers = f"{API}/schedules/nightly/run", {"Idempotency-Key": "one"}

    answers = [await dashboard.api("POST", path, headers=headers) for _ in range(2)]

    [launch] = await dashboard.store.launches.list()
    found = [json.loads(one.text) for one in answers]
    assert [one.status for one in answers] == [202, 202]
    assert [one["launch_id"] for one in found] == [launch.id, launch.id]
    assert (found[0]["kind"], found[0]["fate"]) == ("manual", "fired")


async def test_a_schedule_of_a_missing_source_is_not_run(dashboard: Dashboard) -> None:
    await save(dashboard)

    found = await refusals(dashboard, ("POST", "/schedules/nightly/run"))

    assert found == [(404, "UnknownSource")]


async def test_next_runs_of_all_schedules_are_in_order(dashboard: Dashboard) -> None:
    await save(dashboard, "hourly", cron="0 * * * *", timezone="UTC")
    await save(dashboard, "late", cron="0 */2 * * *", timezone="UTC", jitter=600)
    await save(dashboard, "off", cron="0 * * * *", enabled=False)

    whole = await read(dashboard, "/next-runs?days=1&limit=500")
    paged = await read_pages(dashboard, "/next-runs?days=1&limit=5")

    keys = [(one["starts_at"], one["schedule"]) for one in whole["items"]]
    assert len(keys) == 36
    assert keys == sorted(keys)
    assert paged == whole["items"]


async def test_next_runs_say_what_excludes_them(dashboard: Dashboard) -> None:
    closed = [{"from": "2020-01-01", "to": "2090-01-01", "reason": "closed"}]
    await save(dashboard, exclude=closed)
    await dashboard.store.schedules.pause("nightly", time.time(), "rebuilt")

    [found] = (await read(dashboard, "/next-runs?days=1"))["items"]

    assert (found["excluded"], found["paused"], found["clock_change"]) == (
        "closed",
        "rebuilt",
        None,
    )


async def test_occurrences_are_listed_in_pages(dashboard: Dashboard) -> None:
    await save(dashboard)
    await save(dashboard, "other")
    await start(dashboard, "nightly", 5)
    await start(dashboard, "other", 2)

    found = await read_pages(dashboard, "/occurrences?limit=3")
    own = await read_pages(dashboard, "/occurrences?limit=2&schedule=nightly&fate=fired")
    missed = await read(dashboard, "/occurrences?fate=missed")

    keys = [(one["schedule"], one["nominal_at"]) for one in found]
    assert (len(keys), len(set(keys))) == (7, 7)
    assert [one["schedule"] for one in own] == ["nightly"] * 5
    assert missed["items"] == []


async def test_a_foreign_cursor_is_refused(dashboard: Dashboard) -> None:
    await save(dashboard)
    names = ("schedules", "next-runs", "occurrences", "flow-runs", "events", "quarantine", "logs")

    found = await refusals(dashboard, *(("GET", f"/{one}?cursor=WzEsWzJdXQ") for one in names))

    assert found == [(422, "BadOption")] * len(names)
