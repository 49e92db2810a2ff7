"""One run of a job from its start to its report: on this process's event loop, or on a cluster."""

from __future__ import annotations

import asyncio
import logging
import resource
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.logging import LogContext
from longline.core.model import OPEN_STATES, Job, JobState
from longline.engine.collector import notify_finished
from longline.engine.local import LocalEngine
from longline.engine.progress import ProgressTracker
from longline.engine.report import JobReport
from longline.engine.runtime import Runtime, options_of
from longline.engine.watch import Checkpoints, OnProgress, Watch
from longline.http.messages import Middleware
from longline.monitoring.log_store import pass_on_logs, prune_logs
from longline.sources.base import Source
from longline.sources.loader import load_source
from longline.storage.events.events import event_row
from longline.storage.store import Store
from longline.wiring import SharedHttp, open_collector, open_limit_backends, user_agent_of

_LOG = logging.getLogger(__name__)

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # what getrusage counts memory in


class Engine(Protocol):
    """Runs a job itself, or on a cluster."""

    @property
    def closed_host(self) -> str | None:
        """The host whose robots.txt stopped discovery, if one did."""

    def stop(self, reason: str) -> None:
        """Begin nothing more; what is in flight is finished and committed."""

    async def run(self, job: Job) -> JobState:
        """Run a job to its end, or until it is stopped; return its state."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What all runs of an orchestrator share; runs in this process need `http`."""

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
        """The source of time."""
        return self.runtime.clock


class JobRun:
    """One run of one job; an interrupt before it starts stops it when it starts.

    Args:
        context: the store and the like.
        job: what to run.
        spec: its settings.
        on_progress: called about twice per second.
    """

    def __init__(
        self, context: RunContext, job: Job, spec: JobSpec, *, on_progress: OnProgress | None = None
    ) -> None:
        self._context = context
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

    async def run_here(self) -> JobReport:
        """Run the job in this process."""
        context, spec = self._context, self._spec
        async with open_collector(
            context.settings,
            spec,
            context.clock,
            context.store,
            job=self._job.id,
            transport=context.transport,
            shared=context.http,
        ) as (collector, fetching):
            tracker = ProgressTracker(
                context.store, self._job.id, context.clock, limiter=fetching.limiter
            )
            watch = self._new_watch(tracker)
            options = options_of(context.settings, spec)
            engine = LocalEngine(
                context.runtime, collector, options, job=self._job, on_item=watch.count
            )
            start = self._start_data("local", concurrency=options.concurrency)
            self._warn_not_run(collector.source)
            report = await self._run_engine(engine, tracker, watch, start)
            if report.progress.state is JobState.COMPLETE and spec.limit is None:
                ended = await context.store.jobs.get(self._job.id)
                problem = await notify_finished(context.store, collector, ended, context.clock)
                if problem:
                    with LogContext(job=self._job.id, source=self._job.source):
                        _LOG.warning(problem)
            if fetching.budgets and report.progress.state not in OPEN_STATES:
                await fetching.budgets.forget()
        return report

    async def run_on_cluster(self) -> JobReport:
        """Run the job on workers, and follow it to its end."""
        from longline.distributed.client import open_cluster  # noqa: PLC0415  # an optional part

        context = self._context
        self._warn_not_run(load_source(self._spec.source, self._spec.manifest))
        tracker = ProgressTracker(context.store, self._job.id, context.clock)
        async with open_cluster(context.settings, context.store, context.clock) as engine:
            start = self._start_data("celery")
            return await self._run_engine(engine, tracker, self._new_watch(tracker), start)

    async def hand_over(self) -> None:
        """Start the job on workers, and return."""
        from longline.distributed.client import open_cluster  # noqa: PLC0415  # an optional part

        context = self._context
        self._warn_not_run(load_source(self._spec.source, self._spec.manifest))
        async with open_cluster(context.settings, context.store, context.clock) as engine:
            at = await context.store.now()
            await context.store.jobs.start(self._job.id, at, **self._start_data("celery"))
            await engine.begin(self._job.id)

    def _warn_not_run(self, source: Source | type[Source]) -> None:
        """Log which parts of the user's project have no effect, before the first request."""
        with LogContext(job=self._job.id, source=self._job.source):
            for part in source.not_run:
                _LOG.warning("not supported: %s", part)

    def _start_data(self, engine: str, **more: Any) -> dict[str, Any]:
        """Return the data of the event that starts this run."""
        hosts = self._spec.ignore_robots
        return {"engine": engine, **more} | ({"ignore_robots": list(hosts)} if hosts else {})

    def _new_watch(self, tracker: ProgressTracker) -> Watch:
        context = self._context
        return Watch(
            tracker,
            context.checkpoints,
            context.store.events,
            context.clock,
            on_progress=self._on_progress,
        )

    async def _run_engine(
        self, engine: Engine, tracker: ProgressTracker, watch: Watch, start: dict[str, Any]
    ) -> JobReport:
        store, clock, job = self._context.store, self._context.clock, self._job.id
        started = clock.now()
        self._engine = engine
        if self.is_interrupted:
            engine.stop("interrupted")
        # Workers use the clock of the database, and count from this time.
        at = await store.now() if start["engine"] == "celery" else started
        await store.jobs.start(job, at, **start)
        await tracker.snapshot()  # the state before this run, which speeds are measured from
        try:
            with (
                LogContext(job=job, source=self._job.source),
                self._context.runtime.progress.serving(watch),
            ):
                _LOG.info("job started", extra={"engine": start["engine"]})
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(watch.wait_for_failure())
                    await engine.run(await store.jobs.get(job))
                    watching.cancel()
        except* Exception as several:
            raise several.exceptions[0] from several
        finally:
            self._engine = None
        seconds = clock.now() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
        ended = event_row(job, clock.now(), "run.ended", seconds=seconds, peak_memory_bytes=peak)
        pass_on_logs()
        await store.events.append(ended)
        settings = self._context.settings
        await store.events.prune_old(
            clock.now(), max_days=settings.event_max_days, max_count=settings.event_max_count
        )
        await prune_logs(store, settings, clock.now())
        progress = await watch.checkpoint()
        _LOG.info("job ended", extra={"job": job, "state": progress.state.value})
        return JobReport(
            progress,
            clock.now() - started,
            reason=(await store.jobs.get(job)).reason,
            is_interrupted=self.is_interrupted,
            closed_host=engine.closed_host,
            caveats=await store.jobs.caveats(job),
        )


async def check_engine(settings: Settings, store: Store, clock: Clock, engine: str) -> None:
    """Check that an engine has what it needs, before a job is created or changed.

    Raises:
        LonglineError: something is missing; an unreachable service is waited for.
    """
    if engine == "celery":
        from longline.distributed.client import check_cluster  # noqa: PLC0415  # an optional part

        await check_cluster(settings)
        return
    user_agent_of(settings)
    if settings.redis is not None:
        async with open_limit_backends(settings, clock, store):
            pass
