"""The local engine: runs a job in this process, several items at once, on one event loop.

Other processes may run the same job at the same time: leases keep them apart, and whoever commits
the last item ends the job. Each domain has workers of its own (`lanes.py`), and a domain that
rests is not leased from (`resting.py`): a slow or parked site never holds up another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from longline.clock import Clock
from longline.engines.committing import Committer
from longline.engines.finding import Chunk, find_in_chunks
from longline.engines.lanes import Lanes
from longline.engines.resting import Rests
from longline.engines.tuning import tuned_memory
from longline.errors import (
    BudgetSpent,
    CircuitOpen,
    DiscoveryFailed,
    FailureKind,
    LonglineError,
    Postponed,
    RobotsDisallowed,
    StoreError,
)
from longline.jobs.collector import Collector
from longline.jobs.owner import dead_among, this_run
from longline.model import OPEN_STATES, ItemState, Job, JobState, Lease
from longline.resilience.budget import Budget, Spent, exceeded
from longline.sources.visit import Visit
from longline.stores.adding import Discovered
from longline.stores.finishing import Finish
from longline.stores.journal import fact
from longline.stores.leases import Claim
from longline.stores.store import Store

_LEASE = 20.0  # seconds a silent worker keeps its items, if nobody can see that it is dead
_HEARTBEAT = 5.0
_IDLE_LOOK = 0.5  # seconds between looks at a queue whose items are all with others
_PARKED_LOOK = 3.0  # and at one whose items are all parked until later
_STOCK = 4  # items leased ahead for each worker; more at a time is less work for the database
_WIDEST = 64  # domains with a full stock at the same time
_SILENT = (FailureKind.NETWORK, FailureKind.TIMEOUT)
_PATIENCE = 900.0  # seconds without a finished item, all parked, until the job is paused


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run here; none of it changes what is collected.

    `concurrency` is how many items of one domain are worked on at once.
    """

    concurrency: int = 8
    limit: int | None = None
    patience: float = _PATIENCE
    seconds: float | None = None
    """The budget of time; requests look at it themselves, and what is parked is given up then."""


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
        is_open: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self._store = store
        self._collector = collector
        self._clock = clock
        self._options = options
        self._on_item = on_item
        self._is_open = is_open
        self._started = clock.now()
        self._owner = this_run()
        self._stop_reason: str | None = None
        self._failure: LonglineError | None = None
        self._wake = asyncio.Event()
        self._rests = Rests()
        self._last_lane = ""
        self._committer = Committer(
            store.queue, options.concurrency * 16, self._count, lambda: self._in_hand
        )
        self._in_hand = 0
        self._is_finding = False
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
            lanes = Lanes(group, self._work, self._options.concurrency, self._look_again)
            await self._feed(job.id, finding, lanes)
            if self._stop_reason:
                finding.cancel()
            await asyncio.wait([finding])
            await lanes.finish()
            self._committer.close()
            await asyncio.wait([committing])
            beats.cancel()

    # ------------------------------------------------------------ discovery

    async def _find(self, job: Job) -> None:
        """Discover, if nobody else does; a failure ends discovery, not the items already found."""
        self._is_finding = True
        try:
            while not self._stop_reason and await self._is_to_be_discovered(job.id):
                pass
        finally:
            self._is_finding = False
            self._wake.set()

    async def _is_to_be_discovered(self, job: str) -> bool:
        """Take one turn at discovery; False when there is nothing more to do about it."""
        if (await self._store.jobs.get(job)).is_discovered:
            return False
        if not await self._take_discovery(job):
            await self._clock.sleep(_IDLE_LOOK)
            return True
        visit = self._collector.visit(cursor=(await self._store.jobs.get(job)).cursor)
        try:
            await self._collector.source.prepare(visit)
            await self._queue_all(job, visit)
        except StoreError:
            raise  # not the source's fault: the run ends, and says so
        except BudgetSpent as error:
            problem = f"discovery ended early, {error.limit} is spent"
            await self._queue(job, Chunk(), visit, shortfall=problem)
        except RobotsDisallowed as error:
            self._failure = error
        except (CircuitOpen, Postponed) as error:
            return await self._is_sat_out(job, error)
        except Exception as error:  # noqa: BLE001  # whatever a source raises ends its discovery
            problem = str(error) if isinstance(error, LonglineError) else repr(error)
            self._failure = DiscoveryFailed(self._collector.source.name, problem)
            self._failure.__cause__ = error
        finally:
            await self._close_discovery(job, visit)
        return False

    async def _is_sat_out(self, job: str, error: CircuitOpen | Postponed) -> bool:
        """Wait until the site may be asked again; False when that is not worth waiting for."""
        wait = error.until - self._clock.now()
        is_banned = error.kind is FailureKind.BLOCKED
        if is_banned or wait > self._options.patience:
            self._failure = error
            return False
        is_silent = isinstance(error, Postponed) and error.kind in _SILENT
        if is_silent and not sum((await self._store.queue.counts(job)).values()):
            # A site that has never said anything may as well be a wrong address.
            self._failure = DiscoveryFailed(self._collector.source.name, str(error))
            return False
        await self._clock.sleep(max(wait, _IDLE_LOOK))
        return True

    async def _close_discovery(self, job: str, visit: Visit) -> None:
        await self._queue(job, Chunk(), visit)  # what was spent and met with since the last chunk
        now = self._clock.now()
        notes = [
            fact(job, now, "discovery.note", field=note.field, text=note.text)
            for note in visit.notes
        ]
        await self._store.journal.append(*notes)

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

    async def _queue(
        self,
        job: str,
        chunk: Chunk,
        visit: Visit,
        *,
        is_last: bool = False,
        shortfall: str | None = None,
    ) -> int:
        await visit.account.settle()
        found = Discovered(
            job,
            chunk.items,
            self._clock.now(),
            cursor=chunk.cursor.value if chunk.cursor else None,
            is_last=is_last or shortfall is not None,
            limit=self._options.limit,
            account=visit.account.take(),
            shortfall=shortfall,
        )
        total = await self._store.queue.add(found)
        self._look_again()
        return total

    # ------------------------------------------------------------ collection

    async def _feed(self, job: str, finding: asyncio.Task[None], lanes: Lanes) -> None:
        """Keep the workers supplied until the job has ended, stops, or has to rest."""
        while not self._stop_reason:
            self._wake.clear()
            if not self._is_dry and await self._lease(job, lanes):
                continue
            if self._in_hand:
                await self._nap(_IDLE_LOOK)
            elif await self._is_over(job, finding):
                return
            else:
                await self._rest(job)

    def _look_again(self) -> None:
        """Have the next look at the queue find out whether there is more for the workers."""
        self._is_dry = False
        self._wake.set()

    async def _lease(self, job: str, lanes: Lanes) -> bool:
        now = self._clock.now()
        stock = _STOCK * self._options.concurrency
        claim = Claim(
            job,
            self._owner,
            stock,
            now,
            now + _LEASE,
            holds=lanes.waiting(),
            resting=self._rests.resting(now),
            last=self._last_lane,
            room=_WIDEST * stock - self._in_hand,
        )
        leases = await self._store.queue.lease(claim)
        self._in_hand += len(leases)
        self._is_dry = True  # until a worker runs low, something is found, or time has passed
        lanes.add(leases)
        if leases:
            self._last_lane = leases[-1].domain
        return bool(leases)

    async def _is_over(self, job: str, finding: asyncio.Task[None]) -> bool:
        if await self._store.jobs.finish(job, self._clock.now()) is not None:
            return True
        if finding.done() and self._failure and await self._store.queue.next_due(job) is None:
            return True
        return (await self._store.jobs.get(job)).state not in OPEN_STATES

    async def _rest(self, job: str) -> None:
        """Wait for parked items to fall due, for discovery, or for other processes."""
        waiting = await self._store.queue.waiting(job)
        now = self._clock.now()
        due = self._rests.next_due(waiting)
        if due is None:
            await self._reclaim(job)  # what is left is with others, who may have died
            await self._nap(_IDLE_LOOK)
            return
        if await self._is_time_up(job, now):
            return
        block = self._rests.block(waiting, now)
        if block is not None and not self._is_finding:
            self.stop(block)
        elif due > now and now - self._last_finish > self._options.patience:
            self.stop("every item is parked: the site has not answered for too long")
        else:
            await self._nap(min(max(due - now, 0.01), _PARKED_LOOK))

    async def _is_time_up(self, job: str, now: float) -> bool:
        """Give up what is parked once the budget of time is spent."""
        seconds = self._options.seconds
        limit = exceeded(Budget(seconds=seconds), Spent(), now - self._started)
        if limit is None or self._is_finding:
            return False
        reason = str(BudgetSpent("", limit))
        await self._store.queue.give_up(job, FailureKind.BUDGET, reason, now)
        return True

    async def _nap(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            self._is_dry = False  # others may have queued or released something

    async def _work(self, lease: Lease) -> None:
        if self._stop_reason or self._rests.is_resting(lease.domain, self._clock.now()):
            await self._store.queue.release([lease])
            self._in_hand -= 1
            self._wake.set()
            return
        extraction = await self._collector.collect(lease.item, tries=lease.tries)
        self._rests.note(lease.domain, extraction.outcome)
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
            await self._wake_up()

    async def _wake_up(self) -> None:
        """Go on with domains whose breaker somebody has closed by hand."""
        if self._is_open is None:
            return
        for domain in self._rests.broken():
            if not await self._is_open(domain):
                self._rests.forget(domain)
                self._look_again()

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
