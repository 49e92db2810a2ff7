"""A job in which no item ends any more is reported once, unless all its items are deferred."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.clock import Clock, SystemClock
from longline.core.model import Item, Job, Lease, Outcome, OutcomeAction
from longline.distributed.client import Stalls, open_cluster
from longline.distributed.registry import Presence, Presences
from longline.storage.jobs import NewJob
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.queue import Claim
from longline.storage.store import Store, open_store
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
    await store.queue.enqueue(Discovered(job.id, items, 0.0, is_last=True))
    return job


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
    stall = await stalls.check()
    await clock.sleep(100)

    assert {"65", "3", "77", "vm"} <= named(stall)
    assert await stalls.check() == stall


async def test_a_job_that_moves_again_is_not_stalled(store: Store, clock: VirtualClock) -> None:
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
    await store.queue.defer_domain(job.id, "site.test", 4e9, kind="blocked", reason="it rests")
    stalls = Stalls(store, clock, job.id)
    await stalls.check()
    await clock.sleep(600)

    assert await stalls.check() == ""


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
