"""What a child does for a message, without Celery: a job that is gone, or broken, ends no other."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.errors import UnknownJob
from longline.core.model import Item, ItemState, Job, JobState, Lease, Outcome
from longline.distributed.app import Messages
from longline.distributed.processes import Drain, Reports
from longline.distributed.worker import ChildWorker
from longline.drift.monitor import DriftMonitor
from longline.monitoring.log_store import follow_logs
from longline.storage.jobs import NewJob
from longline.storage.monitoring.logs import LogFilter
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store, open_store
from tests.distributed.cluster_home import PAGES, GatedSite
from tests.servers import RedisServer

pytestmark = pytest.mark.real_time
AT_ONCE = 12


@pytest.fixture
def settings(tmp_path: Path, redis_server: RedisServer) -> Settings:
    return Settings(home=tmp_path, redis_url=redis_server.url, chunk_size=2)


@pytest.fixture
def said(logged: list[str]) -> list[str]:
    return logged


@pytest.fixture
async def working(settings: Settings) -> AsyncIterator[ChildWorker]:
    reading, writing = os.pipe()
    messages, queues = Messages(settings), ("process",)  # no other chunks are taken beside one
    reports = Reports(writing)
    async with ChildWorker(
        settings, messages, Drain(), reports, queues=queues, name="host-1"
    ) as working:
        yield working
    messages.close()
    os.close(reading)
    os.close(writing)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[Store]:
    with open_store(settings.database) as store:
        yield store


@pytest.fixture
async def half_open_site() -> AsyncIterator[GatedSite]:
    async with GatedSite(40, max_in_flight=AT_ONCE) as site:
        yield site
        site.gate.set()  # it closes when all have their answers


async def offered(store: Store, site: str, count: int) -> tuple[Job, int]:
    """Return a job whose items are found and offered, and its first chunk."""
    now = time.time()
    options = {"site": site, "count": count}
    spec = make_spec({"source": PAGES, "set": options, "rate": "unlimited"})
    job = await store.jobs.create(NewJob("pages", spec.snapshot(), spec.identity(), now))
    await store.jobs.start(job.id, now, engine="celery")
    items = [Item(str(number), f"{site}/item/{number}") for number in range(count)]
    await store.queue.enqueue(Discovered(job.id, items, now, is_last=True))
    return job, (await store.chunks.publish(job.id, now, size=2))[0]


async def test_messages_about_a_job_that_is_gone_do_nothing(
    working: ChildWorker, store: Store, said: list[str]
) -> None:
    await working.discover("gone")
    await working.finish("gone")

    assert said == []
    with pytest.raises(UnknownJob, match="gone"):
        await store.chunks.status("gone")


async def test_an_error_in_the_work_on_a_job_releases_its_items(
    working: ChildWorker,
    store: Store,
    half_open_site: GatedSite,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job, chunk = await offered(store, half_open_site.url, 40)
    committed: list[Outcome] = []

    def broken(
        _drift: DriftMonitor, _lease: Lease, outcome: Outcome, _state: ItemState | None
    ) -> None:
        committed.append(outcome)
        if len(committed) == AT_ONCE:  # more than one chunk has; others wait at the gate
            raise ZeroDivisionError

    monkeypatch.setattr(DriftMonitor, "on_commit", broken)

    await working.collect(chunk)

    assert (await store.jobs.get(job.id)).state is JobState.PAUSED
    assert await store.chunks.owners(job.id) == []
    counts = await store.queue.counts(job.id)
    assert (counts[ItemState.STORED], counts[ItemState.QUEUED]) == (AT_ONCE, 40 - AT_ONCE)
    (event,) = await store.events.list(job.id, types=["leases.reclaimed"])
    assert event.data.keys() == {"items"}  # none of them is a suspect
    assert "ZeroDivisionError" in said[0]
    line = await anext(follow_logs(store.logs, SystemClock(), LogFilter(), 0))
    assert (line.worker, "ZeroDivisionError" in line.message) == ("host-1", True)
