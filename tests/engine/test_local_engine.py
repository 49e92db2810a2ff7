from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import StoreFull
from longline.core.model import Item, ItemState, JobState
from longline.engine.owner import this_host
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

Open = Callable[..., contextlib.AbstractAsyncContextManager[Orchestrator]]


@pytest.fixture
def opened(tmp_path: Path, clock: VirtualClock, site: ScriptedSite) -> Open:
    """Open an Orchestrator for the page source on the home of this test."""

    @contextlib.asynccontextmanager
    async def open_one(**values: Any) -> AsyncIterator[Orchestrator]:
        spec = {"rate": "unlimited", "concurrency": 4, **values}
        options = {"site": site.url, "count": spec.pop("count", 10)}
        if "fails_at" in spec:
            options["fails_at"] = spec.pop("fails_at")
        async with Orchestrator(
            "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock, **spec
        ) as orchestrator:
            yield orchestrator

    return open_one


@pytest.fixture
def pages(site: ScriptedSite) -> ScriptedSite:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    return site


def adds_up(report: JobReport) -> bool:
    values = report.as_dict()
    parts = ("stored", "unchanged", "skipped", "failed", "quarantined", "remaining")
    return bool(values["discovered"] == sum(values[part] for part in parts))


async def test_every_item_is_fetched_and_stored_once(opened: Open, pages: ScriptedSite) -> None:
    async with opened() as orchestrator:
        report = await orchestrator.execute()
        count = await orchestrator.store.records.count()

    assert (report.state, report.exit_code, count) == (JobState.COMPLETE, 0, 10)
    assert [pages.hits[f"/item/{number}"] for number in range(10)] == [1] * 10
    assert adds_up(report)


async def test_a_second_run_says_unchanged(opened: Open, pages: ScriptedSite) -> None:
    async with opened() as orchestrator:
        await orchestrator.execute()
        pages.says("/item/3", "another text")

        report = await orchestrator.execute()

        versions = await orchestrator.store.records.versions("3")
    assert report.progress.counts[ItemState.UNCHANGED] == 9
    assert report.progress.counts[ItemState.STORED] == 1
    assert [version["data"]["text"] for version in versions] == ["page 3"]


async def test_an_item_that_raises_fails_alone_and_says_where(
    opened: Open, pages: ScriptedSite
) -> None:
    pages.says("/item/4", "raise")

    async with opened() as orchestrator:
        report = await orchestrator.execute()
        rows = await orchestrator.store.queue.finished(report.job)

    failed = [row for row in rows if row["state"] == ItemState.FAILED]
    assert (report.state, report.exit_code) == (JobState.PARTIAL, 3)
    assert [(row["key"], row["kind"]) for row in failed] == [("4", "bug")]
    assert "ZeroDivisionError" in failed[0]["reason"]
    assert "sample_sources.py:" in failed[0]["reason"]
    assert adds_up(report)


async def test_what_is_gone_is_skipped_and_the_job_complete(
    opened: Open, pages: ScriptedSite
) -> None:
    del pages.answers["/item/4"]

    async with opened() as orchestrator:
        report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert report.progress.counts[ItemState.SKIPPED] == 1
    assert report.progress.success_rate == 1.0


async def test_data_that_does_not_validate_is_quarantined_with_what_it_was(
    opened: Open, pages: ScriptedSite
) -> None:
    pages.says("/item/4", "[1, 2]")

    async with opened() as orchestrator:
        report = await orchestrator.execute()
        rows = await orchestrator.store.queue.finished(report.job)

    held = [row for row in rows if row["state"] == ItemState.QUARANTINED]
    assert [(row["key"], row["kind"]) for row in held] == [("4", "invalid")]
    assert "text" in held[0]["reason"]
    assert held[0]["raw"]["results"] == {"page": {"text": [1, 2]}, "extra": {"extra": None}}


async def test_the_failure_of_an_optional_layer_is_recorded_and_fails_nothing(
    opened: Open, pages: ScriptedSite
) -> None:
    pages.says("/item/4", "more")
    pages.says("/extra", status=403)

    async with opened() as orchestrator:
        report = await orchestrator.execute()
        record = await orchestrator.store.records.get("4")

    assert report.state is JobState.COMPLETE
    assert "403" in record["about"]["layers"]["extra"]
    assert record["about"]["layers"]["page"] == "ok"


async def test_all_items_failing_is_a_failed_job(opened: Open, pages: ScriptedSite) -> None:
    for number in range(10):
        pages.says(f"/item/{number}", status=403)

    async with opened() as orchestrator:
        report = await orchestrator.execute()

    assert (report.state, report.exit_code) == (JobState.FAILED, 1)


async def test_a_limit_is_kept_exactly(opened: Open, pages: ScriptedSite) -> None:
    async with opened(limit=3) as orchestrator:
        report = await orchestrator.execute()

    assert report.progress.total == 3
    assert report.state is JobState.COMPLETE
    assert sum(pages.hits[f"/item/{number}"] for number in range(10)) == 3


async def test_collection_begins_before_discovery_has_ended(
    opened: Open, pages: ScriptedSite, clock: VirtualClock
) -> None:
    async def slow(_request: web.Request) -> web.StreamResponse:
        await clock.sleep(20)
        return web.Response(text="at last")

    pages.answers["/trouble"] = slow

    async with opened(fails_at=6) as orchestrator:
        report = await orchestrator.execute()

    assert report.state is JobState.COMPLETE
    assert dict(pages.log)["/item/0"] < 20 <= dict(pages.log)["/item/9"]


async def test_a_discovery_that_fails_half_way_pauses_the_job_and_goes_on_from_its_cursor(
    opened: Open, pages: ScriptedSite
) -> None:
    pages.says("/trouble", status=403)
    async with opened(fails_at=6) as orchestrator:
        first = await orchestrator.execute()
        pages.says("/trouble", "mended")
        second = await orchestrator.execute()

    assert (first.state, first.exit_code) == (JobState.PAUSED, 4)
    assert f"{pages.url}/trouble" in str(first.reason)
    assert first.progress.successful < 10
    assert (second.job, second.state) == (first.job, JobState.COMPLETE)
    assert second.progress.successful == 10
    assert sum(pages.hits[f"/item/{number}"] for number in range(10)) == 10


async def test_a_site_that_cannot_be_reached_fails_the_job_with_one_sentence(
    tmp_path: Path, clock: VirtualClock
) -> None:
    options = {"site": "http://127.0.0.1:9", "fails_at": 0}
    async with Orchestrator(
        "tests.sample_sources:PageSource", options, home=tmp_path, clock=clock
    ) as orchestrator:
        report = await orchestrator.execute()

    assert (report.state, report.exit_code) == (JobState.FAILED, 1)
    assert "http://127.0.0.1:9/" in str(report.reason)


async def test_an_interruption_finishes_what_is_in_flight_and_a_second_run_the_rest(
    opened: Open, pages: ScriptedSite, clock: VirtualClock
) -> None:
    async with opened(concurrency=2) as orchestrator:

        async def slow(request: web.Request) -> web.StreamResponse:
            await clock.sleep(5)
            if request.path == "/item/1":
                orchestrator.interrupt()
            return web.Response(text="slow")

        for number in range(10):
            pages.answers[f"/item/{number}"] = slow
        first = await orchestrator.execute()
        checkpoint = orchestrator.checkpoints.get("latest")
    async with opened(concurrency=2) as orchestrator:
        second = await orchestrator.execute()

    assert (first.state, first.exit_code) == (JobState.PAUSED, 130)
    assert 0 < first.progress.processed < 10
    assert first.progress.counts[ItemState.LEASED] == 0
    assert checkpoint["processed"] == first.progress.processed
    assert (second.job, second.state, second.progress.processed) == (
        first.job,
        JobState.COMPLETE,
        10,
    )
    assert [pages.hits[f"/item/{number}"] for number in range(10)] == [1] * 10


async def test_leases_of_a_dead_process_are_reclaimed_immediately(
    opened: Open, pages: ScriptedSite, clock: VirtualClock
) -> None:
    async with opened(limit=10) as orchestrator:
        first = await orchestrator.execute()
        store, now = orchestrator.store, clock.now()
        settings = (await store.jobs.get(first.job)).settings
        # A job whose process is gone: its leases stand there with a long life before them.
        orphan = await store.jobs.create(NewJob("pages", settings, {"orphan": True}, now))
        await store.jobs.start(orphan.id, now)
        items = [Item(str(number), f"{pages.url}/item/{number}") for number in range(10)]
        await store.queue.enqueue(Discovered(orphan.id, items, now, is_last=True))
        gone = f"{this_host()}:999999999:1.00"
        leases = await store.queue.lease(Claim(orphan.id, gone, 3, now, now + 3600))

        report = await orchestrator.resume(orphan.id)

    assert len(leases) == 3
    assert report.state is JobState.COMPLETE
    assert clock.now() - now < 3


async def test_a_breaker_defers_items_and_they_are_collected_when_the_site_is_back(
    opened: Open, pages: ScriptedSite, clock: VirtualClock
) -> None:
    broken_until = clock.now() + 100

    async def shaky(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=500 if clock.now() < broken_until else 200, text="back")

    for number in range(10):
        pages.answers[f"/item/{number}"] = shaky

    async with opened(concurrency=10) as orchestrator:
        report = await orchestrator.execute()
        deferred = await orchestrator.store.events.list(report.job, types=["item.deferred"])

    assert report.state is JobState.COMPLETE
    assert report.progress.successful == 10
    assert deferred
    assert clock.now() >= broken_until


async def test_a_site_that_stays_down_pauses_the_job(
    opened: Open, pages: ScriptedSite, clock: VirtualClock
) -> None:
    for number in range(10):
        pages.says(f"/item/{number}", status=500)
    started = clock.now()

    async with opened(concurrency=10) as orchestrator:
        report = await orchestrator.execute()

    assert (report.state, report.exit_code) == (JobState.PAUSED, 4)
    assert report.reason
    assert 900 < clock.now() - started < 2000
    assert report.progress.remaining > 0
    assert adds_up(report)


async def test_two_engines_on_one_job_share_its_items(opened: Open, pages: ScriptedSite) -> None:
    async with opened() as one, opened() as other:
        reports = await asyncio.gather(one.execute(), other.execute())

    assert reports[0].job == reports[1].job
    assert {report.state for report in reports} == {JobState.COMPLETE}
    assert [pages.hits[f"/item/{number}"] for number in range(10)] == [1] * 10


async def test_a_full_disk_ends_the_run_with_what_was_committed_safe(
    opened: Open, pages: ScriptedSite
) -> None:
    async with opened() as orchestrator:
        await orchestrator.execute()
        store = orchestrator.store
        before = await store.records.count()
        await store._database.write(_no_more_pages)  # the only way to fill a disk in a test
        for number in range(10):
            pages.says(f"/item/{number}", "x" * 200_000)

        with pytest.raises(StoreFull):
            await orchestrator.execute(fresh=True)

        assert await store.records.count() == before


def _no_more_pages(connection: Any) -> None:
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 20}")


async def test_a_job_that_is_cancelled_meanwhile_begins_nothing_more(
    opened: Open, pages: ScriptedSite
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(4)
        return web.Response(text="at last")

    pages.answers.update({f"/item/{number}": answer for number in range(100)})

    async with opened(count=100) as orchestrator:
        running = asyncio.create_task(orchestrator.execute())
        await asyncio.sleep(3)
        (job,) = await orchestrator.store.jobs.list()
        await orchestrator.store.jobs.cancel(job.id, 0.0, "not wanted any more")
        report = await running

    assert (report.state, report.reason) == (JobState.CANCELLED, "not wanted any more")
    assert sum(pages.hits.values()) <= 10  # of four at once, those of two rounds, and robots.txt
