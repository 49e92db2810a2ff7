"""An item that always takes longer than the soft limit ends some day."""

from __future__ import annotations

import asyncio

from aiohttp import web

from longline.core.errors import FailureKind
from longline.core.model import OVERRAN, ItemState, JobState
from longline.storage.queue.failures import FailureQuery
from tests.engine.chunk_process import Begin, Process, slow
from tests.scripted_site import ScriptedSite

LIMIT = 20.0


async def attempts(process: Process) -> list[tuple[str, str, int]]:
    found = await process.store.failures.failed_items(FailureQuery(process.job.id))
    return [(one["kind"], one["step"], one["tries"]) for row in found for one in row.attempts]


async def test_an_item_that_takes_too_long_three_times_fails_and_the_job_ends(
    begun: Begin, site: ScriptedSite
) -> None:
    site.answers["/item/0"] = slow(40)
    site.says("/item/1", "quick")
    async with begun(count=2, soft_limit=LIMIT) as process:
        await process.discover()
        ends = [await process.work_for(LIMIT) for _ in range(3)]
        counts = await process.counts()
        (item,) = await process.store.failures.failed_items(FailureQuery(process.job.id))
        noted = await attempts(process)
        spent = await process.store.events.statistics(process.job.id)
        state = await process.engine.finish()

    assert ends == [(2, 0, 1), (1, 0, 2), (1, 0, 3)]
    assert counts == {ItemState.STORED: 1, ItemState.FAILED: 1}
    assert item.kind == FailureKind.TIMEOUT
    assert f"{LIMIT:g} s" in (item.reason or "")
    assert "soft_limit" in (item.reason or "")
    assert noted == [(FailureKind.TIMEOUT, OVERRAN, number) for number in (1, 2, 3)]
    assert spent["item_requests"] == sum(site.hits.values())
    assert state is JobState.PARTIAL


async def test_one_that_is_quick_the_second_time_is_stored(
    begun: Begin, site: ScriptedSite
) -> None:
    answers = [slow(40), slow(1)]

    async def answer(request: web.Request) -> web.StreamResponse:
        return await answers.pop(0)(request)

    site.answers["/item/0"] = answer
    async with begun(count=1, soft_limit=LIMIT) as process:
        await process.discover()
        ends = [await process.work_for(LIMIT) for _ in range(2)]
        state = await process.engine.finish()

    assert ends == [(1, 0, 1), (1, 0, 2)]
    assert state is JobState.COMPLETE


async def test_one_that_a_person_queues_again_has_three_more_tries(
    begun: Begin, site: ScriptedSite
) -> None:
    site.answers["/item/0"] = slow(40)
    async with begun(count=1, soft_limit=LIMIT) as process:
        await process.discover()
        for _ in range(3):
            await process.work_for(LIMIT)
        await process.store.failures.requeue(FailureQuery(process.job.id), process.clock.now())
        await process.store.jobs.start(process.job.id, process.clock.now(), engine="celery")
        states: list[ItemState] = []
        for _ in range(3):
            await process.work_for(LIMIT)
            states += await process.counts()

    assert states == [ItemState.QUEUED, ItemState.QUEUED, ItemState.FAILED]


async def test_one_that_was_begun_late_keeps_its_try(begun: Begin, site: ScriptedSite) -> None:
    site.answers["/item/0"] = slow(40)
    async with begun(count=1, soft_limit=LIMIT) as process:
        await process.discover()
        ends = [await process.work_for(LIMIT / 2) for _ in range(4)]
        noted = await attempts(process)

    assert ends == [(0, 1, 1)] * 4
    assert noted == []


async def test_one_that_is_broken_off_because_its_process_is_to_end_keeps_its_try(
    begun: Begin, site: ScriptedSite
) -> None:
    site.answers["/item/0"] = slow(40)
    async with begun(count=1, soft_limit=LIMIT) as process:
        await process.discover()
        asyncio.get_running_loop().call_later(5, process.engine.stop, "drained")
        end = await process.work_for(LIMIT)

    assert end == (0, 1, 1)
