"""Orchestrator: run sources, from their names to records in a database.

    from longline import Orchestrator
    async with Orchestrator("shop.yaml") as longline:
        report = await longline.execute(params={"limit": 10})

`SyncOrchestrator` is the same for code without an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, overload

from longline.config.job_spec import JobSpec, make_spec
from longline.config.settings import Settings, load_settings, prepare_home
from longline.core.clock import Clock, SystemClock, utc_datetime
from longline.core.errors import (
    BadFile,
    BadOption,
    ConfigError,
    ConflictError,
    FailureKind,
    LonglineError,
    StoreError,
    Unexpected,
    UnknownJob,
)
from longline.core.model import OPEN_STATES, Event, Item, ItemState, Job, JobState, Outcome
from longline.core.output import html_table
from longline.engine.owner import is_abandoned
from longline.engine.progress import SiteProgress, is_over, progress_of
from longline.engine.report import (
    BatchResult,
    ItemResult,
    JobReport,
    batch_result,
    enqueue_export,
    export_after_run,
    export_request,
)
from longline.engine.runtime import Runtime, handling_signals
from longline.engine.subscribers import Handler, find_cursor, read_events, subscribed
from longline.engine.watch import Checkpoints, OnProgress
from longline.export.export import ExportRequest
from longline.http.messages import Middleware
from longline.monitoring.log_store import storing_logs
from longline.running import JobRun, RunContext, check_engine
from longline.sources.base import Source
from longline.sources.loader import merge_spec, nothing_in, survey
from longline.storage.events.events import EventFilter
from longline.storage.events.subscribers import Subscriber
from longline.storage.jobs import NewJob
from longline.storage.query import RecordQuery
from longline.storage.queue.enqueue import Discovered
from longline.storage.queue.failures import FailureQuery
from longline.storage.queue.queue import PAUSED_BY_USER
from longline.storage.scheduling.launches import SOURCE, Launch, NewLaunch
from longline.storage.store import Store, open_store
from longline.wiring import SharedHttp, open_collector, open_shared_http, usable

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], Any]]
RecordRow = dict[str, Any]
EngineName = Literal["local", "celery"]
_MAX_COLUMNS = 8  # that a notebook shows
_MAX_ROWS = 50
_MAX_CELL = 80  # characters
_POLL_INTERVAL = 0.5  # seconds between two reads of jobs that run without Redis


class NotResumable(ConflictError):
    """The job has ended; `action` is what was to be done with it."""

    job: str
    state: str
    action: str = "resume"
    message = "job {job} is {state}: there is nothing to {action}"

    @property
    def hint(self) -> str:  # type: ignore[override]  # depends on the fields
        """The command that runs the source again."""
        return "Start a new one with `longline run`." if self.action == "resume" else ""


class NothingToRetry(ConflictError):
    """No item of the job failed with this kind; an empty kind is any."""

    job: str
    kind: str = ""
    message = "no finished item of job {job} failed{by_kind}, so there is nothing to retry"
    hint = "`longline failures {job}` lists the failures."

    @property
    def by_kind(self) -> str:
        """The requested kind of failure."""
        return f" with kind {self.kind}" if self.kind else ""


class NotStarted(ConfigError):
    """An interrupt came before this source was started."""

    exit_code = 130
    source: str
    message = "{source} was not started: interrupted"
    hint = "Run the same command again to continue."


@dataclass(frozen=True, slots=True)
class SiteEnd:
    """How the run of one site ended: with a report, or with an error that prevented it."""

    source: str
    report: JobReport | None = None
    error: LonglineError | None = None

    @property
    def exit_code(self) -> int:
        """The exit code for this site alone."""
        if self.report is not None:
            return self.report.exit_code
        return self.error.exit_code if self.error is not None else 1


class Orchestrator:
    """Collects items of sources into the database of a home.

    Args:
        source: the source of calls that do not name one.
        options: its settings, as with `--set` on the command line.
        home: the folder for all data; LONGLINE_HOME or ./.longline by default.
        settings: all settings of the installation, in place of files and environment.
        clock: replaces the system clock, in tests.
        transport: replaces HTTP, in simulations.
        stores_logs: store warnings and errors of this process in the database; False when another
            part of the process does it.
        spec: rate, burst, concurrency and the like, by the names of JobSpec.
    """

    def __init__(
        self,
        source: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        home: Path | str | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        transport: Middleware | None = None,
        stores_logs: bool = True,
        **spec: Any,
    ) -> None:
        self._stores_logs = stores_logs
        self._settings = settings or load_settings(home=Path(home) if home else None)
        self._source = source
        self._params = {"set": dict(options or {}), **spec}
        make_spec({"source": source or "any", **self._params})  # a wrong name is an error now
        self._clock = clock or SystemClock()
        self._transport = transport
        self._store: Store | None = None
        self._checkpoints = Checkpoints(self._settings.checkpoints)
        self._closing = AsyncExitStack()
        self._runtime: Runtime | None = None
        self._http: SharedHttp | None = None
        self._opening = asyncio.Lock()
        self._runs: set[JobRun] = set()
        self._is_interrupted = False
        self._runs_many = False

    def __repr__(self) -> str:
        return f"<Orchestrator {self._source or 'without a source'} in {self._settings.home}>"

    @property
    def settings(self) -> Settings:
        """The settings of the installation."""
        return self._settings

    @property
    def store(self) -> Store:
        """The database; open from `async with` on."""
        if self._store is None:
            message = "use the Orchestrator in `async with Orchestrator() as …:`"
            raise RuntimeError(message)
        return self._store

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoint documents of this home."""
        return self._checkpoints

    async def __aenter__(self) -> Self:
        prepare_home(self._settings)
        self._store = open_store(self._settings.database)
        if self._stores_logs:
            self._closing.enter_context(storing_logs(self._store, self._settings, self._clock))
        self._runtime = await self._closing.enter_async_context(Runtime(self._store, self._clock))
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._closing.aclose()
        self._runtime = self._http = None
        if self._store is not None:
            self._store.close()
            self._store = None

    async def _shared_http(self) -> SharedHttp:
        """Return what all runs in this process share, opened by the first of them."""
        async with self._opening:
            if self._http is None:
                self._http = await self._closing.enter_async_context(
                    open_shared_http(self._settings, self._clock, self.store)
                )
        return self._http

    # ------------------------------------------------------------ single items and lists

    async def extract(self, key: str, url: str) -> Outcome:
        """Run one item through every layer and return all that was found; store nothing."""
        async with open_collector(
            self._settings,
            self._merged(None, None),
            self._clock,
            self.store,
            transport=self._transport,
            shared=await self._shared_http(),
        ) as (collector, _):
            return await collector.collect(Item(key, url))

    async def process_item(self, key: str, url: str) -> ItemResult:
        """Collect and store one item."""
        batch = await self.process_batch([Item(key, url)])
        return batch.results[0]

    async def process_batch(
        self,
        items: Iterable[Item | tuple[str, str]],
        batch_size: int = 10,
        resume_from: str | None = None,
        *,
        on_progress: OnProgress | None = None,
    ) -> BatchResult:
        """Collect and store items, `batch_size` concurrently; one failure does not end the batch.

        Args:
            items: Items, or pairs of key and address.
            batch_size: maximum concurrent items.
            resume_from: a key; items before it in the list are left out.
            on_progress: called about twice per second.

        Raises:
            BadOption: `resume_from` is not in the list, or `batch_size` is not positive.
        """
        wanted = [one if isinstance(one, Item) else Item(*one) for one in items]
        if resume_from is not None:
            keys = [item.key for item in wanted]
            if resume_from not in keys:
                raise BadOption("resume_from", f"there is no item {resume_from!r} in the batch")
            wanted = wanted[keys.index(resume_from) :]
        spec = self._merged(None, {"concurrency": batch_size, "limit": None})
        new = self._new_job(spec, batch=[item.key for item in wanted])
        await self._check_engine(self._settings.engine)
        job = await self.store.jobs.create(new)
        # The job stores its list now, so that a resumed run has nothing to discover.
        await self.store.queue.enqueue(Discovered(job.id, wanted, self._clock.now(), is_last=True))
        report = await self._run_job(
            job, spec, engine=self._settings.engine, on_progress=on_progress
        )
        return await batch_result(self.store, report)

    # ------------------------------------------------------------ jobs

    def source_of(self, source: str, params: Mapping[str, Any] | None = None) -> Source:
        """Return a source with its settings, without a request.

        Raises:
            ConfigError: it cannot be used: a name, a setting, a secret or a package is missing.
        """
        return usable(self._merged(source, params), self._settings.chromium)[1]

    async def execute(
        self,
        /,
        source: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        engine: EngineName | None = None,
        export: str | None = None,
        on_start: Callable[[Job, bool], None] | None = None,
        **hooks: Any,
    ) -> JobReport:
        """Run a source to its end; an unfinished job with the same settings is resumed.

        Args:
            source: a name, a Python file, package.module:Class, or a YAML job file.
            params: fields of JobSpec (limit, rate, set, …) that differ from this object's.
            fresh: always start a new job.
            engine: "local" runs it here, "celery" on workers; by default that of the settings.
            export: where its records are written at its end; with "celery", by a worker.
            on_start: called with the job, and whether it is new.
            hooks: `on_progress`, called about twice per second.

        Raises:
            LonglineError: it could not be started, or the database failed.
        """
        engine = engine or self._settings.engine
        job, spec, request = await self._start_job(
            source, params, engine=engine, export=export, fresh=fresh, on_start=on_start
        )
        report = await self._run_job(job, spec, engine=engine, **hooks)
        if request is None:
            return report
        return await export_after_run(self.store, report, request, engine=engine)

    async def submit(
        self,
        /,
        source: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        export: str | None = None,
        **hooks: Any,
    ) -> Job:
        """Start a source on workers and return; a worker writes its records to `export`.

        While Redis is not reachable, a warning is logged, and a worker finds the job later.

        Raises:
            LonglineError: it cannot be run; nothing was created.
        """
        job, spec, _ = await self._start_job(
            source, params, engine="celery", export=export, fresh=fresh
        )
        await self._job_run(job, spec, **hooks).hand_over()
        return await self.store.jobs.get(job.id)

    async def launch(
        self,
        /,
        source: str | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        priority: int = 0,
        key: str | None = None,
    ) -> Launch:
        """Submit a source to `longline serve`, and return.

        Args:
            source: a name, a Python file, package.module:Class, or a YAML job file.
            params: fields of JobSpec that differ from this object's.
            priority: higher ones are started first.
            key: of two launches with the same key, only the first is submitted.

        Raises:
            LonglineError: it cannot be run; nothing was submitted.
        """
        spec = self._merged(source, params)
        name = usable(spec, self._settings.chromium)[1].name
        # The server may run in another folder.
        spec = spec.model_copy(update={"source": _absolute(spec.source)})
        at = await self.store.now()
        new = NewLaunch(SOURCE, name, spec.snapshot(), "command", at, key=key, priority=priority)
        placed = await self.store.launches.get(await self.store.launches.place(new))
        assert placed is not None  # noqa: S101  # launches are never deleted
        return placed

    async def find_or_create_job(self, values: Mapping[str, Any]) -> Job:
        """Return the unfinished job with these settings, or a new one; start nothing.

        Args:
            values: a complete snapshot (`JobSpec.snapshot`), which is taken as it is, or a source
                with the fields of JobSpec that differ from its defaults.

        Raises:
            ConfigError: the source cannot be used; nothing was created.
        """
        if "manifest" in values:
            spec = make_spec(values)
        else:
            params = {name: value for name, value in values.items() if name != "source"}
            spec = self._merged(values.get("source"), params)
        new = self._new_job(spec)
        job, _ = await self.store.jobs.find_or_create(new)
        return job

    async def hand_over(self, job: str) -> Job:
        """Start or continue an unfinished job on workers, and return.

        Raises:
            UnknownJob: there is no such job.
            NotResumable: it has ended.
            LonglineError: Redis cannot be used, and waiting would not change that.
        """
        found = await self._unfinished(job)
        await self._check_engine("celery")
        await self._job_run(found, make_spec(found.settings)).hand_over()
        return await self.store.jobs.get(found.id)

    async def run_launch(self, launch: Launch) -> None:
        """Run a leased launch of a source in this process to its end, and store its result.

        An interrupt releases it, to be continued by the next run of its flow, or by an executor.

        Raises:
            StoreError: the database cannot be used.
        """
        launches, owner = self.store.launches, launch.owner or ""
        try:
            name = launch.target
            if name is None:
                name = (await self.find_or_create_job(launch.spec)).id
                if not await launches.attach(launch.id, owner, name, self._clock.now()):
                    found = await launches.get(launch.id)
                    reason = found.reason if found is not None else None
                    # Nothing, if another process has taken the lease over.
                    await launches.finish(
                        launch.id, owner, self._clock.now(), result="cancelled", reason=reason
                    )
                    return
            job = await self.store.jobs.get(name)
            if job.state in OPEN_STATES:
                report = await self.resume(job.id, engine=self._settings.engine)
                if report.is_interrupted and report.state in OPEN_STATES:
                    await launches.release(launch.id, owner)
                    return
        except asyncio.CancelledError:
            await launches.release(launch.id, owner)
            raise
        except StoreError:
            raise
        except LonglineError as error:
            result, reason = JobState.FAILED.value, str(error)
        else:
            job = await self.store.jobs.get(job.id)
            result, reason = job.state.value, job.reason or ""
        await launches.finish(
            launch.id, owner, self._clock.now(), result=result, reason=reason or None
        )

    async def resume(
        self,
        /,
        job: str | None = None,
        *,
        checkpoint: str | None = None,
        from_key: str | None = None,
        ignore_robots: Sequence[str] = (),
        engine: EngineName | None = None,
        on_start: Callable[[Job, bool], None] | None = None,
        **hooks: Any,
    ) -> JobReport:
        """Resume an unfinished job: the newest, a named one, or that of a checkpoint.

        Args:
            job: its id, or the beginning of it.
            checkpoint: the id of a checkpoint document, or "latest".
            from_key: leave out the unfinished items that were found before this one.
            ignore_robots: further hosts whose robots.txt is not obeyed.
            engine: "local" or "celery"; by default that of its last run.
            on_start: called with the job.
            hooks: as for `execute`.

        Raises:
            UnknownJob: there is none to resume.
            NotResumable: the job has ended.
        """
        if checkpoint is not None:
            job = str(self._checkpoints.get(checkpoint)["job"])
        found = await self._unfinished(job)
        await self._check_engine(engine or found.engine)
        if from_key is not None:
            reason = f"skipped: the job was resumed from {from_key}"
            now = self._clock.now()
            if await self.store.queue.skip_before(found.id, from_key, reason, now) is None:
                raise BadOption("--from-key", f"job {found.id} has no item {from_key!r}")
        if on_start:
            on_start(found, False)
        spec = make_spec(found.settings)
        hosts = tuple(dict.fromkeys([*spec.ignore_robots, *ignore_robots]))
        spec = spec.model_copy(update={"ignore_robots": hosts})
        return await self._run_job(found, spec, engine=engine or found.engine, **hooks)

    async def retry(
        self,
        /,
        job: str,
        *,
        kind: FailureKind | None = None,
        state: ItemState | None = None,
        key: str | None = None,
        **resuming: Any,
    ) -> JobReport:
        """Requeue items of a job that did not become records, and run it.

        Args:
            job: its id, or the beginning of it.
            kind: only items whose failure was of this kind.
            state: only items in this state: failed, quarantined or skipped.
            key: only this item.
            resuming: as for `resume`.

        Raises:
            UnknownJob: there is no such job.
            NothingToRetry: no item matches.
        """
        found = await self.store.jobs.get(job)
        await self._check_engine(resuming.get("engine") or found.engine)
        await self._requeue(FailureQuery(found.id, kind, state, key))
        return await self.resume(found.id, **resuming)

    async def launch_resume(self, job: str) -> Launch | None:
        """Have `longline serve` resume an unfinished job, and return; None: a process runs it.

        Raises:
            UnknownJob: there is no such job.
            NotResumable: it has ended.
        """
        return await self._launch_job(await self._unfinished(job))

    async def launch_retry(
        self,
        job: str,
        *,
        kind: FailureKind | None = None,
        state: ItemState | None = None,
        key: str | None = None,
    ) -> Launch | None:
        """Requeue items as `retry` does, and have `longline serve` resume the job.

        None: a process runs the job, and takes the items.

        Raises:
            UnknownJob: there is no such job.
            NothingToRetry: no item matches.
        """
        found = await self.store.jobs.get(job)
        await self._requeue(FailureQuery(found.id, kind, state, key))
        return await self._launch_job(await self.store.jobs.get(found.id))

    async def _launch_job(self, job: Job) -> Launch | None:
        """Place a launch that continues an open job, unless a process runs it."""
        at, launches = await self.store.now(), self.store.launches
        if job.state is JobState.RUNNING and not await is_abandoned(self.store, job, at):
            return None
        await self.store.jobs.expect_resume(job.id, self._clock.now())
        new = NewLaunch(SOURCE, job.source, job.settings, "command", at, target=job.id)
        return await launches.get(await launches.place(new))

    async def _requeue(self, query: FailureQuery) -> None:
        if not await self.store.failures.requeue(query, self._clock.now()):
            raise NothingToRetry(query.job, query.kind.value if query.kind else "")

    async def pause(self, job: str) -> Job:
        """Pause a job in all processes; `resume` continues it.

        Raises:
            UnknownJob: there is no such job.
            NotResumable: it has ended.
        """
        found = await self._unfinished(job, "pause")
        await self.store.jobs.pause(found.id, self._clock.now(), PAUSED_BY_USER)
        return await self.store.jobs.get(found.id)

    async def cancel(self, job: str) -> Job:
        """End a job; its records stay. A cancelled job is returned unchanged.

        Raises:
            UnknownJob: there is no such job.
            NotResumable: it has ended in another way.
        """
        found = await self.store.jobs.get(job)
        if found.state is JobState.CANCELLED:
            return found
        await self._unfinished(found.id, "cancel")
        await self.store.jobs.cancel(found.id, self._clock.now(), "cancelled by the user")
        return await self.store.jobs.get(found.id)

    async def jobs(self, limit: int = 20) -> Table[Job]:
        """Return the newest jobs, as a table that a notebook shows."""
        return Table(await self.store.jobs.list(limit=limit), JOB_COLUMNS)

    async def records(self, /, query: RecordQuery | None = None, **fields: Any) -> Table[RecordRow]:
        """Return records as a table that a notebook shows; `fields` are those of RecordQuery."""
        rows = await self.store.records.list(query or RecordQuery(**fields))
        return Table(rows, record_columns(rows))

    async def events(
        self,
        *,
        types: Sequence[str] = (),
        since: int | datetime | None = None,
        job: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        follow: bool = True,
    ) -> AsyncIterator[Event]:
        """Yield every event in commit order; with `follow`, wait for new ones without end.

        Args:
            types: names or patterns, such as `job.*`; empty is all.
            since: the id of the last event that you know, or a time; None is now.
            job: only events of this job.
            source: only events of this source.
            subject: only events about this, such as `domain/HOST`.
            follow: wait for new events; False ends after the newest one.

        Raises:
            BadOption: there is no such event type, or `since` is past the newest event.
        """
        wanted = EventFilter(tuple(types), job, source, subject)
        after = await find_cursor(self.store, since)
        async for event in read_events(self.store, self._clock, wanted, after, follows=follow):
            yield event

    def subscribe(
        self,
        name: str,
        handle: Handler,
        *,
        types: Sequence[str] = (),
        job: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        start: int | None = None,
    ) -> AbstractAsyncContextManager[Subscriber]:
        """Deliver events to an async function while the block runs: at least once, in order.

        The cursor is stored under `name`: after a crash, delivery continues after the last event
        that was handled. If `handle` raises, the event is delivered again, with a growing delay.

        Args:
            name: the name of the cursor; of several processes, one delivers at a time.
            handle: called with each event.
            types: names or patterns, such as `job.*`; empty is all.
            job: only events of this job.
            source: only events of this source.
            subject: only events about this, such as `domain/HOST`.
            start: the event after which a new subscriber starts; None is now.

        Raises:
            BadOption: there is no such event type, or `start` is past the newest event.
        """
        wanted = EventFilter(tuple(types), job, source, subject)
        return subscribed(self.store, self._clock, name, handle, wanted=wanted, start=start)

    def interrupt(self) -> None:
        """Let the run finish what is in flight, commit, write a checkpoint and return."""
        self._is_interrupted = True
        for run in self._runs:
            run.interrupt()

    def handling_signals(
        self, on_stop: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Call `interrupt` on the first SIGINT or SIGTERM, and exit immediately on a later one.

        Args:
            on_stop: called at the first signal.
        """
        return handling_signals(self.interrupt, on_stop)

    # ------------------------------------------------------------ many sources

    async def start_site(
        self,
        /,
        source: str,
        params: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        **hooks: Any,
    ) -> str:
        """Start a source on workers; return the id of the job.

        While Redis is not reachable, a warning is logged, and a worker finds the job later.

        Raises:
            LonglineError: it cannot be run; nothing was created.
        """
        return (await self.submit(source, params, fresh=fresh, **hooks)).id

    async def get_site_progress(self, job: str) -> SiteProgress:
        """Return the progress of a job.

        Raises:
            UnknownJob: there is no such job.
        """
        if self._settings.redis is None:
            return await progress_of(self.store, await self.store.jobs.get(job))
        from longline.distributed.client import Sites  # noqa: PLC0415  # an optional part

        async with Sites.open(self._settings, self.store, self._clock) as sites:
            return await sites.progress(job)

    async def wait_for_all_sites(
        self, jobs: Iterable[str] | None = None, *, seconds: float | None = None
    ) -> dict[str, SiteProgress]:
        """Wait until no process runs these jobs; return the progress of each.

        Args:
            jobs: their ids; by default all open ones.
            seconds: the maximum wait.

        Raises:
            UnknownJob: there is no such job.
        """
        if jobs is None:
            jobs = [job.id for job in await self.store.jobs.list(limit=None, is_open=True)]
        if self._settings.redis is not None:
            from longline.distributed.client import Sites  # noqa: PLC0415  # an optional part

            async with Sites.open(self._settings, self.store, self._clock) as sites:
                return await sites.wait(jobs, seconds=seconds)
        ids = list(jobs)
        deadline = None if seconds is None else self._clock.now() + seconds
        while True:
            # Their states are enough until the end: counting items may take long.
            found = [await self.store.jobs.get(job) for job in ids]
            is_late = deadline is not None and self._clock.now() >= deadline
            if is_late or all(is_over(job) for job in found):
                return {job: await self.get_site_progress(job) for job in ids}
            await self._clock.sleep(_POLL_INTERVAL)

    async def scrape_all_sites(
        self,
        sources: Iterable[str] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        parallel: bool | None = None,
        engine: EngineName | None = None,
        fresh: bool = False,
        hooks_of: Callable[[str], Mapping[str, Any]] = lambda _source: {},
    ) -> list[SiteEnd]:
        """Run many sources, each to its end; return the result of each, in the same order.

        A source that cannot be loaded has its error as the result; the others run. Broken files in
        the folders of the settings come last.

        Args:
            sources: their names or files; by default all in the folders of the settings.
            params: fields of JobSpec for all of them.
            parallel: in parallel or one after another; by default that of the settings.
            engine: as for `execute`.
            fresh: always start new jobs.
            hooks_of: returns the hooks of `execute` for a source.

        Raises:
            BadOption: there is nothing to run.
        """
        names = list(sources) if sources is not None else self.known_sites()
        broken = self.broken_sites() if sources is None else []
        if not names and not broken:
            raise BadOption("--all", nothing_in(self._settings.sources))
        is_parallel = self._settings.parallel if parallel is None else parallel
        turn = asyncio.Semaphore(max(1, len(names)) if is_parallel else 1)

        async def run(source: str) -> SiteEnd:
            async with turn:
                if self._is_interrupted:
                    return SiteEnd(source, error=NotStarted(source))
                given = {"fresh": fresh, "engine": engine, **hooks_of(source)}
                try:
                    return SiteEnd(source, await self.execute(source, params, **given))
                except LonglineError as error:
                    return SiteEnd(source, error=error)
                except Exception as error:  # noqa: BLE001  # the code of one site affects no other
                    return SiteEnd(source, error=Unexpected(repr(error)))

        self._runs_many = True
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(run(source)) for source in names]
        finally:
            self._runs_many = self._is_interrupted = False
        return [*(task.result() for task in tasks), *broken]

    def known_sites(self) -> list[str]:
        """Return the usable manifests and job files in the folders of the setting `sources`."""
        found = survey(self._settings).entries.values()
        return [str(entry.document.path) for entry in found]

    def broken_sites(self) -> list[SiteEnd]:
        """Return the unusable files in the folders of the setting `sources`, with their errors."""
        return [
            SiteEnd(error.path if isinstance(error, BadFile) else "--all", error=error)
            for error in survey(self._settings).problems
        ]

    # ------------------------------------------------------------ inside

    def _merged(self, source: str | None, params: Mapping[str, Any] | None) -> JobSpec:
        if self._source is None and source is None:
            raise BadOption("source", "pass one to the call or to the Orchestrator")
        own = self._source or source or ""
        known = merge_spec(make_spec({"source": own}), own, self._params)
        return merge_spec(known, source, params or {})

    def _new_job(self, spec: JobSpec, **identity: Any) -> NewJob:
        """Return the job to create; a wrong name or setting is an error before it is created."""
        _, source = usable(spec, self._settings.chromium)
        # As the source understands them: 50 from a file and "50" from a shell are the same job.
        options = source.options.model_dump(mode="json", fallback=str)
        same = {**spec.identity(), "options": options, **identity}
        return NewJob(source.name, spec.snapshot(), same, self._clock.now())

    async def _start_job(
        self,
        source: str | None,
        params: Mapping[str, Any] | None,
        *,
        engine: str,
        export: str | None,
        fresh: bool,
        on_start: Callable[[Job, bool], None] | None = None,
    ) -> tuple[Job, JobSpec, ExportRequest | None]:
        """Find or create the job of a run; on a cluster, order its export."""
        spec = self._merged(source, params)
        request = export_request(export, engine)
        new = self._new_job(spec)
        await self._check_engine(engine)
        if fresh:
            job, is_new = await self.store.jobs.create(new), True
        else:
            job, is_new = await self.store.jobs.find_or_create(new)
        if on_start:
            on_start(job, is_new)
        if request and engine == "celery":
            await enqueue_export(self.store, job, request)
        return job, spec, request

    async def _unfinished(self, job: str | None, action: str = "resume") -> Job:
        if job is None:
            found = await self.store.jobs.list(limit=1, is_open=True)
            if not found:
                raise UnknownJob
            return found[0]
        named = await self.store.jobs.get(job)
        if named.state not in OPEN_STATES:
            raise NotResumable(named.id, named.state.value, action)
        return named

    async def _check_engine(self, engine: str) -> None:
        await check_engine(self._settings, self.store, self._clock, engine)

    def _job_run(
        self, job: Job, spec: JobSpec, http: SharedHttp | None = None, **hooks: Any
    ) -> JobRun:
        assert self._runtime is not None  # noqa: S101  # `store` has checked that it is open
        context = RunContext(
            self._settings, self._runtime, self._checkpoints, self._transport, http
        )
        return JobRun(context, job, spec, **hooks)

    async def _run_job(self, job: Job, spec: JobSpec, *, engine: str, **hooks: Any) -> JobReport:
        http = await self._shared_http() if engine == "local" else None
        run = self._job_run(job, spec, http, **hooks)
        self._runs.add(run)
        if self._is_interrupted:
            run.interrupt()
        try:
            return await (run.run_on_cluster() if engine == "celery" else run.run_here())
        finally:
            self._runs.discard(run)
            if not self._runs and not self._runs_many:
                # Not at the start: an interrupt before the run has started must stop it, too.
                self._is_interrupted = False


def _absolute(source: str) -> str:
    """Return a source whose file, if it is one, has an absolute path."""
    file, colon, name = source.partition(":")
    return f"{Path(file).resolve()}{colon}{name}" if Path(file).is_file() else source


# ---------------- Tables of jobs and records, for programs and notebooks


class Table(Sequence[T], Generic[T]):
    """Rows of one kind, and the columns that a notebook shows."""

    def __init__(self, rows: Iterable[T], columns: Columns[T]) -> None:
        self._rows = list(rows)
        self._columns = columns

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Table[T]: ...
    def __getitem__(self, index: int | slice) -> T | Table[T]:
        if isinstance(index, slice):
            return Table(self._rows[index], self._columns)
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        shown = "\n".join("  ".join(row) for row in self._table_cells())
        return f"{len(self)} rows\n{'  '.join(self._columns)}\n{shown}"

    def _repr_html_(self) -> str:
        more = len(self) - _MAX_ROWS
        below = f"<p>{more:,} more rows</p>" if more > 0 else ""
        return html_table(list(self._columns), self._table_cells()) + below

    def _table_cells(self) -> list[list[str]]:
        return [
            [_cell(read(row)) for read in self._columns.values()] for row in self._rows[:_MAX_ROWS]
        ]


JOB_COLUMNS: Columns[Job] = {
    "job": lambda job: job.id,
    "source": lambda job: job.source,
    "state": lambda job: job.state.value,
    "created": lambda job: f"{utc_datetime(job.created_at):%F %T}",
    "reason": lambda job: job.reason,
}


def record_columns(rows: Iterable[RecordRow]) -> Columns[RecordRow]:
    """Return the columns of these records: their key, and the first fields of their data."""
    names = dict.fromkeys(name for row in rows for name in row["data"])
    shown = list(names)[: _MAX_COLUMNS - 1]
    return {"key": lambda row: row["key"], **{name: _field(name) for name in shown}}


def _field(name: str) -> Callable[[RecordRow], Any]:
    return lambda row: row["data"].get(name)


def _cell(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _MAX_CELL else f"{text[: _MAX_CELL - 1]}…"
