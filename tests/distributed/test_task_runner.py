"""Orders that cannot be carried out: told, and gone, whatever a source or another version did."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.model import Job
from longline.distributed.open_jobs import OpenJobs
from longline.distributed.processes import Reports
from longline.distributed.task_runner import TaskRunner
from longline.engine.runtime import Runtime
from longline.storage.jobs import NewJob
from longline.storage.queue.tasks import Task, TaskKind
from longline.storage.store import Store, open_store
from longline.wiring import open_shared_http
from tests.virtual import VirtualClock

ENDING = """
import asyncio

from longline import Source, layer

class Own(BaseException):
    pass

class Ending(Source):
    name = "ending"

    async def discover(self, visit):
        return
        yield

    @layer()
    async def page(self, visit):
        return {{}}

    async def finished(self, visit):
        {code}
"""
CHILD = """
import os, sys
from pathlib import Path
from longline.distributed.celery_worker import Child
from longline.distributed.processes import Drain
from longline.distributed.processes import Reports
from longline.config.settings import Settings

class Foreign(BaseException):
    pass

class Odd(Drain):
    asked = 0

    @property
    def has_begun(self):
        self.asked += 1
        if self.asked > 1:
            raise Foreign
        return False

settings = Settings(home=Path(sys.argv[1]), redis_url="redis://127.0.0.1:1/0")
child = Child(settings, Odd(), Reports(os.pipe()[1]), queues=())
pid = os.fork()
if pid == 0:
    child.begin()
    child.export("none")
    print("goes on", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
async def carrier(store: Store, clock: VirtualClock, tmp_path: Path) -> AsyncIterator[TaskRunner]:
    settings = Settings(home=tmp_path)
    reading, writing = os.pipe()
    async with open_shared_http(settings, clock) as http, Runtime(store, clock) as runtime:
        jobs = OpenJobs(settings, runtime, http, Reports(writing))
        yield TaskRunner(store, jobs, clock, limit=0.2)
        await jobs.close_all()
    os.close(reading)
    os.close(writing)


async def taken(store: Store, carrier: TaskRunner, order: Task) -> Task:
    await store.tasks.place(order)
    found = await carrier.claim(order.kind)
    assert found is not None
    return found


async def a_job(store: Store, clock: VirtualClock, folder: Path, code: str = "pass") -> Job:
    path = folder / "ending.py"
    path.write_text(ENDING.format(code=code))
    spec = make_spec({"source": str(path)})
    return await store.jobs.create(NewJob("ending", spec.snapshot(), spec.identity(), clock.now()))


@pytest.mark.parametrize(
    "end",
    [
        ("cancelled = asyncio.Future(); cancelled.cancel(); await cancelled", "CancelledError"),
        ("raise Own", "Own()"),
        ("await asyncio.Event().wait()", "0.2 s"),
    ],
)
async def test_the_task_to_notify_a_source_that_fails_is_given_up(
    store: Store, carrier: TaskRunner, clock: VirtualClock, tmp_path: Path, end: tuple[str, str]
) -> None:
    code, datum = end
    job = await a_job(store, clock, tmp_path, code)
    order = await taken(store, carrier, Task(job.id, TaskKind.FINISHED, clock.now()))

    await carrier.notify_source(order)

    (event,) = await store.events.list(job.id, types=["source.finished.failed"])
    assert datum in event.data["reason"]
    assert await store.tasks.ready(clock.now()) == []


async def test_an_export_that_a_newer_version_ordered_is_given_up(
    store: Store, carrier: TaskRunner, clock: VirtualClock, tmp_path: Path
) -> None:
    job = await a_job(store, clock, tmp_path)
    what = {"output": "all.jsonl", "of_a_newer_longline": 1}
    order = await taken(store, carrier, Task(job.id, TaskKind.EXPORT, clock.now(), what))

    await carrier.export(order)

    (event,) = await store.events.list(job.id, types=["export.failed"])
    assert event.data["output"] == "all.jsonl"
    assert "of_a_newer_longline" in event.data["reason"]
    assert await store.tasks.ready(clock.now()) == []


async def test_an_export_of_a_job_that_is_unknown_is_given_up(
    store: Store, carrier: TaskRunner, clock: VirtualClock
) -> None:
    what = {"output": "all.jsonl"}
    order = await taken(store, carrier, Task("none", TaskKind.EXPORT, clock.now(), what))

    await carrier.export(order)

    assert await store.tasks.ready(clock.now()) == []


@pytest.mark.real_time
def test_an_error_that_only_a_child_knows_does_not_leave_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert "Foreign" in ran.stderr
    assert "goes on" in ran.stdout
