"""One run of a job from its start to its report: on this process's event loop, or on a cluster."""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.logging import log_context
from longline.core.model import OPEN_STATES, Job, JobState
from longline.engine.extractor import tell_finished
from longline.engine.local import LocalEngine
from longline.engine.progress import ProgressTracker
from longline.engine.report import JobReport
from longline.engine.runtime import Runtime, options_of
from longline.engine.watch import Checkpoints, OnProgress, Watch
from longline.http.messages import Middleware
from longline.sources.loader import load_source
from longline.storage.events import event_row
from longline.storage.store import Store
from longline.wiring import SharedHttp, open_collector, open_limit_backends, user_agent_of

_LOG = logging.getLogger(__name__)

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # what getrusage counts memory in


class Engine(Protocol):
    """What works on a job, or has others work on it."""

    @property
    def closed_host(self) -> str | None:
        """The host whose robots.txt stopped discovery, if one did."""

    def stop(self, reason: str) -> None:
        """Begin nothing more; what is in flight is finished and committed."""

    async def run(self, job: Job) -> JobState:
        """Run a job to its end, or until it is stopped; return the state it is left in."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every run of an orchestrator works with; `http` is needed by runs in this process."""

    settings: Settings
    runtime: Runtime
    checkpoints: Checkpoints
    transport: Middleware | None = None
    http: SharedHttp | None = None

    @property
    def store(self) -> Store:
        """The database."""
        return self.runtime.store

    @property
    def clock(self) -> Clock:
        """What time it is."""
        return self.runtime.clock


class JobRun:
    """One run of one job; what stops it before it has begun stops it when it begins.

    Args:
        around: the store and the like.
        job: what to run.
        spec: how.
        on_progress: called about twice a second.
    """

    def __init__(
        self, around: RunContext, job: Job, spec: JobSpec, *, on_progress: OnProgress | None = None
    ) -> None:
        self._around = around
        self._job = job
        self._spec = spec
        self._on_progress = on_progress
        self._engine: Engine | None = None
        self.is_interrupted = False

    def interrupt(self) -> None:
        """Finish what is in flight, commit, write a checkpoint, and return from the run."""
        self.is_interrupted = True
        if self._engine is not None:
            self._engine.stop("interrupted")

    async def here(self) -> JobReport:
        """Run the job in this process."""
        around, spec = self._around, self._spec
        async with open_collector(
            around.settings,
            spec,
            around.clock,
            around.store,
            job=self._job.id,
            transport=around.transport,
            shared=around.http,
        ) as (collector, fetching):
            tracker = ProgressTracker(
                around.store, self._job.id, around.clock, limiter=fetching.limiter
            )
            watch = self._watch(tracker)
            options = options_of(around.settings, spec)
            engine = LocalEngine(
                around.runtime, collector, options, job=self._job, on_item=watch.count
            )
            how = self._how("local", concurrency=options.concurrency)
            self._report_not_run(collector.source.not_run)
            report = await self._run(engine, tracker, watch, how)
            if report.progress.state is JobState.COMPLETE and spec.limit is None:
                ended = await around.store.jobs.get(self._job.id)
                problem = await tell_finished(around.store, collector, ended, around.clock)
                if problem:
                    _LOG.warning(problem)
            if fetching.budgets and report.progress.state not in OPEN_STATES:
                await fetching.budgets.forget()
        return report

    async def on_cluster(self) -> JobReport:
        """Have workers run the job, and watch them."""
        from longline.distributed.client import open_cluster  # noqa: PLC0415  # an optional part

        around = self._around
        self._report_not_run_by_workers()
        tracker = ProgressTracker(around.store, self._job.id, around.clock)
        async with open_cluster(around.settings, around.store, around.clock) as engine:
            return await self._run(engine, tracker, self._watch(tracker), self._how("celery"))

    async def handed_over(self) -> None:
        """Have workers run the job, and leave it to them."""
        from longline.distributed.client import open_cluster  # noqa: PLC0415  # an optional part

        around = self._around
        self._report_not_run_by_workers()
        async with open_cluster(around.settings, around.store, around.clock) as engine:
            at = await around.store.now()
            await around.store.jobs.start(self._job.id, at, **self._how("celery"))
            await engine.begin(self._job.id)

    def _report_not_run(self, parts: Iterable[str]) -> None:
        """Say what of the user's project has no effect, before the first request."""
        for part in parts:
            _LOG.warning("not run: %s", part)

    def _report_not_run_by_workers(self) -> None:
        self._report_not_run(load_source(self._spec.source, self._spec.manifest).not_run)

    def _how(self, engine: str, **more: Any) -> dict[str, Any]:
        """Return what is told about the start of this run."""
        hosts = self._spec.ignore_robots
        return {"engine": engine, **more} | ({"ignore_robots": list(hosts)} if hosts else {})

    def _watch(self, tracker: ProgressTracker) -> Watch:
        around = self._around
        return Watch(
            tracker,
            around.checkpoints,
            around.store.events,
            around.clock,
            on_progress=self._on_progress,
        )

    async def _run(
        self, engine: Engine, tracker: ProgressTracker, watch: Watch, how: dict[str, Any]
    ) -> JobReport:
        store, clock, job = self._around.store, self._around.clock, self._job.id
        begun = clock.now()
        self._engine = engine
        if self.is_interrupted:
            engine.stop("interrupted")
        # Workers go by the database's clock, and reckon from this moment.
        at = await store.now() if how["engine"] == "celery" else begun
        await store.jobs.start(job, at, **how)
        await tracker.snapshot()  # the state before this run, which speeds are measured from
        try:
            with (
                log_context(job=job, source=self._job.source),
                self._around.runtime.progress.following(watch),
            ):
                _LOG.info("job started", extra={"engine": how["engine"]})
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(watch.wait_for_failure())
                    await engine.run(await store.jobs.get(job))
                    watching.cancel()
        except* Exception as several:
            raise several.exceptions[0] from several
        finally:
            self._engine = None
        await self._note_end(clock.now() - begun)
        progress = await watch.checkpoint()
        _LOG.info("job ended", extra={"job": job, "state": progress.state.value})
        return JobReport(
            progress,
            clock.now() - begun,
            reason=(await store.jobs.get(job)).reason,
            is_interrupted=self.is_interrupted,
            closed_host=engine.closed_host,
            caveats=await store.jobs.caveats(job),
        )

    async def _note_end(self, seconds: float) -> None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        now = self._around.clock.now()
        told = event_row(self._job.id, now, "run.ended", seconds=seconds, peak_memory_bytes=peak)
        await self._around.store.events.append(told)


async def check_ground(settings: Settings, store: Store, clock: Clock, engine: str) -> None:
    """See that an engine has what it needs, before a job is made or touched.

    Raises:
        LonglineError: it lacks something; what workers share is waited for if it is only away.
    """
    if engine == "celery":
        from longline.distributed.client import check_cluster  # noqa: PLC0415  # an optional part

        await check_cluster(settings)
        return
    user_agent_of(settings)
    if settings.redis is not None:
        async with open_limit_backends(settings, clock, store):
            pass
