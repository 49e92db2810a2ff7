"""What a child of a Celery worker does for each message, and for what else it has time."""

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
from longline.core.model import Job, JobState, Lease
from longline.distributed.app import Messages
from longline.distributed.open_jobs import Opened, OpenJobs
from longline.distributed.processes import ALIVE, Drain, Reports
from longline.distributed.registry import BrokerUnreachable
from longline.distributed.sweeper import offer
from longline.distributed.task_runner import TaskRunner
from longline.engine.owner import own_among, this_child
from longline.engine.runtime import LEASE, Runtime, first_error, in_background
from longline.storage.queue.chunks import Chunk, ChunkClaim
from longline.storage.queue.queue import MOST_DEATHS, Reclaim
from longline.storage.queue.tasks import TaskKind
from longline.storage.store import Store, open_store
from longline.wiring import open_shared_http

# ---------------- Chunks as a feed of leases

NextClaim = Callable[[], Awaitable[ChunkClaim | None]]
"""Returns the claim for the next chunks; None when no more are wanted."""


class ChunkFeed:
    """Completes chunks and claims others of the same job and domain, in one transaction.

    `next_claim` is asked before more chunks are claimed; without it, none is. `on_claimed` is
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


_LOOK = 0.2  # seconds between looks at whether there is more to do, or the end has come
_RAREST_LOOK = 2.0  # a thousand processes that look five times a second would be a load
_GROWTH = 1.5
_FOR_THE_IDLE = 0.4  # seconds that a chunk is left to those who have nothing to do
_FOR_OTHERS = 60.0  # seconds that a suspect is left to those who have nothing to lose by it
_MOST = 16  # chunks at a time, and as many discoveries, and ends of jobs


class Multiplexer:
    """What one child works on at the same time, of the `queues` that it serves, by their names.

    The work itself is `work`, `discover`, `end` and what the `carrier` does.
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
        carrier: TaskRunner,
        queues: Collection[str],
        work: Callable[[Chunk, float], Coroutine[Any, Any, None]],
        discover: Callable[[str], Coroutine[Any, Any, None]],
        end: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._settings = settings
        self._drain = drain
        self._reports = reports
        self._carrier = carrier
        self._queues = queues
        self._work = work
        self._discover = discover
        self._end = end
        self._tasks: set[asyncio.Task[None]] = set()
        self._finders: set[asyncio.Task[None]] = set()
        self._unlimited: set[asyncio.Task[None]] = set()  # of the tasks, those that may take long
        self._ending: set[str] = set()  # jobs that are being ended, or whose source is told
        self._suspect: asyncio.Task[None] | None = None
        self._has_other_message = False  # what was asked for goes on, and does not discover
        self._group: asyncio.TaskGroup

    @asynccontextmanager
    async def beside(
        self, *, is_alone: bool = False, has_limit: bool = True, is_finding: bool = False
    ) -> AsyncIterator[None]:
        """Work on more beside what is done in the block, and on until that is done.

        With `is_alone` nothing else is done. With `has_limit` all of it ends in the time that a
        message may take, if no item waits for longer: what is begun late has what is left of it.
        `is_finding`: the block discovers, which costs nothing if a suspect beside it ends the
        process.

        Raises:
            StoreError: the database does not take any more.
        """
        until = self._clock.now() + self._settings.soft_limit if has_limit else None
        is_enough = asyncio.Event()
        if is_alone:
            is_enough.set()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                watching = group.create_task(self._watch())
                looking = group.create_task(self._look(until, is_enough))
                self._has_other_message = not is_finding
                yield
                self._has_other_message = False
                await self._all_done()
                # Not cancelled: what it takes at this moment would be in nobody's hands.
                is_enough.set()
                await asyncio.wait([looking])
                await self._all_done()
                watching.cancel()
        except* LonglineError as several:
            raise first_error(several) from several

    def end(self, job: str) -> None:
        """Have a job ended beside all else: its source may take long to be told.

        Only inside a block of `beside`, which goes on until that is done, too. Nothing happens
        while it is being ended here.
        """
        if job not in self._ending:
            self._begin_end(job, self._end(job))

    async def _all_done(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _watch(self) -> None:
        """Give signs of life, and have all work end soon and well once the worker is to end."""
        while True:
            self._reports.tell(ALIVE)
            if self._drain.has_begun:
                for one in self._jobs.used():
                    one.engine.stop("the worker is to end")
            await asyncio.sleep(_LOOK)

    async def _look(self, until: float | None, is_enough: asyncio.Event) -> None:
        """Look for more to do, ever more rarely while there is none, until it is enough."""
        pause = _LOOK
        while not (is_enough.is_set() or self._drain.has_begun):
            if await sleep_or_wake(pause, is_enough) or self._drain.has_begun:
                continue
            is_more = await self._take_on(until)
            pause = _LOOK if is_more else min(_GROWTH * pause, _RAREST_LOOK)

    async def _take_on(self, until: float | None) -> bool:
        """Begin what nobody else has come for; beside a suspect, nothing."""
        is_more = False
        for queue, begin in (
            ("fetch", self._take_more),
            ("fetch", self._find_more),
            ("output", self._write_more),
        ):
            if queue in self._queues and not self._has_suspect():
                is_more |= await begin(self._seconds_left(until))
        if not self._has_suspect():
            await self._end_more()
        return is_more

    def _seconds_left(self, until: float | None) -> float:
        """Return how long what is begun now may take; none is left if not positive."""
        is_in_overtime = any(one.engine.is_in_overtime for one in self._jobs.used())
        if until is None or self._unlimited or is_in_overtime:
            # The message goes on in any case, and everybody else may be busy.
            return self._settings.soft_limit
        return until - self._clock.now()

    def _has_only_finders(self) -> bool:
        """Say whether all that is done here is discovery.

        Only that may have a suspect beside it, which may end the process: the next one goes on with
        discovery, whereas all else would be begun anew, or blamed.
        """
        return not self._has_other_message and self._tasks == self._finders

    def _has_suspect(self) -> bool:
        return self._suspect is not None and not self._suspect.done()

    async def _take_more(self, seconds: float) -> bool:
        if seconds <= 0 or len(self._tasks) - len(self._unlimited) >= _MOST:
            return False
        wish = self.wish(self._jobs.used())
        if self._has_only_finders():
            # Otherwise a suspect would wait for as long as everybody discovers.
            wish = replace(wish, suspects_before=wish.at - _FOR_OTHERS)
        taken = await self._store.chunks.claim_any(wish)
        if taken is None:
            return False
        task = self._begin(self._work(taken, seconds))
        self._suspect = task if taken.is_alone else None
        return True

    def wish(self, jobs: Sequence[Opened], *, is_idle: bool = False) -> ChunkClaim:
        """Return the wish for more chunks, beside what is done for these jobs.

        One who `is_idle` may take at once what is offered; others leave it to those for a moment.
        """
        now = self._clock.now()
        busy = {(one.job.id, domain) for one in jobs for domain in one.engine.busy_domains()}
        return ChunkClaim(
            this_child(),
            now,
            now + LEASE,
            self._settings.chunk_size,
            before=now if is_idle else now - _FOR_THE_IDLE,
            busy=frozenset(busy),
        )

    async def _find_more(self, seconds: float) -> bool:
        """Discover for jobs that have just begun; without a limit of time, as discovery has none.

        Whoever has one does so too: nobody knows how long it takes, and its leases are kept.
        """
        if seconds <= 0:
            return False
        now = self._clock.now()
        found = await self._store.chunks.undiscovered_jobs(now, now - _FOR_THE_IDLE)
        random.shuffle(found)  # others see the same ones at this moment
        for job in found[: _MOST - len(self._finders)]:
            finder = self._begin_unlimited(self._discover(job))
            self._finders.add(finder)
            finder.add_done_callback(self._finders.discard)
        return bool(found)

    async def _write_more(self, seconds: float) -> bool:
        """Write the records of a job, one job's at a time; without a limit of time, as above."""
        if self._carrier.is_writing or seconds <= 0:
            return False
        order = await self._carrier.take(TaskKind.EXPORT, wait=_FOR_THE_IDLE)
        if order is not None:
            self._begin_unlimited(self._carrier.export(order))
        return order is not None

    async def _end_more(self) -> None:
        """End jobs that are over, but whose last item was finished by nobody who could.

        Sources of jobs that were ended by somebody who was killed then are told.
        """
        for job in (await self._store.chunks.finished_jobs())[: max(0, _MOST - len(self._ending))]:
            self.end(job)
        if "process" in self._queues and len(self._ending) < _MOST:
            order = await self._carrier.take(TaskKind.FINISHED, wait=_FOR_THE_IDLE)
            if order is not None:
                self._begin_end(order.job, self._carrier.tell_source(order))

    def _begin_end(self, job: str, work: Coroutine[Any, Any, None]) -> None:
        self._ending.add(job)
        self._begin_unlimited(work).add_done_callback(lambda _: self._ending.discard(job))

    def _begin_unlimited(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._begin(work)
        self._unlimited.add(task)
        task.add_done_callback(self._unlimited.discard)
        return task

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


# ---------------- What a child holds when an error ends its work: given back at once, for others


async def release_after_error(store: Store, at: float, begun: Collection[int]) -> None:
    """Give back all items, chunks and discoveries that this process holds.

    Of the items, those that were `begun`, by their ids, become suspects. A discovery is one if no
    item was in hand beside it: after the third time, its job is paused.

    Raises:
        StoreError: the database does not answer; what is held expires.
    """
    running = [job.id for job in await store.jobs.list(limit=None, is_open=True)]
    owned = {job: own_among(await store.chunks.owners(job)) for job in running}
    held = {job: own for job, own in owned.items() if own}
    finders = {job: await _finder(store, job) for job in held}
    is_of_finding = all(owner == finders[job] for job, own in held.items() for owner in own)
    for job, own in held.items():
        finder = finders[job]
        if finder in own:
            await _leave_discovery(store, job, finder, at, is_cause=is_of_finding)
        await store.queue.reclaim(_all_of(job, own, at, begun))


async def release_of(store: Store, job: str, owners: Collection[str], at: float) -> None:
    """Give back what these owners hold of a job; nothing of it becomes a suspect.

    Raises:
        StoreError: the database does not answer; what is held expires.
    """
    held = [owner for owner in await store.chunks.owners(job) if owner in owners]
    await store.queue.reclaim(Reclaim(job, at, dead=held))


async def _finder(store: Store, job: str) -> str | None:
    try:
        return (await store.chunks.status(job)).discoverer
    except UnknownJob:  # it is gone since, and all that was held of it
        return None


def _all_of(job: str, owners: Sequence[str], at: float, begun: Collection[int]) -> Reclaim:
    return Reclaim(job, at, killed=owners, in_flight=dict.fromkeys(owners, begun))


async def _leave_discovery(
    store: Store, job: str, finder: str, at: float, *, is_cause: bool
) -> None:
    times = await store.chunks.release_dead_discoverer(job, finder, at, is_cause=is_cause)
    if times >= MOST_DEATHS:
        reason = f"discovery broke off {times} times by an error: the worker's log shows it"
        await store.jobs.halt(job, at, reason)


# ---------------- What a child does for each kind of message, on its one loop

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
_TURNS = 16  # chunks after which more are offered: so many fewer are open then
_LAST = 0.1  # of the time that a message may take, for the last chunk that is begun


class ChildWorker:
    """The store, the messages and the open jobs of one child; use `async with`.

    Of `queues`, it serves those. With `process` it ends jobs itself; otherwise workers that serve
    this queue are told.
    """

    def __init__(
        self,
        settings: Settings,
        messages: Messages,
        drain: Drain,
        reports: Reports,
        *,
        queues: Collection[str],
    ) -> None:
        self._settings = settings
        self._messages = messages
        self._drain = drain
        self._reports = reports
        self._clock = SharedClock()
        self._queues = queues
        self._ends = AsyncExitStack()
        self._store: Store
        self._jobs: OpenJobs
        self._carrier: TaskRunner
        self._crew: Multiplexer

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as ends:
            self._store = ends.enter_context(
                open_store(self._settings.database, is_stopping=self._is_to_end)
            )
            await self._clock.follow(self._store)
            # For as long as Redis is away, requests wait: without it nobody knows the pace.
            http = await ends.enter_async_context(
                open_shared_http(
                    self._settings,
                    self._clock,
                    self._store,
                    max_wait=None,
                    is_stopping=self._is_to_end,
                )
            )
            runtime = await ends.enter_async_context(
                Runtime(self._store, self._clock, reclaims=False)
            )
            self._jobs = OpenJobs(
                self._settings,
                runtime,
                http,
                self._reports,
            )
            self._carrier = TaskRunner(
                self._store,
                self._jobs,
                self._clock,
                limit=self._settings.soft_limit,
            )
            self._crew = Multiplexer(
                self._store,
                self._jobs,
                self._clock,
                self._settings,
                drain=self._drain,
                reports=self._reports,
                carrier=self._carrier,
                queues=self._queues,
                work=self._work_on,
                discover=self._discover,
                end=self._wind_up,
            )
            ends.push_async_callback(self._jobs.close_all)
            self._ends = ends.pop_all()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._ends.aclose()

    def keeping_time(self) -> AbstractAsyncContextManager[None]:
        """Return a block in which the clock is set from time to time."""
        return in_background(self._clock.keep_following(self._store))

    def _is_to_end(self) -> bool:
        return self._drain.has_begun

    async def tidy(self) -> None:
        """Let go of what nobody has needed for long, and set the clock."""
        await self._jobs.tidy()
        await self._clock.follow(self._store)

    async def release_after_error(self) -> None:
        """Let others have all that is in hand here, after an error that ended the work on it."""
        await release_after_error(self._store, self._clock.now(), self._reports.begun_last())

    # ------------------------------------------------------------ one message each

    async def collect(self, chunk: int) -> None:
        """Take a chunk and work on it, or on any other if somebody has; then on what is left."""
        now = self._clock.now()
        claim = ChunkClaim(this_child(), now, now + LEASE, self._settings.chunk_size)
        taken = await self._store.chunks.claim(chunk, claim)
        taken = taken or await self._store.chunks.claim_any(self._crew.wish([], is_idle=True))
        if taken is not None:
            async with self._crew.beside(is_alone=taken.is_alone):
                await self._work_on(taken, self._settings.soft_limit)

    async def discover(self, job: str) -> None:
        """Find the items of a job, unless it has ended or somebody is at it."""
        async with self._crew.beside(has_limit=False, is_finding=True):
            await self._discover(job)

    async def finish(self, job: str) -> None:
        """End a job whose items are all finished; of many who try, one tells the source."""
        async with self._crew.beside(has_limit=False):
            await self._finish(job)

    async def _finish(self, job: str) -> None:
        try:
            if await self._store.jobs.is_over(job):
                await self._end(job)
            if order := await self._carrier.take(TaskKind.FINISHED, job=job):
                await self._carrier.tell_source(order)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # one job's end must not end the others' work
            await self._halt(job, error)

    async def _end(self, job: str) -> None:
        async with self._opened(await self._store.jobs.get(job)) as opened:
            if opened is None:
                return
            state = await opened.engine.finish()
            if state is not None and opened.fetching.budgets:
                await opened.fetching.budgets.forget()
        await self._jobs.close(job)
        ready = await self._store.tasks.ready(self._clock.now())
        for order in ready:
            if order.job == job and order.kind is TaskKind.EXPORT:
                await self._tell(self._messages.export(order.name))

    async def export(self, order: str) -> None:
        """Write what an order asks for, or what any other does that nobody is at."""
        async with self._crew.beside(has_limit=False):
            while not self._drain.has_begun:
                taken = await self._carrier.take(TaskKind.EXPORT, first=order)
                if taken is None:
                    return
                await self._carrier.export(taken)

    # ------------------------------------------------------------ steps

    async def _discover(self, job: str) -> None:
        """Find the items of a job; of one that is gone, none: others are worked on beside it."""
        with suppress(UnknownJob):
            await self._find_items(job)

    async def _find_items(self, job: str) -> None:
        row = await self._store.jobs.get(job)
        if row.state is not JobState.RUNNING:
            return

        async def on_found() -> None:
            await self._offer(job)

        async with self._opened(row) as opened:
            if opened is not None:
                await opened.engine.discover(on_found, owner=this_child())
                await self._go_on(job)

    async def _work_on(self, taken: Chunk, seconds: float) -> None:
        """Work on a chunk, and then on others of its job for as long as there is time.

        When the job cannot be opened here, or its code breaks the work off, all is handed back.
        """
        until = self._clock.now() + seconds
        owners = {taken.owner}
        self._reports.items_taken({lease.id for lease in taken.leases})
        try:
            async with self._jobs.using(taken.job, taken.run) as opened:
                await self._work_off(opened, taken, until, owners)
                await self._go_on(taken.job)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  # one job's code must not end the others' work
            await self._store.queue.release(taken.leases)
            await release_of(self._store, taken.job, owners, self._clock.now())
            await self._halt(taken.job, error)

    async def _work_off(self, opened: Opened, taken: Chunk, until: float, owners: set[str]) -> None:
        """Work on chunks of a job; the names that others than the first are under are added."""
        turns = 0

        async def more() -> ChunkClaim | None:
            nonlocal turns
            turns += 1
            if turns % _TURNS == 0:
                await self._offer(opened.job.id)
            left = until - self._clock.now()
            if self._drain.has_begun or left < _LAST * self._settings.soft_limit:
                return None
            wish = self._crew.wish([])
            owners.add(wish.owner)
            return wish

        # A suspect is worked on alone: it may end the process.
        feed = ChunkFeed(
            self._store,
            self._clock,
            taken,
            None if taken.is_alone else more,
            self._reports.chunk_taken,
        )
        seconds = until - self._clock.now()
        await opened.engine.work(taken.leases, feed=feed, seconds=seconds)

    @asynccontextmanager
    async def _opened(self, job: Job) -> AsyncIterator[Opened | None]:
        """Give a job to work on; None, and it is halted, when it cannot be opened here."""
        async with AsyncExitStack() as ends:
            opened: Opened | None = None
            try:
                opened = await ends.enter_async_context(self._jobs.using(job.id, job.runs))
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever a source's own code raises
                await self._halt(job.id, error)
            yield opened

    async def _halt(self, job: str, error: Exception) -> None:
        problem = str(error) if isinstance(error, LonglineError) else repr(error)
        _LOG.warning("%s cannot run on this worker: %s", job, problem)
        reason = f"a worker could not work on it: {problem}"
        await self._store.jobs.halt(job, self._clock.now(), reason)

    async def _go_on(self, job: str) -> None:
        """Have what is left of a job done by whoever is free, or the job ended."""
        if not await self._offer(job) and await self._store.jobs.is_over(job):
            self._crew.end(job)

    async def _wind_up(self, job: str) -> None:
        """Have a job ended that is over."""
        if "process" in self._queues:
            await self._finish(job)
        else:
            await self._tell(self._messages.finish(job))

    async def _offer(self, job: str) -> int:
        size = self._settings.chunk_size
        return await self._tell(offer(self._store, self._messages, job, self._clock, size)) or 0

    async def _tell(self, sending: Awaitable[T]) -> T | None:
        """Send a message; when nobody can be told, a sweeper will tell them later."""
        try:
            return await sending
        except BrokerUnreachable as error:
            _LOG.warning(str(error))
            return None
