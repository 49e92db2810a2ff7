# Pins wording on purpose.
"""A worker that gets a stop signal while its servers are away: it ends soon, and loses nothing.

The log of a worker is text for people, and the only way to know from outside how far it is.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longline.core.model import ItemState, JobState
from tests.distributed.cluster_home import PATIENCE, GatedSite, Home, Worker, until
from tests.servers import PostgresServer, RedisServer, postgres_running, redis_running

pytestmark = pytest.mark.real_time
_ENDING = "finishing items in flight"
_CUT_SHORT = "some work did not end"
_ENDED = "has ended"
_KILLED = "stopped immediately"
_WAITS_FOR_REDIS = "waiting for it"


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with postgres_running() as server:
        yield server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_running(tmp_path) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, redis: RedisServer, postgres: PostgresServer) -> Iterator[Home]:
    home = Home(tmp_path / "home", redis, postgres.url())
    try:
        yield home
    finally:
        if postgres.process is not None and postgres.process.poll() is not None:
            postgres.start()  # what the tests check of every database is read from it
        home.close()


async def test_a_worker_without_servers_ends_on_a_signal(
    home: Home, postgres: PostgresServer, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site)
    home.redis.kill()
    postgres.kill()
    await _told_to_end(home, worker)
    gated_site.gate.set()

    assert await _ended(worker) == 0

    assert _CUT_SHORT not in home.said()
    assert _ENDED in home.said()


async def test_a_worker_whose_redis_is_gone_ends_and_leaves_all_to_the_next(
    home: Home, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site)
    (job,) = await home.store.jobs.list(limit=None)
    home.redis.kill()
    await _told_to_end(home, worker)
    gated_site.gate.set()

    assert await _ended(worker) == 0

    assert _CUT_SHORT not in home.said()
    home.redis.start()
    home.start_worker()
    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


async def test_a_worker_whose_items_wait_for_redis_ends_on_a_signal(
    home: Home, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site, rate=30)  # which is asked for on Redis
    home.redis.kill()
    gated_site.gate.set()
    await _said(home, _WAITS_FOR_REDIS)
    await _told_to_end(home, worker)

    assert await _ended(worker) == 0

    assert _CUT_SHORT not in home.said()


async def test_a_worker_whose_database_is_gone_ends_with_items_in_flight(
    home: Home, postgres: PostgresServer, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site)
    postgres.kill()
    await _told_to_end(home, worker)
    gated_site.gate.set()

    assert await _ended(worker) == 0

    assert _CUT_SHORT not in home.said()


async def test_a_database_that_comes_back_during_the_drain_gets_what_is_in_flight(
    home: Home, postgres: PostgresServer, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site)
    (job,) = await home.store.jobs.list(limit=None)
    before = (await home.counts(job))[ItemState.STORED]
    postgres.kill()
    await _told_to_end(home, worker)
    gated_site.gate.set()
    postgres.start()

    assert await _ended(worker) == 0

    assert _CUT_SHORT not in home.said()
    assert (await home.counts(job))[ItemState.STORED] > before
    assert ItemState.LEASED not in await home.counts(job)


async def test_a_second_signal_ends_a_worker_whose_database_says_nothing(
    home: Home, postgres: PostgresServer, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site)
    with postgres.suspended():
        await _told_to_end(home, worker)
        await asyncio.sleep(1)  # signals that come together count as one
        worker.process.send_signal(signal.SIGTERM)
        code = await _ended(worker)

    assert code == 130
    assert _KILLED in home.said()


async def test_what_a_worker_left_behind_is_done_by_the_next_one(
    home: Home, postgres: PostgresServer, gated_site: GatedSite
) -> None:
    worker = await _in_the_middle(home, gated_site)
    (job,) = await home.store.jobs.list(limit=None)
    postgres.kill()
    await _told_to_end(home, worker)
    gated_site.gate.set()
    await _ended(worker)
    postgres.start()

    home.start_worker()

    assert await home.ended(job) is JobState.COMPLETE
    assert await home.counts(job) == {ItemState.STORED: 200}


async def _in_the_middle(home: Home, site: GatedSite, **said: Any) -> Worker:
    await home.start_job(site.url, 200, **said)
    worker = home.start_worker()
    await site.is_in_the_middle()
    return worker


async def _ended(worker: Worker) -> int:
    """Return its exit code; the site answers meanwhile."""
    return await asyncio.to_thread(worker.process.wait, PATIENCE)


async def _told_to_end(home: Home, worker: Worker) -> None:
    worker.process.send_signal(signal.SIGTERM)
    await _said(home, _ENDING)


async def _said(home: Home, words: str) -> None:
    async def is_so() -> bool:
        return words in home.said()

    await until(is_so, f"the words {words!r}")
