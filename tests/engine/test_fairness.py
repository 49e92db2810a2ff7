"""A slow, failing or deferred site never holds up another one in the same job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.model import ItemState, JobState, Usage
from longline.http.messages import Middleware, Page, Request
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

COUNT = 60


@pytest.fixture
async def other() -> AsyncIterator[ScriptedSite]:
    async with ScriptedSite() as site:
        yield site


@pytest.fixture
def healthy(site: ScriptedSite) -> ScriptedSite:
    for number in range(COUNT):
        site.says(f"/item/{number}", f"page {number}")
    return site


@contextlib.asynccontextmanager
async def opened(
    home: Path, clock: VirtualClock, sites: list[ScriptedSite], **spec: Any
) -> AsyncIterator[Orchestrator]:
    options = {"sites": [site.url for site in sites], "count": COUNT}
    values = {"rate": 10.0, "burst": 5, "concurrency": 4, "timeout": 30.0, **spec}
    async with Orchestrator(
        "tests.sample_sources:SitesSource", options, home=home, clock=clock, **values
    ) as orchestrator:
        yield orchestrator


def span(site: ScriptedSite) -> float:
    moments = [moment for path, moment in site.log if path.startswith("/item/")]
    return moments[-1] - moments[0]


async def span_alone(home: Path, clock: VirtualClock, site: ScriptedSite) -> float:
    async with opened(home, clock, [site]) as orchestrator:
        await orchestrator.execute()
    alone = span(site)
    site.log.clear()
    return alone


async def slow(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(20)
    return web.Response(text="at last")


async def broken(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=500)


@pytest.mark.parametrize("trouble", [slow, broken])
async def test_a_site_in_trouble_does_not_hold_up_a_healthy_one(
    healthy: ScriptedSite,
    other: ScriptedSite,
    clock: VirtualClock,
    tmp_path: Path,
    trouble: Any,
) -> None:
    alone = await span_alone(tmp_path / "alone", clock, healthy)
    other.answers |= {f"/item/{number}": trouble for number in range(COUNT)}

    async with opened(tmp_path / "both", clock, [other, healthy]) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(alone * 2)
        orchestrator.interrupt()
        await running

    assert len([path for path, _ in healthy.log if path.startswith("/item/")]) == COUNT
    assert span(healthy) <= alone * 1.05


async def test_items_of_a_resting_domain_stay_in_the_queue_untouched(
    healthy: ScriptedSite, other: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    other.answers |= {f"/item/{number}": broken for number in range(COUNT)}

    spec = {"rate": "unlimited", "concurrency": 12}
    async with opened(tmp_path, clock, [other, healthy], **spec) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(30)
        orchestrator.interrupt()
        report = await running
        deferred = await orchestrator.store.events.list(report.job, types=["item.deferred"])

    assert report.progress.counts[ItemState.STORED] == COUNT
    assert report.progress.counts[ItemState.FAILED] == 0
    assert len(deferred) <= 12  # items in flight when the breaker opened


async def test_a_site_that_comes_back_is_collected_to_the_end(
    healthy: ScriptedSite, other: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    until = clock.now() + 20

    async def recovering(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=200 if clock.now() > until else 500, text="back")

    other.answers |= {f"/item/{number}": recovering for number in range(COUNT)}

    async with opened(tmp_path, clock, [other, healthy], concurrency=12) as orchestrator:
        report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert report.progress.counts[ItemState.STORED] == 2 * COUNT


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(1000)
    return web.Response()


async def test_many_domains_that_hang_do_not_hold_up_a_healthy_one(
    healthy: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    alone = await span_alone(tmp_path / "alone", clock, healthy)
    async with contextlib.AsyncExitStack() as sites:
        hanging = [await sites.enter_async_context(ScriptedSite()) for _ in range(20)]
        for one in hanging:
            one.answers |= {f"/item/{number}": hang for number in range(COUNT)}
        # Without robots.txt, no connection is open when the first item of the healthy one comes.
        hosts = [one.url.removeprefix("http://") for one in [*hanging, healthy]]
        many = {"concurrency": 8, "burst": 8, "timeout": 60.0, "ignore_robots": hosts}
        async with opened(tmp_path / "all", clock, [*hanging, healthy], **many) as orchestrator:
            running = asyncio.create_task(orchestrator.execute())
            await clock.sleep(alone * 2)
            job = (await orchestrator.store.jobs.list())[0].id
            counts = await orchestrator.store.queue.counts(job)
            orchestrator.interrupt()
            await running

    assert counts[ItemState.STORED] == COUNT
    assert span(healthy) <= alone * 1.05


class HangingButOne(Middleware):
    """Domains that never answer, and one that does."""

    def __init__(self, healthy: str) -> None:
        self._healthy = healthy

    async def __call__(self, request: Request, usage: Usage) -> Page:
        del usage
        if not request.url.startswith(self._healthy):
            await asyncio.sleep(1000)
        return Page(request.url, 200, {}, b"here", 0.0)


async def test_leases_are_left_for_a_domain_that_comes_after_many_that_hang(
    clock: VirtualClock, tmp_path: Path
) -> None:
    sites = [f"http://host{number:03}.test" for number in range(101)]
    async with Orchestrator(
        "tests.sample_sources:SitesSource",
        {"sites": sites, "count": COUNT},
        home=tmp_path,
        clock=clock,
        transport=HangingButOne(sites[-1]),
        rate="unlimited",
        timeout=900.0,
        ignore_robots=[site.removeprefix("http://") for site in sites],
    ) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(60)
        job = (await orchestrator.store.jobs.list())[0].id
        counts = await orchestrator.store.queue.counts(job)
        running.cancel()
        await asyncio.wait([running])

    assert counts[ItemState.STORED] == COUNT
