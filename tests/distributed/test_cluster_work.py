"""Jobs on real Celery workers: all is done, once, whatever is killed or forgotten on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psutil
import pytest
from redis import Redis

from longline.core.model import ItemState, JobState
from longline.distributed.registry import Presences
from tests.distributed.cluster_home import GatedSite, Home, Worker, home_running, until

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home_running(tmp_path_factory.mktemp("cluster")) as home:
        yield home


@pytest.fixture
def worker(home: Home) -> Worker:
    """The worker that the tests share; a new one after a test that ended it."""
    return home.living_worker()


@pytest.mark.usefixtures("worker")
async def test_a_job_is_done_by_two_processes_and_each_item_once(
    home: Home, gated_site: GatedSite
) -> None:
    gated_site.gate.set()

    job = await home.start_job(gated_site.url, 200)

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}
    # Both processes may have asked for robots.txt.
    assert gated_site.hits.total() - gated_site.hits["/robots.txt"] == 200


@pytest.mark.usefixtures("worker")
async def test_sites_that_do_not_answer_hold_up_no_other(home: Home, gated_site: GatedSite) -> None:
    # More jobs than there are processes hang at one site; another site is as quick as ever.
    stuck = [await home.start_job(gated_site.url, 40 + number) for number in range(3)]
    await gated_site.is_in_the_middle()
    async with GatedSite(30, max_in_flight=30) as other:
        quick = await home.start_job(other.url, 30)

        assert await home.ended(quick) is JobState.COMPLETE
        assert (await home.store.jobs.get(stuck[-1].id)).state is JobState.RUNNING
    gated_site.gate.set()
    assert [await home.ended(job) for job in stuck] == [JobState.COMPLETE] * 3


async def test_a_killed_child_costs_no_item(
    home: Home, worker: Worker, gated_site: GatedSite
) -> None:
    job = await home.start_job(gated_site.url, 200)
    await gated_site.is_in_the_middle()

    worker.children()[0].kill()
    gated_site.gate.set()

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


async def test_a_killed_celery_worker_is_replaced(
    home: Home, worker: Worker, gated_site: GatedSite
) -> None:
    job = await home.start_job(gated_site.url, 200)
    await gated_site.is_in_the_middle()

    worker.celery().kill()
    gated_site.gate.set()

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


@pytest.mark.usefixtures("worker")
async def test_a_redis_that_forgets_everything_costs_nothing_but_time(
    home: Home, gated_site: GatedSite
) -> None:
    job = await home.start_job(gated_site.url, 200)
    await gated_site.is_in_the_middle()

    with Redis.from_url(home.redis.url) as redis:
        redis.flushall()
    gated_site.gate.set()

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


@pytest.mark.usefixtures("worker")
async def test_a_restarted_redis_is_used_again(home: Home, gated_site: GatedSite) -> None:
    job = await home.start_job(gated_site.url, 200)
    await gated_site.is_in_the_middle()

    home.redis.kill()
    gated_site.gate.set()
    home.redis.start()

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


async def test_a_worker_that_is_to_end_hands_back_what_it_has_not_begun(
    home: Home, worker: Worker, gated_site: GatedSite
) -> None:
    job = await home.start_job(gated_site.url, 200)
    await gated_site.is_in_the_middle()

    ending = asyncio.create_task(asyncio.to_thread(worker.end))
    await until(lambda: _has_no_more_than(home, job.id, 16), "what was not begun")
    gated_site.gate.set()

    assert await ending == 0
    left = await home.counts(job)
    assert left.keys() == {ItemState.STORED, ItemState.QUEUED}
    assert await _present(home) == []

    home.start_worker()

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}
    # Both processes may have asked for robots.txt.
    assert gated_site.hits.total() - gated_site.hits["/robots.txt"] == 200


async def test_a_killed_worker_leaves_no_process_behind_and_another_goes_on(
    home: Home, worker: Worker, gated_site: GatedSite
) -> None:
    job = await home.start_job(gated_site.url, 200)
    await gated_site.is_in_the_middle()
    family = psutil.Process(worker.process.pid).children(recursive=True)

    worker.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 10)
    home.start_worker()
    gated_site.gate.set()

    assert alive == []
    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


async def _has_no_more_than(home: Home, job: str, leased: int) -> bool:
    return (await home.store.queue.counts(job))[ItemState.LEASED] <= leased


async def _present(home: Home) -> list[str]:
    async with Presences.open(home.settings) as presences:
        return [one.name for one in await presences.all()]
