"""The pages of events: the log, audit, subscribers."""

from __future__ import annotations

import time

import pytest

from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.webhooks import Webhook
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE


async def append_pauses(dashboard: Dashboard, count: int, reason: str = "r") -> None:
    rows = [
        event_row(None, time.time(), "schedule.paused", schedule="s1", reason=reason)
        for _ in range(count)
    ]
    await dashboard.store.events.append(*rows)


async def test_events_have_pages(dashboard: Dashboard) -> None:
    await append_pauses(dashboard, 120)

    first = await dashboard.get("/events?type=schedule.*")
    older = first.text.partition('class="more"><a class="text" href="')[2].partition('"')[0]
    second = await dashboard.get(older.replace("&amp;", "&"))

    assert first.text.count('<tr id="event-') == 50
    assert second.text.count('<tr id="event-') == 70
    assert 'hx-sse:connect="/live/events?type=schedule.%2A"' in first.text
    assert "hx-sse:connect" not in second.text


@pytest.mark.parametrize(
    ("query", "count"),
    [("type=schedule.paused", 2), ("subject=schedule/s1", 2), ("subject=schedule/s2", 0)],
)
async def test_events_are_filtered(dashboard: Dashboard, query: str, count: int) -> None:
    await append_pauses(dashboard, 2)

    answer = await dashboard.get(f"/events?{query}")

    assert answer.text.count('<tr id="event-') == count


async def test_an_unknown_type_is_reported(dashboard: Dashboard) -> None:
    answer = await dashboard.get("/events?type=%3Cb%3Emoon")

    assert answer.status == 200
    assert "<b>moon" not in answer.text
    assert 'role="alert"' in answer.text


async def test_hostile_events_are_shown_as_text(dashboard: Dashboard) -> None:
    await append_pauses(dashboard, 1, HOSTILE)

    answer = await dashboard.get("/events")

    assert answer.status == 200
    assert "<img src=x" not in answer.text
    assert "\x1b" not in answer.text
    assert "x" * 1000 not in answer.text


async def test_the_audit_lists_changes_with_their_callers(dashboard: Dashboard) -> None:
    await append_pauses(dashboard, 3)
    await dashboard.post("/schedules/none/pause")

    answer = await dashboard.get("/events/audit")

    assert answer.status == 200
    assert answer.text.count("POST /schedules/none/pause") == 1
    assert "▲ 404" in answer.text


async def test_audit_events_are_found_among_many_others(dashboard: Dashboard) -> None:
    await append_pauses(dashboard, 50)

    found, cursor = await dashboard.store.events.page(
        EventFilter(("access.*",)), span=10, is_jobless=True
    )
    bounded, next_cursor = await dashboard.store.events.page(EventFilter(("access.*",)), span=10)

    assert (len(found), cursor) == (1, None)
    assert bounded == []
    assert next_cursor is not None


async def test_subscribers_and_webhooks_show_their_lag(dashboard: Dashboard) -> None:
    webhook = Webhook("hook", "https://user:secret@hooks.test/x", ("s",), created_at=time.time())
    await dashboard.store.webhooks.add(webhook, EventFilter(("schedule.*",)))
    await append_pauses(dashboard, 7)

    answer = await dashboard.get("/events/subscribers")

    assert answer.status == 200
    assert "hooks.test" in answer.text
    assert "user:secret" not in answer.text
    assert '<td class="num warn">7</td>' in answer.text
