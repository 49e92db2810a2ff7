"""A list that was cut makes its job partial, wherever it runs and whoever ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from longline.analysis.job_report import build_report
from longline.config.settings import Settings
from longline.core.model import WARNING, Cursor, Item, JobState
from longline.engine.progress import ProgressTracker
from longline.orchestrator import Orchestrator
from longline.sources.base import Visit, layer
from longline.storage.events.events import EventFilter
from longline.storage.store import open_store
from tests.engine.chunk_process import Begin, starter
from tests.sample_sources import PageSource
from tests.scripted_site import ScriptedSite
from tests.servers import PostgresServer
from tests.virtual import VirtualClock

SHOP = """
manifest: html
name: shop
rate: unlimited
parameters: {base_url: {about: Where the shop is.}}
start: "{base_url}/list/1"
items: {elements: li}
pages: {kind: next, css: a.next, most_pages: 3}
fields: {title: b}
"""


class Cut(PageSource):
    """Discovery reports a cut after its third item, and commits a cursor beyond it."""

    name = "cut"

    async def discover(self, visit: Visit) -> AsyncIterator[Item | Cursor]:
        start = int(visit.cursor["next"]) if visit.cursor else 0
        for number in range(start, self.options.count):
            if number == 3:
                visit.cut("the list was cut at 3")
                yield Cursor({"next": 4})
            if number == self.options.fails_at:
                await visit.fetch(f"{self.options.site}/trouble")
            yield Item(str(number), f"{self.options.site}/item/{number}")
            yield Cursor({"next": number + 1})


class CutOnTheWay(PageSource):
    """The page of one item leads to fewer others than it should."""

    name = "cut_on_the_way"

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        if visit.item.key == "2":
            visit.cut("a list below item 2 was cut")
            visit.warn("item 2 is odd")
        visit.warn("this concerns every item")
        return {"text": (await visit.fetch(visit.item.url)).text}


@pytest.fixture
def pages(site: ScriptedSite) -> ScriptedSite:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    return site


@pytest.fixture
def endless(site: ScriptedSite, tmp_path: Path) -> str:
    for number in range(1, 20):
        more = f'<a class="next" href="/list/{number + 1}">next</a>'
        site.says(f"/list/{number}", f"<li><b>Item {number}</b></li>{more}")
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP)
    return str(path)


async def test_an_endless_list_ends_as_partial_with_its_reason(
    endless: str, site: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    options = {"base_url": site.url}
    async with Orchestrator(endless, options, home=tmp_path, clock=clock) as orchestrator:
        report = await orchestrator.execute()
        store = orchestrator.store
        job = await store.jobs.get(report.job)
        progress = await ProgressTracker(store, job.id).snapshot()
        caveats = await store.jobs.caveats(job.id)
        result = build_report(
            progress, await store.jobs.findings(job.id, job.source), caveats=caveats
        )

    told = report.as_dict()
    assert (report.state, report.exit_code, job.state) == (JobState.PARTIAL, 3, JobState.PARTIAL)
    assert len(told["cuts"]) == 1
    assert told["cuts"][0] in told["reason"] == job.reason
    assert told["discovered"] == told["stored"] == 3
    assert (result.is_good, result.as_dict()["cuts"]) == (False, told["cuts"])


async def test_a_limit_that_the_user_set_is_said_and_stays_complete(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    options = {"site": pages.url}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock, limit=4
    ) as orchestrator:
        report = await orchestrator.execute()

    told = report.as_dict()
    assert (told["state"], told["limited_to"], told["cuts"]) == ("complete", 4, [])
    assert "4" in (report.reason or "")


async def test_a_limit_that_was_not_reached_is_not_mentioned(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    options = {"site": pages.url}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock, limit=40
    ) as orchestrator:
        report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert report.as_dict()["limited_to"] is None


async def test_a_cut_survives_the_run_that_reported_it(
    pages: ScriptedSite, clock: VirtualClock, tmp_path: Path
) -> None:
    source = f"{__name__}:Cut"
    stuck = asyncio.Event()

    async def trouble(_request: Any) -> Any:
        stuck.set()
        await asyncio.sleep(1e6)

    pages.answers["/trouble"] = trouble
    spec: dict[str, Any] = {"home": tmp_path, "clock": clock}
    options = {"site": pages.url, "fails_at": 6}
    async with Orchestrator(source, options, **spec) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await stuck.wait()
        await asyncio.sleep(5)  # virtual: until what was found is committed
        orchestrator.interrupt()
        first = await running
    pages.says("/trouble", "fine")
    async with Orchestrator(source, options, **spec) as orchestrator:
        second = await orchestrator.execute()
        events = await orchestrator.store.events.list(second.job, types=["discovery.cut"])

    assert (first.state, first.caveats.cuts) == (JobState.PAUSED, ("the list was cut at 3",))
    assert (second.job, second.state) == (first.job, JobState.PARTIAL)
    assert second.caveats.cuts == first.caveats.cuts
    assert len(events) == 1  # the second run went on behind it


async def test_a_cut_on_an_item_is_one_of_the_job_on_a_cluster(
    begun: Begin, pages: ScriptedSite
) -> None:
    assert pages.url
    async with begun(source=f"{__name__}:CutOnTheWay") as process:
        await process.discover()
        await process.work_off()
        state = await process.engine.finish()
        caveats = await process.store.jobs.caveats(process.job.id)
        warnings, _ = await process.store.events.read(0, EventFilter((WARNING,)))

    assert state is JobState.PARTIAL
    assert caveats.cuts == ("a list below item 2 was cut",)
    assert "item 2 is odd" in caveats.warnings
    reasons = sorted(str(one.data["reason"]) for one in warnings)
    assert reasons == ["item 2 is odd", "this concerns every item"]


async def test_a_cut_is_one_of_the_job_on_postgresql(
    postgres_server: PostgresServer, settings: Settings, clock: VirtualClock, pages: ScriptedSite
) -> None:
    postgres_server.execute("CREATE DATABASE cut_runs")
    with open_store(postgres_server.url("cut_runs")) as store:
        async with starter(store, settings, clock, pages)(source=f"{__name__}:Cut") as process:
            await process.discover()
            await process.work_off()
            state = await process.engine.finish()
            caveats = await store.jobs.caveats(process.job.id)
            reason = (await store.jobs.get(process.job.id)).reason

    assert (state, caveats.cuts) == (JobState.PARTIAL, ("the list was cut at 3",))
    assert caveats.cuts[0] in (reason or "")
