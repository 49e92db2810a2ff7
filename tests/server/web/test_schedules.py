"""The pages of schedules: list, one schedule, actions."""

from __future__ import annotations

import time

import pytest

from longline.storage.access import Role
from longline.storage.scheduling.launches import NewLaunch
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE, write_manifest

DEFINITION = {
    "name": "nightly",
    "source": "quotes",
    "cron": "30 3 * * *",
    "timezone": "Europe/Sofia",
}


async def save(dashboard: Dashboard, name: str = "nightly", **values: object) -> None:
    definition = {**DEFINITION, "name": name, **values}
    await dashboard.store.schedules.save(name, definition, time.time())


async def start(dashboard: Dashboard, name: str, count: int) -> None:
    now = time.time()

    def launch(nominal: float) -> NewLaunch:
        return NewLaunch("source", "quotes", {}, f"schedule/{name}", now, key=str(nominal))

    nominals = [now - 60 * number for number in range(count)]
    await dashboard.store.schedules.start(name, now, launch, nominals)


async def test_an_empty_home_has_a_page_of_schedules(dashboard: Dashboard) -> None:
    answer = await dashboard.get("/schedules")

    assert answer.status == 200
    assert 'action="/schedules"' in answer.text


@pytest.mark.parametrize(("days", "marks"), [("1", 1), ("7", 7)])
async def test_the_timeline_has_a_mark_for_each_run(
    dashboard: Dashboard, days: str, marks: int
) -> None:
    await save(dashboard)

    answer = await dashboard.get(f"/schedules?days={days}")

    assert 'href="/schedules/nightly"' in answer.text
    assert answer.text.count('<rect class="run" x=') == marks


async def test_excluded_occurrences_are_marked(dashboard: Dashboard) -> None:
    await save(dashboard, cron=None, every=7200)
    await save(
        dashboard,
        "excluded",
        every=7200,
        cron=None,
        exclude=[{"from": "2020-01-01", "to": "2090-01-01", "reason": "<b>closed</b>"}],
    )

    answer = await dashboard.get("/schedules")

    assert answer.text.count('<rect class="out" x=') == 12
    assert answer.text.count('<rect class="run" x=') == 12
    assert "<b>closed" not in answer.text


async def test_a_frequent_schedule_has_a_bounded_timeline(dashboard: Dashboard) -> None:
    await save(dashboard, cron="* * * * *")

    answer = await dashboard.get("/schedules?days=7")

    assert answer.text.count('<rect class="run" x=') == 100


async def test_the_list_has_pages(dashboard: Dashboard) -> None:
    for number in range(51):
        await save(dashboard, f"s{number:02}")

    first = await dashboard.get("/schedules")
    second = await dashboard.get("/schedules?page=1")

    assert first.text.count('<a href="/schedules/s') == 50
    assert second.text.count('<a href="/schedules/s') == 1


async def test_a_schedule_shows_its_history_in_pages(dashboard: Dashboard) -> None:
    await save(dashboard)
    await start(dashboard, "nightly", 60)

    first = await dashboard.get("/schedules/nightly")
    older = first.text.partition('href="?before=')[2].partition("#")[0]
    second = await dashboard.get(f"/schedules/nightly?before={older}")

    assert first.text.count("✓ fired") == 50
    assert second.text.count("✓ fired") == 10


async def test_hostile_values_are_shown_as_text(dashboard: Dashboard) -> None:
    await save(dashboard)
    await dashboard.post("/schedules/nightly/pause", {"reason": HOSTILE})

    pages = [await dashboard.get(path) for path in ("/schedules", "/schedules/nightly")]

    assert [one.status for one in pages] == [200, 200]
    assert not any("<img src=x" in one.text or "\x1b" in one.text for one in pages)
    assert not any("x" * 1000 in one.text for one in pages)


async def test_an_invalid_definition_is_reported(dashboard: Dashboard) -> None:
    await dashboard.store.schedules.save("old", {"name": "old", "moon": "<i>"}, time.time())

    pages = [await dashboard.get(path) for path in ("/schedules", "/schedules/old")]

    assert [one.status for one in pages] == [200, 200]
    assert all("▲ invalid" in one.text for one in pages)


async def test_an_unknown_schedule_is_not_found(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/schedules/none")).status == 404
    assert (await dashboard.post("/schedules/none/pause")).status == 404


async def test_a_schedule_is_paused_and_resumed(dashboard: Dashboard) -> None:
    await save(dashboard)

    paused = await dashboard.post(
        "/schedules/nightly/pause", {"reason": "rebuilt"}, allow_redirects=False
    )
    between = await dashboard.store.schedules.get("nightly")
    await dashboard.post("/schedules/nightly/resume")

    after = await dashboard.store.schedules.get("nightly")
    assert paused.status == 303
    assert (between.pause_reason, after.paused_at) == ("rebuilt", None)


async def test_a_schedule_is_added_run_and_removed(dashboard: Dashboard) -> None:
    write_manifest(dashboard)
    form = {
        "name": "mine",
        "target": "source",
        "runs": "quotes",
        "trigger": "every",
        "when": "90m",
        "timezone": "Europe/Sofia",
    }

    added = await dashboard.post("/schedules", form, allow_redirects=False)
    ran = await dashboard.post("/schedules/mine/run", allow_redirects=False)
    [occurrence] = await dashboard.store.schedules.history("mine")
    removed = await dashboard.post("/schedules/mine/remove", allow_redirects=False)

    assert (added.status, ran.status, removed.status) == (303, 303, 303)
    assert (occurrence.kind, occurrence.fate) == ("manual", "fired")
    assert await dashboard.store.schedules.list() == []


@pytest.mark.parametrize(
    "changes", [{"when": "61 * * * *"}, {"name": "a/b"}, {"timezone": "Moon"}, {"trigger": "on"}]
)
async def test_an_invalid_schedule_is_refused(
    dashboard: Dashboard, changes: dict[str, str]
) -> None:
    write_manifest(dashboard)
    form = {"name": "mine", "runs": "quotes", "trigger": "cron", "when": "1 * * * *"}

    answer = await dashboard.post("/schedules", {**form, **changes})

    assert answer.status == 422
    assert await dashboard.store.schedules.list() == []


async def test_a_schedule_of_an_unknown_source_is_refused(dashboard: Dashboard) -> None:
    form = {"name": "mine", "runs": "none", "trigger": "cron", "when": "1 * * * *"}

    assert (await dashboard.post("/schedules", form)).status in (404, 422)


async def test_a_schedule_of_a_file_is_not_removed(dashboard: Dashboard) -> None:
    path = write_manifest(dashboard)
    path.write_text(path.read_text() + "schedule:\n  every: 1h\n")
    await dashboard.post("/schedules/quotes/run")

    answer = await dashboard.post("/schedules/quotes/remove")

    assert answer.status == 409
    assert len(await dashboard.store.schedules.list()) == 1


async def test_a_read_token_pauses_nothing(dashboard: Dashboard) -> None:
    await save(dashboard)

    answer = await dashboard.api("POST", "/schedules/nightly/pause", role=Role.READ)

    assert answer.status == 403
