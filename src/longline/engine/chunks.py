"""The cluster's half of a job: one process works on chunks of it, discovers, or ends it.

Many processes do so at the same time. What each must know of the others stands in the database;
nothing here is told by message.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from longline.core.errors import DiscoveryFailed, FailureKind, LonglineError
from longline.core.model import ItemState, Job, JobState, Lease, Outcome, OutcomeAction
from longline.drift.monitor import DriftMonitor
from longline.engine.committer import CommitQueue, completion_of, first_of
from longline.engine.discovery import Discovery
from longline.engine.domain_queues import Prefetch
from longline.engine.extractor import Collector
from longline.engine.heartbeat import Beating, stop_reason
from longline.engine.options import RunOptions
from longline.engine.pause_policy import GRACE, TimeLimit, rest_or_pause
from longline.engine.runtime import Runtime
from longline.engine.time_limits import StopSignal, Try
from longline.http.errors import RobotsDisallowed
from longline.storage.events import event_row
from longline.storage.queue.chunks import TakeMore, Taken, Turn
from longline.storage.queue.outcomes import Completion, spent_on
from longline.storage.queue.standing import DISCOVERY_FAILED

# ---------------- The work on chunks of one domain, one after the other without a gap, within a

_GRACE = 0.1  # of the limit of time, for what is in flight when it is reached
_LONGEST_GRACE = 60.0
_LOOK = 1.0  # seconds between looks at what waits beyond that
_LATE = 5.0  # seconds after which it is told that a chunk is done, though nothing more is needed


class Diary(Protocol):
    """Is told what is being worked on, for whoever comes after a process that died of it."""

    def chunk_taken(self) -> None:
        """Note that a chunk is in hand."""

    def item_begun(self, item: int) -> None:
        """Note that work on an item, by its id, begins."""

    def item_ended(self, item: int) -> None:
        """Note that it has ended."""


class NoDiary(Diary):
    """Is told and forgets."""

    def chunk_taken(self) -> None:
        pass

    def item_begun(self, item: int) -> None:
        pass

    def item_ended(self, item: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """How many items were committed, how many go to somebody else, and how long it took.

    `reason` is why not all of them were begun, or came to their end. `done` are the chunks that
    have not been marked as done yet.
    """

    finished: int
    handed_back: int
    seconds: float
    reason: str | None = None
    done: tuple[tuple[int, str], ...] = ()


Refill = Callable[[Sequence[tuple[int, str]], int], Awaitable[Sequence[Taken]]]
"""Told the chunks that are done, by id and owner, and how many items of the domain are wanted.

Returns chunks that hold about so many; none when no more are to be had.
"""


@dataclass(slots=True)
class _Held:
    """A chunk in hand: under which name, and how many of its items are not at their end."""

    chunk: int
    owner: str
    left: int


class ChunkWork:
    """Works on the leases of a chunk, and of those that `refill` gives before it runs dry.

    `halt` ends it early, and is told why when it does so by itself; `on_commit` is told the new
    state of each item, or None when its lease was lost. `room` is what the domain's items have at
    once, shared with other work on the same domain.
    """

    def __init__(
        self,
        runtime: Runtime,
        collector: Collector,
        options: RunOptions,
        *,
        taken: Taken,
        room: asyncio.Semaphore,
        halt: StopSignal,
        on_commit: Callable[[Completion, ItemState | None], None],
        diary: Diary,
        refill: Refill | None = None,
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._heartbeat = runtime.heartbeat
        self._collector = collector
        self._options = options
        self._job = taken.job
        self._domain = taken.leases[0].domain
        self._width = options.concurrency
        self._room = room
        self._halt = halt
        self._on_commit = on_commit
        self._diary = diary
        self._refill = refill
        self._refilling: asyncio.Task[None] | None = None
        self._refilled = asyncio.Event()
        self._ahead = Prefetch(self._width)
        self._waiting: deque[Lease] = deque()
        self._begun: dict[int, Try] = {}
        self._held: dict[int, _Held] = {}
        self._chunk_of: dict[int, _Held] = {}
        self._done: list[tuple[int, str]] = []
        self._done_since = 0.0
        self._finished = 0
        self._handed_back = 0
        self._rest: Outcome | None = None
        self._reason: str | None = None
        self.is_in_overtime = False
        """Whether its time is up, and it goes on for items that wait."""
        self._commits = CommitQueue(
            runtime.committer, options.concurrency * 16, self._count, lambda: len(self._chunk_of)
        )
        self._add(taken)

    @property
    def domain(self) -> str:
        """Whose items they are."""
        return self._domain

    @property
    def has_more(self) -> bool:
        """Whether some are not begun yet, or more are just being taken."""
        return bool(self._waiting) or self._refilling is not None

    @property
    def in_flight(self) -> int:
        """How many are being worked on."""
        return len(self._begun)

    async def run(self, seconds: float) -> ChunkEnd:
        """Work until all is done or handed back; after `seconds` nothing more is begun.

        Raises:
            StoreError: the database does not take any more.
        """
        started = self._clock.now()
        beating = Beating(self._job, self._owners, partial(_obey, self._halt))
        try:
            with self._heartbeat.keeping(beating):
                await self._run_tasks(seconds, beating)
        except* LonglineError as several:
            raise first_of(several) from several
        spent = self._clock.now() - started
        done = tuple(self._done)
        reason = self._halt.reason or self._reason
        return ChunkEnd(self._finished, self._handed_back, spent, reason, done)

    async def _run_tasks(self, seconds: float, beating: Beating) -> None:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(beating.wait_for_failure())
            halting = group.create_task(self._halt.wait())
            committing = group.create_task(self._commits.run())
            count = self._width if self._refill else min(self._width, len(self._waiting))
            workers = [group.create_task(self._serve(group)) for _ in range(count)]
            await self._until_ended(workers, halting, seconds)
            await self._bring_home(workers, halting, seconds)
            self._commits.close()
            await asyncio.wait([committing])
            beats.cancel()
            halting.cancel()

    def _owners(self) -> list[str]:
        return [held.owner for held in self._held.values()]

    async def _until_ended(
        self,
        workers: Sequence[asyncio.Task[None]],
        halting: asyncio.Task[None],
        seconds: float,
    ) -> None:
        """Wait until every worker has ended, nothing more may be begun, or the time is up."""
        over = self._clock.now() + seconds
        while not halting.done() and any(not one.done() for one in workers):
            busy = [one for one in workers if not one.done()]
            left = over - self._clock.now()
            if left <= 0:
                self._reason = f"the limit of {seconds:g} s is reached"
                return
            await asyncio.wait([*busy, halting], timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _bring_home(
        self, workers: Sequence[asyncio.Task[None]], halting: asyncio.Task[None], seconds: float
    ) -> None:
        """Hand back what was not begun, at once, and later what does not come to its end."""
        self._refill = None
        if self._refilling is not None:
            await asyncio.wait([self._refilling])  # what it takes now is handed back, too
        self._refilled.set()
        untouched = list(self._waiting)
        self._waiting.clear()
        await self._hand_back(untouched)
        await self._park()
        grace = min(seconds * _GRACE, _LONGEST_GRACE)
        if self._halt.grace is not None:
            grace = min(grace, self._halt.grace)
        await self._wait_for_tries(grace)
        if not halting.done():  # only the time is up
            await self._wait_with_those_that_wait(halting)
            await self._wait_for_tries(grace)
        for one in workers:
            one.cancel()
        await _wait(workers)
        await self._settle_broken_off(list(self._begun.values()))
        await self._park()  # once more: what was in flight may have been told to rest

    async def _wait_for_tries(self, seconds: float) -> None:
        """Wait until all that is in flight has come to its end, or for so long."""
        await _wait([one.task for one in self._begun.values()], seconds)

    async def _wait_with_those_that_wait(self, halting: asyncio.Task[None]) -> None:
        """Let items that mostly wait come to their end: begun anew, they would wait as long again.

        Ends early when something else than the time says that it is enough.
        """
        limit = self._options.soft_limit
        self.is_in_overtime = True
        while not halting.done() and self._begun:
            stuck = [one for one in self._begun.values() if not one.deserves_time(limit)]
            for one in stuck:
                one.task.cancel()
            await _wait([one.task for one in stuck])
            # One may have come to its end all the same: code can answer a cancellation.
            await self._settle_broken_off([one for one in stuck if one.lease.id in self._begun])
            await self._tell_done()
            if tasks := [one.task for one in self._begun.values()]:
                await asyncio.wait(
                    [*tasks, halting], timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED
                )
        self.is_in_overtime = False

    async def _tell_done(self) -> None:
        """Mark chunks as done before the end of it all: they would be held to be lost."""
        done, self._done = self._done, []
        for chunk, owner in done:
            await self._store.chunks.finish(chunk, owner, self._clock.now())

    async def _settle_broken_off(self, tries: Sequence[Try]) -> None:
        """Hand back what only waited, or was begun late; of what took too long, keep count."""
        limit = self._options.soft_limit
        for one in tries:
            del self._begun[one.lease.id]
        slow = [one for one in tries if one.worked() >= limit]
        others = [one for one in tries if one not in slow]
        await self._hand_back([one.lease for one in others])
        for one in others:  # whoever begins them anew asks once more, but the site has seen these
            await self._store.events.add_statistics(self._job, spent_on(one.usage.take()))
        for one in slow:
            before = await self._store.failures.overruns(self._job, one.lease.item.key)
            await self._commits.hand_over(one.overrun(self._clock.now(), limit, before))

    async def _hand_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._handed_back += len(leases)
            await self._store.queue.release(leases)
            for lease in leases:
                self._settle(lease)

    async def _park(self) -> None:
        """Have the domain's other items wait, too, if they would fare the same."""
        rest, domain = self._rest, self._domain
        if rest is None or rest.due is None:
            return
        kind, reason = rest.kind or FailureKind.NETWORK, rest.reason or f"{domain} rests"
        await self._store.chunks.park(self._job, domain, rest.due, kind=kind, reason=reason)

    # ------------------------------------------------------------ the items

    def _add(self, taken: Taken) -> None:
        self._diary.chunk_taken()
        held = self._held[taken.chunk] = _Held(taken.chunk, taken.owner, len(taken.leases))
        self._chunk_of |= dict.fromkeys((lease.id for lease in taken.leases), held)
        self._waiting.extend(taken.leases)

    def _settle(self, lease: Lease) -> None:
        """Note that an item is at its end; that of its last one is that of a chunk."""
        held = self._chunk_of.pop(lease.id)
        held.left -= 1
        if not held.left:
            del self._held[held.chunk]
            self._done_since = self._done_since if self._done else self._clock.now()
            self._done.append((held.chunk, held.owner))

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        has_worked = False
        while not self._has_to_end():
            if self._refilling is None and self._is_time_to_fill():
                self._refilled.clear()
                self._refilling = group.create_task(self._fill())
            if self._waiting:
                async with self._room:
                    await self._begin_next()
                has_worked = True
            elif self._refilling is not None:
                if has_worked:
                    self._ahead.ran_dry()
                await self._refilled.wait()
            else:
                return

    def _has_to_end(self) -> bool:
        """Say whether nothing more is to be begun."""
        return self._halt.reason is not None or self._reason is not None

    def _is_time_to_fill(self) -> bool:
        if self._refill is None:
            return False
        is_late = bool(self._done) and self._clock.now() - self._done_since > _LATE
        return is_late or self._ahead.wanted(len(self._waiting)) > 0

    async def _fill(self) -> None:
        """Take more before the last item is begun, and tell which chunks are done."""
        try:
            if self._refill is not None:
                await self._take_more(self._refill)
        finally:
            self._refilling = None
            self._refilled.set()

    async def _take_more(self, refill: Refill) -> None:
        done, self._done = self._done, []
        wanted = self._ahead.wanted(len(self._waiting))
        self._ahead.start()
        taken = await refill(done, wanted)
        self._ahead.learn()
        for one in taken:
            self._add(one)
        if wanted and not taken:
            self._refill = None  # there is no more; whoever comes later takes what comes later

    async def _begin_next(self) -> None:
        if self._has_to_end() or not self._waiting:  # something came while it waited for room
            return
        lease = self._waiting.popleft()
        attempt = self._begun[lease.id] = Try(lease)
        self._ahead.item_begun()
        self._diary.item_begun(lease.id)
        try:
            await self._work(attempt)
        except (KeyboardInterrupt, SystemExit):
            raise  # this process ends with it in hand
        except BaseException:
            self._diary.item_ended(lease.id)
            raise
        self._diary.item_ended(lease.id)
        del self._begun[lease.id]

    async def _work(self, attempt: Try) -> None:
        lease, usage = attempt.lease, attempt.usage
        extraction = await self._collector.collect(lease.item, tries=lease.tries, usage=usage)
        outcome = extraction.outcome
        if outcome.action is OutcomeAction.DEFER and outcome.is_for_domain:
            self._rest = self._rest or outcome
            self._halt.say(outcome.reason or f"{lease.domain} rests")
        now = self._clock.now()
        with usage.waiting:
            await self._commits.hand_over(
                completion_of(lease, extraction, now, self._options.limit)
            )

    def _count(self, finish: Completion, state: ItemState | None) -> None:
        self._settle(finish.lease)
        self._finished += state is not None
        self._on_commit(finish, state)


async def _wait(tasks: Sequence[asyncio.Task[None]], seconds: float | None = None) -> None:
    """Wait until these have ended, or for so long."""
    if busy := [one for one in tasks if not one.done()]:
        await asyncio.wait(busy, timeout=seconds)


def _obey(halt: StopSignal, state: JobState | None, reason: str | None) -> None:
    """End a piece of work whose job does not run any more."""
    if why := stop_reason(state, reason, is_shared=True):
        halt.say(why)


More = Callable[[], Awaitable[TakeMore | None]]
"""Returns the wish for another chunk; None: no more are wanted."""


class ChunkEngine:
    """Does this process's part of one job; one object a job and process, for many chunks.

    Each piece of work has an owner's name of its own (`jobs.owner.this_child`). `diary` is told
    what is being worked on. The time budget of the job counts from `since`, by default from now.
    """

    def __init__(
        self,
        runtime: Runtime,
        collector: Collector,
        options: RunOptions,
        *,
        job: Job,
        diary: Diary | None = None,
        since: float | None = None,
    ) -> None:
        self._runtime = runtime
        self._store = store = runtime.store
        self._clock = clock = runtime.clock
        self._collector = collector
        self._options = options
        self._job = job
        self._diary = diary or NoDiary()
        self._time_limit = TimeLimit.of(options.seconds, clock.now() if since is None else since)
        self._stop_reason: str | None = None
        self._halts: set[StopSignal] = set()
        self._works: set[ChunkWork] = set()
        self._rooms: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(options.concurrency)
        )
        self._drift = DriftMonitor(store, collector.source, clock)
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
                self._runtime,
                self._collector,
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
            beating = Beating(job, lambda: [owner], partial(_obey, halt))
            try:
                with self._runtime.heartbeat.keeping(beating):
                    await self._search(discovery, beating, halt, found, on_found)
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
    def _halting(self) -> Iterator[StopSignal]:
        """Give what ends one piece of work, together with all others or alone."""
        halt = StopSignal()
        self._halts.add(halt)
        if self._stop_reason:
            halt.say(self._stop_reason)
        try:
            yield halt
        finally:
            self._halts.discard(halt)

    @contextlib.contextmanager
    def _time_limited(self, halt: StopSignal) -> Iterator[None]:
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
        beating: Beating,
        halt: StopSignal,
        found: asyncio.Event,
        on_found: Callable[[], Awaitable[None]],
    ) -> None:
        job = self._job.id
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(beating.wait_for_failure())
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
        told = event_row(
            self._job.id,
            self._clock.now(),
            DISCOVERY_FAILED,
            reason=str(failure),
            is_fatal=isinstance(failure, DiscoveryFailed),
            host=failure.host if isinstance(failure, RobotsDisallowed) else None,
        )
        await self._store.events.append(told)


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
