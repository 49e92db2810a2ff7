"""What a source raises once its job is complete, or when it is torn down, ends nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from tests.virtual import VirtualClock

ENDING = """
import asyncio

from longline import Item, Source, layer

class Own(Exception):
    pass

class OwnBase(BaseException):
    pass

class Ending(Source):
    name = "ending"

    async def discover(self, visit):
        yield Item("one", "https://ending.test")

    @layer()
    async def page(self, visit):
        return {{"n": 1}}

    async def {end}:
        {code}
"""
STRAY = "cancelled = asyncio.Future(); cancelled.cancel(); await cancelled"
ASKED_FOR = "asyncio.current_task().cancel(); await asyncio.sleep(0)"
ENDS = {
    "finished(self, visit)": "source.finished.failed",
    "teardown(self)": "source.teardown.failed",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("code", "told"),
    [(STRAY, "CancelledError"), ("raise OwnBase", "OwnBase()"), ("raise Own", "Own()")],
)
async def test_a_source_that_raises_at_its_end_leaves_the_job_complete(
    tmp_path: Path, clock: VirtualClock, *, logged: list[str], end: str, code: str, told: str
) -> None:
    path = tmp_path / "ending.py"
    path.write_text(ENDING.format(end=end, code=code))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        report = await longline.execute(str(path))
        events = await longline.store.events.list(report.job, types=[ENDS[end]])

    assert report.state is JobState.COMPLETE
    assert [told in text for text in logged] == [True]
    assert [event.data["reason"] for event in events] == [
        text.removeprefix(f"{report.job}: ") for text in logged
    ]


async def test_a_source_that_is_never_torn_down_is_given_up_and_named(
    tmp_path: Path, clock: VirtualClock, logged: list[str]
) -> None:
    path = tmp_path / "ending.py"
    path.write_text(ENDING.format(end="teardown(self)", code="await asyncio.Event().wait()"))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        async with asyncio.timeout(60):
            report = await longline.execute(str(path))
        events = await longline.store.events.list(report.job, types=["source.teardown.failed"])

    assert (report.state, report.exit_code) == (JobState.COMPLETE, 0)
    (trouble,) = logged
    assert "ending" in trouble
    assert "15 s" in trouble
    assert [event.data["reason"] for event in events] == [
        text.removeprefix(f"{report.job}: ") for text in logged
    ]


@pytest.mark.parametrize("end", ENDS)
async def test_a_cancellation_at_the_end_of_a_source_goes_through(
    tmp_path: Path, clock: VirtualClock, end: str
) -> None:
    path = tmp_path / "ending.py"
    path.write_text(ENDING.format(end=end, code=ASKED_FOR))

    async with Orchestrator(settings=Settings(home=tmp_path), clock=clock) as longline:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(longline.execute(str(path)))
