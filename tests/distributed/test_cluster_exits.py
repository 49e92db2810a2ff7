"""Code of a source that ends its process in an orderly way: it is not begun again for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.core.model import ItemState, JobState
from tests.distributed.cluster_home import Home, home_running

pytestmark = pytest.mark.real_time
EXITING = """
import asyncio
import sys

from longline import Item, Source, layer

class Exiting(Source):
    name = "exiting"

    async def discover(self, visit):
        for number in range(3):
            yield Item(str(number), "http://exiting.test")

    @layer()
    async def page(self, visit):
        if visit.item.key == "1":
            {end}
        return {{"n": visit.item.key}}
"""
BREAKING_OFF = """
import asyncio
from pathlib import Path

from longline import Item, Source, layer

HERE = Path(__file__).parent

class BreakingOff(Source):
    name = "breaking-off"

    async def discover(self, visit):
        for number in range(3):
            yield Item(str(number), "http://breaking.test")
        if not (HERE / "broken").exists():
            while len([*HERE.glob("begun-*")]) < 3:
                await asyncio.sleep(0.05)
            (HERE / "broken").touch()
            visit.notes.append("no note, and so an error of our own code")

    @layer()
    async def page(self, visit):
        (HERE / f"begun-{visit.item.key}").touch()
        if not (HERE / "broken").exists():
            await asyncio.Event().wait()
        return {"n": visit.item.key}
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_running(tmp_path) as home:
        yield home


@pytest.mark.parametrize(
    ("end", "state", "datum"),
    [
        ("sys.exit(3)", ItemState.FAILED, "SystemExit: 3"),
        ("raise KeyboardInterrupt", ItemState.QUARANTINED, "3"),
        (
            "asyncio.get_running_loop().call_soon(sys.exit, 3); await asyncio.sleep(60)",
            ItemState.QUARANTINED,
            "3",
        ),
    ],
    ids=["exit", "interrupt", "exit beside it"],
)
async def test_an_item_whose_code_exits_comes_to_an_end_and_the_others_are_stored(
    home: Home, tmp_path: Path, end: str, state: ItemState, datum: str
) -> None:
    path = tmp_path / "exiting.py"
    path.write_text(EXITING.format(end=end))
    job = await home.start_job("", 3, source=str(path), set={})

    home.start_worker(processes=2)

    assert await home.ended(job) is JobState.PARTIAL
    assert await home.counts(job) == {ItemState.STORED: 2, state: 1}
    rows = {row["key"]: row for row in await home.store.queue.finished(job.id)}
    assert datum in rows["1"]["reason"]


async def test_items_in_flight_at_an_error_are_released_as_suspects(
    home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "breaking_off.py"
    path.write_text(BREAKING_OFF)
    job = await home.start_job("", 3, source=str(path), set={})

    home.start_worker(processes=1)

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 3}
    (event,) = await home.store.events.list(job.id, types=["leases.reclaimed"])
    assert event.data == {"items": 3, "suspects": 3}
    assert "AttributeError" in home.said()
