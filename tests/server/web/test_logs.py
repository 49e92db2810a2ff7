"""The page of logs."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from longline.storage.monitoring.logs import LogFilter, LogLine
from tests.server.web.conftest import Dashboard
from tests.server.web.test_sources import HOSTILE


async def add_lines(dashboard: Dashboard, *lines: LogLine) -> None:
    stored = dashboard.store.logs.add_soon(lines, max_per_job=None)
    await asyncio.wrap_future(stored)


def line(message: str = "slow", *, ago: float = 0.0, level: int = logging.WARNING) -> LogLine:
    return LogLine(time.time() - ago, level, "test", message)


async def test_an_empty_home_has_a_page_of_logs(dashboard: Dashboard) -> None:
    assert (await dashboard.get("/logs")).status == 200


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 4),
        ("level=error", 1),
        ("text=SLOW", 1),
        ("job=j1", 1),
        ("source=shop", 1),
        ("domain=shop.test", 1),
        ("since=1h", 3),
        ("until=1h", 1),
        ("text=none", 0),
    ],
)
async def test_lines_are_filtered(dashboard: Dashboard, query: str, count: int) -> None:
    now = time.time()
    await add_lines(
        dashboard,
        line("slow response"),
        line("old", ago=7200),
        LogLine(now, logging.ERROR, "test", "failed", job="j1", domain="shop.test"),
        LogLine(now, logging.WARNING, "test", "drifted", source="shop"),
    )

    answer = await dashboard.get(f"/logs?{query}")

    assert answer.status == 200
    assert answer.text.count("<tr><td") == count


async def test_lines_have_pages(dashboard: Dashboard) -> None:
    await add_lines(dashboard, *(line(f"n{number}") for number in range(150)))

    first = await dashboard.get("/logs?level=warning")
    older = first.text.partition('class="more"><a class="text" href="')[2].partition('"')[0]
    second = await dashboard.get(older.replace("&amp;", "&"))

    assert first.text.count("<tr><td") == 100
    assert second.text.count("<tr><td") == 50
    assert 'class="more"' not in second.text


async def test_a_search_is_bounded_and_goes_on_with_its_cursor(dashboard: Dashboard) -> None:
    await add_lines(dashboard, line("rare"), *(line() for _ in range(30)))

    first, cursor = await dashboard.store.logs.page(LogFilter(text="rare"), span=20)
    second, end = await dashboard.store.logs.page(LogFilter(text="rare"), before=cursor, span=20)

    assert (len(first), len(second)) == (0, 1)
    assert cursor is not None
    assert end is None


async def test_hostile_lines_are_shown_as_text(dashboard: Dashboard) -> None:
    hostile = LogLine(
        time.time(),
        logging.ERROR,
        "test",
        HOSTILE,
        exception=f"Traceback\n{HOSTILE}",
        job=HOSTILE[:100],
        source=HOSTILE[:100],
        domain=HOSTILE[:100],
        item=HOSTILE,
        fields={HOSTILE: HOSTILE},
    )
    await add_lines(dashboard, hostile)

    answer = await dashboard.get("/logs")

    assert answer.status == 200
    assert "<img src=x" not in answer.text
    assert "\x1b" not in answer.text


@pytest.mark.parametrize("query", ["since=yesterday", "until=99999999999999999999d"])
async def test_an_invalid_time_is_refused(dashboard: Dashboard, query: str) -> None:
    assert (await dashboard.get(f"/logs?{query}")).status == 422


@pytest.mark.parametrize("before", ["x", "-1", "9" * 40, "0"])
async def test_a_wrong_cursor_does_no_harm(dashboard: Dashboard, before: str) -> None:
    await add_lines(dashboard, line())

    assert (await dashboard.get(f"/logs?before={before}")).status == 200
