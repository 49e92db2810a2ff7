"""A worker of one domain: attempts leased items and hands over their outcomes.

The local engine and the children of a cluster use the same class. They differ in what starts it
and in where more leases come from.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from longline.core.errors import FailureKind, LonglineError
from longline.core.logging import LogContext
from longline.core.model import OVERRAN, Failure, ItemState, Lease, Outcome, OutcomeAction, Usage
from longline.engine.collector import Collector
from longline.engine.runtime import CommitQueue, OnCommit, RunOptions, Runtime, first_error
from longline.storage.queue.completion import cost_of

_LOG = logging.getLogger(__name__)

_GRACE = 0.1  # of the time limit, for items in flight when it is reached
_LONGEST_GRACE = 60.0
_POLL = 1.0  # seconds between two checks of items in flight beyond that
_REPORT_AFTER = 5.0  # seconds until the feed gets the owners without leases, if none is needed
_MAX_OVERRUNS = 3  # attempts of an item that may take longer than the soft limit
_MAX_PREFETCH = 128
_MAX_WAITING = 1  # attempts that wait for a slot, before another is begun

Feed = Callable[[Sequence[str], int], Awaitable[Sequence[Lease]]]
"""Called with the owners that hold no lease any more, and how many items are wanted.

Returns about as many leases; none when there are no more.
"""


class AttemptLog(Protocol):
    """Records the items in flight, for the supervisor of a process that dies of one."""

    def item_begun(self, item: int) -> None:
        """Record that an attempt at an item, by its id, begins."""

    def item_ended(self, item: int) -> None:
        """Record that it has ended."""


class StopSignal:
    """Stops a piece of work: no further attempt is begun."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.grace: float | None = None
        """Seconds that items in flight have at most; None: the default of the work."""
        self._is_set = asyncio.Event()
        self._has_changed = asyncio.Event()

    def say(self, reason: str, *, grace: float | None = None) -> None:
        """Stop the work; the first reason counts, and the shortest grace."""
        self.reason = self.reason or reason
        if grace is not None and (self.grace is None or grace < self.grace):
            self.grace = grace
            self._has_changed.set()
        self._is_set.set()

    async def wait(self) -> None:
        """Wait until the work has to stop."""
        await self._is_set.wait()

    async def wait_for_shorter_grace(self) -> None:
        """Wait until the grace becomes shorter."""
        self._has_changed.clear()
        await self._has_changed.wait()


@dataclass(frozen=True, slots=True)
class WorkEnd:
    """How many items were committed and released, and the duration in seconds.

    `reason` is why some were released.
    """

    finished: int
    handed_back: int
    seconds: float
    reason: str | None = None


@dataclass(slots=True, eq=False)
class Attempt:
    """An attempt in flight, made by `task`. `usage` is updated meanwhile."""

    lease: Lease
    usage: Usage
    began: float
    task: asyncio.Task[None]

    def lasted(self) -> float:
        """Return the seconds since it began."""
        return self.task.get_loop().time() - self.began

    def worked(self) -> float:
        """Return the seconds since it began, without waits."""
        return self.lasted() - self.usage.waiting.seconds()

    def deserves_time(self, limit: float) -> bool:
        """Return whether it may continue when the time of the whole work is up.

        Not when it has worked for longer than `limit`, or was begun late and mostly works: then the
        next attempt may be faster. Any other attempt would wait as long again.
        """
        lasted, worked = self.lasted(), self.worked()
        return worked < limit and (lasted >= limit or worked < lasted / 2)

    def overrun(self, at: float, limit: float, before: int) -> Outcome:
        """Return the outcome of an attempt that has worked for longer than `limit`.

        `before` is how often its item did so before. The third time, the item fails; when a person
        queues it again, it has three more attempts.
        """
        worked = self.worked()
        usage = self.usage.take()  # a thread that cannot be cancelled may still add to it
        reason = f"it took longer than {limit:g} s, not counting waits"
        action = OutcomeAction.DEFER
        if (before + 1) % _MAX_OVERRUNS == 0:
            action = OutcomeAction.FAIL
            reason = (
                f"it took longer than {limit:g} s three times, not counting waits: "
                "raise soft_limit, or make the source faster"
            )
        usage.failures.append(
            Failure(
                *(at, self.lease.item.url, FailureKind.TIMEOUT, reason, OVERRAN),
                *(worked, usage.status),
            )
        )
        return Outcome(
            action,
            kind=FailureKind.TIMEOUT,
            reason=reason,
            due=at if action is OutcomeAction.DEFER else None,
            at=at,
            seconds=worked,
            usage=usage,
        )


class Prefetch:
    """How many items to lease ahead: twice as many as are begun while more are being leased.

    It doubles whenever the worker runs out of items. So a fast site has many items leased ahead,
    and a slow one only what it needs.
    """

    def __init__(self, width: int) -> None:
        """Start with the number of concurrent items."""
        self._width = width
        self._count = width
        self._begun = 0
        self._is_dry = False

    def wanted(self, waiting: int) -> int:
        """Return how many items to lease when this many wait; 0 when those are enough."""
        return 2 * self._count - waiting if waiting <= self._count else 0

    def item_begun(self) -> None:
        """Count an item that was begun."""
        self._begun += 1

    def ran_dry(self) -> None:
        """Note that an item could have been begun, and none waited."""
        self._is_dry = True

    def start(self) -> None:
        """Note that more items are being leased."""
        self._begun, self._is_dry = 0, False

    def learn(self) -> None:
        """Adjust the number when they were leased."""
        needed = self._width + 2 * self._begun
        if self._is_dry:
            needed = max(needed, 2 * self._count)
        self._count = min(needed, max(self._width, _MAX_PREFETCH))


class DomainWorker:
    """Works on leases of one domain, and gets more from `feed` before they run out.

    Args:
        runtime: what all jobs of the process share.
        collector: attempts items.
        options: concurrency and time limits.
        leases: the first leases, all of one job and domain.
        room: limits the concurrent items of the domain, also those of other workers.
        stop: ends it early; it is set when the domain is deferred.
        on_commit: called with lease, outcome and new state of each committed item.
        attempts: records the items in flight.
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
        on_commit: OnCommit,
        attempts: AttemptLog | None = None,
        feed: Feed | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = runtime.store
        self._clock = runtime.clock
        self._collector = collector
        self._options = options
        self._job = leases[0].job
        self.domain = leases[0].domain
        self._room = room
        self._stop = stop
        self._on_commit = on_commit
        self._attempts = attempts
        self._feed = feed
        self._has_more = feed is not None
        self._is_draining = False
        self._feeding: asyncio.Task[None] | None = None
        self._fed = asyncio.Event()
        self._prefetch = Prefetch(options.concurrency)
        self._waiting: deque[Lease] = deque()
        self._begun: dict[int, Attempt] = {}
        self._in_hand: dict[int, Lease] = {}
        self._owners: Counter[str] = Counter()
        self._emptied: list[str] = []
        self._emptied_since = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup
        self._finished = 0
        self._released = 0
        self._deferral: Outcome | None = None
        self._reason: str | None = None
        self.is_in_overtime = False
        """Whether its time is up, and it continues for items that wait."""
        self._commits = CommitQueue(
            runtime.committer, options.concurrency * 16, self._committed, lambda: len(self._in_hand)
        )
        self._hold(leases)

    @property
    def has_waiting(self) -> bool:
        """Whether some items are not begun yet, or more are being leased."""
        return bool(self._waiting) or self._feeding is not None

    @property
    def in_flight(self) -> int:
        """How many items are being attempted."""
        return len(self._begun)

    @property
    def in_hand(self) -> int:
        """How many items are leased and not committed."""
        return len(self._in_hand)

    def owners(self) -> Collection[str]:
        """Return the owner names of its leases."""
        return list(self._owners)

    def look_for_more(self) -> None:
        """Call the feed again, although it had no more."""
        if self._feed is not None:
            self._has_more = True
            self._feed_if_low()

    async def run(self, seconds: float | None = None) -> WorkEnd:
        """Work until all items are committed or released; after `seconds` none is begun.

        Raises:
            StoreError: the database cannot be written.
        """
        started = self._clock.now()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                stopping = group.create_task(self._stop.wait())
                committing = group.create_task(self._commits.run())
                self._begin_items()
                await self._until_ended(stopping, seconds)
                await self._drain_items(stopping, seconds)
                self._commits.close()
                await asyncio.wait([committing])
                stopping.cancel()
        except* LonglineError as several:
            raise first_error(several) from several
        spent = self._clock.now() - started
        return WorkEnd(self._finished, self._released, spent, self._stop.reason or self._reason)

    def take_emptied(self) -> list[str]:
        """Return the owners without leases that the feed does not know yet."""
        emptied, self._emptied = self._emptied, []
        return emptied

    def _begin_items(self) -> None:
        """Begin another item, unless enough attempts wait for the site's rate limit.

        More would only queue there, each with its memory.
        """
        is_full = len(self._tasks) >= self._options.concurrency
        if is_full or not self._waiting or self._has_to_end() or self._do_enough_wait():
            return
        with LogContext(job=self._job, domain=self.domain):  # for the whole task
            task = self._spawn(self._attempt_items())
        if task is None:
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # After the first step of the new task it is known whether it waits, too.
        asyncio.get_running_loop().call_soon(self._begin_items)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        try:
            return self._group.create_task(work)
        except RuntimeError:  # an error is ending the whole group
            work.close()
            return None

    def _do_enough_wait(self) -> bool:
        waiting = 0
        for one in self._begun.values():
            if one.usage.slot_waits:
                waiting += 1
        return waiting >= _MAX_WAITING

    async def _until_ended(self, stopping: asyncio.Task[None], seconds: float | None) -> None:
        """Wait until all tasks have ended, the work is stopped, or the time is up."""
        over = None if seconds is None else self._clock.now() + seconds
        while not stopping.done() and (self._tasks or self._feeding):
            left = None if over is None else over - self._clock.now()
            if left is not None and left <= 0:
                self._reason = f"the limit of {seconds:g} s is reached"
                return
            busy = {*self._tasks, stopping, *([self._feeding] if self._feeding else [])}
            await asyncio.wait(busy, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _drain_items(self, stopping: asyncio.Task[None], seconds: float | None) -> None:
        """Release items that were not started, and after a grace period items that do not end."""
        self._is_draining = True
        if self._feeding is not None:
            await asyncio.wait([self._feeding])  # its leases are released, too
        self._fed.set()
        unbegun = list(self._waiting)
        self._waiting.clear()
        await self._release_leases(unbegun)
        await self._defer_domain()
        grace = _LONGEST_GRACE if seconds is None else min(seconds * _GRACE, _LONGEST_GRACE)
        await self._wait_for_attempts(grace)
        if not stopping.done():  # only the time is up
            await self._wait_for_waiting_attempts(stopping)
            await self._wait_for_attempts(grace)
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)
        await self._settle_cancelled(list(self._begun.values()))
        await self._defer_domain()  # again: an item in flight may have been deferred

    async def _wait_for_attempts(self, grace: float) -> None:
        """Wait until all attempts in flight have ended, or the grace is over."""
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
                began = self._clock.now()  # the new grace begins now
            changing.cancel()

    async def _wait_for_waiting_attempts(self, stopping: asyncio.Task[None]) -> None:
        """Let attempts that mostly wait end: begun again, they would wait as long again."""
        limit = self._options.soft_limit
        self.is_in_overtime = True
        while not stopping.done() and self._begun:
            stuck = [one for one in self._begun.values() if not one.deserves_time(limit)]
            for one in stuck:
                one.task.cancel()
            if busy := [one.task for one in stuck if not one.task.done()]:
                await asyncio.wait(busy)
            # One may have ended all the same: code can handle a cancellation.
            await self._settle_cancelled([one for one in stuck if one.lease.id in self._begun])
            if self._feed is not None and self._emptied:
                await self._feed(self.take_emptied(), 0)
            if tasks := [one.task for one in self._begun.values()]:
                await asyncio.wait(
                    [*tasks, stopping], timeout=_POLL, return_when=asyncio.FIRST_COMPLETED
                )
        self.is_in_overtime = False

    async def _settle_cancelled(self, attempts: Sequence[Attempt]) -> None:
        """Count the attempts that took too long; release the others."""
        limit = self._options.soft_limit
        for one in attempts:
            del self._begun[one.lease.id]
        slow = [one for one in attempts if one.worked() >= limit]
        others = [one for one in attempts if one not in slow]
        await self._release_leases([one.lease for one in others])
        for one in others:  # the next attempt repeats these requests, but they were sent
            await self._store.events.add_statistics(self._job, cost_of(one.usage.take()))
        for one in slow:
            before = await self._store.failures.overruns(self._job, one.lease.item.key)
            outcome = one.overrun(self._clock.now(), limit, before)
            await self._commits.wait_for_room()
            self._commits.hand_over(one.lease, outcome)

    async def _release_leases(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._released += len(leases)
            await self._store.queue.release(leases)
            _LOG.debug("%d leases of %s released", len(leases), self.domain)
            for lease in leases:
                self._let_go(lease)

    async def _defer_domain(self) -> None:
        """Defer the other items of the domain, if an outcome says that they would fail, too."""
        deferral = self._deferral
        if deferral is None or deferral.due is None:
            return
        kind = deferral.kind or FailureKind.NETWORK
        reason = deferral.reason or f"{self.domain} is deferred"
        await self._store.queue.defer_domain(
            self._job, self.domain, deferral.due, kind=kind, reason=reason
        )

    # ------------------------------------------------------------ the items

    def _hold(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._in_hand[lease.id] = lease
            self._owners[lease.owner] += 1
        self._waiting.extend(leases)
        _LOG.debug("%d items of %s leased", len(leases), self.domain)

    def _let_go(self, lease: Lease) -> None:
        del self._in_hand[lease.id]
        self._owners[lease.owner] -= 1
        if not self._owners[lease.owner]:
            del self._owners[lease.owner]
            self._emptied_since = self._emptied_since if self._emptied else self._clock.now()
            self._emptied.append(lease.owner)

    async def _attempt_items(self) -> None:
        """Attempt one item after another."""
        has_worked = False
        while not self._has_to_end():
            self._feed_if_low()
            if self._waiting:
                if has_worked and self._do_enough_wait():
                    return  # the end of a wait begins more
                async with self._room:
                    await self._attempt_next()
                has_worked = True
            elif self._feeding is not None:
                if has_worked:
                    self._prefetch.ran_dry()
                await self._fed.wait()
            else:
                return

    def _has_to_end(self) -> bool:
        return self._is_draining or self._stop.reason is not None or self._reason is not None

    def _feed_if_low(self) -> None:
        if self._feed is None or self._feeding is not None or self._has_to_end():
            return
        is_late = bool(self._emptied) and self._clock.now() - self._emptied_since > _REPORT_AFTER
        is_low = self._has_more and self._prefetch.wanted(len(self._waiting)) > 0
        if is_low or is_late:
            self._fed.clear()
            self._feeding = self._spawn(self._lease_more(self._feed))

    async def _lease_more(self, feed: Feed) -> None:
        try:
            wanted = self._prefetch.wanted(len(self._waiting)) if self._has_more else 0
            self._prefetch.start()
            leases = await feed(self.take_emptied(), wanted)
            self._prefetch.learn()
            self._hold(leases)
            if wanted and not leases:
                self._has_more = False
        finally:
            self._feeding = None
            self._fed.set()
        self._begin_items()

    async def _attempt_next(self) -> None:
        if self._has_to_end() or not self._waiting:  # changed while it waited for room
            return
        lease = self._waiting.popleft()
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # an attempt is made in a task
        usage = Usage()
        usage.waiting.on_end = self._begin_items
        attempt = Attempt(lease, usage, self._loop.time(), task)
        self._begun[lease.id] = attempt
        self._prefetch.item_begun()
        if self._attempts is not None:
            self._attempts.item_begun(lease.id)
        is_process_ending = False
        try:
            await self._attempt_item(attempt)
        except (KeyboardInterrupt, SystemExit):
            is_process_ending = True  # the item stays recorded as in flight
            raise
        finally:
            if self._attempts is not None and not is_process_ending:
                self._attempts.item_ended(lease.id)
        del self._begun[lease.id]

    async def _attempt_item(self, attempt: Attempt) -> None:
        lease, usage = attempt.lease, attempt.usage
        outcome = await self._collector.collect(lease.item, tries=lease.tries, usage=usage)
        if outcome.action is OutcomeAction.DEFER and outcome.is_for_domain:
            self._deferral = self._deferral or outcome
            self._stop.say(outcome.reason or f"{lease.domain} is deferred")
        if self._commits.is_full:
            with usage.waiting:
                await self._commits.wait_for_room()
        self._commits.hand_over(lease, outcome)

    def _committed(self, lease: Lease, outcome: Outcome, state: ItemState | None) -> None:
        self._let_go(lease)
        self._finished += state is not None
        self._on_commit(lease, outcome, state)
