"""Items that wait when the time of their work is up go on, and hold up nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from longline.core.errors import FailureKind
from longline.core.model import OVERRAN, ItemState
from longline.sources.base import Visit, layer
from longline.storage.queue.chunks import ChunkClaim
from longline.storage.queue.queue import Reclaim
from tests.engine.chunk_process import Begin, slow
from tests.engine.test_overrunning import LIMIT, attempts
from tests.sample_sources import PageSource
from tests.scripted_site import ScriptedSite

_LATER = {"retry-after": "25"}  # seconds: longer than the limit


class Stubborn(PageSource):
    """A source whose first item has something to say when it is cancelled."""

    name = "stubborn"

    @layer()
    async def page(self, visit: Visit) -> dict[str, Any]:
        if visit.item.key == "0":
            try:
                await asyncio.sleep(4000)
            except asyncio.CancelledError:
                return self.last_word()
        return {"text": (await visit.fetch(visit.item.url)).text}

    def last_word(self) -> dict[str, Any]:
        return {"text": "so far"}


class Untidy(Stubborn):
    """One that fails to tidy up then."""

    def last_word(self) -> dict[str, Any]:
        raise RuntimeError("closed already")


async def test_items_that_wait_for_their_pace_go_on_after_the_limit_until_they_are_done(
    begun: Begin, site: ScriptedSite
) -> None:
    site.says("/item/0", "at last")
    site.says("/item/1", "at last")
    async with begun(count=2, soft_limit=LIMIT, rate=1 / 600, burst=1) as process:
        await process.discover()
        end = await process.work_for(LIMIT)

    assert end == (2, 0, 1)
    assert site.hits == {"/robots.txt": 1, "/item/0": 1, "/item/1": 1}


async def test_one_that_waits_for_its_retries_goes_on_too(begun: Begin, site: ScriptedSite) -> None:
    site.says("/item/0", status=503, headers=_LATER)
    async with begun(count=1, soft_limit=LIMIT) as process:
        await process.discover()
        end = await process.work_for(LIMIT)
        noted = await attempts(process)

    assert end == (1, 0, 1)
    assert [kind for kind, _step, _tries in noted] == [FailureKind.OVERLOAD] * 3


async def test_an_attempt_that_hangs_is_cancelled_while_another_waits(
    begun: Begin, site: ScriptedSite
) -> None:
    site.says("/item/0", status=503, headers=_LATER)
    site.answers["/item/1"] = slow(4000)
    async with begun(count=2, soft_limit=LIMIT) as process:
        await process.discover()
        before = process.clock.now()
        end = await process.work_for(LIMIT)
        noted = await attempts(process)

    assert end == (2, 0, 1)
    assert (FailureKind.TIMEOUT, OVERRAN, 1) in noted
    assert process.clock.now() - before < 1000


async def test_one_that_waits_after_the_limit_is_handed_back_when_its_process_is_to_end(
    begun: Begin, site: ScriptedSite
) -> None:
    site.says("/item/0", "at last")
    async with begun(count=1, soft_limit=LIMIT, rate=1 / 600, burst=1) as process:
        await process.discover()
        asyncio.get_running_loop().call_later(100, process.engine.stop, "drained")
        before = process.clock.now()
        end = await process.work_for(LIMIT)
        noted = await attempts(process)

    assert end == (0, 1, 1)
    assert noted == []
    assert process.clock.now() - before < 110


async def test_requests_of_items_that_are_handed_back_are_counted(
    begun: Begin, site: ScriptedSite
) -> None:
    site.says("/item/0", status=503, headers=_LATER)
    async with begun(count=1, soft_limit=LIMIT) as process:
        await process.discover()
        asyncio.get_running_loop().call_later(10, process.engine.stop, "drained")
        end = await process.work_for(LIMIT)
        found = await process.store.events.statistics(process.job.id)

    assert end == (0, 1, 1)
    assert found["requests"] == site.hits.total() == 2


@pytest.mark.parametrize(
    ("kind", "first"), [("Stubborn", ItemState.STORED), ("Untidy", ItemState.FAILED)]
)
async def test_an_attempt_that_ends_despite_its_cancellation_is_committed(
    begun: Begin, site: ScriptedSite, kind: str, first: ItemState
) -> None:
    site.says("/item/1", status=503, headers=_LATER)
    async with begun(count=2, soft_limit=LIMIT, source=f"{__name__}:{kind}") as process:
        await process.discover()
        end = await process.work_for(LIMIT)
        rows = await process.store.queue.finished(process.job.id)

    assert end == (2, 0, 1)
    assert {row["key"]: row["state"] for row in rows}["0"] == first


async def test_a_site_that_asks_for_rest_meanwhile_has_it_from_all(
    begun: Begin, site: ScriptedSite
) -> None:
    site.says("/item/0", status=503, headers=_LATER)
    site.says("/item/1", status=429, headers={"retry-after": "3000"})
    async with begun(count=8, soft_limit=LIMIT, rate=1 / 40, burst=1) as process:
        await process.discover()
        await process.work_for(LIMIT)
        due = await process.store.queue.next_due(process.job.id)
        now = process.clock.now()

    assert due is not None
    assert due - now > 1000


async def test_chunks_that_are_done_meanwhile_are_not_held_to_be_lost(
    begun: Begin, site: ScriptedSite
) -> None:
    for number in range(8):
        site.says(f"/item/{number}", "at last")
    async with begun(count=8, soft_limit=LIMIT, rate=1 / 100, burst=5) as process:
        await process.discover()
        taken = await process.take("first")
        assert taken is not None

        async def more() -> ChunkClaim:
            now = process.clock.now()
            return ChunkClaim("second", now, now + 20, 4, before=now)

        async def sweep() -> None:
            while True:
                await asyncio.sleep(10)
                await process.store.queue.reclaim(Reclaim(process.job.id, process.clock.now()))

        sweeping = asyncio.create_task(sweep())
        end = await process.run_chunk(taken, seconds=LIMIT, more=more)
        sweeping.cancel()
        chunks = await process.store.chunks.progress(process.job.id)

    assert (end.finished, end.handed_back) == (5, 3)
    assert (chunks.completed, chunks.total) == (2, 2)


async def test_work_without_leases_ends_although_other_work_waits(
    begun: Begin, site: ScriptedSite
) -> None:
    for number in range(8):
        site.says(f"/item/{number}", "at last")
    async with begun(count=8, soft_limit=LIMIT, rate=1 / 600, burst=1) as process:
        await process.discover()
        started = process.clock.now()
        one, other = await process.take("one"), await process.take("other")
        assert one is not None
        assert other is not None
        waiting = asyncio.create_task(process.run_chunk(one, seconds=LIMIT))
        await asyncio.sleep(1)
        end = await process.run_chunk(other, seconds=LIMIT)
        seconds = process.clock.now() - started
        await waiting

    assert (end.finished, end.handed_back) == (0, 4)
    assert seconds < LIMIT + 5
    assert waiting.result().finished == 2
