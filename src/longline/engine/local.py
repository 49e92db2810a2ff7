"""The local engine: runs a job in this process, several items at once, on one event loop.

Other processes may run the same job at the same time: leases keep them apart, and whoever commits
the last item ends the job. Each domain has workers of its own (`lanes.py`), and a domain that
rests is not leased from (`resting.py`): a slow or parked site never holds up another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence

from longline.core.clock import sleep_or_wake
from longline.core.errors import DiscoveryFailed, LonglineError
from longline.core.model import OPEN_STATES, ItemState, Job, JobState, Lease, Usage
from longline.drift.monitor import DriftMonitor
from longline.engine.committer import CommitQueue, completion_of, first_of
from longline.engine.discovery import IDLE_POLL, Discovery
from longline.engine.domain_queues import DomainQueues, DomainRests
from longline.engine.extractor import Collector
from longline.engine.heartbeat import HEARTBEAT, LEASE, Beating, stop_reason
from longline.engine.options import RunOptions, tuned_memory
from longline.engine.owner import this_run
from longline.engine.pause_policy import GRACE, TimeLimit, is_given_up, leave_open, pause_reason
from longline.engine.runtime import Runtime
from longline.http.errors import RobotsDisallowed
from longline.storage.queue.leases import Claim
from longline.storage.queue.outcomes import Completion, spent_on

_PARKED_LOOK = 3.0  # seconds between looks at a job whose items are all parked until later
_STOCK = 4  # items leased ahead for each worker; more at a time is less work for the database
_WIDEST = 64  # domains with a full stock at the same time
_RESERVED = 1024  # more leases for domains beyond that, one at a time: hanging ones hold up none


class LocalEngine:
    """Runs one job; one object a run."""

    def __init__(
        self,
        runtime: Runtime,
        collector: Collector,
        options: RunOptions,
        *,
        on_item: Callable[[], None] = lambda: None,
        is_open: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self._store = store = runtime.store
        self._clock = clock = runtime.clock
        self._heartbeat = runtime.heartbeat
        self._collector = collector
        self._options = options
        self._on_item = on_item
        self._is_open = is_open
        self._started = clock.now()
        self._owner = this_run()
        self._stop_reason: str | None = None
        self._limit = TimeLimit.of(options.seconds, self._started)
        self._broken_off: list[tuple[Lease, Usage]] = []
        self._wake = asyncio.Event()
        self._rests = DomainRests()
        self._last_lane = ""
        self._commits = CommitQueue(
            runtime.committer, options.concurrency * 16, self._count, lambda: self._in_hand
        )
        self._in_hand = 0
        self._drift = DriftMonitor(store, collector.source, clock)
        self._discovery = Discovery(
            store,
            collector,
            clock,
            self._owner,
            limit=options.limit,
            patience=options.patience,
            is_stopped=lambda: self._stop_reason is not None,
            on_found=self._look_again,
            time_limit=self._limit,
        )
        self._has_beaten = False
        self._is_dry = False  # the last look found nothing to lease, and nothing came since
        self._last_finish = clock.now()

    def stop(self, reason: str) -> None:
        """Begin nothing more; what is in flight has a few seconds to be finished and committed."""
        self._stop_reason = self._stop_reason or reason
        self._wake.set()

    @property
    def closed_host(self) -> str | None:
        """The host whose robots.txt stopped discovery, if one did."""
        failure = self._discovery.failure
        return failure.host if isinstance(failure, RobotsDisallowed) else None

    async def run(self, job: Job) -> JobState:
        """Run a job to its end, or until it is stopped; return the state it is left in.

        Raises:
            StoreError: the database does not take any more; all that was committed is safe.
        """
        await self._heartbeat.reclaim([job.id])
        await self._drift.begin(job)
        try:
            beating = Beating(job.id, lambda: [self._owner], self._obey, self._on_beat)
            with tuned_memory(), self._woken_at_limit(), self._heartbeat.keeping(beating):
                await self._run_tasks(job, beating)
        except* LonglineError as several:
            raise first_of(several) from several
        if self._is_time_up:
            spent = self._clock.now() - self._started
            await is_given_up(self._store, job.id, self._clock.now(), self._options.seconds, spent)
        return await self._end(job.id)

    async def _run_tasks(self, job: Job, beating: Beating) -> None:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(beating.wait_for_failure())
            finding = group.create_task(self._discovery.run(job.id))
            committing = group.create_task(self._commits.run())
            lanes = DomainQueues(group, self._work, self._options.concurrency, self._look_again)
            await self._feed(job.id, finding, lanes)
            if self._stop_reason:
                finding.cancel()
            await self._drain(job.id, lanes)
            await asyncio.wait([finding])
            self._commits.close()
            await asyncio.wait([committing])
            beats.cancel()

    @property
    def _is_time_up(self) -> bool:
        return self._limit is not None and self._limit.left(self._clock.now()) <= 0

    @contextlib.contextmanager
    def _woken_at_limit(self) -> Iterator[None]:
        """Wake the loop that feeds the workers when the time limit is reached."""
        if self._limit is None:
            yield
            return
        left = max(0.0, self._limit.left(self._clock.now()))
        timer = asyncio.get_running_loop().call_later(left, self._wake.set)
        try:
            yield
        finally:
            timer.cancel()

    async def _drain(self, job: str, lanes: DomainQueues) -> None:
        """Release what was not begun, and after a grace period what is still in flight."""
        await self._release(lanes.take_waiting())
        await lanes.finish(GRACE)
        await self._release([lease for lease, _ in self._broken_off])
        for _, usage in self._broken_off:  # the site has seen these requests
            await self._store.events.add_statistics(job, spent_on(usage.take()))

    async def _release(self, leases: Sequence[Lease]) -> None:
        if leases:
            await self._store.queue.release(leases)
            self._in_hand -= len(leases)

    # ------------------------------------------------------------ collection

    async def _feed(self, job: str, finding: asyncio.Task[None], lanes: DomainQueues) -> None:
        """Keep the workers supplied until the job has ended, stops, or has to rest."""
        while not (self._stop_reason or self._is_time_up):
            self._wake.clear()
            await self._drift.look()
            await self._resume_reset_domains()
            if not self._is_dry and await self._lease(job, lanes):
                continue
            if self._in_hand:
                await self._wake.wait()
            elif await self._is_over(job, finding):
                return
            else:
                await self._rest(job)

    def _look_again(self) -> None:
        """Have the next look at the queue find out whether there is more for the workers."""
        self._is_dry = False
        self._wake.set()

    async def _lease(self, job: str, lanes: DomainQueues) -> bool:
        now = self._clock.now()
        stock = full = _STOCK * self._options.concurrency
        room = _WIDEST * full - self._in_hand
        if room < full:
            stock, room = 1, room + _RESERVED
        claim = Claim(
            job,
            self._owner,
            stock,
            now,
            now + LEASE,
            holds=lanes.waiting(),
            resting=self._rests.resting(now),
            last=self._last_lane,
            room=room,
        )
        leases = await self._store.queue.lease(claim)
        self._in_hand += len(leases)
        self._is_dry = True  # until a worker runs low, something is found, or time has passed
        lanes.add(leases)
        if leases:
            self._last_lane = leases[-1].domain
        return bool(leases)

    async def _is_over(self, job: str, finding: asyncio.Task[None]) -> bool:
        if await self._is_ended(job):
            return True
        if (
            finding.done()
            and self._discovery.failure
            and await self._store.queue.next_due(job) is None
        ):
            return True
        return (await self._store.jobs.get(job)).state not in OPEN_STATES

    async def _is_ended(self, job: str) -> bool:
        """End the job if all its items are finished, with what its records have to say."""
        if not await self._store.jobs.is_over(job):
            return False
        ending = await self._drift.ending()
        return await self._store.jobs.finish(job, self._clock.now(), ending) is not None

    async def _rest(self, job: str) -> None:
        """Wait for parked items to fall due, for discovery, or for other processes."""
        waiting = await self._store.queue.waiting(job)
        now = self._clock.now()
        due = self._rests.next_due(waiting)
        is_discovering = self._discovery.is_under_way
        if due is None:
            # What is left is with others, who may have died, or is still to be found here.
            await self._heartbeat.reclaim([job])
            await self._nap(HEARTBEAT if is_discovering else IDLE_POLL)
            return
        if not is_discovering and await is_given_up(
            self._store, job, now, self._options.seconds, now - self._started
        ):
            return
        quiet = now - self._last_finish
        reason = pause_reason(
            self._rests,
            waiting,
            now,
            is_discovering=is_discovering,
            is_silent=quiet > self._options.patience,
        )
        if reason is not None:
            self.stop(reason)
        else:
            await self._nap(min(max(due - now, 0.01), _PARKED_LOOK))

    async def _nap(self, seconds: float) -> None:
        if not await sleep_or_wake(seconds, self._wake):
            self._is_dry = False  # others may have queued or released something

    async def _work(self, lease: Lease) -> None:
        if self._rests.is_resting(lease.domain, self._clock.now()):
            await self._release([lease])
            self._wake.set()
            return
        usage = Usage()
        try:
            extraction = await self._collector.collect(lease.item, tries=lease.tries, usage=usage)
        except asyncio.CancelledError:
            self._broken_off.append((lease, usage))
            raise
        self._rests.note(lease.domain, extraction.outcome)
        finish = completion_of(lease, extraction, self._clock.now(), self._options.limit)
        await self._commits.hand_over(finish)  # the next item need not wait for its commit

    def _count(self, finish: Completion, state: ItemState | None) -> None:
        """Note that a try was committed as this state, or that its item is somebody else's now."""
        self._in_hand -= 1
        self._drift.tell(finish, state)
        if state is ItemState.QUEUED:
            self._look_again_at(finish.outcome.due or 0.0)
        elif state is not None:  # parked is not finished
            self._last_finish = self._clock.now()
            self._on_item()
        if finish.found:
            self._look_again()
        elif not self._in_hand:
            self._wake.set()

    def _look_again_at(self, due: float) -> None:
        """Have the queue looked at when a deferred item falls due."""
        seconds = max(0.0, due - self._clock.now())
        if seconds < HEARTBEAT:  # a later one is found by the look with each heartbeat
            asyncio.get_running_loop().call_later(seconds, self._look_again)

    # ------------------------------------------------------------ leases and the end

    def _obey(self, state: JobState | None, reason: str | None) -> None:
        """Stop when a person has paused, cancelled or deleted the job, in whatever process."""
        if why := stop_reason(state, reason, is_shared=False):
            self.stop(why)

    def _on_beat(self) -> None:
        """Look at what others have queued, released or reset."""
        self._has_beaten = True
        self._look_again()

    async def _resume_reset_domains(self) -> None:
        """Go on with domains whose circuit breaker was reset by a person."""
        if self._is_open is None or not self._has_beaten:
            return
        self._has_beaten = False
        for domain in self._rests.broken():
            if not await self._is_open(domain):
                self._rests.forget(domain)

    async def _end(self, job: str) -> JobState:
        # The last commit may have come after the last look.
        if not await self._is_ended(job):
            await self._drift.look()
            await self._leave_open(job, self._clock.now())
        return (await self._store.jobs.get(job)).state

    async def _leave_open(self, job: str, now: float) -> None:
        failure = self._discovery.failure
        reason = str(failure) if failure else self._stop_reason
        if reason is not None:
            is_fatal = isinstance(failure, DiscoveryFailed)
            await leave_open(self._store, job, now, reason, is_fatal=is_fatal)
