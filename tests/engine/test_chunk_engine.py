"""The part of one process in a job of a cluster, against a real site, without any messages."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from longline.config.settings import Settings
from longline.core.errors import DiscoveryFailed, StoreError, StoreFull
from longline.core.model import ItemState, JobState
from longline.engine.pause_policy import pause_if_stuck
from longline.engine.runtime import RunOptions
from longline.storage.queue.queue import Reclaim
from longline.storage.store import open_store
from tests.engine.chunk_process import LONG, Begin, slow, starter
from tests.scripted_site import ScriptedSite
from tests.servers import PostgresServer
from tests.storage.given import LeasedOutcome
from tests.virtual import VirtualClock

PLAIN = RunOptions()


@pytest.fixture
def pages(site: ScriptedSite) -> ScriptedSite:
    for number in range(10):
        site.says(f"/item/{number}", f"page {number}")
    return site


async def test_a_job_is_found_collected_in_chunks_and_ended_once(
    begun: Begin, pages: ScriptedSite
) -> None:
    async with begun() as process:
        failure = await process.discover()
        ends = await process.work_off()
        states = await asyncio.gather(process.engine.finish(), process.engine.finish())
        progress = await process.store.chunks.progress(process.job.id)

    assert failure is None
    assert ends == [(4, 0), (4, 0), (2, 0)]
    assert sorted(map(str, states)) == ["None", "complete"]
    assert [pages.hits[f"/item/{number}"] for number in range(10)] == [1] * 10
    assert (progress.total, progress.completed) == (3, 3)


async def test_the_same_on_postgresql(
    postgres_server: PostgresServer,
    settings: Settings,
    clock: VirtualClock,
    pages: ScriptedSite,
) -> None:
    postgres_server.execute("CREATE DATABASE chunk_engine")
    with open_store(postgres_server.url("chunk_engine")) as store:
        async with starter(store, settings, clock, pages)() as process:
            await process.discover()
            ends = await process.work_off()
            state = await process.engine.finish()
            records = await store.records.count()

    assert (sum(done for done, _ in ends), state, records) == (10, JobState.COMPLETE, 10)


async def test_chunks_are_published_during_discovery(begun: Begin, pages: ScriptedSite) -> None:
    pages.answers["/trouble"] = slow(15)

    async with begun(fails_at=8) as process:
        finding = asyncio.create_task(process.discover())
        await asyncio.sleep(10)
        is_found_early = len(await process.store.chunks.unanswered(process.job.id, 1e12))
        await finding

    assert is_found_early == 2


@pytest.mark.usefixtures("pages")
async def test_what_is_found_on_the_way_is_collected_too(begun: Begin) -> None:
    async with begun(source="tests.sample_sources:BranchingSource", count=3) as process:
        await process.discover()
        ends = await process.work_off()
        state = await process.engine.finish()

    assert sum(done for done, _ in ends) == 6
    assert state is JobState.COMPLETE


async def test_an_item_that_has_to_wait_is_deferred_and_leased_later(
    begun: Begin, pages: ScriptedSite
) -> None:
    statuses = [web.Response(status=503, headers={"retry-after": "120"}), web.Response(text="ok")]

    async def answer(_request: web.Request) -> web.StreamResponse:
        return statuses.pop(0)

    pages.answers["/item/4"] = answer
    async with begun() as process:
        await process.discover()
        await process.work_off()
        before = await process.counts()
        await asyncio.sleep(200)
        await process.work_off()
        state = await process.engine.finish()

    assert before[ItemState.QUEUED] >= 1
    assert state is JobState.COMPLETE


async def test_the_rest_of_a_resting_domain_waits_with_it(
    begun: Begin, pages: ScriptedSite
) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"retry-after": "300"})

    pages.answers["/item/0"] = answer
    async with begun() as process:
        await process.discover()
        ends = await process.work_off()
        due = await process.store.queue.next_due(process.job.id)
        now = process.clock.now()

    assert len(ends) == 1
    assert due is not None
    assert due > now + 200
    assert sum(pages.hits.values()) < 4


async def test_at_the_limit_nothing_is_begun_and_what_was_not_is_handed_back(
    begun: Begin, pages: ScriptedSite
) -> None:
    for number in range(4):
        pages.answers[f"/item/{number}"] = slow(6)
    async with begun(count=4) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        end = await process.run_chunk(taken, seconds=5)
        again = await process.take("next")

    # In flight at 5 s, with half a second of grace for six seconds' work: handed back as well.
    assert (end.finished, end.handed_back) == (0, 4)
    assert end.seconds == pytest.approx(5.5, abs=0.1)
    assert again is not None
    assert [lease.tries for lease in again.leases] == [1, 1, 1, 1]
    assert "5 s" in (end.reason or "")


async def test_what_is_in_flight_at_the_limit_has_time_to_end(
    begun: Begin, pages: ScriptedSite
) -> None:
    for number in range(4):
        pages.answers[f"/item/{number}"] = slow(10.4)
    async with begun(count=4) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        end = await process.run_chunk(taken, seconds=10)
        counts = await process.counts()

    assert (end.finished, end.handed_back) == (2, 2)
    assert counts == {ItemState.STORED: 2, ItemState.QUEUED: 2}


async def test_a_process_that_drains_releases_immediately(
    begun: Begin, pages: ScriptedSite
) -> None:
    for number in range(4):
        pages.answers[f"/item/{number}"] = slow(10)
    async with begun(count=4) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        asyncio.get_running_loop().call_later(3, process.engine.stop, "drained")
        end = await process.run_chunk(taken, seconds=LONG)
        none = await process.take("later")
        assert none is not None
        later = await process.run_chunk(none, seconds=LONG)

    assert (end.finished, end.handed_back, end.reason) == (2, 2, "drained")
    assert (later.finished, later.handed_back) == (0, 2)


@pytest.mark.parametrize("word", ["pause", "cancel"])
async def test_a_job_that_a_person_stops_is_noticed_within_a_heartbeat(
    begun: Begin, pages: ScriptedSite, word: str
) -> None:
    for number in range(4):
        pages.answers[f"/item/{number}"] = slow(20)
    async with begun(count=4) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        work = asyncio.create_task(process.run_chunk(taken, seconds=LONG))
        await asyncio.sleep(1)
        stop = getattr(process.store.jobs, word)
        await stop(process.job.id, process.clock.now(), "a person said so")
        await asyncio.sleep(5)
        handed_back_early = (await process.counts())[ItemState.QUEUED]
        end = await work
        _, reason = await process.state()

    assert handed_back_early == 2
    assert (end.finished, end.handed_back) == (2, 2)
    assert reason == "a person said so"


async def test_the_leases_of_a_long_chunk_are_kept(begun: Begin, pages: ScriptedSite) -> None:
    pages.answers["/item/0"] = slow(50)
    async with begun(count=1) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None
        work = asyncio.create_task(process.run_chunk(taken, seconds=LONG))
        await asyncio.sleep(45)
        freed = await process.store.queue.reclaim(Reclaim(process.job.id, process.clock.now()))
        end = await work

    assert (freed.items, end.finished) == (0, 1)


@pytest.mark.usefixtures("pages")
async def test_a_database_that_takes_no_more_ends_the_chunk_and_loses_nothing(
    begun: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(count=4) as process:
        await process.discover()
        taken = await process.take()
        assert taken is not None

        async def full(_finishes: list[LeasedOutcome]) -> None:
            raise StoreFull(process.store.address)

        with monkeypatch.context() as broken:
            broken.setattr(process.store.queue, "complete_all", full)
            with pytest.raises(StoreError):
                await process.run_chunk(taken, seconds=LONG)
        await asyncio.sleep(21)
        await process.store.queue.reclaim(Reclaim(process.job.id, process.clock.now()))
        ends = await process.work_off()
        state = await process.engine.finish()

    assert (ends, state) == ([(4, 0)], JobState.COMPLETE)


async def test_a_second_discoverer_does_not_wait_for_the_first(
    begun: Begin, pages: ScriptedSite
) -> None:
    pages.answers["/trouble"] = slow(15)

    async with begun(fails_at=8) as process:
        first = asyncio.create_task(process.discover())
        await asyncio.sleep(1)
        before = process.clock.now()
        await process.discover()
        seconds = process.clock.now() - before
        await first
        total = sum((await process.counts()).values())

    assert seconds < 1
    assert total == 10


async def test_a_discoverer_that_drains_leaves_the_rest_to_the_next(
    begun: Begin, pages: ScriptedSite
) -> None:
    pages.answers["/trouble"] = slow(15)

    async with begun(fails_at=8) as process:
        asyncio.get_running_loop().call_later(5, process.engine.stop, "drained")
        failure = await process.discover()
        standing = await process.store.chunks.status(process.job.id)
        at = process.clock.now()
        total = sum((await process.counts()).values())

    assert (failure, total) == (None, 8)
    assert standing.needs_discoverer(at)


async def test_discovery_that_finds_nothing_fails_the_job(
    begun: Begin, pages: ScriptedSite
) -> None:
    pages.says("/trouble", status=403)

    async with begun(fails_at=0) as process:
        failure = await process.discover()
        state, reason = await process.state()

    assert isinstance(failure, DiscoveryFailed)
    assert (state, reason) == (JobState.FAILED, str(failure))


async def test_discovery_that_fails_on_the_way_pauses_the_job_when_the_rest_is_done(
    begun: Begin, pages: ScriptedSite
) -> None:
    pages.says("/trouble", status=403)

    async with begun(fails_at=8) as process:
        failure = await process.discover()
        before, _ = await process.state()
        ends = await process.work_off()
        told = await pause_if_stuck(process.store, process.job.id, process.clock.now(), PLAIN)
        after, reason = await process.state()

    assert before is JobState.RUNNING
    assert sum(done for done, _ in ends) == 8
    assert (after, reason) == (JobState.PAUSED, str(failure))
    assert told == str(failure)


async def test_work_on_one_domain_shares_its_concurrency(begun: Begin, pages: ScriptedSite) -> None:
    # The first chunk holds all that may be had; the second gets it as soon as the first is done.
    pages.answers |= {f"/item/{number}": slow(10) for number in range(10)}
    async with begun(count=8) as process:
        await process.discover()
        first, second = await process.take("one"), await process.take("two")
        assert first is not None
        assert second is not None
        began = process.clock.now()

        await asyncio.gather(
            process.run_chunk(first, seconds=LONG),
            process.run_chunk(second, seconds=LONG),
        )

        assert 40 <= process.clock.now() - began < 50  # eight items, two at once, ten seconds each
