"""A home on a Redis of its own, jobs in it, and workers as processes; for tests of the cluster."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from aiohttp import web
from redis import Redis

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.model import ItemState, Job, JobState
from longline.distributed.app import FETCH, PREFIX, Messages
from longline.storage.jobs import NewJob
from longline.storage.store import open_store
from tests.scripted_site import ScriptedSite
from tests.servers import RedisServer, redis_running

PAGES = f"{Path(__file__).parent.parent / 'sample_sources.py'}:PageSource"
PATIENCE = 60.0  # seconds, on a machine that does ten other things


async def until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until something that other processes do is so."""
    deadline = time.monotonic() + PATIENCE
    while not await is_so():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
        await asyncio.sleep(0.05)


class GatedSite(ScriptedSite):
    """Answers the first items at once, and the others only when the gate is open."""

    def __init__(self, count: int, *, max_in_flight: int) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.says("/robots.txt")
        for number in range(count):
            self.answers[f"/item/{number}"] = self._gated
        self._left = max_in_flight
        self._text = secrets.token_hex(8)  # no record is as the one of an earlier test

    async def _gated(self, _request: web.Request) -> web.StreamResponse:
        self._left -= 1
        if self._left < 0:
            await self.gate.wait()
        return web.Response(text=self._text)

    async def is_in_the_middle(self) -> None:
        """Wait until as many were answered as may be, and others wait at the gate."""

        async def is_so() -> bool:
            return self._left < -4

        await until(is_so, "requests at the gate")


@dataclass
class Worker:
    """A `longline worker` with its Celery worker and that one's children."""

    process: subprocess.Popen[bytes]

    def celery(self) -> psutil.Process:
        """The Celery worker."""
        (one,) = psutil.Process(self.process.pid).children()
        return one

    def children(self) -> list[psutil.Process]:
        """The processes that do the work."""
        return self.celery().children()

    def kill(self) -> None:
        """End the supervisor at once, as kill -9 does."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ask it to end; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@dataclass
class Home:
    """A folder, on a Redis that may be flushed or killed, and its database: SQLite if not said."""

    folder: Path
    redis: RedisServer
    database_url: str | None = None
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = Settings(
            home=self.folder,
            redis_url=self.redis.url,
            database_url=self.database_url,
            chunk_size=10,
        )
        self.folder.mkdir(exist_ok=True)
        self.store = open_store(self.settings.database)
        self.messages = Messages(self.settings)

    def start_worker(self, processes: int = 2, *options: str) -> Worker:
        """Start a worker; whether it is up shows when it works."""
        program = str(Path(sys.executable).with_name("longline"))
        words = ["worker", "-n", str(processes), "--home", str(self.folder), *options]
        variables = {
            **os.environ,
            "LONGLINE_REDIS_URL": self.redis.url,
            "LONGLINE_CHUNK_SIZE": "10",
        }
        if self.database_url:
            variables["LONGLINE_DATABASE_URL"] = self.database_url
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen([program, *words], env=variables, stderr=log)
        self.workers.append(Worker(process))
        return self.workers[-1]

    def living_worker(self) -> Worker:
        """Return the worker that runs; a new one when there is none."""
        alive = [one for one in self.workers if one.process.poll() is None]
        return alive[-1] if alive else self.start_worker()

    async def start_job(self, site: str, count: int, **said: Any) -> Job:
        """Make a job as a client does, and tell the workers."""
        options = {"site": site, "count": count}
        spec = make_spec({"source": PAGES, "set": options, "rate": "unlimited", **said})
        new = NewJob("pages", spec.snapshot(), spec.identity(), time.time())
        job = await self.store.jobs.create(new)
        await self.store.jobs.start(job.id, time.time(), engine="celery")
        await self.messages.discover(job.id)
        return job

    async def ended(self, job: Job) -> JobState:
        """Wait for the end of a job."""

        async def is_over() -> bool:
            return (await self.store.jobs.get(job.id)).state is not JobState.RUNNING

        await until(is_over, f"the end of {job.id}")
        return (await self.store.jobs.get(job.id)).state

    async def counts(self, job: Job) -> dict[ItemState, int]:
        """Return how many items stand where; only what is there."""
        found = await self.store.queue.counts(job.id)
        return {state: count for state, count in found.items() if count}

    def forget_messages(self, queue: str = FETCH) -> None:
        """Have Redis lose what nobody has taken yet."""
        with Redis.from_url(self.redis.url) as redis:
            redis.delete(PREFIX + queue)

    def said(self) -> str:
        """Return what the workers have said so far."""
        return (self.folder / "worker.log").read_text("utf-8")

    def close(self) -> None:
        """End what is left."""
        for worker in self.workers:
            worker.kill()
        self.messages.close()
        self.store.close()


@contextmanager
def home_running(folder: Path) -> Iterator[Home]:
    """Give a home whose Redis nobody else uses."""
    with redis_running(folder) as redis:
        home = Home(folder / "home", redis)
        try:
            yield home
        finally:
            home.close()
