"""Progress in Redis, and waiting for jobs: Redis announces an end, the database decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.model import Item, ItemState, Job, JobState
from longline.distributed.client import Sites
from longline.distributed.registry import ENDED, PROGRESS, PROGRESS_LIFETIME, Mirror
from longline.engine.progress import SiteStatus, progress_of
from longline.storage.queue.enqueue import Discovered
from tests.distributed.cluster_home import Home, until
from tests.servers import RedisServer, free_port

pytestmark = pytest.mark.real_time


@pytest.fixture
def home(tmp_path: Path, redis_server: RedisServer) -> Iterator[Home]:
    home = Home(tmp_path / "home", redis_server)
    yield home
    home.close()


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as redis:
        yield redis


@pytest.fixture
async def sites(home: Home) -> AsyncIterator[Sites]:
    async with Sites.open(home.settings, home.store, SystemClock()) as sites:
        yield sites


async def begun(home: Home) -> Job:
    """Return a job that runs, with one item that nobody has taken."""
    job = await home.start_job("http://site.test", 1)
    found = Discovered(job.id, [Item("1", "http://site.test/1")], SystemClock().now())
    await home.store.queue.enqueue(found)
    return await home.store.jobs.get(job.id)


async def _is_heard(redis: Redis) -> bool:
    ((_, listeners),) = await redis.pubsub_numsub(ENDED)
    return bool(listeners)


async def cancelled(home: Home, job: Job) -> Job:
    await home.store.jobs.cancel(job.id, SystemClock().now(), "enough")
    return await home.store.jobs.get(job.id)


def noting(
    counts: Callable[[str], Awaitable[dict[ItemState, int]]], counted: list[str]
) -> Callable[[str], Awaitable[dict[ItemState, int]]]:
    async def noted(job: str) -> dict[ItemState, int]:
        counted.append(job)
        return await counts(job)

    return noted


async def test_a_picture_is_what_the_database_says_and_goes_by_itself(
    home: Home, redis: Redis
) -> None:
    job = await begun(home)
    progress = await progress_of(home.store, job)

    await Mirror(redis).write(progress)

    assert await Mirror(redis).read(job.id) == progress
    assert progress.status is SiteStatus.DISPATCHED
    assert 0 < await redis.ttl(PROGRESS + job.id) <= PROGRESS_LIFETIME


async def test_of_a_job_without_a_picture_the_database_tells(home: Home, sites: Sites) -> None:
    job = await begun(home)

    progress = await sites.progress(job.id)

    assert (progress.state, progress.total_items) == (JobState.RUNNING, 1)


async def test_the_end_of_a_job_is_heard_of(home: Home, sites: Sites, redis: Redis) -> None:
    job = await begun(home)
    waiting = asyncio.create_task(sites.wait([job.id], seconds=30))
    await until(lambda: _is_heard(redis), "somebody who listens")

    await Mirror(redis).write(await progress_of(home.store, await cancelled(home, job)))

    ended = await asyncio.wait_for(waiting, 1.5)  # sooner than the next look would be
    assert ended[job.id].state is JobState.CANCELLED


async def test_a_wrong_event_does_not_end_the_wait(home: Home, sites: Sites, redis: Redis) -> None:
    job = await begun(home)
    waiting = asyncio.create_task(sites.wait([job.id], seconds=0.5))

    await redis.publish(ENDED, job.id)

    assert (await waiting)[job.id].state is JobState.RUNNING


async def test_a_job_that_goes_on_is_not_counted_while_it_is_waited_for(
    home: Home, sites: Sites, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await begun(home)
    counted: list[str] = []
    monkeypatch.setattr(home.store.queue, "counts", noting(home.store.queue.counts, counted))
    waiting = asyncio.create_task(sites.wait([job.id], seconds=30))
    await until(lambda: _is_heard(redis), "somebody who listens")

    await redis.publish(ENDED, job.id)
    await Mirror(redis).write(await progress_of(home.store, await cancelled(home, job)))
    await waiting

    assert counted == [job.id, job.id]  # for the picture, and of the end


async def test_without_redis_the_database_tells(home: Home) -> None:
    job = await begun(home)
    nowhere = Settings(home=home.folder, redis_url=f"redis://127.0.0.1:{free_port()}/0")
    async with Sites.open(nowhere, home.store, SystemClock()) as sites:
        before = await sites.progress(job.id)
        await cancelled(home, job)
        after = await sites.wait([job.id], seconds=30)

    assert before.state is JobState.RUNNING
    assert after[job.id].status is SiteStatus.FAILED
