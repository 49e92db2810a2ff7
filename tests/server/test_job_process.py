"""Jobs in child processes: what was killed goes on, and each record is stored once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from longline.core.clock import SystemClock
from longline.core.logging import LogOptions
from longline.core.model import JobState
from longline.orchestrator import Orchestrator
from longline.scheduling.executor import Executor, limits_of
from longline.server.job_process import JobProcesses
from longline.storage.monitoring.logs import LogFilter
from longline.storage.scheduling.launches import Launch, LaunchState
from longline.storage.store import open_store
from tests.server.served_home import ServedHome, is_alive
from tests.servers import PostgresServer, until

T = TypeVar("T")
ONCE = {str(number): 1 for number in range(12)}


@pytest.fixture
def home(tmp_path: Path) -> ServedHome:
    return ServedHome(tmp_path)


async def executed(home: ServedHome, *launches: int) -> list[Launch]:
    """Run launches to their ends with an executor in this process; return them."""
    store = open_store(home.settings.database)
    jobs = JobProcesses(home.settings, LogOptions(), home.home / "logs")
    executor = Executor(store, SystemClock(), {"source": jobs}, limits=limits_of(home.settings))
    async with contextlib.aclosing(jobs), asyncio.TaskGroup() as group:
        group.create_task(executor.run())
        while await store.launches.list(is_open=True):  # noqa: ASYNC110  # as others see it
            await asyncio.sleep(0.05)
        executor.stop()
    found = [await store.launches.get(launch) for launch in launches]
    store.close()
    return [one for one in found if one is not None]


def test_a_job_whose_process_was_killed_is_completed(home: ServedHome) -> None:
    launch = home.place(deadly=5, deaths=1)

    (ended,) = asyncio.run(executed(home, launch))

    assert (ended.result, ended.deaths) == ("complete", 1)
    assert home.job(launch).runs == 2
    assert home.versions() == ONCE


def test_a_job_that_dies_three_times_is_stopped_with_the_reason(home: ServedHome) -> None:
    launch = home.place(deadly=5, deaths=99)

    (ended,) = asyncio.run(executed(home, launch))

    job = home.job(launch)
    assert (ended.result, ended.deaths, job.state) == ("failed", 3, JobState.PAUSED)
    assert "SIGKILL" in str(ended.reason)
    assert job.reason == ended.reason


def test_a_source_that_cannot_be_used_fails_with_its_reason(home: ServedHome) -> None:
    launch = home.place(nonsense=1)

    (ended,) = asyncio.run(executed(home, launch))

    assert (ended.result, ended.deaths, ended.target) == ("failed", 0, None)
    assert "nonsense" in str(ended.reason)
    assert "nonsense" in (home.home / "logs" / f"{launch}.log").read_text()
    ((line,), _) = home.read(lambda store: store.logs.search(LogFilter(source="steered")))
    assert (line.fields, "nonsense" in line.message) == ({"launch": str(launch)}, True)


def test_a_second_server_continues_what_a_killed_one_ran(home: ServedHome) -> None:
    launch = home.place(waits=5)

    with home.serving() as first, home.serving() as second:
        until(lambda: len(home.waiting()) == 1, "the first process of the job")
        (orphan,) = home.waiting()
        owner = str(home.launch(launch).owner)
        (first if f":{first.pid}:" in owner else second).kill()
        killed = time.time()
        until(lambda: not is_alive(orphan), "the end of the orphan")
        until(lambda: len(home.waiting()) == 2, "the second process of the job")
        started = home.launch(launch).started_at or 0.0
        home.go()
        ended = home.ended(launch)

    assert (ended.result, ended.deaths) == ("complete", 0)
    assert started - killed < 20
    assert home.versions() == ONCE


def test_a_stopped_server_releases_its_jobs_for_the_next(home: ServedHome) -> None:
    launch = home.place(waits=5)

    with home.serving() as first:
        until(lambda: len(home.waiting()) == 1, "the job")
        (process,) = home.waiting()
        first.send_signal(signal.SIGTERM)
        code = first.wait()
    released, paused = home.launch(launch), home.job(launch)
    home.go()
    (ended,) = asyncio.run(executed(home, launch))

    assert (code, is_alive(process)) == (0, False)
    assert (released.state, released.deaths) == (LaunchState.QUEUED, 0)
    assert paused.state is JobState.PAUSED
    assert ended.result == "complete"
    assert home.versions() == ONCE


def test_a_job_goes_on_after_an_outage_of_the_database(
    tmp_path: Path, own_postgres: PostgresServer
) -> None:
    home = ServedHome(tmp_path, own_postgres.url())
    launch = home.place(waits=5)

    with home.serving("--once") as server:
        until(lambda: len(home.waiting()) == 1, "the job")
        own_postgres.kill()
        home.go()
        own_postgres.start()
        server.wait()

    ended = home.launch(launch)
    assert (ended.result, ended.deaths) == ("complete", 0)
    assert home.versions() == ONCE


def test_a_job_that_a_user_paused_is_resumed_by_a_launch(home: ServedHome) -> None:
    job = _paused_job(home)

    launch = home.read(lambda _store: _launched(home, lambda one: one.launch_resume(job)))
    (ended,) = asyncio.run(executed(home, launch.id))

    assert (ended.target, ended.result) == (job, "complete")
    assert home.versions() == ONCE


def test_a_job_is_queued_to_be_resumed_once(home: ServedHome) -> None:
    job = _paused_job(home)

    first = home.read(lambda _store: _launched(home, lambda one: one.launch_resume(job)))
    again = home.read(lambda _store: _launched(home, lambda one: one.launch_resume(job)))

    assert first.id == again.id


def test_a_job_that_is_paused_before_it_is_resumed_stays_paused(home: ServedHome) -> None:
    job = _paused_job(home)

    launch = home.read(lambda _store: _launched(home, lambda one: one.launch_resume(job)))
    home.read(lambda _store: _with_orchestrator(home, lambda one: one.pause(job)))
    (ended,) = asyncio.run(executed(home, launch.id))

    assert (ended.result, home.versions()) == ("paused", {})


def _paused_job(home: ServedHome) -> str:
    async def create(one: Orchestrator) -> str:
        job = await one.find_or_create_job({"source": str(home.source), "concurrency": 2})
        await one.pause(job.id)
        return job.id

    return home.read(lambda _store: _with_orchestrator(home, create))


async def _launched(
    home: ServedHome, launch: Callable[[Orchestrator], Awaitable[Launch | None]]
) -> Launch:
    found = await _with_orchestrator(home, launch)
    assert found is not None
    return found


async def _with_orchestrator(home: ServedHome, use: Callable[[Orchestrator], Awaitable[T]]) -> T:
    async with Orchestrator(settings=home.settings) as orchestrator:
        return await use(orchestrator)
