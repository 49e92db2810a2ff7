"""The work of a child of a Celery worker: for each message, and for what else it has time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Self, TypeVar

from longline.config.settings import Settings
from longline.core.clock import Clock, SharedClock, sleep_or_wake
from longline.core.errors import LonglineError, StoreError, UnknownJob
from longline.core.model import JobState, Lease
from longline.distributed.app import Messages
from longline.distributed.open_jobs import OpenJob, OpenJobs
from longline.distributed.processes import ALIVE, Drain, Reports
from longline.distributed.proxy_tasks import CHECK_ONLY, ProxyTasks
from longline.distributed.registry import BrokerUnreachable
from longline.distributed.sweeper import publish
from longline.distributed.task_runner import TaskRunner
from longline.engine.owner import own_among, this_child
from longline.engine.runtime import LEASE, Runtime, first_error, in_background
from longline.monitoring.log_store import storing_logs
from longline.storage.queue.chunks import Chunk, ChunkClaim
from longline.storage.queue.queue import MOST_DEATHS, Reclaim
from longline.storage.queue.tasks import TaskKind
from longline.storage.store import Store, open_store
from longline.wiring import open_shared_http

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
NextClaim = Callable[[], Awaitable[ChunkClaim | None]]
"""Returns the claim for the next chunks; None when no more are wanted."""

_POLL = 0.2  # seconds between two checks for more work, and of the drain
_LONGEST_POLL = 2.0  # with a thousand processes, five polls per second would be a load
_GROWTH = 1.5
_FOR_IDLE = 0.4  # seconds that a new chunk is left to idle processes
_FOR_OTHERS = 60.0  # seconds that a suspect is left to processes that can lose nothing
_MAX_CONCURRENT = 16  # chunks, and as many discoveries, and ends of jobs
_PUBLISH_EVERY = 16  # claims
_LAST = 0.1  # of the time limit, in which no further chunk is begun


class ChunkFeed:
    """Completes chunks and claims others of the same job and domain, in one transaction.

    `next_claim` is called before more chunks are claimed; without it, none is. `on_claimed` is
    called for each chunk.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        chunk: Chunk,
        next_claim: NextClaim | None,
        on_claimed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._job = chunk.job
        self._domain = chunk.leases[0].domain
        self._next_claim = next_claim
        self._on_claimed = on_claimed
        self._chunks: dict[str, list[int]] = {}
        self._note(chunk)

    async def __call__(self, emptied: Sequence[str], wanted: int) -> Sequence[Lease]:
        done = [(chunk, owner) for owner in emptied for chunk in self._chunks.pop(owner, ())]
        claim = await self._next_claim() if wanted and self._next_claim is not None else None
        if claim is None:
            if done:
                await self._store.chunks.complete(done, self._clock.now())
            return ()
        count = -(-wanted // claim.size)
        several = await self._store.chunks.claim_next(
            self._job, self._domain, claim, count=count, done=done
        )
        for chunk in several:
            self._note(chunk)
        return [lease for chunk in several for lease in chunk.leases]

    def _note(self, chunk: Chunk) -> None:
        self._chunks.setdefault(chunk.owner, []).append(chunk.id)
        self._on_claimed()


class Multiplexer:
    """Runs the work of one child concurrently, of the `queues` that it serves, by their names.

    The work itself is `work`, `discover`, `finish` and what `tasks` runs.
    """

    def __init__(
        self,
        store: Store,
        jobs: OpenJobs,
        clock: Clock,
        settings: Settings,
        *,
        drain: Drain,
        reports: Reports,
        tasks: TaskRunner,
        queues: Collection[str],
        work: Callable[[Chunk, float], Coroutine[Any, Any, None]],
        discover: Callable[[str], Coroutine[Any, Any, None]],
        finish: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._settings = settings
        self._drain = drain
        self._reports = reports
        self._task_runner = tasks
        self._queues = queues
        self._work = work
        self._discover_job = discover
        self._finish = finish
        self._running: set[asyncio.Task[None]] = set()
        self._discovering: set[asyncio.Task[None]] = set()
        self._unlimited: set[asyncio.Task[None]] = set()  # of those running, without a time limit
        self._finishing: set[str] = set()  # jobs
        self._suspect: asyncio.Task[None] | None = None
        self._has_other_message = False  # the message is in work, and is not a discovery
        self._group: asyncio.TaskGroup

    @asynccontextmanager
    async def multiplexing(
        self, *, is_alone: bool = False, has_limit: bool = True, is_discovery: bool = False
    ) -> AsyncIterator[None]:
        """Begin more work while the block runs, and wait until all of it is done.

        With `is_alone` no other work is begun. With `has_limit` all of it ends in the time limit of
        a message, unless items wait for longer. `is_discovery` says that the block discovers, so
        that a suspect may run at the same time: another process continues a discovery.

        Raises:
            StoreError: the database cannot be written.
        """
        until = self._clock.now() + self._settings.soft_limit if has_limit else None
        is_enough = asyncio.Event()
        if is_alone:
            is_enough.set()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                watching = group.create_task(self._report_alive())
                polling = group.create_task(self._poll(until, is_enough))
                self._has_other_message = not is_discovery
                yield
                self._has_other_message = False
                await self._all_done()
                # Not cancelled: a chunk that it is claiming would have no owner.
                is_enough.set()
                await asyncio.wait([polling])
                await self._all_done()
                watching.cancel()
        except* LonglineError as several:
            raise first_error(several) from several

    def finish(self, job: str) -> None:
        """Finish a job in the background, since its source may take long.

        Only inside a block of `multiplexing`. Nothing happens while it is being finished here.
        """
        if job not in self._finishing:
            self._begin_finish(job, self._finish(job))

    def next_claim(self, jobs: Sequence[OpenJob], *, is_idle: bool = False) -> ChunkClaim:
        """Return a claim for chunks, apart from the busy domains of these jobs.

        An idle process claims any published chunk; others leave new ones to idle processes.
        """
        now = self._clock.now()
        busy = {(one.job.id, domain) for one in jobs for domain in one.engine.busy_domains()}
        return ChunkClaim(
            this_child(),
            now,
            now + LEASE,
            self._settings.chunk_size,
            before=now if is_idle else now - _FOR_IDLE,
            busy=frozenset(busy),
        )

    async def _all_done(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    async def _report_alive(self) -> None:
        """Report that this process is alive, and stop all work once the worker drains."""
        while True:
            self._reports.send(ALIVE)
            if self._drain.has_begun:
                for one in self._jobs.used():
                    one.engine.stop("the worker is shutting down")
            await asyncio.sleep(_POLL)

    async def _poll(self, until: float | None, is_enough: asyncio.Event) -> None:
        """Begin more work, and poll more rarely while there is none."""
        pause = _POLL
        while not (is_enough.is_set() or self._drain.has_begun):
            if await sleep_or_wake(pause, is_enough) or self._drain.has_begun:
                continue
            is_more = await self._begin_other_work(until)
            pause = _POLL if is_more else min(_GROWTH * pause, _LONGEST_POLL)

    async def _begin_other_work(self, until: float | None) -> bool:
        """Begin work that no other process has begun; nothing while a suspect runs."""
        is_more = False
        for queue, begin in (
            ("fetch", self._claim_chunk),
            ("fetch", self._discover_more),
            ("output", self._export_more),
        ):
            if queue in self._queues and not self._has_suspect():
                is_more |= await begin(self._seconds_left(until))
        if not self._has_suspect():
            await self._finish_more()
        return is_more

    def _has_suspect(self) -> bool:
        return self._suspect is not None and not self._suspect.done()

    def _seconds_left(self, until: float | None) -> float:
        """Return the time limit of work that is begun now; 0 or less when none is left."""
        is_in_overtime = any(one.engine.is_in_overtime for one in self._jobs.used())
        if until is None or self._unlimited or is_in_overtime:
            # The message continues in any case, and all other processes may be busy.
            return self._settings.soft_limit
        return until - self._clock.now()

    async def _claim_chunk(self, seconds: float) -> bool:
        if seconds <= 0 or len(self._running) - len(self._unlimited) >= _MAX_CONCURRENT:
            return False
        claim = self.next_claim(self._jobs.used())
        if not self._has_other_message and self._running == self._discovering:
            # Only discoveries run, which another process can continue if a suspect ends this one.
            # Otherwise a suspect would wait for as long as every process discovers.
            claim = replace(claim, suspects_before=claim.at - _FOR_OTHERS)
        chunk = await self._store.chunks.claim_any(claim)
        if chunk is None:
            return False
        task = self._begin(self._work(chunk, seconds))
        self._suspect = task if chunk.is_alone else None
        return True

    async def _discover_more(self, seconds: float) -> bool:
        """Discover for jobs that have just begun, without a time limit: leases are renewed."""
        if seconds <= 0:
            return False
        now = self._clock.now()
        found = await self._store.chunks.undiscovered_jobs(now, now - _FOR_IDLE)
        random.shuffle(found)  # other processes find the same ones
        for job in found[: _MAX_CONCURRENT - len(self._discovering)]:
            task = self._begin_unlimited(self._discover_job(job))
            self._discovering.add(task)
            task.add_done_callback(self._discovering.discard)
        return bool(found)

    async def _export_more(self, seconds: float) -> bool:
        """Run one export at a time, without a time limit."""
        if self._task_runner.is_exporting or seconds <= 0:
            return False
        task = await self._task_runner.claim(TaskKind.EXPORT, wait=_FOR_IDLE)
        if task is not None:
            self._begin_unlimited(self._task_runner.export(task))
        return task is not None

    async def _finish_more(self) -> None:
        """Finish jobs, and notify sources, where the responsible process died."""
        room = max(0, _MAX_CONCURRENT - len(self._finishing))
        for job in (await self._store.chunks.finished_jobs())[:room]:
            self.finish(job)
        if "process" in self._queues and len(self._finishing) < _MAX_CONCURRENT:
            task = await self._task_runner.claim(TaskKind.FINISHED, wait=_FOR_IDLE)
            if task is not None:
                self._begin_finish(task.job, self._task_runner.notify_source(task))

    def _begin_finish(self, job: str, work: Coroutine[Any, Any, None]) -> None:
        self._finishing.add(job)
        self._begin_unlimited(work).add_done_callback(lambda _: self._finishing.discard(job))

    def _begin_unlimited(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._begin(work)
        self._unlimited.add(task)
        task.add_done_callback(self._unlimited.discard)
        return task

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task


# ---------------- Release after an error, so that other processes do not wait for the expiry


async def release_after_error(store: Store, at: float, begun: Collection[int]) -> None:
    """Release all items, chunks and discoveries of this process.

    Items that were `begun`, by their ids, become suspects. A discovery becomes one if nothing else
    was in work: after the third time, its job is paused.

    Raises:
        StoreError: the database is unavailable; the leases expire.
    """
    held: dict[str, list[str]] = {}
    discoverers: dict[str, str | None] = {}
    for job in [one.id for one in await store.jobs.list(limit=None, is_open=True)]:
        if own := own_among(await store.chunks.owners(job)):
            held[job] = own
            with suppress(UnknownJob):  # it was deleted since
                discoverers[job] = (await store.chunks.status(job)).discoverer
    is_cause = all(owner == discoverers.get(job) for job, own in held.items() for owner in own)
    for job, own in held.items():
        owner = discoverers.get(job)
        if owner is not None and owner in own:
            times = await store.chunks.release_dead_discoverer(job, owner, at, is_cause=is_cause)
            if times >= MOST_DEATHS:
                reason = f"discovery failed {times} times with an error; see the log of the worker"
                await store.jobs.pause(job, at, reason)
        await store.queue.reclaim(Reclaim(job, at, (), own, dict.fromkeys(own, begun)))


async def release_of(store: Store, job: str, owners: Collection[str], at: float) -> None:
    """Release all that these owners hold of a job; nothing becomes a suspect.

    Raises:
        StoreError: the database is unavailable; the leases expire.
    """
    held = [owner for owner in await store.chunks.owners(job) if owner in owners]
    await store.queue.reclaim(Reclaim(job, at, dead=held))


class ChildWorker:
    """The store, the messages and the open jobs of one child; use `async with`.

    It serves `queues`. With `process` it finishes jobs itself; otherwise it sends a message. `name`
    is that of its worker, for log lines.
    """

    def __init__(
        self,
        settings: Settings,
        messages: Messages,
        drain: Drain,
        reports: Reports,
        *,
        queues: Collection[str],
        name: str | None = None,
    ) -> None:
        self._settings = settings
        self._name = name
        self._messages = messages
        self._drain = drain
        self._reports = reports
        self._clock = SharedClock()
        self._queues = queues
        self._closing = AsyncExitStack()
        self._store: Store
        self._jobs: OpenJobs
        self._tasks: TaskRunner
        self._multiplexer: Multiplexer

    async def __aenter__(self) -> Self:
        def is_stopping() -> bool:
            return self._drain.has_begun

        async with AsyncExitStack() as closing:
            self._store = store = closing.enter_context(
                open_store(self._settings.database, is_stopping=is_stopping)
            )
            closing.enter_context(
                storing_logs(store, self._settings, self._clock, worker=self._name)
            )
            await self._clock.follow(store)
            # While Redis is unavailable, requests wait: it has the rate limits.
            http = await closing.enter_async_context(
                open_shared_http(
                    self._settings, self._clock, store, max_wait=None, is_stopping=is_stopping
                )
            )
            runtime = await closing.enter_async_context(Runtime(store, self._clock, reclaims=False))
            self._jobs = OpenJobs(self._settings, runtime, http, self._reports)
            self._tasks = TaskRunner(
                store, self._jobs, self._clock, limit=self._settings.soft_limit
            )
            self._multiplexer = Multiplexer(
                store,
                self._jobs,
                self._clock,
                self._settings,
                drain=self._drain,
                reports=self._reports,
                tasks=self._tasks,
                queues=self._queues,
                work=self._work_on,
                discover=self._discover_job,
                finish=self._finish_or_send,
            )
            closing.push_async_callback(self._jobs.close_all)
            self._closing = closing.pop_all()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._closing.aclose()

    def following_clock(self) -> AbstractAsyncContextManager[None]:
        """Return a block in which the clock follows that of the database."""
        return in_background(self._clock.keep_following(self._store))

    async def close_unused(self) -> None:
        """Close jobs that were not used for long, and set the clock."""
        await self._jobs.close_unused()
        await self._clock.follow(self._store)

    async def release_after_error(self) -> None:
        """Release all that this process holds, after an error that ended its work."""
        await release_after_error(self._store, self._clock.now(), self._reports.begun_last())

    # ------------------------------------------------------------ one message each

    async def collect(self, chunk: int) -> None:
        """Work on a chunk, or on any other if it is claimed, and then on more."""
        claim = self._multiplexer.next_claim([], is_idle=True)
        claimed = await self._store.chunks.claim(chunk, claim)
        claimed = claimed or await self._store.chunks.claim_any(claim)
        if claimed is not None:
            async with self._multiplexer.multiplexing(is_alone=claimed.is_alone):
                await self._work_on(claimed, self._settings.soft_limit)

    async def discover(self, job: str) -> None:
        """Find the items of a job, unless it has ended or another process does."""
        async with self._multiplexer.multiplexing(has_limit=False, is_discovery=True):
            await self._discover_job(job)

    async def finish(self, job: str) -> None:
        """Finish a job whose items are all finished; one process notifies the source."""
        async with self._multiplexer.multiplexing(has_limit=False):
            await self._finish(job)

    async def export(self, name: str) -> None:
        """Run the export task of this name, and then any other."""
        async with self._multiplexer.multiplexing(has_limit=False):
            while not self._drain.has_begun:
                task = await self._tasks.claim(TaskKind.EXPORT, first=name)
                if task is None:
                    return
                await self._tasks.export(task)

    async def check_proxies(self, name: str) -> None:
        """Check the candidates for proxies of the task of this name, and then of any other."""
        tasks = ProxyTasks(self._store, self._clock, self._settings)
        async with self._multiplexer.multiplexing(has_limit=False):
            while not self._drain.has_begun:
                if not await tasks.run_next(steps=CHECK_ONLY, first=name):
                    return

    # ------------------------------------------------------------ steps

    async def _finish(self, job: str) -> None:
        try:
            if await self._store.jobs.is_over(job):
                await self._finish_here(job)
            if task := await self._tasks.claim(
                TaskKind.FINISHED, is_wanted=lambda task: task.job == job
            ):
                await self._tasks.notify_source(task)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # one job must not end the work on others
            await self._halt(job, error)

    async def _finish_here(self, job: str) -> None:
        row = await self._store.jobs.get(job)
        async with self._jobs.using(job, row.runs) as opened:
            state = await opened.engine.finish()
            if state is not None and opened.fetching.budgets:
                await opened.fetching.budgets.forget()
        await self._jobs.close(job)
        for task in await self._store.tasks.ready(self._clock.now()):
            if task.job == job and task.kind is TaskKind.EXPORT:
                await self._send_or_log(self._messages.export(task.name))

    async def _discover_job(self, job: str) -> None:
        async def on_found() -> None:
            await self._publish(job)

        with suppress(UnknownJob):  # it was deleted
            row = await self._store.jobs.get(job)
            if row.state is not JobState.RUNNING:
                return
            async with AsyncExitStack() as closing:
                try:
                    opened = await closing.enter_async_context(self._jobs.using(job, row.runs))
                except StoreError:
                    raise
                except Exception as error:  # noqa: BLE001  # whatever a source's own code raises
                    await self._halt(job, error)
                    return
                await opened.engine.discover(on_found, owner=this_child())
                await self._publish_or_finish(job)

    async def _work_on(self, chunk: Chunk, seconds: float) -> None:
        """Work on a chunk, and then on others of its job while there is time.

        When the job cannot be opened here, or its code raises, all is released.
        """
        until = self._clock.now() + seconds
        owners = {chunk.owner}
        self._reports.items_claimed({lease.id for lease in chunk.leases})
        try:
            async with self._jobs.using(chunk.job, chunk.run) as opened:
                next_claim = self._limited_claims(chunk.job, until, owners)
                # A suspect is worked on alone: it may end the process.
                feed = ChunkFeed(
                    self._store,
                    self._clock,
                    chunk,
                    None if chunk.is_alone else next_claim,
                    self._reports.chunk_claimed,
                )
                seconds = until - self._clock.now()
                await opened.engine.work(chunk.leases, feed=feed, seconds=seconds)
                await self._publish_or_finish(chunk.job)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # one job must not end the work on others
            await self._store.queue.release(chunk.leases)
            await release_of(self._store, chunk.job, owners, self._clock.now())
            await self._halt(chunk.job, error)

    def _limited_claims(self, job: str, until: float, owners: set[str]) -> NextClaim:
        """Return claims until the time is nearly up; their owner names are added to `owners`."""
        count = 0

        async def next_claim() -> ChunkClaim | None:
            nonlocal count
            count += 1
            if count % _PUBLISH_EVERY == 0:
                await self._publish(job)
            left = until - self._clock.now()
            if self._drain.has_begun or left < _LAST * self._settings.soft_limit:
                return None
            claim = self._multiplexer.next_claim([])
            owners.add(claim.owner)
            return claim

        return next_claim

    async def _halt(self, job: str, error: Exception) -> None:
        problem = str(error) if isinstance(error, LonglineError) else repr(error)
        _LOG.warning("%s cannot run on this worker: %s", job, problem)
        reason = f"a worker could not run the job: {problem}"
        await self._store.jobs.pause(job, self._clock.now(), reason)

    async def _publish_or_finish(self, job: str) -> None:
        """Publish the remaining items of a job, or finish it."""
        if not await self._publish(job) and await self._store.jobs.is_over(job):
            self._multiplexer.finish(job)

    async def _finish_or_send(self, job: str) -> None:
        if "process" in self._queues:
            await self._finish(job)
        else:
            await self._send_or_log(self._messages.finish(job))

    async def _publish(self, job: str) -> int:
        size = self._settings.chunk_size
        return (
            await self._send_or_log(publish(self._store, self._messages, job, self._clock, size))
            or 0
        )

    async def _send_or_log(self, message: Awaitable[T]) -> T | None:
        """Send a message; if that fails, a sweeper sends it later."""
        try:
            return await message
        except BrokerUnreachable as error:
            _LOG.warning(str(error))
            return None
