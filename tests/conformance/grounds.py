"""Where the conformance tests run: a database that all of one kind share, and who works on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import select

from longline.analysis.job_report import build_report
from longline.config.settings import Settings
from longline.core.clock import SystemClock
from longline.core.model import ItemState, Job, JobState
from longline.engine.progress import ProgressTracker
from longline.engine.report import JobReport
from longline.limits.breaker import CircuitBreaker, Phase
from longline.orchestrator import Orchestrator
from longline.storage.database import open_database
from longline.storage.schema import items
from longline.wiring import LimitBackends, open_limit_backends
from tests.conformance.asked_site import AskedSite

PATIENCE = 30.0  # seconds for whatever a test waits for
PROCESSES = 2
AT_ONCE = 4
_TEMPLATE = Path(__file__).parent / "collected.py"
_PROGRAM = str(Path(sys.executable).with_name("longline"))
_NUMBERS = count(1)


async def until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until something that other processes do is so."""
    deadline = time.monotonic() + PATIENCE
    while not await is_so():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:g} s"
        await asyncio.sleep(0.02)


@dataclass
class Ground:
    """A home on one kind of database, for all tests of a session; its worker starts when needed.

    A local run shares limits in a file of the home, workers share them on Redis.
    """

    settings: Settings
    redis_url: str
    worker: subprocess.Popen[bytes] | None = None

    def settings_for(self, engine: str) -> Settings:
        """Return the settings of a client."""
        redis_url = self.redis_url if engine == "celery" else None
        return self.settings.model_copy(update={"redis_url": redis_url})

    def start_worker(self) -> None:
        """Start the one worker, if it is not there; whether it is up shows when it works."""
        if self.worker is None:
            words = ["worker", "-n", str(PROCESSES), "--home", str(self.settings.home)]
            with (self.settings.home / "worker.log").open("ab") as log:
                self.worker = subprocess.Popen(
                    [_PROGRAM, *words], env=self.variables("celery"), stderr=log
                )

    def variables(self, engine: str) -> dict[str, str]:
        """Return the environment of a command on this ground."""
        settings = self.settings_for(engine)
        said = {
            "LONGLINE_DATABASE_URL": settings.database_url,
            "LONGLINE_REDIS_URL": settings.redis_url,
            "LONGLINE_CHUNK_SIZE": str(settings.chunk_size),
        }
        return {**os.environ, **{name: value for name, value in said.items() if value}}

    def close(self) -> None:
        """End the worker; it has `PATIENCE` to end well."""
        if self.worker is not None:
            self.worker.terminate()
            try:
                assert self.worker.wait(PATIENCE) == 0
            finally:
                self.worker.kill()


@dataclass
class EngineOn:
    """The public door to one engine on one database, with a site and a source of the test's own."""

    ground: Ground
    engine: Literal["local", "celery"]
    site: AskedSite
    orchestrator: Orchestrator
    source: Path
    options: dict[str, Any]
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def run(
        self, *, fresh: bool = False, export: str | None = None, **params: Any
    ) -> JobReport:
        """Run the source to its end, or go on with its unfinished job."""
        return await self._in_time(
            self.orchestrator.execute(
                str(self.source),
                self._said(params),
                engine=self.engine,
                fresh=fresh,
                export=export,
            )
        )

    async def resume(self, job: str) -> JobReport:
        """Go on with a job."""
        return await self._in_time(self.orchestrator.resume(job))

    async def retry(self, job: str) -> JobReport:
        """Try again what did not become records."""
        return await self._in_time(self.orchestrator.retry(job))

    async def begin_elsewhere(self) -> Job:
        """Have the source run by other processes, and return once there is a job."""
        if self.engine == "celery":
            return await self.orchestrator.submit(str(self.source), self._said({}))
        self._start_command()
        await until(self._is_made, "the job of another process")
        return await self._newest()

    async def kill_whoever_works(self, job: str) -> None:
        """End a process that has items of a job in hand, as kill -9 does."""
        held = (items.c.job_id == job) & (items.c.state == ItemState.LEASED)
        with (
            contextlib.closing(open_database(self.ground.settings.database)) as database,
            database.snapshot() as connection,
        ):
            owner = connection.scalar(select(items.c.lease_owner).where(held))
        os.kill(int(str(owner).split(":")[1]), signal.SIGKILL)  # the host comes first

    async def is_at_the_gate(self, count: int) -> None:
        """Wait until so many requests stand at the site's gate."""

        async def is_so() -> bool:
            return self.site.at_the_gate >= count

        await until(is_so, f"{count} requests at the gate")

    async def has_begun(self, count: int) -> Job:
        """Wait until so many items were asked for; return their job."""

        async def is_so() -> bool:
            return len(self.site.asked()) >= count

        await until(is_so, f"{count} items asked for")
        return await self._newest()

    async def begins_no_more(self) -> None:
        """Wait until whoever works has heard of an interrupt; an engine of this process has."""
        if self.engine == "local":
            return
        job = await self._newest()

        async def is_so() -> bool:
            counts = await self.orchestrator.store.queue.counts(job.id)
            state = (await self.orchestrator.store.jobs.get(job.id)).state
            in_flight = self.site.at_the_gate
            return state is JobState.PAUSED and counts[ItemState.LEASED] == in_flight

        await until(is_so, "all but what is in flight handed back")

    async def is_let_go(self, job: str) -> None:
        """Wait until nobody has anything of a job in hand."""

        async def is_so() -> bool:
            return not (await self.orchestrator.store.queue.counts(job))[ItemState.LEASED]

        await until(is_so, f"nobody at work on {job}")

    async def rests(self, job: str) -> None:
        """Wait until the site's breaker is open, and nobody has anything of a job in hand."""
        async with self._backends() as backends:

            async def is_so() -> bool:
                state, _ = await backends.breakers.read(self.domain)
                return state is not None and state.phase(time.time()) is Phase.OPEN

            await until(is_so, f"the breaker of {self.domain} open")
        await self.is_let_go(job)

    async def close_breaker(self) -> None:
        """Do what `longline breakers reset` does."""
        async with self._backends() as backends:
            await CircuitBreaker(backend=backends.breakers).reset(self.domain)
        await self.orchestrator.store.queue.make_due(self.domain)

    async def finished(self, job: str) -> dict[str, dict[str, Any]]:
        """Return the finished items of a job, by key."""
        rows = await self.orchestrator.store.queue.finished(job)
        return {str(row["key"]): row for row in rows}

    async def contradictions(self, job: str) -> list[str]:
        """Return what `longline report` finds wrong with the counts and records of a job."""
        store = self.orchestrator.store
        progress = await ProgressTracker(store, job).snapshot()
        result = build_report(progress, await store.jobs.findings(job, progress.source))
        claims = ("discovered =", "every stored", "no item was", "no empty field")
        return [
            f"{check.claim}: {check.found}"
            for check in result.checks
            if check.claim.startswith(claims) and not check.holds
        ]

    def close(self) -> None:
        """End what the test has started."""
        for process in self._processes:
            process.kill()
            process.wait()

    @property
    def domain(self) -> str:
        """The site as breakers know it."""
        return self.site.url.partition("://")[2]

    def _backends(self) -> AbstractAsyncContextManager[LimitBackends]:
        return open_limit_backends(self.ground.settings_for(self.engine), SystemClock())

    @property
    def _home(self) -> Path:
        return self.ground.settings.home

    def _start_command(self) -> None:
        words = [f"--set={name}={value}" for name, value in self.options.items()]
        words += ["--rate=unlimited", f"--concurrency={AT_ONCE}", f"--home={self._home}"]
        command = [_PROGRAM, "run", str(self.source), *words, "--json"]
        variables = self.ground.variables(self.engine)
        process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)
        self._processes.append(process)

    def _said(self, params: dict[str, Any]) -> dict[str, Any]:
        options = {**self.options, **params.pop("options", {})}
        return {"set": options, "rate": "unlimited", "concurrency": AT_ONCE, **params}

    async def _newest(self) -> Job:
        jobs = await self.orchestrator.store.jobs.list(limit=None, is_open=True)
        return next(job for job in jobs if job.source == self.source.stem)

    async def _is_made(self) -> bool:
        jobs = await self.orchestrator.store.jobs.list(limit=None, is_open=True)
        return any(job.source == self.source.stem for job in jobs)

    @staticmethod
    async def _in_time(work: Awaitable[JobReport]) -> JobReport:
        async with asyncio.timeout(PATIENCE):
            return await work


def write_source(folder: Path) -> Path:
    """Write a source whose name nobody else has: records and drift are kept by it."""
    file = folder / f"collected_{next(_NUMBERS)}.py"
    text = _TEMPLATE.read_text("utf-8")
    file.write_text(text.replace('name = "collected"', f'name = "{file.stem}"'), "utf-8")
    return file
