"""The jobs that a child has open: what it takes to work on one is made once, for many chunks."""

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
from longline.distributed.processes import Reports
from longline.engine.extractor import Collector
from longline.engine.job_engine import JobEngine
from longline.engine.runtime import Runtime, options_of
from longline.wiring import Fetching, SharedHttp, open_collector

_LOG = logging.getLogger(__name__)

_MOST = 16  # jobs open at a time in one child, unless more are worked on
_IDLE = 300.0  # seconds that one stays open for nothing


@dataclass(slots=True, eq=False)
class Opened:
    """One job, ready to be worked on by several tasks at once."""

    job: Job
    has_limit: bool
    collector: Collector
    fetching: Fetching
    engine: JobEngine
    ends: AsyncExitStack
    used_at: float
    users: int = 0


class OpenJobs:
    """The jobs that this process has open, the least used first."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        http: SharedHttp,
        reports: Reports,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._http = http
        self._store = runtime.store
        self._clock = runtime.clock
        self._reports = reports
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        # Another run of these has begun, or they are not wanted any more, but somebody is at them.
        self._old: set[Opened] = set()
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def using(self, job: str, run: int) -> AsyncIterator[Opened]:
        """Give a job as its `run` has it, opened now if it was not.

        Raises:
            LonglineError: it cannot be worked on here: a source, a package or a secret is missing.
        """
        async with self._opening:
            opened = await self._get(job, run)
            opened.users += 1
        try:
            yield opened
        finally:
            opened.users -= 1
            opened.used_at = self._clock.now()
            if not opened.users and opened in self._old:
                self._old.discard(opened)
                await opened.ends.aclose()

    def used(self) -> list[Opened]:
        """Return the jobs that something is done for at this moment, for an earlier run, too."""
        return [one for one in (*self._opened.values(), *self._old) if one.users]

    async def close(self, job: str) -> None:
        """Let go of a job, if it is open, once nobody uses it."""
        found = self._opened.pop(job, None)
        if found is None:
            return
        if found.users:
            self._old.add(found)
        else:
            await found.ends.aclose()

    async def tidy(self) -> None:
        """Let go of jobs that have ended, or that nobody has needed for long."""
        before = self._clock.now() - _IDLE
        for job, one in list(self._opened.items()):
            state = (await self._store.jobs.get(job)).state
            if one.used_at < before or state not in OPEN_STATES:
                await self.close(job)

    async def close_all(self) -> None:
        """Let go of all jobs, at the same time: a source may take long to be torn down."""
        async with asyncio.TaskGroup() as group:
            for job in list(self._opened):
                group.create_task(self._close_or_tell(job))

    async def _close_or_tell(self, job: str) -> None:
        try:
            await self.close(job)
        except Exception as error:  # noqa: BLE001  # the others are to be let go of, too
            _LOG.warning("%s could not be closed: %r", job, error)

    async def _get(self, job: str, run: int) -> Opened:
        found = self._opened.get(job)
        if found is not None and found.job.runs != run:
            await self.close(job)
            found = None
        if found is None:
            await self._make_room()
            found = self._opened[job] = await self._open(await self._store.jobs.get(job))
        self._opened.move_to_end(job)
        return found

    async def _make_room(self) -> None:
        unused = [name for name, one in self._opened.items() if not one.users]
        for name in unused[: max(0, len(self._opened) + 1 - _MOST)]:
            await self.close(name)

    async def _open(self, job: Job) -> Opened:
        spec = make_spec(job.settings)
        since = (await self._store.chunks.status(job.id)).begun_at
        async with AsyncExitStack() as ends:
            collector, fetching = await ends.enter_async_context(
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
            options = options_of(self._settings, spec)
            engine = JobEngine(
                self._runtime,
                collector,
                options,
                job=job,
                attempts=self._reports,
                since=since,
            )
            ends.enter_context(engine.beating())
            return Opened(
                job,
                spec.limit is not None,
                collector,
                fetching,
                engine,
                ends.pop_all(),
                self._clock.now(),
            )
        raise AssertionError  # the block above returns, or raises
