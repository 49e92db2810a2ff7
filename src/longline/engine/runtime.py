"""What all jobs of a process share: database, clock, committer, heartbeat, progress loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import Clock, sleep_or_wake
from longline.core.errors import LeaseLost, LonglineError, StoreError, Unexpected
from longline.core.model import ItemState, JobState, Lease
from longline.engine.extractor import Extraction
from longline.engine.owner import dead_among
from longline.engine.watch import ProgressLoop
from longline.storage.queue.completion import Completion
from longline.storage.queue.queue import BY_HAND, Queue, Reclaim
from longline.storage.store import Store

# ---------------- Commit the outcomes of all jobs of a process, many in one transaction

_WINDOW = 0.1  # seconds between two transactions while more outcomes are on their way
_LARGEST = 64  # outcomes that wait for no others


def completion_of(lease: Lease, extraction: Extraction, at: float, limit: int | None) -> Completion:
    """Return one try at an item as what it changes."""
    return Completion(
        lease,
        extraction.outcome,
        at,
        extraction.seconds,
        extraction.usage,
        extraction.found,
        limit,
    )


class Committer:
    """Commits what has come together from all jobs, in one transaction at a time."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: list[tuple[Completion, CommitQueue]] = []
        self._arrived = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def add(self, finish: Completion, origin: CommitQueue, *, is_urgent: bool) -> None:
        """Have an outcome committed; an urgent one waits for no others."""
        self._waiting.append((finish, origin))
        self._arrived.set()
        if is_urgent or len(self._waiting) >= _LARGEST:
            self._is_urgent.set()

    def hurry(self) -> None:
        """Commit what waits now."""
        if self._waiting:
            self._is_urgent.set()

    async def run(self) -> None:
        """Commit what arrives, until cancelled; errors are given to the jobs."""
        loop = asyncio.get_running_loop()
        committed_at = 0.0
        while True:
            await self._arrived.wait()
            if (left := committed_at + _WINDOW - loop.time()) > 0:
                await sleep_or_wake(left, self._is_urgent)
            committed_at = loop.time()
            self._arrived.clear()
            self._is_urgent.clear()
            batch, self._waiting = self._waiting, []
            try:
                await self._commit([one for one in batch if await _is_settled(*one)])
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for _, origin in batch:
                    origin.fail(error)

    async def _commit(self, batch: list[tuple[Completion, CommitQueue]]) -> None:
        if not batch:
            return
        ends = await self._queue.complete_all([finish for finish, _ in batch])
        for (finish, origin), end in zip(batch, ends, strict=True):
            try:
                origin.committed(finish, None if isinstance(end, LeaseLost) else end)
            except Exception as error:  # noqa: BLE001  # that of one job is not that of the others
                origin.fail(error)


async def _is_settled(finish: Completion, origin: CommitQueue) -> bool:
    """Wait for what has to be written before the outcome; False when that failed."""
    try:
        await finish.usage.settle()
    except StoreError as error:
        origin.fail(error)
        return False
    return True


class CommitQueue:
    """The outcomes of one piece of work on their way into the database.

    `on_commit` is called with the new state of each item, None when its lease was lost. `in_work`
    returns how many items are leased and not committed yet.
    """

    def __init__(
        self,
        committer: Committer,
        most_waiting: int,
        on_commit: Callable[[Completion, ItemState | None], None],
        in_work: Callable[[], int],
    ) -> None:
        self._committer = committer
        self._room = asyncio.Semaphore(most_waiting)
        self._on_commit = on_commit
        self._in_work = in_work
        self._count = 0
        self._is_closing = False
        self._ended = asyncio.get_running_loop().create_future()

    async def hand_over(self, finish: Completion) -> None:
        """Leave an outcome to be committed; waits only when too many are waiting already."""
        await self._room.acquire()
        self._count += 1
        # Nothing else of this work can come together with it.
        is_urgent = self._is_closing or self._in_work() <= self._count
        self._committer.add(finish, self, is_urgent=is_urgent)

    def close(self) -> None:
        """Let `run` return once everything handed over is committed."""
        self._is_closing = True
        self._committer.hurry()
        self._end_if_done()

    async def run(self) -> None:
        """Wait until this is closed and all is committed.

        Raises:
            StoreError: the database does not take any more.
        """
        await self._ended

    def committed(self, finish: Completion, state: ItemState | None) -> None:
        """Note that an outcome was committed."""
        self._count -= 1
        self._room.release()
        self._on_commit(finish, state)
        self._end_if_done()

    def fail(self, error: Exception) -> None:
        """Have `run` raise this."""
        if not self._ended.done():
            self._ended.set_exception(error)

    def _end_if_done(self) -> None:
        if self._is_closing and not self._count and not self._ended.done():
            self._ended.set_result(None)


# ---------------- One error out of many that happened at once


def first_of(several: BaseExceptionGroup[LonglineError]) -> LonglineError:
    """Return the first error of a group, however deep in it."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LonglineError) else Unexpected(str(error))


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something beside the block, until that has ended.

    Raises:
        LonglineError: what either of them raises.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except* LonglineError as several:
        raise first_of(several) from several


# ---------------- Heartbeat: renew the leases of all work in this process, and notice jobs that

HEARTBEAT = 5.0  # seconds between two renewals of a lease
STATE_POLL = 1.0  # seconds between two checks whether a job was paused or cancelled
LEASE = 20.0  # seconds after the last renewal until a lease expires


@dataclass(slots=True, eq=False)
class Beating:
    """One piece of work whose leases are renewed.

    `owners` returns the names that it holds leases under. `on_state` is called with the job's
    state and its reason, both None when the job was deleted. `on_beat` is called after a renewal.
    `failure` gets the error that ended the heartbeat, if there is one.
    """

    job: str
    owners: Callable[[], Iterable[str]]
    on_state: Callable[[JobState | None, str | None], None]
    on_beat: Callable[[], None] | None = None
    failure: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    async def wait_for_failure(self) -> None:
        """Wait until the heartbeat cannot go on; never returns otherwise.

        Raises:
            StoreError: the database does not take any more.
        """
        await asyncio.shield(self.failure)


class Heartbeat:
    """One read per second and one write per five seconds for all work of a process.

    With `reclaims`, leases of dead owners of the same jobs are reclaimed with each renewal; on a
    cluster, a sweeper does that.
    """

    def __init__(self, store: Store, clock: Clock, *, reclaims: bool) -> None:
        self._store = store
        self._clock = clock
        self._reclaims = reclaims
        self._members: set[Beating] = set()
        self._has_members = asyncio.Event()

    @contextlib.contextmanager
    def keeping(self, work: Beating) -> Iterator[Beating]:
        """Renew the leases of a piece of work while the block runs."""
        self._members.add(work)
        self._has_members.set()
        try:
            yield work
        finally:
            self._members.discard(work)
            if not self._members:
                self._has_members.clear()
            if not work.failure.done():
                work.failure.cancel()

    async def reclaim(self, jobs: Iterable[str]) -> None:
        """Reclaim leases of these jobs that are expired, or whose owners are dead."""
        held = await self._store.queue.holders(list(jobs))
        own = {owner for member in self._members for owner in member.owners()}
        now = self._clock.now()
        for job in {one.job for one in held}:
            others = [one for one in held if one.job == job and one.owner not in own]
            dead = dead_among(one.owner for one in others)
            if dead or any(one.until < now for one in others):
                await self._store.queue.reclaim(Reclaim(job, now, dead=dead))

    async def run(self) -> None:
        """Renew leases and check job states, until cancelled; errors are given to the jobs."""
        due = self._clock.now() + HEARTBEAT
        while True:
            await self._has_members.wait()
            await self._clock.sleep(STATE_POLL)
            try:
                if self._clock.now() >= due:
                    due = self._clock.now() + HEARTBEAT
                    await self._renew()
                await self._check_states()
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for member in list(self._members):
                    if not member.failure.done():
                        member.failure.set_exception(error)

    async def _renew(self) -> None:
        members = list(self._members)
        owners = [(member.job, owner) for member in members for owner in member.owners()]
        await self._store.queue.renew(owners, self._clock.now() + LEASE)
        if self._reclaims:
            await self.reclaim({member.job for member in members})
        for member in members:
            if member.on_beat is not None:
                member.on_beat()

    async def _check_states(self) -> None:
        members = list(self._members)
        if not members:
            return
        states = await self._store.queue.job_states(sorted({one.job for one in members}))
        for member in members:
            member.on_state(*states.get(member.job, (None, None)))


def stop_reason(state: JobState | None, reason: str | None, *, is_shared: bool) -> str | None:
    """Return why work on a job has to stop, None when it goes on.

    Args:
        state: the state of the job, None when it was deleted.
        reason: the reason that is stored with the state.
        is_shared: workers of a cluster run it, and obey every pause. A process on its own goes on
            when another one has paused the job because it was stopped itself.
    """
    if state is None:
        return "the job is gone"
    if is_shared:
        return None if state is JobState.RUNNING else f"the job is {state.value}"
    if state is JobState.CANCELLED:
        return "cancelled"
    return BY_HAND if state is JobState.PAUSED and reason == BY_HAND else None


class Runtime:
    """Serves all jobs of a process with one committer, one heartbeat and one progress loop.

    With `reclaims`, the heartbeat reclaims leases of dead workers; on a cluster a sweeper does.
    """

    def __init__(self, store: Store, clock: Clock, *, reclaims: bool = True) -> None:
        self.store = store
        self.clock = clock
        self.committer = Committer(store.queue)
        self.heartbeat = Heartbeat(store, clock, reclaims=reclaims)
        self.progress = ProgressLoop(store, clock)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        # Not in a TaskGroup: they serve several jobs, and each of those is given their errors.
        parts = (self.committer, self.heartbeat, self.progress)
        self._tasks = [asyncio.create_task(part.run()) for part in parts]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


# ---------------- How a job is run here, whatever runs it

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
    soft_limit: float = 600.0
    """Seconds that one item may take on a cluster, waits not counted."""


def options_of(settings: Settings, spec: JobSpec) -> RunOptions:
    """Return how a job is run on this machine."""
    return RunOptions(
        concurrency=spec.concurrency or settings.concurrency,
        limit=spec.limit,
        seconds=spec.budget.seconds,
        soft_limit=settings.soft_limit,
    )


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_TOGETHER = 0.5  # seconds; `timeout` signals a program and its group: that is one wish, not two


@contextlib.contextmanager
def handling_signals(
    interrupt: Callable[[], None], on_stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call `interrupt` at the first SIGINT, SIGTERM or SIGHUP; cancel this task at a later second.

    SIGHUP says that the terminal is gone. Under `nohup` it is ignored, and stays so.

    Args:
        interrupt: stops what runs, well.
        on_stop: called at the first one, to tell a person what happens now.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    first = float("-inf")

    def stop() -> None:
        nonlocal first
        if first <= loop.time() < first + _TOGETHER:
            return
        if first > float("-inf"):
            if task is not None:
                task.cancel()
            return
        first = loop.time()
        interrupt()
        if on_stop:
            on_stop()

    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [one for one in _SIGNALS if not (one is signal.SIGHUP and is_ignored)]
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
