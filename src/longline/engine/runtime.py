"""What all jobs of a process share: database, clock, committer, heartbeat, progress loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from longline.config.job_spec import JobSpec
from longline.config.settings import Settings
from longline.core.clock import Clock, sleep_or_wake
from longline.core.errors import LeaseLost, LonglineError, StoreError, Unexpected
from longline.core.model import ItemState, JobState, Lease, Outcome
from longline.engine.owner import dead_among
from longline.engine.process_loop import LoopMember, ProcessLoop
from longline.engine.watch import ProgressLoop
from longline.storage.queue.queue import PAUSED_BY_USER, Queue, Reclaim
from longline.storage.store import Store

HEARTBEAT = 5.0
"""Seconds between two renewals of a lease."""
LEASE = 20.0
"""Seconds after the last renewal until a lease expires."""
_STATE_POLL = 1.0  # seconds between two checks whether a job was paused or cancelled
_COMMIT_INTERVAL = 0.1  # seconds between two transactions while more outcomes are expected
_LARGEST_COMMIT = 128  # outcomes that wait for no others
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_SIGNAL = 0.5  # seconds; `timeout` signals a program and its group: that is one signal

OnCommit = Callable[[Lease, Outcome, ItemState | None], None]
"""Called with a committed outcome and the new state of the item; None when its lease was lost."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run here; none of it changes what is collected.

    `concurrency` is that of one domain, `patience` the seconds without a finished item, all of them
    deferred, until the job is paused. `seconds` is the time budget, `soft_limit` the seconds that
    one item may take on a cluster, without waits.
    """

    concurrency: int = 8
    limit: int | None = None
    patience: float = 900.0
    seconds: float | None = None
    soft_limit: float = 600.0


def options_of(settings: Settings, spec: JobSpec) -> RunOptions:
    """Return how a job is run on this machine."""
    return RunOptions(
        concurrency=spec.concurrency or settings.concurrency,
        limit=spec.limit,
        seconds=spec.budget.seconds,
        soft_limit=settings.soft_limit,
    )


# ---------------- Commit the outcomes of all jobs of a process, many in one transaction


class Committer:
    """Commits the outcomes of all jobs, one transaction at a time."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._waiting: list[tuple[Lease, Outcome, CommitQueue]] = []
        self._arrived = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def add(self, lease: Lease, outcome: Outcome, origin: CommitQueue, *, is_urgent: bool) -> None:
        """Commit an outcome soon; an urgent one waits for no others."""
        self._waiting.append((lease, outcome, origin))
        self._arrived.set()
        if is_urgent or len(self._waiting) >= _LARGEST_COMMIT:
            self._is_urgent.set()

    def hurry(self) -> None:
        """Commit what waits now."""
        if self._waiting:
            self._is_urgent.set()

    async def run(self) -> None:
        """Commit outcomes until cancelled; the jobs get the errors."""
        loop = asyncio.get_running_loop()
        committed_at = 0.0
        while True:
            await self._arrived.wait()
            if (left := committed_at + _COMMIT_INTERVAL - loop.time()) > 0:
                await sleep_or_wake(left, self._is_urgent)
            committed_at = loop.time()
            self._arrived.clear()
            self._is_urgent.clear()
            batch, self._waiting = self._waiting, []
            try:
                await self._commit_outcomes(batch)
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for _, _, origin in batch:
                    origin.fail(error)

    async def _commit_outcomes(self, batch: list[tuple[Lease, Outcome, CommitQueue]]) -> None:
        ready = []
        for lease, outcome, origin in batch:
            try:
                await outcome.usage.settle()  # what has to be written before the outcome
            except StoreError as error:
                origin.fail(error)
            else:
                ready.append((lease, outcome, origin))
        if not ready:
            return
        ends = await self._queue.complete_all([(lease, outcome) for lease, outcome, _ in ready])
        for (lease, outcome, origin), end in zip(ready, ends, strict=True):
            try:
                origin.committed(lease, outcome, None if isinstance(end, LeaseLost) else end)
            except Exception as error:  # noqa: BLE001  # one job must not fail the others
                origin.fail(error)


class CommitQueue:
    """The outcomes of one piece of work that are not committed yet.

    `on_commit` is called for each. `in_work` returns how many items are leased and not committed.
    """

    def __init__(
        self,
        committer: Committer,
        most_waiting: int,
        on_commit: OnCommit,
        in_work: Callable[[], int],
    ) -> None:
        self._committer = committer
        self._most_waiting = most_waiting
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._on_commit = on_commit
        self._in_work = in_work
        self._count = 0
        self._is_closing = False
        self._ended = asyncio.get_running_loop().create_future()

    @property
    def is_full(self) -> bool:
        """Whether too many outcomes are queued."""
        return self._count >= self._most_waiting

    async def wait_for_room(self) -> None:
        """Wait while too many outcomes are queued."""
        while self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def hand_over(self, lease: Lease, outcome: Outcome) -> None:
        """Queue an outcome, after waiting for room."""
        self._count += 1
        # Urgent when no other outcome of this work can join it.
        is_urgent = self._is_closing or self._in_work() <= self._count
        self._committer.add(lease, outcome, self, is_urgent=is_urgent)

    def close(self) -> None:
        """Let `run` return once everything is committed."""
        self._is_closing = True
        self._committer.hurry()
        self._end_if_done()

    async def run(self) -> None:
        """Wait until this is closed and all is committed.

        Raises:
            StoreError: the database cannot be written.
        """
        await self._ended

    def committed(self, lease: Lease, outcome: Outcome, state: ItemState | None) -> None:
        """Note that an outcome was committed."""
        self._count -= 1
        self._has_room.set()
        self._on_commit(lease, outcome, state)
        self._end_if_done()

    def fail(self, error: Exception) -> None:
        """Let `run` raise an error."""
        if not self._ended.done():
            self._ended.set_exception(error)

    def _end_if_done(self) -> None:
        if self._is_closing and not self._count and not self._ended.done():
            self._ended.set_result(None)


# ---------------- Errors of concurrent tasks, work in the background, signals


def first_error(several: BaseExceptionGroup[LonglineError]) -> LonglineError:
    """Return the first error of a group, at any depth."""
    error: BaseException = several
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, LonglineError) else Unexpected(str(error))


@contextlib.asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` while the block runs.

    Raises:
        LonglineError: what either of them raises.
    """
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except* LonglineError as several:
        raise first_error(several) from several


@contextlib.contextmanager
def handling_signals(
    interrupt: Callable[[], None], on_stop: Callable[[], None] | None = None
) -> Iterator[None]:
    """Call `interrupt` at the first SIGINT, SIGTERM or SIGHUP, and cancel this task at the second.

    `on_stop` is called at the first one, to inform a person. SIGHUP stays ignored under `nohup`.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    first: float | None = None

    def stop() -> None:
        nonlocal first
        if first is None:
            first = loop.time()
            interrupt()
            if on_stop:
                on_stop()
        elif loop.time() >= first + _SAME_SIGNAL and task is not None:
            task.cancel()

    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [one for one in _SIGNALS if not (one is signal.SIGHUP and is_ignored)]
    for number in handled:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


# ---------------- Heartbeat: renew the leases of all work in this process


@dataclass(slots=True, eq=False)
class Beating(LoopMember):
    """One piece of work whose leases are renewed.

    `owners` returns the owner names of its leases. `on_state` is called with the job's state and
    its reason, both None when the job was deleted. `on_beat` is called after a renewal.
    """

    job: str
    owners: Callable[[], Iterable[str]]
    on_state: Callable[[JobState | None, str | None], None]
    on_beat: Callable[[], None] | None = None


class Heartbeat(ProcessLoop[Beating]):
    """One read per second and one write per five seconds for all work of a process.

    With `reclaims`, leases of dead owners of the same jobs are reclaimed with each renewal; on a
    cluster, a sweeper does that.
    """

    def __init__(self, store: Store, clock: Clock, *, reclaims: bool) -> None:
        super().__init__(store, clock)
        self._reclaims = reclaims

    async def reclaim(self, jobs: Iterable[str]) -> None:
        """Reclaim leases of these jobs that are expired, or whose owners are dead."""
        own = {owner for member in self._members for owner in member.owners()}
        held = [one for one in await self._store.queue.holders(list(jobs)) if one[1] not in own]
        now = self._clock.now()
        for job in {job for job, _, _ in held}:
            dead = dead_among(owner for one, owner, _ in held if one == job)
            if dead or any(until < now for one, _, until in held if one == job):
                await self._store.queue.reclaim(Reclaim(job, now, dead=dead))

    async def run(self) -> None:
        """Renew leases and check job states until cancelled; the jobs get the errors."""
        due = self._clock.now() + HEARTBEAT
        while True:
            await self._has_members.wait()
            await self._clock.sleep(_STATE_POLL)
            members = list(self._members)
            try:
                if self._clock.now() >= due:
                    due = self._clock.now() + HEARTBEAT
                    await self._renew_leases(members)
                ids = sorted({one.job for one in members})
                states = await self._store.queue.job_states(ids) if ids else {}
                for member in members:
                    member.on_state(*states.get(member.job, (None, None)))
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for member in list(self._members):
                    member.fail(error)

    async def _renew_leases(self, members: list[Beating]) -> None:
        owners = [(member.job, owner) for member in members for owner in member.owners()]
        if owners:
            now = self._clock.now()
            await self._store.queue.renew(owners, now, now + LEASE)
        if self._reclaims:
            await self.reclaim({member.job for member in members})
        for member in members:
            if member.on_beat is not None:
                member.on_beat()


def stop_reason(state: JobState | None, reason: str | None, *, is_shared: bool) -> str | None:
    """Return why work on a job has to stop, None when it continues.

    `state` is None for a deleted job. With `is_shared`, workers of a cluster run the job and obey
    every pause. A process on its own continues when another one, which was stopped, paused the job.
    """
    if state is None:
        return "the job was deleted"
    if is_shared:
        return None if state is JobState.RUNNING else f"the job is {state.value}"
    if state is JobState.CANCELLED:
        return "cancelled"
    return PAUSED_BY_USER if state is JobState.PAUSED and reason == PAUSED_BY_USER else None


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
        # Not in a TaskGroup: they serve several jobs, and each job gets their errors.
        parts = (self.committer, self.heartbeat, self.progress)
        self._tasks = [asyncio.create_task(part.run()) for part in parts]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
