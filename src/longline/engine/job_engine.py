"""One process working on a job: leased items, discovery, and the end of the job.

Many processes may do so at the same time; they share state only through the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial

from longline.core.errors import DiscoveryFailed, LonglineError
from longline.core.model import ItemState, Job, JobState, Lease, Outcome, RunEvent
from longline.drift.monitor import DriftMonitor
from longline.engine.collector import Collector
from longline.engine.discovery import Discovery
from longline.engine.pause_policy import GRACE, TimeLimit, pause_if_stuck
from longline.engine.runtime import Beating, OnCommit, RunOptions, Runtime, first_error, stop_reason
from longline.engine.worker import AttemptLog, DomainWorker, Feed, StopSignal, WorkEnd
from longline.http.errors import RobotsDisallowed
from longline.sources.loader import load_listeners
from longline.storage.events.events import event_row
from longline.storage.queue.chunks import DISCOVERY_FAILED

_LOG = logging.getLogger(__name__)


class JobEngine:
    """Works on one job in this process.

    Args:
        runtime: what all jobs of the process share.
        collector: the source and its request chain.
        options: how the job is run.
        job: the job.
        is_shared: whether workers of a cluster run it, see `stop_reason`.
        attempts: records the items in flight.
        since: when the time budget of the job began; now by default.
        listeners: called with every committed outcome.
        on_beat: called when the leases were renewed.
    """

    def __init__(
        self,
        runtime: Runtime,
        collector: Collector,
        options: RunOptions,
        *,
        job: Job,
        is_shared: bool = True,
        attempts: AttemptLog | None = None,
        since: float | None = None,
        listeners: Sequence[OnCommit] = (),
        on_beat: Callable[[], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._store = store = runtime.store
        self._clock = clock = runtime.clock
        self._collector = collector
        self._options = options
        self._job = job
        self._is_shared = is_shared
        self._attempts = attempts
        self.time_limit = TimeLimit.of(options.seconds, clock.now() if since is None else since)
        self.stop_reason: str | None = None
        """Why nothing more is begun, None while work goes on."""
        self._stops: set[StopSignal] = set()
        self._workers: set[DomainWorker] = set()
        self._discoverers: set[str] = set()
        self._rooms: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(options.concurrency)
        )
        self._drift = DriftMonitor(store, collector.source, clock)
        self._has_begun_drift = False
        self._listeners: list[OnCommit] = [self._drift.on_commit, *listeners]
        self._source_listeners = load_listeners(type(collector.source))
        self._beating = Beating(job.id, self._owners, self._obey, on_beat)

    def beating(self) -> contextlib.AbstractContextManager[Beating]:
        """Return a block in which leases are renewed, and pauses and cancellations obeyed."""
        return self._runtime.heartbeat.serving(self._beating)

    def stop(self, reason: str, *, grace: float | None = None) -> None:
        """Begin nothing more, now and later; items in flight have the grace, and are committed.

        Call it in the thread of the loop; elsewhere use `loop.call_soon_threadsafe`.
        """
        self.stop_reason = self.stop_reason or reason
        for stop in self._stops:
            stop.say(reason, grace=grace)

    @property
    def is_in_overtime(self) -> bool:
        """Whether a worker continues after its time for items that wait."""
        return any(worker.is_in_overtime for worker in self._workers)

    @property
    def in_hand(self) -> int:
        """How many items are leased here and not committed."""
        return sum(worker.in_hand for worker in self._workers)

    @property
    def active_domains(self) -> frozenset[str]:
        """The domains that have a worker."""
        return frozenset(worker.domain for worker in self._workers)

    def busy_domains(self) -> set[str]:
        """Return the domains whose concurrency is used up, or that have items waiting here."""
        loads: dict[str, int] = defaultdict(int)
        for worker in self._workers:
            loads[worker.domain] += worker.in_flight
        unbegun = {worker.domain for worker in self._workers if worker.has_waiting}
        return unbegun | {name for name, load in loads.items() if load >= self._options.concurrency}

    def look_for_more(self) -> None:
        """Let workers that had run out of items lease again."""
        for worker in self._workers:
            worker.look_for_more()

    async def prepare(self) -> None:
        """Load the baseline of drift detection; without effect the second time."""
        if not self._has_begun_drift:
            self._has_begun_drift = True
            await self._drift.begin(self._job)

    async def work(
        self, leases: Sequence[Lease], *, feed: Feed | None = None, seconds: float | None = None
    ) -> WorkEnd:
        """Work on leases of one domain, and on further ones from `feed`.

        Several calls may run at the same time; those of one domain share its concurrency. After
        `seconds` nothing more is begun: other items are released, and those in flight have a tenth
        of that time, at most a minute, before they are released, too. The same happens when the job
        is paused, cancelled or deleted, and on `stop`. Items that mostly wait are not released only
        because the time is up. One that has worked for longer than the soft limit, waits not
        counted, has used up an attempt; the third time, it fails.

        Raises:
            StoreError: the database cannot be written. Items that were not committed stay leased
                until their leases expire.
        """
        await self.prepare()
        with self._stoppable() as stop, self._time_limited(stop):
            worker = DomainWorker(
                self._runtime,
                self._collector,
                self._options,
                leases=leases,
                room=self._rooms[leases[0].domain],
                stop=stop,
                on_commit=self._call_listeners,
                attempts=self._attempts,
                feed=feed,
            )
            self._workers.add(worker)
            try:
                async with self._failing_with_heartbeat():
                    end = await worker.run(seconds)
            finally:
                self._workers.discard(worker)
        await self.check_drift()
        if feed is not None and (emptied := worker.take_emptied()):
            await feed(emptied, 0)
        return end

    async def check_drift(self) -> None:
        """Check the committed records for a change of the site."""
        await self._drift.check()

    async def discover(
        self, on_found: Callable[[], Awaitable[None]], *, owner: str
    ) -> LonglineError | None:
        """Find items as `owner`, unless a live process does; return why not all could be found.

        `on_found` is awaited whenever items were enqueued. A failure is appended as an event: the
        job continues with what was found, and is paused when that is done (`pause_if_stuck`); it
        fails immediately when nothing was found.

        Raises:
            StoreError: the database cannot be written; another process continues.
        """
        job = self._job.id
        found = asyncio.Event()
        self._discoverers.add(owner)
        try:
            with self._stoppable() as stop:
                discovery = Discovery(
                    self._store,
                    self._collector,
                    self._clock,
                    owner,
                    limit=self._options.limit,
                    patience=self._options.patience,
                    is_stopped=lambda: stop.reason is not None,
                    on_found=found.set,
                    time_limit=self.time_limit,
                )
                async with self._failing_with_heartbeat(), asyncio.TaskGroup() as group:
                    stopping = group.create_task(stop.wait())
                    finding = group.create_task(discovery.run(job))
                    calling = group.create_task(_call_when_found(found, on_found, finding))
                    await asyncio.wait([finding, stopping], return_when=asyncio.FIRST_COMPLETED)
                    finding.cancel()
                    await asyncio.wait([finding])
                    found.set()
                    await asyncio.wait([calling])
                    stopping.cancel()
                if (failure := discovery.failure) is not None:
                    host = failure.host if isinstance(failure, RobotsDisallowed) else None
                    event = event_row(
                        job,
                        self._clock.now(),
                        DISCOVERY_FAILED,
                        reason=str(failure),
                        is_fatal=isinstance(failure, DiscoveryFailed),
                        host=host,
                    )
                    await self._store.events.append(event)
                await self._store.jobs.release_discovery(job, owner)
        finally:
            self._discoverers.discard(owner)
        if self._is_shared:
            await pause_if_stuck(self._store, job, self._clock.now(), self._options)
        return discovery.failure

    async def finish(self) -> JobState | None:
        """End the job if all its items are finished; return its state.

        None when they are not, or when another process has ended it: one caller gets the state, and
        calls the source.
        """
        if not await self._store.jobs.is_over(self._job.id):
            return None
        await self.prepare()
        drift = await self._drift.result()
        state = await self._store.jobs.finish(self._job.id, self._clock.now(), drift)
        if state is not None and self._source_listeners:
            job = await self._store.jobs.get(self._job.id)
            self._notify(
                RunEvent(f"job.{state}", self._clock.now(), job.id, job.source, job.reason)
            )
        return state

    def _owners(self) -> list[str]:
        return [*self._discoverers, *(name for one in self._workers for name in one.owners())]

    def _obey(self, state: JobState | None, reason: str | None) -> None:
        why = stop_reason(state, reason, is_shared=self._is_shared)
        if why is None:
            return
        if not self._is_shared:
            self.stop(why, grace=GRACE)
        for stop in self._stops:
            stop.say(why)

    def _call_listeners(self, lease: Lease, outcome: Outcome, state: ItemState | None) -> None:
        for listener in self._listeners:
            listener(lease, outcome, state)
        if self._source_listeners and state is not None:
            event = RunEvent(
                f"item.{state}",
                self._clock.now(),
                self._job.id,
                self._job.source,
                outcome.reason,
                lease.item.key,
                lease.item.url,
                outcome.record,
            )
            self._notify(event)

    def _notify(self, event: RunEvent) -> None:
        for listener in self._source_listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001  # of others; the edge of a listener
                _LOG.exception("a listener of %s failed", self._job.source)

    @contextlib.asynccontextmanager
    async def _failing_with_heartbeat(self) -> AsyncIterator[None]:
        """End the block when leases cannot be renewed any more."""
        try:
            async with asyncio.TaskGroup() as group:
                beats = group.create_task(self._beating.wait_for_failure())
                yield
                beats.cancel()
        except* LonglineError as several:
            raise first_error(several) from several

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[StopSignal]:
        """Yield the stop signal of one piece of work."""
        stop = StopSignal()
        self._stops.add(stop)
        if self.stop_reason:
            stop.say(self.stop_reason)
        try:
            yield stop
        finally:
            self._stops.discard(stop)

    @contextlib.contextmanager
    def _time_limited(self, stop: StopSignal) -> Iterator[None]:
        """Stop a piece of work when the time budget of the job is exhausted."""
        limit = self.time_limit
        if limit is None:
            yield
            return
        left = max(0.0, limit.left(self._clock.now()))
        say = partial(stop.say, f"{limit.words} is exhausted", grace=GRACE)
        timer = asyncio.get_running_loop().call_later(left, say)
        try:
            yield
        finally:
            timer.cancel()


async def _call_when_found(
    found: asyncio.Event, on_found: Callable[[], Awaitable[None]], finding: asyncio.Task[None]
) -> None:
    """Call `on_found` whenever items were enqueued, and once more after discovery."""
    is_last = False
    while not is_last:
        await found.wait()
        found.clear()
        is_last = finding.done()
        await on_found()
