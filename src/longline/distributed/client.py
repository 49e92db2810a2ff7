"""A cluster as its clients use it: submit a job, watch it, and wait for many."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from longline.config.settings import Settings
from longline.core.clock import Clock, sleep_or_wake
from longline.core.errors import StoreGone, UnknownJob
from longline.core.model import FINAL_STATES, ItemState, Job, JobState
from longline.distributed.app import Messages
from longline.distributed.registry import (
    ENDED,
    BrokerUnreachable,
    Mirror,
    Presences,
    open_progress_redis,
)
from longline.distributed.supervisor import is_permanent
from longline.engine.owner import describe_owner
from longline.engine.progress import SiteProgress, progress_of
from longline.storage.queue.tasks import Task
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)

_STATE_POLL = 0.5  # seconds between two checks of the state of a job
_STALL_POLL = 10.0  # seconds between two checks whether workers are there and the job progresses
_SITES_POLL = 2.0  # seconds between two checks of the snapshots in Redis
_DATABASE_POLL = 10.0  # seconds between two checks of the database
_DRAIN = 30.0  # seconds for workers to finish items in flight
_STALLED_AFTER = 60.0  # seconds without progress, in a job that was not slower before
_SLOWER = 2.0  # times the longest time that the job took so far between two steps
_MAX_NAMED = 3
_NO_WORKER = "no worker is running: start one with `longline up` or `longline worker`"
_NO_ANSWER = "the database does not respond; waiting for it"
_ACTIVE = (JobState.PENDING, JobState.RUNNING)


class Stalls:
    """Detects that no item of a job is finished although some are due; one object per run."""

    def __init__(self, store: Store, clock: Clock, job: str) -> None:
        self._store = store
        self._clock = clock
        self._job = job
        self._finished: int | None = None
        self._since = 0.0
        self._slowest = 0.0
        self._sentence = ""

    async def check(self) -> str:
        """Return a sentence while the job is stalled, the same one until it moves; or ""."""
        now, counts = self._clock.now(), await self._store.queue.counts(self._job)
        finished = sum(counts[state] for state in FINAL_STATES)
        cause = await self._cause(counts)
        has_moved = finished != self._finished
        if has_moved and self._finished is not None:
            self._slowest = max(self._slowest, now - self._since)
        if has_moved or not cause:
            self._finished, self._since, self._sentence = finished, now, ""
        seconds = now - self._since
        if not self._sentence and seconds >= max(_STALLED_AFTER, _SLOWER * self._slowest):
            self._sentence = f"no item has finished for {seconds:.0f} s: {cause}"
        return self._sentence

    async def _cause(self, counts: Mapping[ItemState, int]) -> str:
        """Return where the items are that should be finished; "" when all are deferred."""
        if leased := counts[ItemState.LEASED]:
            owners = await self._store.queue.owners(self._job)
            names = sorted({describe_owner(owner) for owner in owners})
            more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
            return f"{leased} items are leased by {', '.join(names[:_MAX_NAMED])}{more}"
        due = await self._store.queue.next_due(self._job)
        if due is None or due > await self._store.now():
            return ""
        return f"{counts[ItemState.QUEUED]} items are queued, and no worker leases them"


class ClusterEngine:
    """Runs one job on workers, and reads its progress from the database."""

    closed_host: str | None = None

    def __init__(
        self, store: Store, messages: Messages, presences: Presences, clock: Clock
    ) -> None:
        self._store = store
        self._messages = messages
        self._presences = presences
        self._clock = clock
        self._problem = ""
        self._stop_reason: str | None = None
        self._wake = asyncio.Event()

    def stop(self, reason: str) -> None:
        """Pause the job on all workers; items in flight are committed."""
        self._stop_reason = self._stop_reason or reason
        self._wake.set()

    async def begin(self, job: str) -> None:
        """Wake a worker for a job and return; without a message, a sweeper finds the job.

        Raises:
            BrokerUnreachable: Redis cannot be used, and waiting would not change that.
        """
        consequence = f"{job} is in the database, and starts as soon as a worker finds it"
        await _wake_worker(self._messages.discover(job), self._warn, consequence)

    async def run(self, job: Job) -> JobState:
        """Wake a worker for a job and wait until it ends; return the state it is left in."""
        await _wake_worker(self._messages.discover(job.id), self._warn, "waiting")
        checked_at, stalls = self._clock.now(), Stalls(self._store, self._clock, job.id)
        while not self._stop_reason:
            state = await self._job_state(job.id)
            if state not in _ACTIVE:
                with suppress(UnknownJob):  # it was deleted
                    await self._wait_for_leases(job.id)  # so that the statistics are final
                return state
            if self._clock.now() - checked_at > _STALL_POLL:
                checked_at = self._clock.now()
                with suppress(StoreGone):  # the next check of the state reports it
                    await self._check_progress(stalls)
            await sleep_or_wake(_STATE_POLL, self._wake)
        await self._store.jobs.pause(job.id, self._clock.now(), self._stop_reason)
        await self._wait_for_leases(job.id)
        return (await self._store.jobs.get(job.id)).state

    async def _job_state(self, job: str) -> JobState:
        """Return the state of a job; waits while the database is unavailable, as workers do.

        Raises:
            StoreGone: it is unavailable, and the run is to stop.
        """
        while True:
            reading = asyncio.ensure_future(self._store.jobs.get(job))
            if not (await asyncio.wait([reading], timeout=_STALL_POLL))[0]:
                self._warn(_NO_ANSWER)
            try:
                return (await reading).state
            except StoreGone:
                if self._stop_reason:
                    raise
                self._warn(_NO_ANSWER)

    async def _check_progress(self, stalls: Stalls) -> None:
        stall = await stalls.check()
        try:
            workers = await self._presences.all()
        except BrokerUnreachable as error:
            self._warn(f"{error}; waiting")
        else:
            self._warn(stall if workers else _NO_WORKER)

    def _warn(self, problem: str) -> None:
        """Log a problem once, for as long as it lasts; "" ends it."""
        if problem and problem != self._problem:
            _LOG.warning(problem)
        self._problem = problem

    async def _wait_for_leases(self, job: str) -> None:
        """Wait until no item of a job is leased, for some seconds at most."""
        deadline = self._clock.now() + _DRAIN
        while (await self._store.chunks.status(job)).leased:
            if self._clock.now() > deadline:
                _LOG.warning("workers still hold some items; they will be committed")
                return
            await self._clock.sleep(_STATE_POLL)


async def check_cluster(settings: Settings) -> None:
    """Check the Redis that carries messages; one that is only unavailable is accepted.

    Raises:
        BadOption: no Redis is named, or its address is invalid.
        BrokerUnreachable: it cannot be used, and waiting would not change that.
    """
    async with Presences.open(settings) as presences:
        try:
            await presences.check()
        except BrokerUnreachable as error:
            if is_permanent(error):
                raise


async def submit_export(settings: Settings, store: Store, task: Task) -> None:
    """Enqueue an export task, and wake a worker for it.

    Raises:
        BadOption: no Redis is named; nothing is enqueued.
        BrokerUnreachable: Redis cannot be used; nothing is enqueued.
    """
    await check_cluster(settings)
    with contextlib.closing(Messages(settings)) as messages:
        await store.tasks.place(task)
        consequence = "a worker writes it as soon as it finds the task"
        await _wake_worker(messages.export(task.name), _LOG.warning, consequence)


async def _wake_worker(
    message: Awaitable[None], warn: Callable[[str], None], consequence: str
) -> None:
    """Send a message; the work is in the database, so a worker finds it without, too.

    Raises:
        BrokerUnreachable: Redis cannot be used, and waiting would not change that.
    """
    try:
        await message
    except BrokerUnreachable as error:
        if is_permanent(error):
            raise
        warn(f"{error}; {consequence}")


@asynccontextmanager
async def open_cluster(
    settings: Settings, store: Store, clock: Clock
) -> AsyncIterator[ClusterEngine]:
    """Open the connections to workers.

    Raises:
        BadOption: no Redis is named.
    """
    with contextlib.closing(Messages(settings)) as messages:
        async with Presences.open(settings) as presences:
            yield ClusterEngine(store, messages, presences, clock)


class Sites:
    """Reads the progress of many jobs of a cluster; open it with `Sites.open`."""

    def __init__(self, store: Store, redis: Redis, clock: Clock) -> None:
        self._store = store
        self._redis = redis
        self._mirror = Mirror(redis)
        self._clock = clock

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, store: Store, clock: Clock) -> AsyncIterator[Self]:
        """Open the connection to Redis, which may be unavailable."""
        async with open_progress_redis(settings) as redis:
            yield cls(store, redis, clock)

    async def progress(self, job: str) -> SiteProgress:
        """Return the progress of a job: the snapshot in Redis, or else from the database.

        Raises:
            UnknownJob: there is no such job.
        """
        with suppress(RedisError, OSError):
            if snapshot := await self._mirror.read(job):
                return snapshot
        return await progress_of(self._store, await self._store.jobs.get(job))

    async def wait(
        self, jobs: Iterable[str], *, seconds: float | None = None
    ) -> dict[str, SiteProgress]:
        """Wait until no worker works on these jobs, `seconds` at most; return their progress.

        An event announces the end of a job. If it is missed, the snapshot in Redis shows the end,
        or else the database.

        Raises:
            UnknownJob: there is no such job.
        """
        ids = {name: (await self._store.jobs.get(name)).id for name in jobs}
        deadline = None if seconds is None else self._clock.now() + seconds
        waiting, announced, checked_at = set(ids.values()), None, float("-inf")
        async with self._redis.pubsub(ignore_subscribe_messages=True) as events:
            while waiting:
                now = self._clock.now()
                is_due = now - checked_at >= _DATABASE_POLL
                # Events and snapshots are only a reason to read the database.
                candidates = [
                    job
                    for job in waiting
                    if is_due or job == announced or await self._is_over_in_redis(job)
                ]
                checked_at = now if is_due else checked_at
                waiting -= await self._ended_among(candidates)
                left = _SITES_POLL if deadline is None else min(_SITES_POLL, deadline - now)
                if left <= 0:
                    break
                if waiting:
                    announced = await self._next_event(events, left)
        return {
            name: await progress_of(self._store, await self._store.jobs.get(job))
            for name, job in ids.items()
        }

    async def _ended_among(self, jobs: Sequence[str]) -> set[str]:
        states = await self._store.queue.job_states(jobs) if jobs else {}
        for job in jobs:
            if job not in states:
                raise UnknownJob(job)
        return {job for job, (state, _) in states.items() if state not in _ACTIVE}

    async def _next_event(self, events: PubSub, seconds: float) -> str | None:
        """Return the job of the next event; None when none comes in time."""
        began = self._clock.now()
        try:
            if not events.subscribed:
                await events.subscribe(ENDED)
            message = await events.get_message(timeout=seconds)
        except (RedisError, OSError, TimeoutError):
            await asyncio.sleep(max(0.0, seconds - (self._clock.now() - began)))
            return None
        return message["data"].decode() if message else None

    async def _is_over_in_redis(self, job: str) -> bool:
        try:
            snapshot = await self._mirror.read(job)
        except (RedisError, OSError):
            return False
        return snapshot is not None and snapshot.is_over
