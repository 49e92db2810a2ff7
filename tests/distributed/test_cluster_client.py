"""Whoever watches a job waits for a database that is away, as its workers do."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import StoreGone
from longline.core.model import JobState
from longline.distributed import client
from longline.distributed.client import open_cluster
from longline.storage.database import open_database
from longline.storage.jobs import NewJob
from longline.storage.store import Store
from tests.distributed.cluster_home import until
from tests.servers import RedisServer, postgres_running

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize("patience", [0.1, 1.0])  # shorter and longer than it takes to be told
async def test_a_database_that_goes_away_is_reported_and_waited_for(
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    patience: float,
    logged: list[str],
) -> None:
    monkeypatch.setattr(client, "_STALL_POLL", 0.3)
    settings = Settings(home=tmp_path, redis_url=redis_server.url)

    async def is_told() -> bool:
        return any("database" in line for line in logged)

    with postgres_running() as server:
        store = Store(open_database(server.url(), timeout=patience))
        with contextlib.closing(store):
            job = await store.jobs.create(NewJob("shop", {}, {}, 0.0))
            await store.jobs.start(job.id, 0.0, engine="celery")
            async with open_cluster(settings, store, SystemClock()) as engine:
                watching = asyncio.create_task(engine.run(job))
                server.kill()
                await until(is_told, "word of the database")
                server.start()
                await _is_back(store)
                await store.jobs.pause(job.id, 1.0, "by hand")
                state = await watching

    assert state is JobState.PAUSED


async def _is_back(store: Store) -> None:
    async def is_so() -> bool:
        with contextlib.suppress(StoreGone):
            return bool(await store.now())
        return False

    await until(is_so, "the database")
