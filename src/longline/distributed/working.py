"""What a child does for each kind of message, on its one loop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Self, TypeVar

from longline.config.settings import Settings
from longline.core.errors import LonglineError, StoreError
from longline.core.model import Job, JobState
from longline.distributed.app import Messages
from longline.distributed.celery_process import Drain
from longline.distributed.chunk_feed import run_chunk
from longline.distributed.clock import SharedClock
from longline.distributed.crew import Crew
from longline.distributed.errors import BrokerUnreachable
from longline.distributed.open_jobs import Opened, OpenJobs
from longline.distributed.release import give_back, hand_back
from longline.distributed.reports import Reports
from longline.distributed.sweeper import offer
from longline.distributed.task_runner import TaskRunner
from longline.engine.heartbeat import LEASE
from longline.engine.owner import this_child
from longline.engine.runtime import Runtime
from longline.storage.errors import UnknownJob
from longline.storage.queue.chunks import Take, TakeMore, Taken
from longline.storage.queue.tasks import TaskKind
from longline.storage.store import Store, open_store
from longline.wiring import open_shared_http

_LOG = logging.getLogger(__name__)

T = TypeVar("T")
_TURNS = 16  # chunks after which more are offered: so many fewer are open then
_LAST = 0.1  # of the time that a message may take, for the last chunk that is begun


class Working:
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
        self._crew: Crew

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
            self._crew = Crew(
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
        return self._clock.following(self._store)

    def _is_to_end(self) -> bool:
        return self._drain.has_begun

    async def tidy(self) -> None:
        """Let go of what nobody has needed for long, and set the clock."""
        await self._jobs.tidy()
        await self._clock.follow(self._store)

    async def give_back(self) -> None:
        """Let others have all that is in hand here, after an error that ended the work on it."""
        await give_back(self._store, self._clock.now(), self._reports.begun_last())

    # ------------------------------------------------------------ one message each

    async def collect(self, chunk: int) -> None:
        """Take a chunk and work on it, or on any other if somebody has; then on what is left."""
        now = self._clock.now()
        wish = Take(chunk, this_child(), now, now + LEASE, self._settings.chunk_size)
        taken = await self._store.chunks.take(wish)
        taken = taken or await self._store.chunks.take_more(self._crew.wish([], is_idle=True))
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

    async def _work_on(self, taken: Taken, seconds: float) -> None:
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
            await hand_back(self._store, taken.job, owners, self._clock.now())
            await self._halt(taken.job, error)

    async def _work_off(self, opened: Opened, taken: Taken, until: float, owners: set[str]) -> None:
        """Work on chunks of a job; the names that others than the first are under are added."""
        turns = 0

        async def more() -> TakeMore | None:
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

        seconds = until - self._clock.now()
        # A suspect is worked on alone: what is in hand beside it would die with it.
        another = None if taken.is_alone else more
        await run_chunk(
            opened.engine,
            taken,
            store=self._store,
            clock=self._clock,
            seconds=seconds,
            more=another,
            on_taken=self._reports.chunk_taken,
        )

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
