"""The jobs that a child has open: all that are in use are known; none keeps another open."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.model import Job
from longline.distributed.open_jobs import OpenJobs
from longline.distributed.processes import Reports
from longline.engine.runtime import Runtime
from longline.storage.jobs import NewJob
from longline.storage.store import Store, open_store
from longline.wiring import open_shared_http
from tests.virtual import VirtualClock

STAYING = """
import asyncio

from longline import Item, Source, layer

class Staying(Source):
    name = "staying"

    async def discover(self, visit):
        yield Item("one", "https://staying.test")

    @layer()
    async def page(self, visit):
        return {"n": 1}

    async def teardown(self):
        await asyncio.Event().wait()
"""


def is_given_up(text: str, job: Job) -> bool:
    """Return whether a message says that the source of a job was not torn down in time."""
    return text.startswith(f"{job.id}: ") and "staying" in text and "15 s" in text


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
def said(logged: list[str]) -> list[str]:
    return logged


@pytest.fixture
async def jobs(store: Store, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[OpenJobs]:
    settings = Settings(home=tmp_path)
    reading, writing = os.pipe()
    async with open_shared_http(settings, clock) as http, Runtime(store, clock) as runtime:
        reports = Reports(writing)
        yield OpenJobs(settings, runtime, http, reports)
    os.close(reading)
    os.close(writing)


async def opened(store: Store, jobs: OpenJobs, clock: VirtualClock, folder: Path) -> Job:
    path = folder / "staying.py"
    path.write_text(STAYING)
    spec = make_spec({"source": str(path)})
    job = await store.jobs.create(NewJob("staying", spec.snapshot(), spec.identity(), clock.now()))
    async with jobs.using(job.id, job.runs):
        return job


async def test_a_child_lets_go_of_all_sources_in_the_time_of_one(
    store: Store, jobs: OpenJobs, clock: VirtualClock, tmp_path: Path, said: list[str]
) -> None:
    first = await opened(store, jobs, clock, tmp_path)
    second = await opened(store, jobs, clock, tmp_path)
    began = clock.now()

    await jobs.close_all()

    assert clock.now() - began < 20  # as long as a worker has that is to end
    assert len(said) == 2
    assert is_given_up(said[0], first)
    assert is_given_up(said[1], second)


async def test_a_job_whose_source_cannot_let_go_can_be_opened_again(
    store: Store, jobs: OpenJobs, clock: VirtualClock, tmp_path: Path, said: list[str]
) -> None:
    job = await opened(store, jobs, clock, tmp_path)
    await store.jobs.start(job.id, clock.now(), engine="celery")
    run = (await store.jobs.get(job.id)).runs

    async with jobs.using(job.id, run) as anew:
        assert anew.job.runs == run

    assert [is_given_up(text, job) for text in said] == [True]
    await jobs.close_all()


async def started(store: Store, job: Job, clock: VirtualClock) -> int:
    """Have a job begin, or begin again while it runs; return which run that is."""
    await store.jobs.start(job.id, clock.now(), engine="celery")
    return (await store.jobs.get(job.id)).runs


async def test_work_for_an_earlier_run_is_known_of_until_it_is_done(
    store: Store, jobs: OpenJobs, clock: VirtualClock, tmp_path: Path, said: list[str]
) -> None:
    job = await opened(store, jobs, clock, tmp_path)
    await jobs.close(job.id)
    said.clear()

    async with jobs.using(job.id, await started(store, job, clock)) as old:
        async with jobs.using(job.id, await started(store, job, clock)) as new:
            assert jobs.used() == [new, old]
            assert old.job.runs < new.job.runs
        assert jobs.used() == [old]
        assert said == []

    assert jobs.used() == []
    # Of the old one; the new one is open.
    assert [is_given_up(text, job) for text in said] == [True]
    await jobs.close_all()


async def test_a_job_that_cannot_be_let_go_of_keeps_no_other(
    store: Store, jobs: OpenJobs, clock: VirtualClock, tmp_path: Path, said: list[str]
) -> None:
    first = await opened(store, jobs, clock, tmp_path)
    second = await opened(store, jobs, clock, tmp_path)
    async with jobs.using(first.id, first.runs) as broken:
        broken.closing.callback(lambda: 1 / 0)

    await jobs.close_all()

    assert any(is_given_up(text, second) for text in said)
    assert any(first.id in text and "ZeroDivisionError" in text for text in said)
