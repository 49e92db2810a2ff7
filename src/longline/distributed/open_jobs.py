"""The jobs that a child has open: source, request chain and engine, made once for many chunks."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.model import OPEN_STATES, Job
from longline.engine.collector import Collector
from longline.engine.job_engine import JobEngine
from longline.engine.runtime import Runtime, options_of
from longline.engine.worker import AttemptLog
from longline.wiring import Fetching, SharedHttp, open_collector

_LOG = logging.getLogger(__name__)

_MAX_OPEN = 16  # jobs in one child, unless more are in use
_IDLE = 300.0  # seconds until an unused job is closed


@dataclass(slots=True, eq=False)
class OpenJob:
    """One job, ready to be worked on by several tasks."""

    job: Job
    collector: Collector
    fetching: Fetching
    engine: JobEngine
    closing: AsyncExitStack
    used_at: float
    users: int = 0


class OpenJobs:
    """The open jobs of this process, the least recently used first."""

    def __init__(
        self, settings: Settings, runtime: Runtime, http: SharedHttp, attempts: AttemptLog
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._http = http
        self._store = runtime.store
        self._clock = runtime.clock
        self._attempts = attempts
        self._opened: OrderedDict[str, OpenJob] = OrderedDict()
        self._old: set[OpenJob] = set()  # to be closed, but still in use
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def using(self, job: str, run: int) -> AsyncIterator[OpenJob]:
        """Yield the job of a `run`, opened if it was not.

        Raises:
            LonglineError: it cannot run here: a source, a package or a secret is missing.
        """
        async with self._opening:
            opened = self._opened.get(job)
            if opened is not None and opened.job.runs != run:
                await self.close(job)
                opened = None
            if opened is None:
                unused = [name for name, one in self._opened.items() if not one.users]
                for name in unused[: max(0, len(self._opened) + 1 - _MAX_OPEN)]:
                    await self.close(name)
                opened = self._opened[job] = await self._open_job(await self._store.jobs.get(job))
            self._opened.move_to_end(job)
            opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            opened.used_at = self._clock.now()
            if not opened.users and opened in self._old:
                self._old.discard(opened)
                await opened.closing.aclose()

    def used(self) -> list[OpenJob]:
        """Return the jobs in use, those of earlier runs, too."""
        return [one for one in (*self._opened.values(), *self._old) if one.users]

    async def close(self, job: str) -> None:
        """Close a job, if it is open, as soon as it is not in use."""
        found = self._opened.pop(job, None)
        if found is None:
            return
        if found.users:
            self._old.add(found)
        else:
            await found.closing.aclose()

    async def close_unused(self) -> None:
        """Close jobs that have ended, or were not used for long."""
        before = self._clock.now() - _IDLE
        for job, one in list(self._opened.items()):
            state = (await self._store.jobs.get(job)).state
            if one.used_at < before or state not in OPEN_STATES:
                await self.close(job)

    async def close_all(self) -> None:
        """Close all jobs concurrently: the teardown of a source may take long."""
        jobs = list(self._opened)
        results = await asyncio.gather(*map(self.close, jobs), return_exceptions=True)
        for job, error in zip(jobs, results, strict=True):
            if isinstance(error, Exception):
                _LOG.warning("%s could not be closed: %r", job, error)

    async def _open_job(self, job: Job) -> OpenJob:
        spec = make_spec(job.settings)
        since = (await self._store.chunks.status(job.id)).begun_at
        async with AsyncExitStack() as closing:
            collector, fetching = await closing.enter_async_context(
                open_collector(
                    self._settings,
                    spec,
                    self._clock,
                    self._store,
                    job=job.id,
                    shared=self._http,
                    since=since,
                )
            )
            engine = JobEngine(
                self._runtime,
                collector,
                options_of(self._settings, spec),
                job=job,
                attempts=self._attempts,
                since=since,
            )
            closing.enter_context(engine.beating())
            kept = closing.pop_all()
        return OpenJob(job, collector, fetching, engine, kept, self._clock.now())
