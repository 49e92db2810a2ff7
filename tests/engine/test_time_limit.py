"""A time limit and an interruption are obeyed in seconds, whatever the run is doing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import FailureKind
from longline.core.model import Cursor, Item, ItemState, JobState
from longline.engine.pause_policy import GRACE, pause_if_stuck
from longline.engine.runtime import RunOptions
from longline.orchestrator import Orchestrator
from longline.sources.base import Options, Source, Visit, layer
from tests.engine.chunk_process import LONG, Begin
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

COUNT = 20
SLACK = 1.0


class CountingOptions(Options):
    count: int = 10_000
    seconds: float = 0.01


class Counting(Source):
    """Numbers, one after the other, without a single request."""

    name = "counting"
    Options = CountingOptions

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        start = int(visit.cursor["next"]) if visit.cursor else 0
        for number in range(start, self.options.count):
            await asyncio.sleep(self.options.seconds)
            yield Item(str(number), "http://nowhere.test/")
            yield Cursor({"next": number + 1})

    @layer()
    async def number(self, visit: Visit) -> dict[str, Any]:
        return {"number": int(visit.item.key)}


@contextlib.asynccontextmanager
async def opened(
    home: Path, clock: VirtualClock, site: ScriptedSite, **spec: Any
) -> AsyncIterator[Orchestrator]:
    values = {"rate": "unlimited", "concurrency": 4, **spec}
    options = {"site": site.url, "count": COUNT, "fails_at": values.pop("fails_at", None)}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=home, clock=clock, **values
    ) as orchestrator:
        yield orchestrator


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(1000)
    return web.Response()


async def resting(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, headers={"retry-after": "25"})


def all_items(site: ScriptedSite, answer: Any) -> None:
    site.answers |= {f"/item/{number}": answer for number in range(COUNT)}


async def test_work_without_requests_ends_at_the_time_limit(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with Orchestrator(
        f"{__name__}:Counting", home=tmp_path, clock=clock, budget={"seconds": 10}
    ) as orchestrator:
        begun = clock.now()
        report = await orchestrator.execute()

    counts = report.progress.counts
    assert clock.now() - begun < 10 + GRACE + SLACK
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert 0 < counts[ItemState.STORED] <= 1000


async def test_what_was_not_found_in_time_is_found_by_a_retry(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with Orchestrator(
        f"{__name__}:Counting",
        {"count": 2000, "seconds": 0.012},
        home=tmp_path,
        clock=clock,
        budget={"seconds": 10},
    ) as orchestrator:
        first = await orchestrator.execute()
        second = await orchestrator.retry(first.job, kind=FailureKind.BUDGET)
        third = await orchestrator.retry(first.job, kind=FailureKind.BUDGET)

    stored = [report.progress.counts[ItemState.STORED] for report in (first, second, third)]
    assert stored[0] < stored[1] < stored[2] == 2000
    assert third.state is JobState.COMPLETE


async def test_items_that_wait_to_be_retried_stop_at_the_time_limit(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    all_items(site, resting)
    async with opened(tmp_path, clock, site, budget={"seconds": 10}) as orchestrator:
        begun = clock.now()
        report = await orchestrator.execute()

    counts = report.progress.counts
    assert clock.now() - begun < 10 + GRACE + SLACK
    assert (report.state, counts[ItemState.FAILED]) == (JobState.PARTIAL, 0)
    assert counts[ItemState.SKIPPED] == COUNT


async def test_requests_that_hang_stop_at_the_time_limit(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    all_items(site, hang)
    async with opened(tmp_path, clock, site, budget={"seconds": 10}) as orchestrator:
        begun = clock.now()
        report = await orchestrator.execute()

    assert clock.now() - begun < 10 + GRACE + SLACK
    assert report.progress.counts[ItemState.SKIPPED] == COUNT
    assert report.progress.statistic("requests") == sum(site.hits.values())


async def test_discovery_that_hangs_stops_at_the_time_limit(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    site.answers["/trouble"] = hang
    spec = {"budget": {"seconds": 10}, "timeout": 100.0, "fails_at": 5}
    async with opened(tmp_path, clock, site, **spec) as orchestrator:
        begun = clock.now()
        report = await orchestrator.execute()

    assert clock.now() - begun < 10 + GRACE + SLACK
    assert report.state is JobState.PARTIAL
    assert report.reason is not None


async def test_a_site_that_asks_for_a_rest_in_discovery_is_not_waited_for_beyond_the_limit(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    site.says("/trouble", status=429, headers={"retry-after": "600"})
    async with opened(tmp_path, clock, site, budget={"seconds": 10}, fails_at=5) as orchestrator:
        begun = clock.now()
        report = await orchestrator.execute()

    assert clock.now() - begun < 10 + GRACE + SLACK
    assert report.state is JobState.PARTIAL


@pytest.mark.parametrize("answer", [hang, resting])
async def test_an_interruption_releases_what_takes_longer(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path, answer: Any
) -> None:
    all_items(site, answer)
    async with opened(tmp_path, clock, site) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(4)
        begun = clock.now()
        orchestrator.interrupt()
        report = await running
        seconds = clock.now() - begun
        counts = await orchestrator.store.queue.counts(report.job)

    assert seconds < GRACE + SLACK
    assert (report.state, report.exit_code) == (JobState.PAUSED, 130)
    assert counts[ItemState.QUEUED] == COUNT
    assert report.progress.statistic("requests") == sum(site.hits.values())


async def test_what_is_answered_in_time_is_committed_after_an_interruption(
    site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    async def slow(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(2)
        return web.Response(text="here")

    all_items(site, slow)
    async with opened(tmp_path, clock, site) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await clock.sleep(1)
        orchestrator.interrupt()
        report = await running

    assert report.progress.counts[ItemState.STORED] == 4


async def test_a_chunk_is_handed_back_at_the_time_limit_and_the_job_ends(
    begun: Begin, site: ScriptedSite, clock: VirtualClock
) -> None:
    all_items(site, hang)
    options = RunOptions(seconds=30.0)
    async with begun(seconds=30.0) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        started = clock.now()
        end = await process.run_chunk(taken, seconds=LONG)
        seconds = clock.now() - started
        await pause_if_stuck(process.store, process.job.id, clock.now(), options)
        state = await process.engine.finish()

    assert (end.finished, end.handed_back) == (0, 4)
    assert seconds < 30 + GRACE + SLACK
    assert state is JobState.PARTIAL
