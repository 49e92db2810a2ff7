"""The sweeper: every few seconds it finds lost messages, dead workers and forgotten jobs.

All of it is in the database, so no message has to be reliable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.core.model import Job, JobState
from longline.distributed.app import FETCH, OUTPUT, PROCESS, QUEUES, Messages
from longline.distributed.registry import BrokerUnreachable
from longline.distributed.task_runner import free_tasks
from longline.engine.owner import dead_among, killed_among, living_among, parent_of, process_of
from longline.engine.pause_policy import pause_if_stuck
from longline.engine.runtime import LEASE, options_of
from longline.storage.proxy_refresh import Step
from longline.storage.queue.queue import MOST_DEATHS, Reclaim
from longline.storage.queue.tasks import TaskKind
from longline.storage.store import Store

_LEADER = "sweeper"
_LEADER_LEASE = 10.0  # seconds
_RESEND_AFTER = 5.0  # seconds in which an idle worker answers a message
_MAX_MESSAGES = 32  # that wait
WORKER_LEASE = 30.0
"""Seconds without a renewal after which a worker of another host is lost."""
_MAX_GAP = 10.0  # seconds between two sweeps; after a longer one, workers have time to renew


async def publish(store: Store, messages: Messages, job: str, clock: Clock, size: int) -> int:
    """Publish chunks for the due items of a job, and wake processes; return how many.

    Raises:
        BrokerUnreachable: they are published, but no message was sent.
    """
    chunks = await store.chunks.publish(job, clock.now(), size=size)
    await send_chunks(messages, chunks)
    return len(chunks)


async def send_chunks(messages: Messages, chunks: Sequence[int]) -> int:
    """Send messages for chunks, as many as processes can be idle; return how many.

    Raises:
        BrokerUnreachable: no message was sent.
    """
    if not chunks:
        return 0
    room = max(0, _MAX_MESSAGES - (await messages.waiting())[FETCH])
    await messages.collect(chunks[:room])
    return min(room, len(chunks))


@dataclass(frozen=True, slots=True)
class Children:
    """What a supervisor knows of the children of its Celery worker, the `parent`, by their pids.

    The leases of `blocked` children are renewed for them: code that blocks their loop blocks their
    heartbeat, too. `in_flight` are the items that each attempts, or died with.
    """

    parent: int = 0
    blocked: Collection[int] = ()
    in_flight: Mapping[int, Collection[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Swept:
    """What one sweep repaired: reclaimed and quarantined items, new chunks, messages sent again.

    `lost` are the workers that it found lost.
    """

    is_leader: bool = False
    items: int = 0
    quarantined: int = 0
    offered: int = 0
    resent: int = 0
    lost: list[str] = field(default_factory=list)


class Sweeper:
    """Sweeps for one supervisor: the leader for all jobs, the others for their own host.

    `on_job` is called with each running or just ended job; it returns whether that succeeded.
    """

    def __init__(
        self,
        store: Store,
        messages: Messages,
        clock: Clock,
        settings: Settings,
        owner: str,
        *,
        on_job: Callable[[Job], Awaitable[bool]] | None = None,
    ) -> None:
        self._store = store
        self._messages = messages
        self._clock = clock
        self._settings = settings
        self._owner = owner
        self._on_job = on_job
        self._sent: dict[tuple[str, str], float] = {}
        self._running: set[str] = set()
        self._tasks: set[str] = set()  # that messages were sent for in the last sweep
        self._swept_at = self._steady_since = -inf

    async def sweep(self, children: Children | None = None) -> Swept:
        """Check every running job of the cluster.

        Raises:
            BrokerUnreachable: no message can be sent; the next sweep tries again.
            StoreError: the database is unavailable.
        """
        now = self._clock.now()
        is_leader = await self._store.leaders.acquire(
            _LEADER, self._owner, now, now + _LEADER_LEASE
        )
        swept = Swept(is_leader=is_leader)
        await self._remove_lost_workers(swept)
        running = [
            job
            for job in await self._store.jobs.list(limit=None, is_open=True)
            if job.engine == "celery" and job.state is JobState.RUNNING
        ]
        for job in running:
            await self._reclaim_leases(job.id, swept, children or Children())
        if is_leader:
            for job in running:
                await self._advance_job(job, swept)
            await self._resend_chunks(running, swept)
            await self._send_tasks(swept)
            await self._call_on_job(running)
        return swept

    async def release_leadership(self) -> None:
        """Let another sweeper lead."""
        await self._store.leaders.release(_LEADER, self._owner)

    async def _remove_lost_workers(self, swept: Swept) -> None:
        now = self._clock.now()
        if now - self._swept_at > _MAX_GAP:
            self._steady_since = now  # the database may have been unavailable to the others, too
        self._swept_at = now
        dead = dead_among(await self._store.workers.owners())
        with_expired = swept.is_leader and now - self._steady_since >= WORKER_LEASE
        if dead or with_expired:
            swept.lost += await self._store.workers.remove_lost(
                now, dead, with_expired=with_expired
            )

    async def _reclaim_leases(self, job: str, swept: Swept, children: Children) -> None:
        owners = await self._store.chunks.owners(job)
        for owner in living_among(owners):
            if process_of(owner) in children.blocked:
                now = self._clock.now()
                await self._store.queue.renew([(job, owner)], now, now + LEASE)
        alone = killed_among(owners)
        dead = [owner for owner in dead_among(owners) if owner not in alone]
        # The supervisor of another worker knows what its own child had in flight.
        killed = [owner for owner in alone if parent_of(owner) == children.parent]
        if not (dead or killed or swept.is_leader):
            return
        in_flight = {}
        for owner in killed:
            begun = children.in_flight.get(process_of(owner) or 0)
            if begun is not None:
                in_flight[owner] = begun
            # If it had an item in flight, that is taken to be the cause.
            await self._release_discovery(job, owner, is_cause=not begun)
        wanted = Reclaim(job, self._clock.now(), dead, killed, in_flight)
        reclaimed = await self._store.queue.reclaim(wanted)
        swept.items += reclaimed.items
        swept.quarantined += reclaimed.quarantined

    async def _release_discovery(self, job: str, killed: str, *, is_cause: bool) -> None:
        now = self._clock.now()
        deaths = await self._store.chunks.release_dead_discoverer(
            job, killed, now, is_cause=is_cause
        )
        if deaths >= MOST_DEATHS:
            reason = f"{deaths} workers died during discovery: check the discovery of the source"
            await self._store.jobs.pause(job, now, reason)

    async def _advance_job(self, job: Job, swept: Swept) -> None:
        """Send what a job needs next, and pause it if it is stuck."""
        now = self._clock.now()
        try:
            if await self._store.jobs.is_over(job.id):
                await self._send_once("finish", job.id, self._messages.finish, swept)
                return
            status = await self._store.chunks.status(job.id)
            owners = [status.discoverer] if status.discoverer else []
            # The supervisor of a killed child finds out first what it died of.
            alone = killed_among(owners)
            dead = [one for one in dead_among(owners) if one not in alone]
            if status.needs_discoverer(now, dead):
                await self._send_once("discover", job.id, self._messages.discover, swept)
            size = self._settings.chunk_size
            swept.offered += await publish(self._store, self._messages, job.id, self._clock, size)
            options = options_of(self._settings, make_spec(job.settings))
            await pause_if_stuck(self._store, job.id, now, options)
        except (BrokerUnreachable, StoreError):
            raise
        except LonglineError as error:  # settings of a newer longline, for example
            reason = f"the sweeper could not process the job: {error}"
            await self._store.jobs.pause(job.id, self._clock.now(), reason)

    async def _send_once(
        self,
        kind: str,
        name: str,
        send: Callable[[str], Awaitable[None]],
        swept: Swept,
        queues: Collection[str] = tuple(QUEUES.values()),
    ) -> None:
        """Send a message, unless an earlier one may still be answered."""
        now, key = self._clock.now(), (kind, name)
        if now - self._sent.get(key, 0.0) < _RESEND_AFTER:
            return
        if key in self._sent:
            waiting = await self._messages.waiting()
            if any(waiting[queue] for queue in queues):
                return  # the worker that answers those finds this, too
        await send(name)
        swept.resent += key in self._sent
        self._sent[key] = now

    async def _resend_chunks(self, running: list[Job], swept: Swept) -> None:
        """Send messages for chunks that no process claims although no message waits."""
        before = self._clock.now() - _RESEND_AFTER
        unanswered = [
            chunk
            for job in running
            for chunk in await self._store.chunks.unanswered(job.id, before)
        ]
        if not unanswered or (await self._messages.waiting())[FETCH]:
            return
        count = await send_chunks(self._messages, unanswered)
        await self._store.chunks.sent(unanswered[:count], self._clock.now())
        swept.resent += count

    async def _send_tasks(self, swept: Swept) -> None:
        """Send messages for tasks that no live process has claimed."""
        now = self._clock.now()
        self._tasks = set()
        for task in free_tasks(await self._store.tasks.ready(now), now):
            if task.kind is TaskKind.PROXIES:
                # The other steps need the lists of the machine that has the settings file.
                if task.what["step"] == Step.CHECK:
                    self._tasks.add(task.name)
                    await self._send_once(
                        "proxies", task.name, self._messages.proxies, swept, [FETCH]
                    )
            elif task.kind is TaskKind.EXPORT:
                self._tasks.add(task.name)
                await self._send_once("export", task.name, self._messages.export, swept, [OUTPUT])
            else:
                self._tasks.add(task.job)
                await self._send_once("finish", task.job, self._messages.finish, swept, [PROCESS])

    async def _call_on_job(self, running: list[Job]) -> None:
        """Call `on_job` with running jobs, and with jobs that ended since the last sweep."""
        names = {job.id for job in running}
        ended = [await self._store.jobs.get(job) for job in sorted(self._running - names)]
        self._running = names
        kept = names | self._tasks
        self._sent = {key: at for key, at in self._sent.items() if key[1] in kept}
        if self._on_job is not None:
            for job in [*running, *ended]:
                if not await self._on_job(job):
                    self._running.add(job.id)  # again with the next sweep
