"""The cluster's half of a job: one process works on chunks of it, discovers, or ends it.

Many processes do so at the same time. What each must know of the others stands in the database;
nothing here is told by message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from longline.clock import Clock
from longline.engines.chunk_work import ChunkEnd, ChunkWork, Diary, NoDiary, Refill
from longline.engines.discovering import Discovery
from longline.engines.halting import Halt, beat
from longline.engines.options import RunOptions
from longline.engines.raising import first_of
from longline.engines.standing import GRACE, TimeLimit, rest_or_pause
from longline.errors import DiscoveryFailed, LonglineError, RobotsDisallowed
from longline.jobs.collector import Collector
from longline.jobs.drifting import Drifting
from longline.model import Job, JobState
from longline.stores.journal import fact
from longline.stores.standing import DISCOVERY_FAILED
from longline.stores.store import Store
from longline.stores.taking import TakeMore, Taken, Turn

More = Callable[[], Awaitable[TakeMore | None]]
"""Returns the wish for another chunk; None: no more are wanted."""


class ChunkEngine:
    """Does this process's part of one job; one object a job and process, for many chunks.

    Each piece of work has an owner's name of its own (`jobs.owner.this_child`). `diary` is told
    what is being worked on. The time budget of the job counts from `since`, by default from now.
    """

    def __init__(
        self,
        store: Store,
        collector: Collector,
        clock: Clock,
        options: RunOptions,
        *,
        job: Job,
        diary: Diary | None = None,
        since: float | None = None,
    ) -> None:
        self._store = store
        self._collector = collector
        self._clock = clock
        self._options = options
        self._job = job
        self._diary = diary or NoDiary()
        self._time_limit = TimeLimit.of(options.seconds, clock.now() if since is None else since)
        self._stop_reason: str | None = None
        self._halts: set[Halt] = set()
        self._works: set[ChunkWork] = set()
        self._rooms: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(options.concurrency)
        )
        self._drift = Drifting(store, collector.source, clock)
        self._is_watching = False

    def stop(self, reason: str) -> None:
        """Begin nothing more, now and later; what is in flight has its grace, and is committed.

        To be called in the thread of the loop, by `loop.call_soon_threadsafe` from elsewhere.
        """
        self._stop_reason = self._stop_reason or reason
        for halt in self._halts:
            halt.say(reason)

    @property
    def is_in_overtime(self) -> bool:
        """Whether something goes on here although its time is up, for items that wait."""
        return any(work.is_in_overtime for work in self._works)

    def busy_domains(self) -> set[str]:
        """Return the domains of which no more could be begun at once than is begun already."""
        loads = {work.domain: self._in_flight(work.domain) for work in self._works}
        unbegun = {work.domain for work in self._works if work.has_more}
        return unbegun | {name for name, load in loads.items() if load >= self._options.concurrency}

    async def run_chunk(
        self, taken: Taken, *, seconds: float, more: More | None = None
    ) -> ChunkEnd:
        """Work on a chunk that was taken, and mark it done; the caller offers more, or finishes.

        Several may run at the same time; those of one domain share what it may have at once. With
        the wishes that `more` returns, others of its job and domain are taken before it runs dry.

        After `seconds` nothing more is begun: what was not is handed back, and what is in flight
        has a tenth of that time, at most a minute, to come to its end before it is handed back,
        too. The same when the job is paused, cancelled or gone, and on `stop`. But items that
        mostly wait are not handed back for the time alone: they would wait as long again. One that
        has worked for longer than the soft limit, waits not counted, has used up its try; the third
        time, it fails.

        Raises:
            StoreError: the database does not take any more. What was not committed is leased until
                that expires, and the chunk is lost: the sweeper offers all of it anew.
        """
        domain = taken.leases[0].domain
        with self._halting() as halt, self._time_limited(halt):
            await self._begin_watching()
            work = ChunkWork(
                self._store,
                self._collector,
                self._clock,
                self._options,
                taken=taken,
                room=self._rooms[domain],
                halt=halt,
                on_commit=self._drift.tell,
                diary=self._diary,
                refill=None if more is None else self._refill(more, domain),
            )
            self._works.add(work)
            try:
                end = await work.run(seconds)
            finally:
                self._works.discard(work)
        await self._drift.look()
        for chunk, owner in end.done:
            await self._store.chunks.finish(chunk, owner, self._clock.now())
        return end

    def _refill(self, more: More, domain: str) -> Refill:
        async def refill(done: Sequence[tuple[int, str]], wanted: int) -> Sequence[Taken]:
            await self._drift.look()
            wish = await more() if wanted else None
            if wish is not None:
                count = -(-wanted // wish.size)
                then = replace(wish, domain=domain, busy=frozenset())
                return await self._store.chunks.turn(Turn(self._job.id, done, then, count))
            for chunk, owner in done:
                await self._store.chunks.finish(chunk, owner, self._clock.now())
            return ()

        return refill

    async def discover(
        self, on_found: Callable[[], Awaitable[None]], *, owner: str
    ) -> LonglineError | None:
        """Find items as `owner`, unless somebody living does; return why not all could be found.

        `on_found` is awaited whenever items were queued, beside the search: there chunks are
        offered and sent. A failure is noted in the journal: the job goes on with what was found,
        and is paused when that is done (`engines.standing.rest_or_pause`); it fails at once when
        nothing was found.

        Raises:
            StoreError: the database does not take any more; whoever discovers next goes on.
        """
        job = self._job.id
        found = asyncio.Event()
        with self._halting() as halt:
            discovery = Discovery(
                self._store,
                self._collector,
                self._clock,
                owner,
                limit=self._options.limit,
                patience=self._options.patience,
                is_stopped=lambda: halt.reason is not None,
                on_found=found.set,
                is_patient=False,
                time_limit=self._time_limit,
            )
            try:
                await self._search(discovery, owner, halt, found, on_found)
            except* LonglineError as several:
                raise first_of(several) from several
            if discovery.failure is not None:
                await self._note_failure(discovery.failure)
            await self._store.jobs.leave_discovery(job, owner)
        await rest_or_pause(self._store, job, self._clock.now(), self._options)
        return discovery.failure

    async def finish(self) -> JobState | None:
        """End the job if all its items are finished, with what its records have to say.

        None when they are not, or when somebody else has ended it: of all callers one is told the
        state, and tells the source.
        """
        if not await self._store.jobs.is_over(self._job.id):
            return None
        await self._begin_watching()
        ending = await self._drift.ending()
        return await self._store.jobs.finish(self._job.id, self._clock.now(), ending)

    def _in_flight(self, domain: str) -> int:
        return sum(work.in_flight for work in self._works if work.domain == domain)

    @contextlib.contextmanager
    def _halting(self) -> Iterator[Halt]:
        """Give what ends one piece of work, together with all others or alone."""
        halt = Halt()
        self._halts.add(halt)
        if self._stop_reason:
            halt.say(self._stop_reason)
        try:
            yield halt
        finally:
            self._halts.discard(halt)

    @contextlib.contextmanager
    def _time_limited(self, halt: Halt) -> Iterator[None]:
        """End a piece of work when the time budget of the job is spent."""
        limit = self._time_limit
        if limit is None:
            yield
            return
        reason = f"{limit.words} is spent"
        left = max(0.0, limit.left(self._clock.now()))
        say = partial(halt.say, reason, grace=GRACE)
        timer = asyncio.get_running_loop().call_later(left, say)
        try:
            yield
        finally:
            timer.cancel()

    async def _begin_watching(self) -> None:
        if not self._is_watching:
            await self._drift.begin(self._job)
            self._is_watching = True

    async def _search(
        self,
        discovery: Discovery,
        owner: str,
        halt: Halt,
        found: asyncio.Event,
        on_found: Callable[[], Awaitable[None]],
    ) -> None:
        job = self._job.id
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(beat(self._store, self._clock, job, lambda: [owner], halt))
            halting = group.create_task(halt.wait())
            finding = group.create_task(discovery.run(job))
            telling = group.create_task(_tell(found, on_found, finding))
            await asyncio.wait([finding, halting], return_when=asyncio.FIRST_COMPLETED)
            finding.cancel()
            await asyncio.wait([finding])
            found.set()
            await asyncio.wait([telling])
            beats.cancel()
            halting.cancel()

    async def _note_failure(self, failure: LonglineError) -> None:
        told = fact(
            self._job.id,
            self._clock.now(),
            DISCOVERY_FAILED,
            reason=str(failure),
            is_fatal=isinstance(failure, DiscoveryFailed),
            host=failure.host if isinstance(failure, RobotsDisallowed) else None,
        )
        await self._store.journal.append(told)


async def _tell(
    found: asyncio.Event, on_found: Callable[[], Awaitable[None]], finding: asyncio.Task[None]
) -> None:
    """Tell of what was found, for the last time when the search is over."""
    is_last = False
    while not is_last:
        await found.wait()
        found.clear()
        is_last = finding.done()
        await on_found()
