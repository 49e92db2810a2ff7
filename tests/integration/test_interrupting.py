"""Stopping a run, by hand or by signal, and going on with what is left."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from longline.core.model import Item, JobState
from longline.engine.progress import Progress
from longline.engine.report import JobReport
from longline.orchestrator import Orchestrator
from tests.scripted_site import ScriptedSite
from tests.virtual import VirtualClock

Make = Callable[..., Orchestrator]


@pytest.fixture
def slow_site(site: ScriptedSite, clock: VirtualClock) -> ScriptedSite:
    """A site of ten pages, each of which takes ten seconds."""

    async def slow(_request: web.Request) -> web.StreamResponse:
        await clock.sleep(10)
        return web.Response(text="slow")

    site.answers = {f"/item/{number}": slow for number in range(10)}
    return site


def interrupting(longline: Orchestrator, processed: int) -> Callable[[Progress], None]:
    """Return a watcher that interrupts once so many items are processed."""

    def look(progress: Progress) -> None:
        if progress.processed >= processed:
            longline.interrupt()

    return look


def send(after: float) -> None:
    """Send this process a ctrl-c, so many seconds from now."""
    asyncio.get_running_loop().call_later(after, os.kill, os.getpid(), signal.SIGINT)


async def run(longline: Orchestrator, told: list[str]) -> JobReport:
    with longline.handling_signals(lambda: told.append("stopping")):
        return await longline.execute()


async def test_an_orchestrator_goes_on_after_it_was_interrupted(
    site: ScriptedSite, make_orchestrator: Make
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    async with make_orchestrator(count=10, rate=2.0, burst=1, concurrency=1) as longline:
        first = await longline.execute(on_progress=interrupting(longline, 3))

        second = await longline.execute()

    assert (first.state, first.exit_code) == (JobState.PAUSED, 130)
    assert (second.job, second.state, second.exit_code) == (first.job, JobState.COMPLETE, 0)
    assert not second.is_interrupted


async def test_an_interruption_before_the_run_has_begun_counts(orchestrator: Orchestrator) -> None:
    orchestrator.interrupt()

    first = await orchestrator.execute()
    second = await orchestrator.execute()

    assert (first.state, first.exit_code) == (JobState.PAUSED, 130)
    assert (second.job, second.state) == (first.job, JobState.COMPLETE)


@pytest.mark.usefixtures("slow_site")
async def test_two_signals_that_come_together_are_one(make_orchestrator: Make) -> None:
    told: list[str] = []
    async with make_orchestrator(rate="unlimited", concurrency=2) as longline:
        send(8.0)
        send(8.4)

        report = await run(longline, told)

    assert told == ["stopping"]
    assert (report.state, report.exit_code) == (JobState.PAUSED, 130)
    assert report.progress.processed == 2


@pytest.mark.usefixtures("slow_site")
async def test_a_second_signal_that_comes_later_stops_at_once(
    make_orchestrator: Make, clock: VirtualClock
) -> None:
    started = clock.now()
    async with make_orchestrator(rate="unlimited", concurrency=2) as longline:
        send(5.0)
        send(6.0)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(run(longline, []))

    assert clock.now() - started < 9


async def test_an_interrupted_batch_that_is_resumed_keeps_to_its_list(
    site: ScriptedSite, make_orchestrator: Make
) -> None:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    items = [Item(str(number), f"{site.url}/item/{number}") for number in range(8)]
    async with make_orchestrator(count=1000, rate=2.0, burst=1) as longline:
        batch = await longline.process_batch(
            items, batch_size=1, on_progress=interrupting(longline, 3)
        )

        report = await longline.resume(batch.job)

    assert (batch.total, batch.processed < 8) == (8, True)
    assert (report.state, report.progress.successful) == (JobState.COMPLETE, 8)
    assert report.progress.total == 8
    assert [site.hits[f"/item/{number}"] for number in range(10)] == [1] * 8 + [0] * 2


async def test_a_batch_of_nothing_is_complete(orchestrator: Orchestrator) -> None:
    batch = await orchestrator.process_batch([])

    assert (batch.total, batch.results) == (0, ())


async def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(
    orchestrator: Orchestrator, tmp_path: Path
) -> None:
    (tmp_path / "checkpoints").write_text("in the way")

    report = await orchestrator.execute()

    events = await orchestrator.store.events.list(report.job, types=["checkpoint.failed"])
    assert report.state is JobState.COMPLETE
    assert report.progress.last_checkpoint_at is None
    assert os.strerror(errno.ENOTDIR) in events[-1].data["reason"]
