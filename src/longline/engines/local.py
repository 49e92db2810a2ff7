"""The local engine: runs a job in this process, several items at once, on one event loop.

Other processes may run the same job at the same time: leases keep them apart, and whoever commits
the last item ends the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from longline.clock import Clock
from longline.engines.committing import Committer
from longline.engines.finding import Chunk, find_in_chunks
from longline.engines.tuning import tuned_memory
from longline.errors import DiscoveryFailed, LonglineError, RobotsDisallowed, StoreError
from longline.jobs.collector import Collector
from longline.jobs.owner import dead_among, this_process
from longline.model import OPEN_STATES, ItemState, Job, JobState, Lease
from longline.sources.visit import Visit
from longline.stores.journal import fact
from longline.stores.queue import Claim, Discovered, Finish
from longline.stores.store import Store

_LEASE = 20.0  # seconds a silent worker keeps its items, if nobody can see that it is dead
_HEARTBEAT = 5.0
_IDLE_LOOK = 0.5  # seconds between looks at a queue whose items are all with others
_PARKED_LOOK = 3.0  # and at one whose items are all parked until later
_STOCK = 4  # items leased ahead for each worker; more at a time is less work for the database
_PATIENCE = 900.0  # seconds without a finished item, all parked, until the job is paused


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run here; none of it changes what is collected."""

    concurrency: int = 8
    limit: int | None = None
    patience: float = _PATIENCE


class LocalEngine:
    """Runs one job; one object a run."""

    def __init__(
        self,
        store: Store,
        collector: Collector,
        clock: Clock,
        options: RunOptions,
        *,
        on_item: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._collector = collector
        self._clock = clock
        self._options = options
        self._on_item = on_item
        self._owner = this_process()
        self._stop_reason: str | None = None
        self._failure: LonglineError | None = None
        self._wake = asyncio.Event()
        self._ready: asyncio.Queue[Lease | None] = asyncio.Queue()
        self._committer = Committer(
            store.queue, options.concurrency * 8, self._count, lambda: self._in_hand
        )
        self._in_hand = 0
        self._is_dry = False  # the last look found nothing to lease, and nothing came since
        self._last_finish = clock.now()

    def stop(self, reason: str) -> None:
        """Begin nothing more; what is in flight is finished and committed."""
        self._stop_reason = self._stop_reason or reason
        self._wake.set()

    @property
    def closed_host(self) -> str | None:
        """The host whose robots.txt stopped discovery, if one did."""
        return self._failure.host if isinstance(self._failure, RobotsDisallowed) else None

    async def run(self, job: Job) -> JobState:
        """Run a job to its end, or until it is stopped; return the state it is left in.

        Raises:
            StoreError: the database does not take any more; all that was committed is safe.
        """
        await self._reclaim(job.id)
        try:
            with tuned_memory():
                await self._run_tasks(job)
        except* LonglineError as several:
            raise _first(several) from several
        return await self._end(job.id)

    async def _run_tasks(self, job: Job) -> None:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(self._beat(job.id))
            finding = group.create_task(self._find(job))
            committing = group.create_task(self._committer.run())
            workers = [group.create_task(self._work()) for _ in range(self._options.concurrency)]
            await self._feed(job.id, finding)
            if self._stop_reason:
                finding.cancel()
            for _ in workers:
                self._ready.put_nowait(None)
            await asyncio.wait([*workers, finding])
            self._committer.close()
            await asyncio.wait([committing])
            beats.cancel()

    # ------------------------------------------------------------ discovery

    async def _find(self, job: Job) -> None:
        """Discover, if nobody else does; a failure ends discovery, not the items already found."""
        while not self._stop_reason:
            if (await self._store.jobs.get(job.id)).is_discovered:
                return
            if await self._take_discovery(job.id):
                break
            await self._clock.sleep(_IDLE_LOOK)
        else:
            return
        visit = self._collector.visit(cursor=(await self._store.jobs.get(job.id)).cursor)
        try:
            await self._collector.source.prepare(visit)
            await self._queue_all(job.id, visit)
        except StoreError:
            raise  # not the source's fault: the run ends, and says so
        except RobotsDisallowed as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001  # whatever a source raises ends its discovery
            problem = str(error) if isinstance(error, LonglineError) else repr(error)
            self._failure = DiscoveryFailed(self._collector.source.name, problem)
            self._failure.__cause__ = error
        finally:
            await self._close_discovery(job.id, visit)

    async def _close_discovery(self, job: str, visit: Visit) -> None:
        spent = visit.account.take()
        await self._store.journal.add_up(job, spent.as_counts())
        now = self._clock.now()
        notes = [
            fact(job, now, "discovery.note", field=note.field, text=note.text)
            for note in visit.notes
        ]
        await self._store.journal.append(*notes)
        self._wake.set()

    async def _take_discovery(self, job: str) -> bool:
        now = self._clock.now()
        dead = dead_among(await self._store.queue.owners(job))
        return await self._store.jobs.take_discovery(job, self._owner, now, now + _LEASE, dead)

    async def _queue_all(self, job: str, visit: Visit) -> None:
        async def queue_up(chunk: Chunk) -> bool:
            total = await self._queue(job, chunk, visit)
            limit = self._options.limit
            return not self._stop_reason and (limit is None or total < limit)

        await find_in_chunks(self._collector.source.discover(visit), queue_up)
        if not self._stop_reason:
            await self._queue(job, Chunk(), visit, is_last=True)

    async def _queue(self, job: str, chunk: Chunk, visit: Visit, *, is_last: bool = False) -> int:
        found = Discovered(
            job,
            chunk.items,
            self._clock.now(),
            cursor=chunk.cursor.value if chunk.cursor else None,
            is_last=is_last,
            limit=self._options.limit,
            account=visit.account.take(),
        )
        total = await self._store.queue.add(found)
        self._is_dry = False
        self._wake.set()
        return total

    # ------------------------------------------------------------ collection

    async def _feed(self, job: str, finding: asyncio.Task[None]) -> None:
        """Keep the workers supplied until the job has ended, stops, or has to rest."""
        while not self._stop_reason:
            self._wake.clear()
            if not self._is_dry and self._is_low() and await self._lease(job):
                continue
            if self._in_hand:
                await self._nap(_IDLE_LOOK)
            elif await self._is_over(job, finding):
                return
            else:
                await self._rest(job)

    def _is_low(self) -> bool:
        """Say whether the workers will soon have nothing to take."""
        return self._ready.qsize() <= self._options.concurrency

    async def _lease(self, job: str) -> bool:
        now = self._clock.now()
        count = _STOCK * self._options.concurrency - self._ready.qsize()
        claim = Claim(job, self._owner, count, now, now + _LEASE)
        leases = await self._store.queue.lease(claim)
        self._in_hand += len(leases)
        self._is_dry = not leases
        for lease in leases:
            self._ready.put_nowait(lease)
        return bool(leases)

    async def _is_over(self, job: str, finding: asyncio.Task[None]) -> bool:
        if await self._store.jobs.finish(job, self._clock.now()) is not None:
            return True
        if finding.done() and self._failure and await self._store.queue.next_due(job) is None:
            return True
        return (await self._store.jobs.get(job)).state not in OPEN_STATES

    async def _rest(self, job: str) -> None:
        """Wait for parked items to fall due, for discovery, or for other processes."""
        due = await self._store.queue.next_due(job)
        now = self._clock.now()
        if due is not None and due > now and now - self._last_finish > self._options.patience:
            self.stop("every item is parked: the site has not answered for too long")
            return
        if due is not None:
            await self._nap(min(max(due - now, 0.01), _PARKED_LOOK))
            return
        await self._reclaim(job)  # what is left is with others, who may have died
        await self._nap(_IDLE_LOOK)

    async def _nap(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            self._is_dry = False  # others may have queued or released something

    async def _work(self) -> None:
        while (lease := await self._ready.get()) is not None:
            if self._is_low():
                self._wake.set()
            if self._stop_reason:
                await self._store.queue.release([lease])
                self._in_hand -= 1
                continue
            extraction = await self._collector.collect(lease.item, tries=lease.tries)
            finish = Finish(
                lease,
                extraction.outcome,
                self._clock.now(),
                extraction.seconds,
                extraction.account,
                extraction.found,
                self._options.limit,
            )
            await self._committer.hand_over(finish)  # the next item need not wait for its commit

    def _count(self, finish: Finish, state: ItemState | None) -> None:
        """Note that a try was committed as this state, or that its item is somebody else's now."""
        self._in_hand -= 1
        if finish.found:
            self._is_dry = False
        self._wake.set()
        if state not in (None, ItemState.QUEUED):  # parked is not finished
            self._last_finish = self._clock.now()
            self._on_item()

    # ------------------------------------------------------------ leases and the end

    async def _beat(self, job: str) -> None:
        while True:
            await self._clock.sleep(_HEARTBEAT)
            await self._store.queue.renew(job, self._owner, self._clock.now() + _LEASE)
            await self._reclaim(job)

    async def _reclaim(self, job: str) -> None:
        owners = [owner for owner in await self._store.queue.owners(job) if owner != self._owner]
        await self._store.queue.reclaim(job, self._clock.now(), dead_among(owners))

    async def _end(self, job: str) -> JobState:
        now = self._clock.now()
        # The last commit may have come after the last look.
        if await self._store.jobs.finish(job, now) is None:
            await self._leave_open(job, now)
        return (await self._store.jobs.get(job)).state

    async def _leave_open(self, job: str, now: float) -> None:
        found = sum((await self._store.queue.counts(job)).values())
        if isinstance(self._failure, DiscoveryFailed) and not found:
            await self._store.jobs.fail(job, now, str(self._failure))
        elif self._failure or self._stop_reason:
            await self._store.jobs.pause(job, now, str(self._failure or self._stop_reason))


def _first(several: BaseExceptionGroup[LonglineError]) -> LonglineError:
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LonglineError) else LonglineError(str(error))
