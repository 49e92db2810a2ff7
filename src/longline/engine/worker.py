"""A worker: takes the leased items of one domain through the source, and commits what became.

The local engine and the workers of a cluster use the same one. They differ in who starts it and
where more leases come from.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from longline.core.errors import FailureKind, LonglineError
from longline.core.logging import log_context
from longline.core.model import (
    OVERRAN,
    Failure,
    ItemState,
    Lease,
    Outcome,
    OutcomeAction,
    Usage,
)
from longline.engine.extractor import Collector
from longline.engine.runtime import CommitQueue, RunOptions, Runtime, completion_of, first_of
from longline.storage.queue.completion import Completion, spent_on

_LOG = logging.getLogger(__name__)

_GRACE = 0.1  # of the time limit, for what is in flight when it is reached
_LONGEST_GRACE = 60.0
_POLL = 1.0  # seconds between two checks of items in flight beyond that
_LATE = 5.0  # seconds until the feed is told which owners hold nothing, if no more are needed
_MOST_OVERRUNS = 3  # attempts of an item that may take longer than the soft limit
_MOST_AHEAD = 128
_MOST_WAITING = 2  # items that are begun and wait, before another is begun

Feed = Callable[[Sequence[str], int], Awaitable[Sequence[Lease]]]
"""Given the owners that hold nothing any more, and how many items of the domain are wanted.

Returns about as many leases; none when there are no more.
"""


class Diary(Protocol):
    """Is told what is being worked on, for the supervisor of a process that dies of it."""

    def item_begun(self, item: int) -> None:
        """Note that work on an item, by its id, begins."""

    def item_ended(self, item: int) -> None:
        """Note that it has ended."""


class StopSignal:
    """Says once, and for good, that nothing more is to be begun."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.grace: float | None = None
        """Seconds that what is in flight has at most; None: what the work allows."""
        self._is_set = asyncio.Event()
        self._has_changed = asyncio.Event()

    def say(self, reason: str, *, grace: float | None = None) -> None:
        """Have the work end; the first reason counts, and the shortest grace."""
        self.reason = self.reason or reason
        if grace is not None and (self.grace is None or grace < self.grace):
            self.grace = grace
            self._has_changed.set()
        self._is_set.set()

    async def wait(self) -> None:
        """Wait until it was said."""
        await self._is_set.wait()

    async def wait_for_shorter_grace(self) -> None:
        """Wait until it is said again, with a shorter grace."""
        self._has_changed.clear()
        await self._has_changed.wait()


@dataclass(frozen=True, slots=True)
class WorkEnd:
    """How many items were committed, how many go to other workers, and how long it took.

    `reason` is why not all of them were begun, or came to their end.
    """

    finished: int
    handed_back: int
    seconds: float
    reason: str | None = None


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # an attempt is made in the task that works on it
    return task


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt at an item that is under way. `usage` is filled as it goes."""

    lease: Lease
    usage: Usage = field(default_factory=Usage)
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    task: asyncio.Task[None] = field(default_factory=_this_task)

    def lasted(self) -> float:
        """Return the seconds since it began."""
        return asyncio.get_running_loop().time() - self.began

    def worked(self) -> float:
        """Return those of them in which it did not only wait."""
        return self.lasted() - self.usage.waiting.seconds()

    def deserves_time(self, limit: float) -> bool:
        """Say whether to let it go on when the time of the whole work is up.

        Not when it has worked for longer than `limit`, or was begun late and mostly works: it may
        do better next time. All others would take as long again.
        """
        lasted, worked = self.lasted(), self.worked()
        return worked < limit and (lasted >= limit or worked < lasted / 2)

    def overrun(self, at: float, limit: float, before: int) -> Completion:
        """Return the outcome of an attempt that has worked for longer than `limit`.

        `before` is how often that has happened to its item: the third time, it fails. An item that
        is queued again by a person has three more.
        """
        item, worked = self.lease.item, self.worked()
        usage = self.usage.take()  # a thread that cannot be cancelled may still add to it
        if (before + 1) % _MOST_OVERRUNS:
            reason = f"it took longer than {limit:g} s, waits not counted"
            outcome = Outcome(OutcomeAction.DEFER, kind=FailureKind.TIMEOUT, reason=reason, due=at)
        else:
            reason = (
                f"it took longer than {limit:g} s three times, waits not counted: "
                "raise soft_limit, or make the source quicker"
            )
            outcome = Outcome(OutcomeAction.FAIL, kind=FailureKind.TIMEOUT, reason=reason)
        usage.failures.append(
            Failure(at, item.url, FailureKind.TIMEOUT, reason, OVERRAN, worked, usage.status)
        )
        return Completion(self.lease, outcome, at, worked, usage)


class Prefetch:
    """How many leases a worker holds ahead: twice as many as are begun while more are fetched.

    Whenever all were begun before more had come, it is twice as many as before. So a quick site
    has many leased at a time, and a slow one never more than it needs.
    """

    def __init__(self, width: int) -> None:
        """Start with as many as can be begun at the same time."""
        self._width = width
        self._count = width
        self._begun = 0
        self._is_dry = False

    def wanted(self, waiting: int) -> int:
        """Return how many more to lease when so many wait; 0 when those are enough."""
        return 2 * self._count - waiting if waiting <= self._count else 0

    def item_begun(self) -> None:
        """Note that one more does not wait."""
        self._begun += 1

    def ran_dry(self) -> None:
        """Note that one could have been begun, and none waited."""
        self._is_dry = True

    def start(self) -> None:
        """Note that more are being leased from now on."""
        self._begun, self._is_dry = 0, False

    def learn(self) -> None:
        """Note that they have come."""
        needed = self._width + 2 * self._begun
        if self._is_dry:
            needed = max(needed, 2 * self._count)
        self._count = min(needed, max(self._width, _MOST_AHEAD))


class DomainWorker:
    """Works on leases of one domain, and on those that `feed` returns before they run out.

    Args:
        runtime: what all jobs of the process share.
        collector: takes an item through the source.
        options: `concurrency` and limits of time.
        leases: what to begin with; all of one job and domain.
        room: how many items of the domain are worked on at once, also by other workers.
        stop: ends it early, and is told why when it ends by itself.
        on_commit: called with the new state of each item, None when its lease was lost.
        diary: is told which items are begun.
        feed: returns more leases; without it, the worker ends with what it has.
    """

    def __init__(
        self,
        runtime: Runtime,
        collector: Collector,
        options: RunOptions,
        *,
        leases: Sequence[Lease],
        room: asyncio.Semaphore,
        stop: StopSignal,
        on_commit: Callable[[Completion, ItemState | None], None],
        diary: Diary | None = None,
        feed: Feed | None = None,
    ) -> None:
        self._store = runtime.store
        self._clock = runtime.clock
        self._collector = collector
        self._options = options
        self._job = leases[0].job
        self.domain = leases[0].domain
        self._room = room
        self._stop = stop
        self._on_commit = on_commit
        self._diary = diary
        self._feed = feed
        self._has_more = feed is not None
        self._is_draining = False
        self._feeding: asyncio.Task[None] | None = None
        self._fed = asyncio.Event()
        self._ahead = Prefetch(options.concurrency)
        self._waiting: deque[Lease] = deque()
        self._begun: dict[int, Attempt] = {}
        self._in_hand: dict[int, Lease] = {}
        self._owners: Counter[str] = Counter()
        self._emptied: list[str] = []
        self._emptied_since = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup
        self._finished = 0
        self._handed_back = 0
        self._rest: Outcome | None = None
        self._reason: str | None = None
        self.is_in_overtime = False
        """Whether its time is up, and it goes on for items that wait."""
        self._commits = CommitQueue(
            runtime.committer, options.concurrency * 16, self._count, lambda: len(self._in_hand)
        )
        self._hold(leases)

    @property
    def has_waiting(self) -> bool:
        """Whether some are not begun yet, or more are just being leased."""
        return bool(self._waiting) or self._feeding is not None

    @property
    def in_flight(self) -> int:
        """How many are being worked on."""
        return len(self._begun)

    @property
    def in_hand(self) -> int:
        """How many are leased and not committed."""
        return len(self._in_hand)

    def owners(self) -> Collection[str]:
        """Return the names that it holds leases under."""
        return list(self._owners)

    def look_for_more(self) -> None:
        """Have the feed asked again, although it had no more."""
        if self._feed is not None:
            self._has_more = True
            self._feed_if_low()

    async def run(self, seconds: float | None = None) -> WorkEnd:
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
        return WorkEnd(self._finished, self._handed_back, spent, self._stop.reason or self._reason)

    def take_emptied(self) -> list[str]:
        """Return the owners that hold nothing any more and were not told to the feed."""
        emptied, self._emptied = self._emptied, []
        return emptied

    async def _run_tasks(self, seconds: float | None) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            stopping = group.create_task(self._stop.wait())
            committing = group.create_task(self._commits.run())
            self._begin_more()
            await self._until_ended(stopping, seconds)
            await self._drain(stopping, seconds)
            self._commits.close()
            await asyncio.wait([committing])
            stopping.cancel()

    def _begin_more(self) -> None:
        """Begin another item, unless enough of them wait for the site's rate limit already.

        To begin all that may run at once would only make them wait in line, each with its memory.
        """
        is_full = len(self._tasks) >= self._options.concurrency
        if is_full or not self._waiting or self._has_to_end() or self._do_enough_wait():
            return
        task = self._spawn(self._serve())
        if task is None:
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # After the first step of the new task: then it is known whether it waits, too.
        asyncio.get_running_loop().call_soon(self._begin_more)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        try:
            return self._group.create_task(work)
        except RuntimeError:  # an error is ending the whole group
            work.close()
            return None

    def _do_enough_wait(self) -> bool:
        waiting = sum(one.usage.waiting.is_waiting for one in self._begun.values())
        return waiting >= _MOST_WAITING

    async def _until_ended(self, stopping: asyncio.Task[None], seconds: float | None) -> None:
        """Wait until all tasks have ended, nothing more may be begun, or the time is up."""
        over = None if seconds is None else self._clock.now() + seconds
        while not stopping.done() and (self._tasks or self._feeding):
            left = None if over is None else over - self._clock.now()
            if left is not None and left <= 0:
                self._reason = f"the limit of {seconds:g} s is reached"
                return
            busy = {*self._tasks, stopping, *([self._feeding] if self._feeding else [])}
            await asyncio.wait(busy, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _drain(self, stopping: asyncio.Task[None], seconds: float | None) -> None:
        """Hand back what was not begun, at once, and later what does not come to its end."""
        self._is_draining = True
        if self._feeding is not None:
            await asyncio.wait([self._feeding])  # what it leases now is handed back, too
        self._fed.set()
        unbegun = list(self._waiting)
        self._waiting.clear()
        await self._hand_back(unbegun)
        await self._park()
        grace = _LONGEST_GRACE if seconds is None else min(seconds * _GRACE, _LONGEST_GRACE)
        await self._wait_for_attempts(grace)
        if not stopping.done():  # only the time is up
            await self._wait_for_waiting_attempts(stopping)
            await self._wait_for_attempts(grace)
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._settle_broken_off(list(self._begun.values()))
        await self._park()  # once more: what was in flight may have been deferred

    async def _wait_for_attempts(self, grace: float) -> None:
        """Wait until all that is in flight has come to its end, or the grace is over."""
        began = self._clock.now()
        while tasks := [one.task for one in self._begun.values() if not one.task.done()]:
            allowed = grace if self._stop.grace is None else min(grace, self._stop.grace)
            left = began + allowed - self._clock.now()
            if left <= 0:
                return
            changing = self._group.create_task(self._stop.wait_for_shorter_grace())
            await asyncio.wait(
                [*tasks, changing], timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if changing.done():
                began = self._clock.now()  # the grace counts from when it was said
            changing.cancel()

    async def _wait_for_waiting_attempts(self, stopping: asyncio.Task[None]) -> None:
        """Let items that mostly wait come to their end: begun again, they would wait as long again.

        Ends early when something else than the time says that it is enough.
        """
        limit = self._options.soft_limit
        self.is_in_overtime = True
        while not stopping.done() and self._begun:
            stuck = [one for one in self._begun.values() if not one.deserves_time(limit)]
            for one in stuck:
                one.task.cancel()
            if busy := [one.task for one in stuck if not one.task.done()]:
                await asyncio.wait(busy)
            # One may have come to its end all the same: code can answer a cancellation.
            await self._settle_broken_off([one for one in stuck if one.lease.id in self._begun])
            if self._feed is not None and self._emptied:
                await self._feed(self.take_emptied(), 0)
            if tasks := [one.task for one in self._begun.values()]:
                await asyncio.wait(
                    [*tasks, stopping], timeout=_POLL, return_when=asyncio.FIRST_COMPLETED
                )
        self.is_in_overtime = False

    async def _settle_broken_off(self, attempts: Sequence[Attempt]) -> None:
        """Hand back what only waited, or was begun late; of what took too long, keep count."""
        limit = self._options.soft_limit
        for one in attempts:
            del self._begun[one.lease.id]
        slow = [one for one in attempts if one.worked() >= limit]
        others = [one for one in attempts if one not in slow]
        await self._hand_back([one.lease for one in others])
        for one in others:  # the next attempt asks once more, but the site has seen these requests
            await self._store.events.add_statistics(self._job, spent_on(one.usage.take()))
        for one in slow:
            before = await self._store.failures.overruns(self._job, one.lease.item.key)
            await self._commits.hand_over(one.overrun(self._clock.now(), limit, before))

    async def _hand_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._handed_back += len(leases)
            await self._store.queue.release(leases)
            _LOG.debug("%d leases of %s released", len(leases), self.domain)
            for lease in leases:
                self._let_go(lease)

    async def _park(self) -> None:
        """Defer the domain's other items, too, if they would fare the same."""
        rest = self._rest
        if rest is None or rest.due is None:
            return
        kind, reason = rest.kind or FailureKind.NETWORK, rest.reason or f"{self.domain} rests"
        await self._store.queue.park(self._job, self.domain, rest.due, kind=kind, reason=reason)

    # ------------------------------------------------------------ the items

    def _hold(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._in_hand[lease.id] = lease
            self._owners[lease.owner] += 1
        self._waiting.extend(leases)
        _LOG.debug("%d items of %s leased", len(leases), self.domain)

    def _let_go(self, lease: Lease) -> None:
        """Note that an item is at its end here."""
        del self._in_hand[lease.id]
        self._owners[lease.owner] -= 1
        if not self._owners[lease.owner]:
            del self._owners[lease.owner]
            self._emptied_since = self._emptied_since if self._emptied else self._clock.now()
            self._emptied.append(lease.owner)

    async def _serve(self) -> None:
        has_worked = False
        while not self._has_to_end():
            self._feed_if_low()
            if self._waiting:
                if has_worked and self._do_enough_wait():
                    return  # the end of a wait begins more
                async with self._room:
                    await self._begin_next()
                has_worked = True
            elif self._feeding is not None:
                if has_worked:
                    self._ahead.ran_dry()
                await self._fed.wait()
            else:
                return

    def _has_to_end(self) -> bool:
        """Say whether nothing more is to be begun."""
        return self._is_draining or self._stop.reason is not None or self._reason is not None

    def _feed_if_low(self) -> None:
        if self._feed is None or self._feeding is not None or self._has_to_end():
            return
        is_late = bool(self._emptied) and self._clock.now() - self._emptied_since > _LATE
        is_low = self._has_more and self._ahead.wanted(len(self._waiting)) > 0
        if is_low or is_late:
            self._fed.clear()
            self._feeding = self._spawn(self._lease_more(self._feed))

    async def _lease_more(self, feed: Feed) -> None:
        """Lease more before the last item is begun."""
        try:
            wanted = self._ahead.wanted(len(self._waiting)) if self._has_more else 0
            self._ahead.start()
            leases = await feed(self.take_emptied(), wanted)
            self._ahead.learn()
            self._hold(leases)
            if wanted and not leases:
                self._has_more = False
        finally:
            self._feeding = None
            self._fed.set()
        self._begin_more()

    async def _begin_next(self) -> None:
        if self._has_to_end() or not self._waiting:  # something came while it waited for room
            return
        lease = self._waiting.popleft()
        attempt = self._begun[lease.id] = Attempt(lease)
        attempt.usage.waiting.on_end = self._begin_more
        self._ahead.item_begun()
        if self._diary is not None:
            self._diary.item_begun(lease.id)
        try:
            await self._work(attempt)
        except (KeyboardInterrupt, SystemExit):
            raise  # this process ends with it in hand
        except BaseException:
            if self._diary is not None:
                self._diary.item_ended(lease.id)
            raise
        if self._diary is not None:
            self._diary.item_ended(lease.id)
        del self._begun[lease.id]

    async def _work(self, attempt: Attempt) -> None:
        lease, usage = attempt.lease, attempt.usage
        with log_context(job=lease.job):
            extraction = await self._collector.collect(lease.item, tries=lease.tries, usage=usage)
        outcome = extraction.outcome
        if outcome.action is OutcomeAction.DEFER and outcome.is_for_domain:
            self._rest = self._rest or outcome
            self._stop.say(outcome.reason or f"{lease.domain} rests")
        now = self._clock.now()
        with usage.waiting:
            await self._commits.hand_over(
                completion_of(lease, extraction, now, self._options.limit)
            )

    def _count(self, finish: Completion, state: ItemState | None) -> None:
        self._let_go(finish.lease)
        self._finished += state is not None
        self._on_commit(finish, state)
