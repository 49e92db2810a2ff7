"""What a source raises that is no `Exception` is a bug of its own: neither silence nor the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.errors import FailureKind
from longline.core.model import JobState
from longline.engine.collector import NoStrayCancellation, StrayCancellation
from longline.orchestrator import Orchestrator
from tests.virtual import VirtualClock

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
            raise {error}
        return {{"n": visit.item.key}}
"""


@pytest.mark.parametrize("error", ["asyncio.CancelledError", "BaseException", "SystemExit(3)"])
async def test_an_item_whose_code_raises_what_would_end_its_task_fails_as_a_bug(
    tmp_path: Path, clock: VirtualClock, error: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=3, end="pass", error=error))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))
        items = await longline.store.queue.finished(report.job)

    assert report.state is JobState.PARTIAL
    assert [row["kind"] for row in items] == [None, FailureKind.BUG, None]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("asyncio.CancelledError", "CancelledError"),
        ("SystemExit(3)", "SystemExit(3)"),
    ],
)
async def test_discovery_that_raises_what_would_end_its_task_fails_the_job(
    tmp_path: Path, clock: VirtualClock, error: str, told: str
) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD.format(found=0, end=f"raise {error}", error=error))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))

    assert report.state is JobState.FAILED
    assert told in str(report.reason)


async def test_a_cancellation_that_was_asked_for_goes_through() -> None:
    async def wait() -> None:
        with NoStrayCancellation():
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_that_was_not_is_an_error() -> None:
    with pytest.raises(StrayCancellation), NoStrayCancellation():
        raise asyncio.CancelledError
