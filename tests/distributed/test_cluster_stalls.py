"""A job in which nothing is found or ends any more: told once; not one with reason to wait."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.config.settings import Settings
from longline.core.clock import Clock, SystemClock
from longline.core.model import Item, Job, Lease, Outcome, OutcomeAction
from longline.distributed.client import Stalls, open_cluster
from longline.distributed.registry import Presence, Presences
from longline.engine.discovery import WAITED
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store
from tests.engine.chunk_process import starter
from tests.scripted_site import ScriptedSite
from tests.servers import RedisServer
from tests.storage.given import attempt, complete
from tests.virtual import VirtualClock

OWNER = "vm~12ab:77:1.00:word:70:1.00"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


async def a_job(store: Store, count: int) -> Job:
    job = await store.jobs.create(NewJob("pages", {}, {}, 0.0))
    await store.jobs.start(job.id, 0.0, engine="celery")
    items = [Item(str(number), "http://site.test") for number in range(count)]
    await store.queue.add(Discovered(job.id, items, 0.0, is_last=True))
    return job


async def a_discovery(store: Store, *found: Item) -> Job:
    """Return a job whose items OWNER looks for, some of which are found."""
    job = await store.jobs.create(NewJob("pages", {}, {}, 0.0))
    await store.jobs.start(job.id, 0.0, engine="celery")
    assert await store.jobs.take_discovery(job.id, OWNER, at=0.0, until=4e9, dead=[])
    await find(store, job, *found)
    return job


async def find(store: Store, job: Job, *items: Item, cursor: int | None = None) -> None:
    how_far = None if cursor is None else {"next": cursor}
    await store.queue.add(Discovered(job.id, items, 0.0, cursor=how_far))


async def in_hand(store: Store, job: Job, clock: Clock, count: int) -> list[Lease]:
    now = clock.now()
    return await store.queue.lease(Claim(job.id, OWNER, count, now, now + 1e6))


async def end(store: Store, lease: Lease, clock: VirtualClock) -> None:
    await complete(store, attempt(lease, Outcome(OutcomeAction.SKIP, reason="gone"), clock.now()))


def named(text: str) -> set[str]:
    """Return the numbers and names that a message holds."""
    return set(re.findall(r"\w+", text))


async def test_items_that_stay_leased_are_reported_with_their_worker(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, 3)
    await in_hand(store, job, clock, 3)
    stalls = Stalls(store, clock, job.id)

    assert await stalls.check() == ""
    await clock.sleep(50)
    assert await stalls.check() == ""
    await clock.sleep(15)
    told = await stalls.check()
    await clock.sleep(100)

    assert {"65", "3", "77", "vm"} <= named(told)
    assert await stalls.check() == told


async def test_a_job_that_moves_again_is_no_longer_told_of(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, 2)
    leases = await in_hand(store, job, clock, 2)
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(70)
    assert await stalls.check()

    await end(store, leases[0], clock)

    assert await stalls.check() == ""


async def test_a_slow_job_is_given_twice_the_time_that_it_took_before(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, 2)
    leases = await in_hand(store, job, clock, 2)
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(90)
    await end(store, leases[0], clock)
    await stalls.check()

    await clock.sleep(170)
    assert await stalls.check() == ""
    await clock.sleep(20)

    assert {"190", "1", "77", "vm"} <= named(await stalls.check())


async def test_items_that_are_due_and_that_no_worker_leases_are_reported(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_job(store, 2)
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(60)

    found = named(await stalls.check())
    assert {"60", "2"} <= found
    assert "77" not in found


async def test_items_that_wait_until_later_are_no_stall(store: Store, clock: VirtualClock) -> None:
    job = await a_job(store, 2)
    await store.queue.park(job.id, "site.test", 4e9, kind="blocked", reason="it rests")
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(600)

    assert await stalls.check() == ""


async def test_a_discovery_that_finds_nothing_is_reported_with_its_worker(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_discovery(store)
    stalls = Stalls(store, clock, job.id)

    assert await stalls.check() == ""
    await clock.sleep(50)
    assert await stalls.check() == ""
    await clock.sleep(70)
    told = await stalls.check()
    await clock.sleep(100)

    assert {"120", "77", "vm"} <= named(told)
    assert await stalls.check() == told


async def test_a_discovery_without_a_worker_is_reported(store: Store, clock: VirtualClock) -> None:
    job = await a_discovery(store)
    await store.jobs.leave_discovery(job.id, OWNER)
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(60)

    found = named(await stalls.check())
    assert "60" in found
    assert "77" not in found


async def test_a_discovery_that_hangs_is_reported_although_items_are_deferred(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_discovery(store, Item("0", "http://site.test"))
    await store.queue.park(job.id, "site.test", 4e9, kind="blocked", reason="it rests")
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(60)

    assert {"60", "77", "vm"} <= named(await stalls.check())


@pytest.mark.parametrize(
    "found", [{"cursor": 2}, {"items": [Item("1", "http://site.test")]}], ids=["cursor", "item"]
)
async def test_a_discovery_that_gets_on_is_no_longer_told_of(
    store: Store, clock: VirtualClock, found: dict[str, Any]
) -> None:
    job = await a_discovery(store)
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(70)
    assert await stalls.check()

    await find(store, job, *found.pop("items", ()), **found)

    assert await stalls.check() == ""


async def test_a_slow_discovery_is_given_twice_the_time_that_it_took_before(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_discovery(store)
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(90)
    await find(store, job, cursor=1)
    await stalls.check()

    await clock.sleep(170)
    assert await stalls.check() == ""
    await clock.sleep(20)

    assert "190" in named(await stalls.check())


async def test_a_job_whose_items_are_all_found_and_ended_is_no_stall(
    store: Store, clock: VirtualClock
) -> None:
    job = await a_discovery(store)
    await store.queue.add(Discovered(job.id, [], 0.0, is_last=True))
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(600)

    assert await stalls.check() == ""


async def test_a_discovery_that_only_waits_until_its_site_has_rested_is_no_stall(
    store: Store, clock: VirtualClock, site: ScriptedSite, tmp_path: Path
) -> None:
    rested = asyncio.Event()

    async def trouble(_request: web.Request) -> web.StreamResponse:
        status = 200 if rested.is_set() else 503
        rested.set()
        return web.Response(status=status, headers={"retry-after": "300"} if status > 200 else {})

    site.answers["/trouble"] = trouble
    said = set()
    async with starter(store, Settings(home=tmp_path), clock, site)(fails_at=0) as process:
        stalls = Stalls(store, clock, process.job.id)
        finding = asyncio.create_task(process.discover())
        while not finding.done():
            said.add(await stalls.check())
            await clock.sleep(10)
        await finding
        waited = (await store.events.statistics(process.job.id))[WAITED]

    assert 290 < waited < 310
    assert said == {""}


class QuickClock(SystemClock):
    """Shows a minute for each second."""

    def now(self) -> float:
        return 60 * super().now()


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("workers", "datum"),
    [([], "`longline worker`"), (["one"], "77")],
)
async def test_a_client_of_a_job_that_stalls_reports_why_once(
    store: Store,
    redis_server: RedisServer,
    tmp_path: Path,
    *,
    logged: list[str],
    workers: list[str],
    datum: str,
) -> None:
    job = await a_job(store, 2)
    await in_hand(store, job, SystemClock(), 2)
    settings = Settings(home=tmp_path, redis_url=redis_server.url)
    async with Presences.open(settings) as presences:
        for name in workers:
            await presences.announce(Presence(name, "vm", 1, 2, ("fetch",), 0.0))
        async with open_cluster(settings, store, QuickClock()) as engine:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await engine.run(job)
        for name in workers:
            await presences.withdraw(name)

    assert [datum in line for line in logged] == [True]
