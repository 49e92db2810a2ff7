"""Orders on real workers: written and told whatever is busy, killed or forgotten on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from longline.config.job_spec import make_spec
from longline.config.secrets import SecretRef
from longline.core.clock import SystemClock
from longline.core.model import Job, JobState
from longline.distributed.client import submit_export
from longline.distributed.proxy_tasks import ProxyTasks
from longline.engine.owner import process_of
from longline.export.export import ExportRequest
from longline.export.tasks import export_task
from longline.services.proxies import start_refresh
from longline.storage.jobs import NewJob
from longline.storage.proxy_refresh import Step
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.tasks import Task, TaskKind
from longline.wiring import open_proxy_pool
from tests.distributed.cluster_home import GatedSite, Home, home_running, until
from tests.distributed.test_sweeper import a_dead_child
from tests.proxy_servers import proxies_running

pytestmark = pytest.mark.real_time

TELLING = '''
from pathlib import Path

from longline import Options, Source, layer


class TellingOptions(Options):
    told: str


class Telling(Source):
    """Has nothing, and notes that it is complete."""

    name = "telling"
    Options = TellingOptions

    async def discover(self, visit):
        return
        yield

    @layer()
    async def page(self, visit):
        return {}

    async def finished(self, visit):
        with Path(self.options.told).open("a") as file:
            file.write("told\\n")
'''


class EndlessSite(GatedSite):
    """A site whose list goes on behind the gate: what discovers there is busy until it opens."""

    def __init__(self) -> None:
        super().__init__(1, max_in_flight=0)
        self.answers["/trouble"] = self._gated


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home_running(tmp_path_factory.mktemp("orders")) as home:
        yield home


@pytest.fixture
async def endless_site() -> AsyncIterator[EndlessSite]:
    async with EndlessSite() as site:
        yield site
        site.gate.set()


@pytest.fixture
def silent_storage() -> Iterator[str]:
    """The address of a storage that takes every connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def collected(home: Home, gated_site: GatedSite) -> Job:
    """A job that has ended with twenty records."""
    home.living_worker()
    gated_site.gate.set()
    job = await home.start_job(gated_site.url, 20)
    await home.ended(job)
    return job


def an_export(job: Job, file: Path, *, is_after_end: bool = False) -> Task:
    return export_task(ExportRequest(str(file)), job.id, time.time(), is_after_end=is_after_end)


async def is_written(file: Path, lines: int = 20) -> None:
    await until(lambda: asyncio.to_thread(file.exists), str(file))
    assert len(file.read_text("utf-8").splitlines()) == lines


async def are_gone(home: Home) -> None:
    async def is_so() -> bool:
        return not await home.store.tasks.ready(time.time())

    await until(is_so, "no order left")


async def test_the_records_of_a_job_are_written_by_a_worker(
    home: Home, collected: Job, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"

    await submit_export(home.settings, home.store, an_export(collected, file))

    await is_written(file)
    await are_gone(home)
    (told,) = await home.store.events.list(collected.id, types=["export.written"])
    assert told.data == {"output": str(file), "records": 20}


async def test_an_export_whose_message_is_lost_is_written(
    home: Home, collected: Job, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"

    await home.store.tasks.place(an_export(collected, file))

    await is_written(file)


async def test_an_export_of_a_killed_worker_is_written_by_another(
    home: Home, collected: Job, tmp_path: Path
) -> None:
    file, now = tmp_path / "records.jsonl", time.time()
    order = an_export(collected, file)
    await home.store.tasks.place(order)
    taken = await home.store.tasks.claim(order, a_dead_child(), now, now + 900)
    assert taken is not None

    await is_written(file)


async def test_an_export_that_kills_its_workers_is_given_up(
    home: Home, collected: Job, silent_storage: str, tmp_path: Path
) -> None:
    login = tmp_path / "login"
    login.write_text("me:word")
    wish = ExportRequest(
        "s3://bucket/a.csv", secret=SecretRef("file", str(login)), endpoint=silent_storage
    )
    order = export_task(wish, collected.id, time.time(), is_after_end=False)
    await submit_export(home.settings, home.store, order)

    killed: set[int] = set()
    while len(killed) < 3:
        killed.add(await _killed_at(home, killed))
    await are_gone(home)

    (event,) = await home.store.events.list(collected.id, types=["export.failed"])
    assert "3" in event.data["reason"]


async def test_an_export_that_cannot_be_written_is_an_event_and_given_up(
    home: Home, collected: Job, tmp_path: Path
) -> None:
    file = tmp_path / "no folder" / "records.jsonl"
    file.parent.touch()
    await home.store.tasks.place(an_export(collected, file))

    await are_gone(home)

    (event,) = await home.store.events.list(collected.id, types=["export.failed"])
    assert str(file) in event.data["reason"]


async def test_an_export_for_after_the_end_is_written_then(
    home: Home, gated_site: GatedSite, tmp_path: Path
) -> None:
    home.living_worker()
    file = tmp_path / "records.jsonl"
    job = await home.start_job(gated_site.url, 60)
    await home.store.tasks.place(an_export(job, file, is_after_end=True))
    await gated_site.is_in_the_middle()
    was_there = await asyncio.to_thread(file.exists)

    gated_site.gate.set()

    assert await home.ended(job) is JobState.COMPLETE
    await is_written(file, lines=60)
    assert not was_there


async def test_a_source_is_notified_although_the_finishing_process_was_killed(
    home: Home, tmp_path: Path
) -> None:
    home.living_worker()
    told = tmp_path / "told"
    job = await _ended_untold(home, tmp_path, told)

    await until(lambda: asyncio.to_thread(told.exists), "the source told")
    await are_gone(home)

    assert told.read_text() == "told\n"
    assert await home.store.events.list(job.id, types=["source.finished.failed"]) == []


async def test_a_worker_that_discovers_also_runs_exports(
    home: Home, collected: Job, endless_site: EndlessSite, tmp_path: Path
) -> None:
    # One process that serves everything, and is given no second message while it discovers.
    family = psutil.Process(home.living_worker().process.pid).children(recursive=True)
    home.living_worker().kill()
    await asyncio.to_thread(psutil.wait_procs, family, 10)
    home.start_worker(processes=1)
    said = {"site": endless_site.url, "count": 1, "fails_at": 0}
    await home.start_job(endless_site.url, 1, set=said)
    await until(lambda: asyncio.to_thread(lambda: "/trouble" in endless_site.hits), "discovery")
    file = tmp_path / "records.jsonl"

    await home.store.tasks.place(an_export(collected, file))

    await is_written(file)
    assert not endless_site.gate.is_set()


async def _ended_untold(home: Home, folder: Path, told: Path) -> Job:
    source = folder / "telling.py"
    source.write_text(TELLING)
    spec = make_spec({"source": str(source), "set": {"told": str(told)}})
    new = NewJob("telling", spec.snapshot(), spec.identity(), time.time())
    job = await home.store.jobs.create(new)
    await home.store.jobs.start(job.id, time.time(), engine="celery")
    await home.store.queue.enqueue(Discovered(job.id, [], time.time(), is_last=True))
    await home.store.jobs.finish(job.id, time.time())
    return job


async def _killed_at(home: Home, before: set[int]) -> int:
    """Kill the process that writes the export, another than those before; return its pid."""

    async def owner() -> int:
        # The job's order of the kind `finished` may still be there.
        ready = await home.store.tasks.ready(time.time())
        (order,) = (one for one in ready if one.kind is TaskKind.EXPORT)
        return process_of(order.owner or "") or 0

    async def is_another() -> bool:
        return await owner() not in {0, *before}

    await until(is_another, "a process that writes")
    pid = await owner()
    os.kill(pid, signal.SIGKILL)
    return pid


async def test_workers_check_the_chunks_of_a_refresh_of_proxies(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists are read and the pool is written where the settings file is."""
    monkeypatch.chdir(tmp_path)
    with proxies_running() as servers:
        (tmp_path / "list.txt").write_text("\n".join([*servers.alive, servers.dead]))
        (tmp_path / "longline.yaml").write_text(
            "proxies: {candidates: {mine: {file: list.txt}}, check: {chunk: 1, timeout: 5s}}\n"
        )
        home.living_worker()
        here = ProxyTasks(home.store, SystemClock(), home.settings)
        await start_refresh(home.settings, home.store, SystemClock())
        assert await here.run_next(steps={Step.COLLECT})
        (lost, *_) = await home.store.tasks.ready(time.time())
        await home.store.tasks.claim(lost, a_dead_child(), time.time(), time.time() + 900)

        async def is_checked() -> bool:
            last = await home.store.proxy_refreshes.last()
            return last is not None and last.step is Step.MERGE

        await until(is_checked, "the check of all chunks")

    assert await here.run_next(steps={Step.MERGE})
    last = await home.store.proxy_refreshes.last()
    assert last is not None
    assert (last.is_open, last.chunks, last.checked, last.alive) == (False, 4, 4, 3)
    async with open_proxy_pool(home.settings, SystemClock(), home.store) as pool:
        assert len(await pool.all()) == 3
