"""The local engine: runs a job in this process, on one event loop, without messages.

Other processes may run the same job at the same time: leases keep them apart, and the one that
commits the last item ends the job. Each domain has a worker of its own, so a slow or parked site
never holds up another.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from longline.core.clock import sleep_or_wake
from longline.core.errors import DiscoveryFailed, LonglineError
from longline.core.model import OPEN_STATES, ItemState, Job, JobState, Lease
from longline.engine.discovery import IDLE_POLL
from longline.engine.extractor import Collector
from longline.engine.job_engine import JobEngine
from longline.engine.owner import dead_among, this_run
from longline.engine.pause_policy import GRACE, Pause, is_given_up, leave_open, pause_of
from longline.engine.runtime import HEARTBEAT, LEASE, RunOptions, Runtime, first_of
from longline.http.errors import RobotsDisallowed
from longline.storage.queue.completion import Completion
from longline.storage.queue.queue import Claim

_PARKED_POLL = 3.0  # seconds between two checks of a job whose items are all parked until later
_AHEAD = 4  # items leased for each task of a new worker
_WIDEST = 64  # domains with so many items at the same time
_RESERVED = 1024  # more leases for domains beyond that, one each: hanging ones hold up none


class LocalEngine:
    """Runs one job; one object a run. `on_item` is called when an item is finished."""

    def __init__(
        self,
        runtime: Runtime,
        collector: Collector,
        options: RunOptions,
        *,
        job: Job,
        on_item: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._heartbeat = runtime.heartbeat
        self._options = options
        self._job = job.id
        self._on_item = on_item
        self._owner = this_run()
        self._engine = JobEngine(
            runtime,
            collector,
            options,
            job=job,
            is_shared=False,
            listeners=[self._on_commit],
            on_beat=self._look_again,
        )
        self._started = self._clock.now()
        self._failure: LonglineError | None = None
        self._pause: Pause | None = None
        self._workers: set[asyncio.Task[None]] = set()
        self._discovering: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._is_dry = False  # the last lease found nothing, and nothing came since
        self._last_domain = ""
        self._group: asyncio.TaskGroup

    def stop(self, reason: str) -> None:
        """Begin nothing more; what is in flight has a few seconds to be finished and committed."""
        self._engine.stop(reason, grace=GRACE)
        self._wake.set()

    @property
    def closed_host(self) -> str | None:
        """The host whose robots.txt stopped discovery, if one did."""
        return self._failure.host if isinstance(self._failure, RobotsDisallowed) else None

    async def run(self, job: Job) -> JobState:
        """Run the job to its end, or until it is stopped; return the state it is left in.

        Raises:
            StoreError: the database does not take any more; all that was committed is safe.
        """
        del job  # it was given when this was made
        await self._heartbeat.reclaim([self._job])
        await self._engine.prepare()
        try:
            with tuned_memory(), self._engine.beating():
                async with asyncio.TaskGroup() as self._group:
                    await self._drive()
        except* LonglineError as several:
            raise first_of(several) from several
        if self._is_time_up():
            spent = self._clock.now() - self._started
            await is_given_up(
                self._store, self._job, self._clock.now(), self._options.seconds, spent
            )
        return await self._end()

    async def _drive(self) -> None:
        """Keep workers and discovery going until the job has ended, stops, or has to rest."""
        timer = None
        if self._engine.time_limit is not None:
            left = max(0.0, self._engine.time_limit.left(self._clock.now()))
            timer = asyncio.get_running_loop().call_later(left, self._wake.set)
        await self._discover_if_nobody_does()
        while not (self._engine.stop_reason or self._is_time_up()):
            self._wake.clear()
            await self._engine.look_at_drift()
            if not self._is_dry and await self._start_workers():
                continue
            if self._workers or self._discovering:
                await self._wake.wait()
            elif await self._is_over() or await self._has_to_pause():
                break
        if timer is not None:
            timer.cancel()

    def _is_time_up(self) -> bool:
        limit = self._engine.time_limit
        return limit is not None and limit.left(self._clock.now()) <= 0

    def _look_again(self) -> None:
        """Have the queue looked at: something was found, or others may have changed it."""
        self._is_dry = False
        self._engine.look_for_more()
        self._wake.set()

    # ------------------------------------------------------------ discovery

    async def _discover_if_nobody_does(self) -> None:
        if self._discovering is not None or self._failure is not None:
            return
        if (await self._store.jobs.get(self._job)).is_discovered:
            return
        self._discovering = self._group.create_task(self._discover())

    async def _discover(self) -> None:
        try:
            self._failure = await self._engine.discover(self._on_found, owner=self._owner)
        finally:
            self._discovering = None
            self._look_again()

    async def _on_found(self) -> None:
        self._look_again()

    # ------------------------------------------------------------ collection

    async def _start_workers(self) -> bool:
        """Lease items of domains that are not worked on, and start a worker for each."""
        leases = await self._lease(without=self._engine.active_domains)
        self._is_dry = True  # until something is found, a worker ends, or the heartbeat comes
        for domain, group in groupby(sorted(leases, key=_DOMAIN), key=_DOMAIN):
            self._last_domain = domain
            task = self._group.create_task(self._work(list(group)))
            self._workers.add(task)
            task.add_done_callback(self._workers.discard)
        if leases:
            await asyncio.sleep(0)  # so that the workers are known before the next lease
        return bool(leases)

    async def _lease(self, *, without: frozenset[str]) -> Sequence[Lease]:
        now = self._clock.now()
        count = full = _AHEAD * self._options.concurrency
        room = _WIDEST * full - self._engine.in_hand
        if room < full:
            count, room = 1, room + _RESERVED
        claim = Claim(
            self._job,
            self._owner,
            count,
            now,
            now + LEASE,
            without=without,
            last=self._last_domain,
            room=room,
        )
        return await self._store.queue.lease(claim)

    async def _work(self, leases: Sequence[Lease]) -> None:
        domain = leases[0].domain

        async def lease_more(_emptied: Sequence[str], wanted: int) -> Sequence[Lease]:
            if not wanted:
                return ()
            now = self._clock.now()
            # More than is needed now: a lease of many costs hardly more than one of few.
            count = max(wanted, (_AHEAD - 1) * self._options.concurrency)
            claim = Claim(self._job, self._owner, count, now, now + LEASE, only=domain)
            return await self._store.queue.lease(claim)

        try:
            await self._engine.work(leases, feed=lease_more)
        finally:
            self._look_again()

    def _on_commit(self, finish: Completion, state: ItemState | None) -> None:
        if finish.found:
            self._look_again()
        if state is ItemState.QUEUED:
            seconds = max(0.0, (finish.outcome.due or 0.0) - self._clock.now())
            if seconds < HEARTBEAT:  # a later one is found by the look with each heartbeat
                asyncio.get_running_loop().call_later(seconds, self._look_again)
        elif state is not None:
            self._on_item()

    # ------------------------------------------------------------ waiting and the end

    async def _is_over(self) -> bool:
        if await self._engine.finish() is not None:
            return True
        return (await self._store.jobs.get(self._job)).state not in OPEN_STATES

    async def _has_to_pause(self) -> bool:
        """Wait for parked items to fall due, for discovery, or for others; True: not worth it."""
        now = self._clock.now()
        status = await self._store.chunks.standing(self._job)
        finder = [status.finder] if status.finder else []
        if self._failure is None and status.lacks_finder(now, dead_among(finder)):
            await self._discover_if_nobody_does()
            return False
        self._pause = await pause_of(self._store, self._job, now, self._options)
        if self._pause is not None:
            return True
        due = await self._store.queue.next_due(self._job)
        if due is None:
            await self._heartbeat.reclaim([self._job])  # what is left is with others
            await self._nap(IDLE_POLL)
        else:
            await self._nap(min(max(due - now, 0.01), _PARKED_POLL))
        return False

    async def _nap(self, seconds: float) -> None:
        if not await sleep_or_wake(seconds, self._wake):
            self._is_dry = False  # others may have queued or released something

    async def _end(self) -> JobState:
        # The last commit may have come after the last look.
        if await self._engine.finish() is None:
            await self._engine.look_at_drift()
            await self._leave_open()
        return (await self._store.jobs.get(self._job)).state

    async def _leave_open(self) -> None:
        pause, stop_reason = self._pause, self._engine.stop_reason
        if self._failure is not None:
            is_fatal = isinstance(self._failure, DiscoveryFailed)
            pause = Pause(str(self._failure), is_fatal=is_fatal)
        elif pause is None and stop_reason is not None:
            pause = Pause(stop_reason)
        if pause is not None:
            now = self._clock.now()
            await leave_open(self._store, self._job, now, pause.reason, is_fatal=pause.is_fatal)


_DOMAIN = attrgetter("domain")

_COLLECT_AFTER = 20_000  # objects

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's, from malloc.h
_KEPT_BYTES = 16 * 1024 * 1024

_LARGE_BYTES = 4 * 1024 * 1024  # what is larger goes straight back to the system


@contextlib.contextmanager
def tuned_memory() -> Iterator[None]:
    """Collect garbage rarely, and keep freed memory at hand.

    Each item makes thousands of objects, nearly none of them in cycles; by default the collector
    walks through them after every 700, which cost a tenth of the throughput. The tree of a page is
    a quarter of a megabyte; by default the allocator gives it back to the system after each page
    and asks for it again before the next, which cost up to another tenth. What was there before
    the run, all modules above all, is not looked through meanwhile.
    """
    _keep_freed_memory()
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.collect(1)
        gc.unfreeze()
        gc.set_threshold(*before)


def _keep_freed_memory() -> None:
    if sys.platform != "linux":
        return
    # Only glibc has it; another C library does as it likes.
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
