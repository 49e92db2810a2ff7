"""Runs that meet each other, a rest, a ban or an end of time, and still end honestly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.config.settings import Settings
from longline.core.model import ItemState, JobState
from longline.limits.breaker import CircuitBreaker
from longline.orchestrator import Orchestrator
from longline.storage.query import RecordQuery
from longline.wiring import open_limit_backends
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock


@contextlib.asynccontextmanager
async def opened(
    home: Path, clock: VirtualClock, site: ScriptedSite, **spec: Any
) -> AsyncIterator[Orchestrator]:
    options = {"site": site.url, "count": 10, **spec.pop("options", {})}
    values = {"rate": "unlimited", "concurrency": 4, **spec}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=home, clock=clock, **values
    ) as orchestrator:
        yield orchestrator


@pytest.fixture
def pages(site: ScriptedSite) -> ScriptedSite:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    return site


def busy_until(site: ScriptedSite, clock: VirtualClock, until: float, pause: int) -> None:
    """Answer 429 with this Retry-After until a moment."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if clock.now() < until:
            return web.Response(status=429, headers={"retry-after": str(pause)})
        return web.Response(text=request.path)

    site.answers |= {f"/item/{number}": answer for number in range(10)}


async def test_a_process_that_goes_on_ends_a_job_that_another_has_paused(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    busy_until(site, clock, clock.now() + 40, pause=45)
    async with opened(tmp_path, clock, site) as one, opened(tmp_path, clock, site) as other:
        first = asyncio.create_task(one.execute())
        second = asyncio.create_task(other.execute())
        await clock.sleep(10)
        one.interrupt()
        await first
        report = await asyncio.wait_for(second, 600)

    assert report.state is JobState.COMPLETE
    assert report.progress.successful == 10


async def test_an_optional_part_of_a_site_that_rests_is_waited_for(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    pages.says("/item/5", "more")
    pages.says("/extra", "the rest")
    until = clock.now() + 50
    fine = pages.answers["/extra"]

    async def busy(request: web.Request) -> web.StreamResponse:
        if clock.now() < until:
            return web.Response(status=429, headers={"retry-after": "60"})
        return await fine(request)

    pages.answers["/extra"] = busy
    async with opened(tmp_path, clock, pages) as orchestrator:
        report = await orchestrator.execute()
        record = await orchestrator.store.records.get("5")

    assert report.state is JobState.COMPLETE
    assert record["data"]["extra"] == "the rest"


async def test_an_optional_part_beyond_the_budget_does_not_make_a_poorer_record(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    for number in range(10):
        pages.says(f"/item/{number}", "more")
    pages.says("/extra", "the rest")
    async with opened(tmp_path, clock, pages) as orchestrator:
        await orchestrator.execute()
    async with opened(tmp_path, clock, pages, budget={"requests": 7}) as orchestrator:
        report = await orchestrator.execute()
        records = await orchestrator.store.records.list(RecordQuery())

    assert report.state is JobState.PARTIAL
    assert {record["data"]["extra"] for record in records} == {"the rest"}


async def test_time_that_is_up_ends_a_job_whose_items_are_all_parked(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    busy_until(site, clock, clock.now() + 10_000, pause=600)
    started = clock.now()
    async with opened(tmp_path, clock, site, budget={"seconds": 30}) as orchestrator:
        report = await orchestrator.execute()

    assert report.state is JobState.PARTIAL
    assert "30 s" in (report.reason or "")
    assert report.progress.counts[ItemState.SKIPPED] == 10
    assert clock.now() - started < 60


BAN = "<title>Access denied</title><h1>Access denied</h1><p>Your address was blocked.</p>"


async def test_an_item_that_alone_is_answered_with_a_ban_fails_at_its_third(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    pages.says("/item/3", BAN, status=403, headers={"content-type": "text/html"})
    async with opened(tmp_path, clock, pages, concurrency=1) as orchestrator:
        report = await orchestrator.execute()
        for _ in range(5):
            if report.state is not JobState.PAUSED:
                break
            await clock.sleep(4 * 3600)
            report = await orchestrator.resume(report.job)
        kinds = await orchestrator.store.failures.by_kind(report.job)

    assert report.state is JobState.PARTIAL
    assert (report.progress.successful, kinds["blocked"]["failed"]) == (9, 1)
    assert pages.hits["/item/3"] == 3


async def test_a_first_request_that_is_put_off_is_waited_for(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    until = clock.now() + 50

    async def busy(_request: web.Request) -> web.StreamResponse:
        if clock.now() < until:
            return web.Response(status=429, headers={"retry-after": "60"})
        return web.Response(text="fine")

    pages.answers["/trouble"] = busy
    async with opened(tmp_path, clock, pages, options={"fails_at": 0}) as orchestrator:
        report = await orchestrator.execute()

    assert (report.state, report.progress.successful) == (JobState.COMPLETE, 10)


async def test_a_ban_in_discovery_pauses_the_job_and_is_an_event_and_in_the_ledger(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    pages.says("/trouble", BAN, status=403, headers={"content-type": "text/html"})
    async with opened(tmp_path, clock, pages, options={"fails_at": 0}) as orchestrator:
        report = await orchestrator.execute()
        (event,) = await orchestrator.store.events.list(report.job, types=["domain.blocked"])
        kinds = await orchestrator.store.failures.by_kind(report.job)

    assert (report.state, report.exit_code) == (JobState.PAUSED, 4)
    assert pages.url.removeprefix("http://") in (report.reason or "")
    assert event.data["domain"] == pages.url.removeprefix("http://")
    assert kinds["blocked"] == {"attempts": 1}


@pytest.fixture
async def other() -> AsyncIterator[ScriptedSite]:
    async with ScriptedSite() as site:
        yield site


async def test_a_breaker_that_is_closed_by_hand_is_heard_of_by_a_running_job(
    pages: ScriptedSite, other: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    until = clock.now() + 20

    async def banning(request: web.Request) -> web.StreamResponse:
        if clock.now() < until:
            return web.Response(status=403, text=BAN, content_type="text/html")
        return web.Response(text=request.path)

    async def slow(request: web.Request) -> web.StreamResponse:
        await clock.sleep(20)
        return web.Response(text=request.path)

    pages.answers |= {f"/item/{number}": banning for number in range(10)}
    other.answers |= {f"/item/{number}": slow for number in range(10)}
    options = {"sites": [pages.url, other.url]}
    spec: dict[str, Any] = {"rate": "unlimited", "concurrency": 4}
    async with Orchestrator(
        "tests.sample_sources:SitesSource", options, home=tmp_path, clock=clock, **spec
    ) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(30)
        domain = pages.url.removeprefix("http://")
        async with open_limit_backends(Settings(home=tmp_path), clock) as backends:
            await CircuitBreaker(clock=clock, backend=backends.breakers).reset(domain)
        await orchestrator.store.queue.make_due(domain)
        report = await running

    assert (report.state, report.progress.successful) == (JobState.COMPLETE, 20)
