"""The work on chunks of one domain, one after the other without a gap, within a limit of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from longline.clock import Clock
from longline.engines.ahead import Ahead
from longline.engines.committing import Committer, finish_of
from longline.engines.halting import Halt, beat
from longline.engines.options import RunOptions
from longline.engines.overrunning import Try
from longline.engines.raising import first_of
from longline.errors import FailureKind, LonglineError
from longline.jobs.collector import Collector
from longline.model import ItemState, Lease, Outcome, Verdict
from longline.stores.finishing import Finish, spent_on
from longline.stores.store import Store
from longline.stores.taking import Taken

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
        store: Store,
        collector: Collector,
        clock: Clock,
        options: RunOptions,
        *,
        taken: Taken,
        room: asyncio.Semaphore,
        halt: Halt,
        on_commit: Callable[[Finish, ItemState | None], None],
        diary: Diary,
        refill: Refill | None = None,
    ) -> None:
        self._store = store
        self._collector = collector
        self._clock = clock
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
        self._ahead = Ahead(self._width)
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
        self._committer = Committer(
            store.queue, options.concurrency * 16, self._count, lambda: len(self._chunk_of)
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
        try:
            await self._run_tasks(seconds)
        except* LonglineError as several:
            raise first_of(several) from several
        spent = self._clock.now() - started
        done = tuple(self._done)
        reason = self._halt.reason or self._reason
        return ChunkEnd(self._finished, self._handed_back, spent, reason, done)

    async def _run_tasks(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(
                beat(self._store, self._clock, self._job, self._owners, self._halt)
            )
            halting = group.create_task(self._halt.wait())
            committing = group.create_task(self._committer.run())
            count = self._width if self._refill else min(self._width, len(self._waiting))
            workers = [group.create_task(self._serve(group)) for _ in range(count)]
            await self._until_ended(workers, halting, seconds)
            await self._bring_home(workers, halting, seconds)
            self._committer.close()
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
            await self._store.journal.add_up(self._job, spent_on(one.account.take()))
        for one in slow:
            before = await self._store.ledger.overruns(self._job, one.lease.item.key)
            await self._committer.hand_over(one.overrun(self._clock.now(), limit, before))

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
        lease, account = attempt.lease, attempt.account
        extraction = await self._collector.collect(lease.item, tries=lease.tries, account=account)
        outcome = extraction.outcome
        if outcome.verdict is Verdict.LATER and outcome.is_for_domain:
            self._rest = self._rest or outcome
            self._halt.say(outcome.reason or f"{lease.domain} rests")
        now = self._clock.now()
        with account.waiting:
            await self._committer.hand_over(finish_of(lease, extraction, now, self._options.limit))

    def _count(self, finish: Finish, state: ItemState | None) -> None:
        self._settle(finish.lease)
        self._finished += state is not None
        self._on_commit(finish, state)


async def _wait(tasks: Sequence[asyncio.Task[None]], seconds: float | None = None) -> None:
    """Wait until these have ended, or for so long."""
    if busy := [one for one in tasks if not one.done()]:
        await asyncio.wait(busy, timeout=seconds)
