"""Several pieces of work at once in one child, so that a slow site holds up no other.

A child is given one message at a time. While what that asked for waits (for a pace, for a slow
answer), it takes on what nobody else has come for, of the queues that it serves: chunks, each of a
site that it is not busy with, the discovery of jobs that have just begun, the ends of jobs, and
orders.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from longline.config.settings import Settings
from longline.core.clock import Clock, sleep_or_wake
from longline.core.errors import LonglineError
from longline.distributed.celery_process import Drain
from longline.distributed.open_jobs import Opened, OpenJobs
from longline.distributed.reports import ALIVE, Reports
from longline.distributed.task_runner import TaskRunner
from longline.engine.committer import first_of
from longline.engine.heartbeat import LEASE
from longline.engine.owner import this_child
from longline.storage.queue.chunks import TakeMore, Taken
from longline.storage.queue.tasks import TaskKind
from longline.storage.store import Store

_LOOK = 0.2  # seconds between looks at whether there is more to do, or the end has come
_RAREST_LOOK = 2.0  # a thousand processes that look five times a second would be a load
_GROWTH = 1.5
_FOR_THE_IDLE = 0.4  # seconds that a chunk is left to those who have nothing to do
_FOR_OTHERS = 60.0  # seconds that a suspect is left to those who have nothing to lose by it
_MOST = 16  # chunks at a time, and as many discoveries, and ends of jobs


class Crew:
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
        work: Callable[[Taken, float], Coroutine[Any, Any, None]],
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
            raise first_of(several) from several

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
        taken = await self._store.chunks.take_more(wish)
        if taken is None:
            return False
        task = self._begin(self._work(taken, seconds))
        self._suspect = task if taken.is_alone else None
        return True

    def wish(self, jobs: Sequence[Opened], *, is_idle: bool = False) -> TakeMore:
        """Return the wish for more chunks, beside what is done for these jobs.

        One who `is_idle` may take at once what is offered; others leave it to those for a moment.
        """
        now = self._clock.now()
        busy = {(one.job.id, domain) for one in jobs for domain in one.engine.busy_domains()}
        return TakeMore(
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
        found = await self._store.chunks.without_finder(now, now - _FOR_THE_IDLE)
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
        for job in (await self._store.chunks.over())[: max(0, _MOST - len(self._ending))]:
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
