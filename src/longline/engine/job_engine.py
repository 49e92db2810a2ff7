"""The part of one process in a job: work on leased items, discovery, and the end of the job.

Many processes may do so at the same time. What each must know of the others is in the database.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial

from longline.core.errors import DiscoveryFailed, LonglineError
from longline.core.model import ItemState, Job, JobState, Lease
from longline.drift.monitor import DriftMonitor
from longline.engine.discovery import Discovery
from longline.engine.extractor import Collector
from longline.engine.pause_policy import GRACE, TimeLimit, rest_or_pause
from longline.engine.runtime import Beating, RunOptions, Runtime, first_of, stop_reason
from longline.engine.worker import Diary, DomainWorker, Feed, StopSignal, WorkEnd
from longline.http.errors import RobotsDisallowed
from longline.storage.events import event_row
from longline.storage.queue.chunks import DISCOVERY_FAILED
from longline.storage.queue.completion import Completion

OnCommit = Callable[[Completion, ItemState | None], None]
"""Called with what was committed and the new state of the item, None when its lease was lost."""


class JobEngine:
    """Works on one job in this process; open it with `async with`.

    Args:
        runtime: what all jobs of the process share.
        collector: the source and its request chain.
        options: how the job is run.
        job: the job.
        is_shared: whether workers of a cluster run it, see `stop_reason`.
        diary: is told which items are begun.
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
        diary: Diary | None = None,
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
        self._diary = diary
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
        self._beating = Beating(job.id, self._owners, self._obey, on_beat)

    def beating(self) -> contextlib.AbstractContextManager[Beating]:
        """Return a block in which leases are renewed, and pauses and cancellations obeyed."""
        return self._runtime.heartbeat.keeping(self._beating)

    def stop(self, reason: str, *, grace: float | None = None) -> None:
        """Begin nothing more, now and later; what is in flight has its grace, and is committed.

        To be called in the thread of the loop, by `loop.call_soon_threadsafe` from elsewhere.
        """
        self.stop_reason = self.stop_reason or reason
        for stop in self._stops:
            stop.say(reason, grace=grace)

    @property
    def is_in_overtime(self) -> bool:
        """Whether something goes on here although its time is up, for items that wait."""
        return any(worker.is_in_overtime for worker in self._workers)

    @property
    def in_hand(self) -> int:
        """How many items are leased here and not committed."""
        return sum(worker.in_hand for worker in self._workers)

    @property
    def active_domains(self) -> frozenset[str]:
        """The domains that are worked on."""
        return frozenset(worker.domain for worker in self._workers)

    def busy_domains(self) -> set[str]:
        """Return the domains of which no more could be begun at once than is begun already."""
        loads: dict[str, int] = defaultdict(int)
        for worker in self._workers:
            loads[worker.domain] += worker.in_flight
        unbegun = {worker.domain for worker in self._workers if worker.has_waiting}
        return unbegun | {name for name, load in loads.items() if load >= self._options.concurrency}

    def look_for_more(self) -> None:
        """Have workers that had run out of items look for more."""
        for worker in self._workers:
            worker.look_for_more()

    async def prepare(self) -> None:
        """Read what the records of earlier runs look like; without effect the second time."""
        if not self._has_begun_drift:
            self._has_begun_drift = True
            await self._drift.begin(self._job)

    async def work(
        self, leases: Sequence[Lease], *, feed: Feed | None = None, seconds: float | None = None
    ) -> WorkEnd:
        """Work on leases of one domain, and on those that `feed` returns.

        Several may run at the same time; those of one domain share its concurrency. After `seconds`
        nothing more is begun: what was not is handed back, and what is in flight has a tenth of
        that time, at most a minute, to come to its end before it is handed back, too. The same when
        the job is paused, cancelled or deleted, and on `stop`. But items that mostly wait are not
        handed back for the time alone: they would wait as long again. One that has worked for
        longer than the soft limit, waits not counted, has used up its attempt; the third time, it
        fails.

        Raises:
            StoreError: the database does not take any more. What was not committed is leased until
                that expires.
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
                on_commit=self._committed,
                diary=self._diary,
                feed=feed,
            )
            self._workers.add(worker)
            try:
                async with self._failing_with_heartbeat():
                    end = await worker.run(seconds)
            finally:
                self._workers.discard(worker)
        await self._drift.check()
        if feed is not None and (emptied := worker.take_emptied()):
            await feed(emptied, 0)
        return end

    async def look_at_drift(self) -> None:
        """Report what the committed records show of a change of the site."""
        await self._drift.check()

    async def discover(
        self, on_found: Callable[[], Awaitable[None]], *, owner: str
    ) -> LonglineError | None:
        """Find items as `owner`, unless a living process does; return why not all could be found.

        `on_found` is awaited whenever items were queued, beside the search. A failure is noted as
        an event: the job goes on with what was found, and is paused when that is done
        (`rest_or_pause`); it fails at once when nothing was found.

        Raises:
            StoreError: the database does not take any more; another process goes on.
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
                async with self._failing_with_heartbeat():
                    await self._search(discovery, stop, found, on_found)
                if discovery.failure is not None:
                    await self._note_failure(discovery.failure)
                await self._store.jobs.leave_discovery(job, owner)
        finally:
            self._discoverers.discard(owner)
        if self._is_shared:
            await rest_or_pause(self._store, job, self._clock.now(), self._options)
        return discovery.failure

    async def finish(self) -> JobState | None:
        """End the job if all its items are finished, with what its records have to say.

        None when they are not, or when another process has ended it: of all callers one is told
        the state, and calls the source.
        """
        if not await self._store.jobs.is_over(self._job.id):
            return None
        await self.prepare()
        ending = await self._drift.result()
        return await self._store.jobs.finish(self._job.id, self._clock.now(), ending)

    # ------------------------------------------------------------ inside

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

    def _committed(self, finish: Completion, state: ItemState | None) -> None:
        for listener in self._listeners:
            listener(finish, state)

    @contextlib.asynccontextmanager
    async def _failing_with_heartbeat(self) -> AsyncIterator[None]:
        """End the block when leases cannot be renewed any more."""
        try:
            async with asyncio.TaskGroup() as group:
                beats = group.create_task(self._beating.wait_for_failure())
                yield
                beats.cancel()
        except* LonglineError as several:
            raise first_of(several) from several

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[StopSignal]:
        """Give what ends one piece of work, together with all others or alone."""
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
        """End a piece of work when the time budget of the job is spent."""
        limit = self.time_limit
        if limit is None:
            yield
            return
        reason = f"{limit.words} is exhausted"
        left = max(0.0, limit.left(self._clock.now()))
        say = partial(stop.say, reason, grace=GRACE)
        timer = asyncio.get_running_loop().call_later(left, say)
        try:
            yield
        finally:
            timer.cancel()

    async def _search(
        self,
        discovery: Discovery,
        stop: StopSignal,
        found: asyncio.Event,
        on_found: Callable[[], Awaitable[None]],
    ) -> None:
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(stop.wait())
            finding = group.create_task(discovery.run(self._job.id))
            telling = group.create_task(_call_when_found(found, on_found, finding))
            await asyncio.wait([finding, stopping], return_when=asyncio.FIRST_COMPLETED)
            finding.cancel()
            await asyncio.wait([finding])
            found.set()
            await asyncio.wait([telling])
            stopping.cancel()

    async def _note_failure(self, failure: LonglineError) -> None:
        await self._store.events.append(
            event_row(
                self._job.id,
                self._clock.now(),
                DISCOVERY_FAILED,
                reason=str(failure),
                is_fatal=isinstance(failure, DiscoveryFailed),
                host=failure.host if isinstance(failure, RobotsDisallowed) else None,
            )
        )


async def _call_when_found(
    found: asyncio.Event, on_found: Callable[[], Awaitable[None]], finding: asyncio.Task[None]
) -> None:
    """Call `on_found` whenever items were queued, for the last time when the search is over."""
    is_last = False
    while not is_last:
        await found.wait()
        found.clear()
        is_last = finding.done()
        await on_found()
