"""The local engine: runs a job in this process, on one event loop, without messages.

Other processes may run the same job at the same time: leases separate them, and the one that
commits the last item ends the job. Each domain has its own worker, so a slow or deferred site never
delays another.
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
from longline.core.model import OPEN_STATES, ItemState, Job, JobState, Lease, Outcome
from longline.engine.collector import Collector
from longline.engine.discovery import IDLE_POLL
from longline.engine.job_engine import JobEngine
from longline.engine.owner import dead_among, this_run
from longline.engine.pause_policy import GRACE, Pause, leave_open, pause_of, skip_at_time_limit
from longline.engine.runtime import HEARTBEAT, LEASE, RunOptions, Runtime, first_error
from longline.http.errors import RobotsDisallowed
from longline.storage.queue.queue import Claim

_DEFERRED_POLL = 3.0  # seconds between two checks of a job whose items are all deferred
_PREFETCH = 2  # items leased for each task of a new worker
_WIDEST = 64  # domains with that many items at the same time
_GROWTH = 512  # more leases, with which further domains grow beyond their first item
_RESERVED = 512  # and more for the first item of yet other domains: hanging ones block none


class LocalEngine:
    """Runs one job; one object per run. `on_item` is called when an item is finished."""

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
            listeners=[self._after_commit],
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
        self._most_to_grow = _WIDEST * _PREFETCH * options.concurrency + _GROWTH
        self._requested = 0  # leases that workers are waiting for
        self._group: asyncio.TaskGroup

    def stop(self, reason: str) -> None:
        """Begin nothing more; items in flight have a few seconds to be finished and committed."""
        self._engine.stop(reason, grace=GRACE)
        self._wake.set()

    @property
    def closed_host(self) -> str | None:
        """The host whose robots.txt stopped discovery, if one did."""
        return self._failure.host if isinstance(self._failure, RobotsDisallowed) else None

    async def run(self, _job: Job) -> JobState:
        """Run the job to its end, or until it is stopped; return the state it is left in.

        Raises:
            StoreError: the database cannot be written; all that was committed is safe.
        """
        await self._heartbeat.reclaim([self._job])
        await self._engine.prepare()
        try:
            with tuned_memory(), self._engine.beating():
                async with asyncio.TaskGroup() as self._group:
                    await self._drive()
        except* LonglineError as several:
            raise first_error(several) from several
        now, limit = self._clock.now(), self._options.seconds
        if self._is_time_up():
            await skip_at_time_limit(self._store, self._job, now, limit, now - self._started)
        # The last commit may have come after the last check.
        if await self._engine.finish() is None:
            await self._engine.check_drift()
            await self._leave_open()
        return (await self._store.jobs.get(self._job)).state

    async def _drive(self) -> None:
        """Keep workers and discovery going until the job has ended, stops, or has to pause."""
        timer = None
        if self._engine.time_limit is not None:
            left = max(0.0, self._engine.time_limit.left(self._clock.now()))
            timer = asyncio.get_running_loop().call_later(left, self._wake.set)
        await self._start_discovery()
        while not (self._engine.stop_reason or self._is_time_up()):
            self._wake.clear()
            await self._engine.check_drift()
            if not self._is_dry and await self._start_domain_workers():
                continue
            if self._workers or self._discovering:
                await self._wake.wait()
            elif await self._has_ended() or await self._has_to_pause():
                break
        if timer is not None:
            timer.cancel()

    def _is_time_up(self) -> bool:
        limit = self._engine.time_limit
        return limit is not None and limit.left(self._clock.now()) <= 0

    def _look_again(self) -> None:
        """Lease again: items were found, or other processes may have changed the queue."""
        self._is_dry = False
        self._engine.look_for_more()
        self._wake.set()

    async def _start_discovery(self) -> None:
        if self._discovering is not None or self._failure is not None:
            return
        if not (await self._store.jobs.get(self._job)).is_discovered:
            self._discovering = self._group.create_task(self._run_discovery())

    async def _run_discovery(self) -> None:
        async def on_found() -> None:
            self._look_again()

        try:
            self._failure = await self._engine.discover(on_found, owner=self._owner)
        finally:
            self._discovering = None
            self._look_again()

    async def _start_domain_workers(self) -> bool:
        """Lease items of domains without a worker, and start a worker for each."""
        now = self._clock.now()
        count = full = _PREFETCH * self._options.concurrency
        room = _WIDEST * full - self._engine.in_hand
        if room < full:
            count, room = 1, room + _GROWTH + _RESERVED
        claim = Claim(
            self._job,
            self._owner,
            count,
            now,
            now + LEASE,
            without=self._engine.active_domains,
            last=self._last_domain,
            room=room,
        )
        leases = await self._store.queue.lease(claim)
        self._is_dry = True  # until items are found, a worker ends, or the heartbeat comes
        by_domain = attrgetter("domain")
        for domain, group in groupby(sorted(leases, key=by_domain), key=by_domain):
            self._last_domain = domain
            task = self._group.create_task(self._work_domain(domain, list(group)))
            self._workers.add(task)
            task.add_done_callback(self._workers.discard)
        if leases:
            await asyncio.sleep(0)  # so that the workers are known before the next lease
        return bool(leases)

    async def _work_domain(self, domain: str, leases: Sequence[Lease]) -> None:
        async def lease_more(_emptied: Sequence[str], wanted: int) -> Sequence[Lease]:
            # Without more, this worker ends after its items; then it is the turn of any domain.
            if not wanted or self._engine.in_hand + self._requested >= self._most_to_grow:
                return ()
            now = self._clock.now()
            # More than is needed now: leasing many costs hardly more than leasing few.
            count = max(wanted, (_PREFETCH - 1) * self._options.concurrency)
            claim = Claim(self._job, self._owner, count, now, now + LEASE, only=domain)
            self._requested += count
            try:
                return await self._store.queue.lease(claim)
            finally:
                self._requested -= count

        try:
            await self._engine.work(leases, feed=lease_more)
        finally:
            self._look_again()

    def _after_commit(self, _lease: Lease, outcome: Outcome, state: ItemState | None) -> None:
        if outcome.found:
            self._look_again()
        if state is ItemState.QUEUED:
            seconds = max(0.0, (outcome.due or 0.0) - self._clock.now())
            if seconds < HEARTBEAT:  # a later one is found with the heartbeat
                asyncio.get_running_loop().call_later(seconds, self._look_again)
        elif state is not None:
            self._on_item()

    async def _has_ended(self) -> bool:
        if await self._engine.finish() is not None:
            return True
        return (await self._store.jobs.get(self._job)).state not in OPEN_STATES

    async def _has_to_pause(self) -> bool:
        """Wait for deferred items, discovery or other processes; True when that takes too long."""
        now = self._clock.now()
        status = await self._store.chunks.status(self._job)
        discoverers = [status.discoverer] if status.discoverer else []
        if self._failure is None and status.needs_discoverer(now, dead_among(discoverers)):
            await self._start_discovery()
            return False
        self._pause = await pause_of(self._store, self._job, now, self._options)
        if self._pause is not None:
            return True
        due = await self._store.queue.next_due(self._job)
        wait = IDLE_POLL
        if due is None:
            await self._heartbeat.reclaim([self._job])  # other processes have the last items
        else:
            wait = min(max(due - now, 0.01), _DEFERRED_POLL)
        if not await sleep_or_wake(wait, self._wake):
            self._is_dry = False  # other processes may have enqueued or released items
        return False

    async def _leave_open(self) -> None:
        pause, stop_reason = self._pause, self._engine.stop_reason
        if self._failure is not None:
            is_fatal = isinstance(self._failure, DiscoveryFailed)
            pause = Pause(str(self._failure), is_fatal=is_fatal)
        elif pause is None and stop_reason is not None:
            pause = Pause(stop_reason)
        if pause is not None:
            await leave_open(self._store, self._job, self._clock.now(), pause)


_COLLECT_AFTER = 20_000  # objects
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc's, from malloc.h
_KEPT_BYTES = 4 * 1024 * 1024
_LARGE_BYTES = 4 * 1024 * 1024  # larger blocks go straight back to the system


@contextlib.contextmanager
def tuned_memory() -> Iterator[None]:
    """Collect garbage rarely, and keep freed memory.

    Each item makes thousands of objects, hardly any of them in cycles; by default the collector
    walks through them after every 700, which cost a tenth of the throughput. The tree of a page is
    a quarter of a megabyte; by default the allocator returns it to the system after each page,
    which cost up to another tenth. Objects from before the run, mostly modules, are frozen.
    """
    if sys.platform == "linux":
        # Only glibc has it; another C library is left as it is.
        with contextlib.suppress(AttributeError, OSError):
            library = ctypes.CDLL(None)
            library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
            library.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    gc.freeze()
    try:
        yield
    finally:
        gc.collect(1)
        gc.unfreeze()
        gc.set_threshold(*before)
