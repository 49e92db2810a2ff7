"""A cancellation that a source lets through without being cancelled is its bug, and no silence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.errors import FailureKind, StrayCancellation
from longline.jobs.straying import no_stray_cancellation
from longline.model import JobState
from longline.orchestrator import Orchestrator
from virtual import VirtualClock

ODD = """
import asyncio

from longline import Item, Source, layer

class Odd(Source):
    name = "odd"

    async def discover(self, visit):
        for number in range({found}):
            yield Item(str(number), "https://odd.test")
        {end}

    @layer()
    async def page(self, visit):
        if visit.item.key == "1":
            raise asyncio.CancelledError
        return {{"n": visit.item.key}}
"""


async def test_an_item_whose_code_is_cancelled_by_nobody_fails_as_a_bug(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=3, end="pass"))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))
        items = await longline.store.queue.finished(report.job)

    assert report.state is JobState.PARTIAL
    assert [row["kind"] for row in items] == [None, FailureKind.BUG, None]


async def test_discovery_that_is_cancelled_by_nobody_fails_the_job(
    tmp_path: Path, clock: VirtualClock
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=0, end="raise asyncio.CancelledError"))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))

    assert report.state is JobState.FAILED
    assert "was cancelled" in str(report.reason)


async def test_a_cancellation_that_was_asked_for_goes_through() -> None:
    async def wait() -> None:
        with no_stray_cancellation():
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_that_was_not_is_an_error() -> None:
    with pytest.raises(StrayCancellation), no_stray_cancellation():
        raise asyncio.CancelledError
