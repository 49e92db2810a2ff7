"""The sweep: every few seconds somebody looks for what was forgotten, and has it done.

A message that was lost, a worker that died, a job that nobody ends: the database shows it, and so
no message has to be reliable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from longline.config.job_spec import make_spec
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import LonglineError, StoreError
from longline.core.model import Job, JobState
from longline.distributed.app import FETCH, OUTPUT, PROCESS, QUEUES, Messages
from longline.distributed.registry import BrokerUnreachable
from longline.distributed.task_runner import free_among
from longline.engine.owner import dead_among, killed_among, living_among, parent_of, process_of
from longline.engine.pause_policy import pause_if_stuck
from longline.engine.runtime import LEASE, options_of
from longline.storage.queue.queue import MOST_DEATHS, Reclaim, Reclaimed
from longline.storage.queue.tasks import TaskKind
from longline.storage.store import Store

# ---------------- Offering what is due to whoever is free: first in the database, then by message

_ENOUGH = 32  # messages that wait


async def offer(store: Store, messages: Messages, job: str, clock: Clock, size: int) -> int:
    """Offer chunks for what is due and not offered yet; return how many.

    Raises:
        BrokerUnreachable: they are offered, but nobody was told.
    """
    ids = await store.chunks.publish(job, clock.now(), size=size)
    await tell_of(messages, ids)
    return len(ids)


async def tell_of(messages: Messages, chunks: Sequence[int]) -> int:
    """Wake processes for chunks, as many as can be idle; return how many were told.

    Raises:
        BrokerUnreachable: nobody was.
    """
    if not chunks:
        return 0
    room = max(0, _ENOUGH - (await messages.waiting())[FETCH])
    await messages.collect(chunks[:room])
    return min(room, len(chunks))


LEADER = "sweeper"
"""What the one who sweeps everything leads in."""

_LED = 10.0  # seconds after which a silent leader is one no more
_ANSWER = 5.0  # seconds in which a message is taken while nobody is busy


@dataclass(frozen=True, slots=True)
class Children:
    """What a supervisor knows of the children of its Celery worker, the `parent`, by their pids.

    What those `held_up` have in hand is kept for them: code that holds up their loop holds up
    their own signs of life, too. `in_flight` are the items that each works on, or died with.
    """

    parent: int = 0
    held_up: Collection[int] = ()
    in_flight: Mapping[int, Collection[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Swept:
    """What one sweep found and mended."""

    is_leader: bool = False
    items: int = 0
    """Taken back from the dead."""
    quarantined: int = 0
    offered: int = 0
    """Chunks that nobody had offered."""
    told_again: int = 0
    """Messages that were sent once more."""

    @property
    def is_worth_telling(self) -> bool:
        """Whether something had gone wrong."""
        return bool(self.items or self.quarantined or self.told_again)


class Sweeper:
    """Sweeps for one supervisor; whoever leads does so for all, the others for their own host."""

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
        self._told: dict[tuple[str, str], float] = {}
        self._running: set[str] = set()
        self._ordered: set[str] = set()  # what messages were sent for in the last sweep

    async def sweep(self, children: Children | None = None) -> Swept:
        """Look at every job that runs on the cluster.

        Raises:
            BrokerUnreachable: nobody can be told; the next sweep tries again.
            StoreError: the database does not answer.
        """
        now = self._clock.now()
        is_leader = await self._store.leaders.take(LEADER, self._owner, now, now + _LED)
        swept = Swept(is_leader=is_leader)
        running = [
            job
            for job in await self._store.jobs.list(limit=None, is_open=True)
            if job.engine == "celery" and job.state is JobState.RUNNING
        ]
        for job in running:
            await self._reclaim(job, swept, children or Children())
        if is_leader:
            await self._lead(running, swept)
        return swept

    async def give_up(self) -> None:
        """Let another lead at once."""
        await self._store.leaders.give_up(LEADER, self._owner)

    async def _reclaim(self, job: Job, swept: Swept, children: Children) -> None:
        owners = await self._store.chunks.owners(job.id)
        for owner in living_among(owners):
            if process_of(owner) in children.held_up:
                await self._store.queue.renew([(job.id, owner)], self._clock.now() + LEASE)
        alone = killed_among(owners)
        dead = [owner for owner in dead_among(owners) if owner not in alone]
        # Another worker's supervisor knows better what its own child had in flight.
        killed = [owner for owner in alone if parent_of(owner) == children.parent]
        if not (dead or killed or swept.is_leader):
            return
        for owner in killed:
            await self._ask_after_discovery(job.id, owner, children)
        begun = {owner: children.in_flight.get(process_of(owner) or 0) for owner in killed}
        known = {owner: items for owner, items in begun.items() if items is not None}
        wish = Reclaim(job.id, self._clock.now(), dead, killed, known)
        taken_back: Reclaimed = await self._store.queue.reclaim(wish)
        swept.items += taken_back.items
        swept.quarantined += taken_back.quarantined

    async def _ask_after_discovery(self, job: str, killed: str, children: Children) -> None:
        """Have another discover, if a killed child did; nobody, if that has killed too many.

        Of one that had an item in hand beside it, that is taken to be what killed it.
        """
        now = self._clock.now()
        is_of_it = not children.in_flight.get(process_of(killed) or 0)
        deaths = await self._store.chunks.release_dead_discoverer(
            job, killed, now, is_cause=is_of_it
        )
        if deaths >= MOST_DEATHS:
            reason = f"{deaths} workers died while they discovered: look at the source's discovery"
            await self._store.jobs.halt(job, now, reason)

    # ------------------------------------------------------------ for all

    async def _lead(self, running: list[Job], swept: Swept) -> None:
        for job in running:
            try:
                await self._see_to(job, swept)
            except (BrokerUnreachable, StoreError):
                raise
            except LonglineError as error:  # settings of a newer longline, for example
                reason = f"a worker could not look after it: {error}"
                await self._store.jobs.halt(job.id, self._clock.now(), reason)
        await self._tell_again(running, swept)
        await self._tell_of_orders(swept)
        await self._show(running)

    async def _see_to(self, job: Job, swept: Swept) -> None:
        """Have done what is to be done next for a job."""
        now = self._clock.now()
        if await self._store.jobs.is_over(job.id):
            await self._tell_once("finish", job.id, self._messages.finish, swept)
            return
        if await self._is_unsearched(job.id, now):
            await self._tell_once("discover", job.id, self._messages.discover, swept)
        size = self._settings.chunk_size
        swept.offered += await offer(self._store, self._messages, job.id, self._clock, size)
        options = options_of(self._settings, make_spec(job.settings))
        await pause_if_stuck(self._store, job.id, now, options)

    async def _is_unsearched(self, job: str, now: float) -> bool:
        """Say whether somebody has to be told to discover."""
        standing = await self._store.chunks.status(job)
        finder = [standing.discoverer] if standing.discoverer else []
        # Of one that was killed alone, its own supervisor says first what it died of.
        alone = killed_among(finder)
        return standing.needs_discoverer(
            now, [one for one in dead_among(finder) if one not in alone]
        )

    async def _tell_once(
        self,
        what: str,
        name: str,
        tell: Callable[[str], Awaitable[None]],
        swept: Swept,
        queues: Collection[str] = tuple(QUEUES.values()),
    ) -> None:
        """Send a message, unless one was sent that may still be answered."""
        now, key = self._clock.now(), (what, name)
        if now - self._told.get(key, 0.0) < _ANSWER:
            return
        if key in self._told:
            waiting = await self._messages.waiting()
            if any(waiting[queue] for queue in queues):
                return  # whoever takes what waits finds this, too
        await tell(name)
        swept.told_again += key in self._told
        self._told[key] = now

    async def _tell_again(self, running: list[Job], swept: Swept) -> None:
        """Send messages for chunks that nobody comes for although no message waits."""
        before = self._clock.now() - _ANSWER
        unanswered = [
            chunk
            for job in running
            for chunk in await self._store.chunks.unanswered(job.id, before)
        ]
        if not unanswered or (await self._messages.waiting())[FETCH]:
            return
        count = await tell_of(self._messages, unanswered)
        await self._store.chunks.sent(unanswered[:count], self._clock.now())
        swept.told_again += count

    async def _tell_of_orders(self, swept: Swept) -> None:
        """Send messages for orders that nobody is at."""
        now = self._clock.now()
        self._ordered = set()
        for order in free_among(await self._store.tasks.ready(now), now):
            if order.kind is TaskKind.EXPORT:
                self._ordered.add(order.name)
                await self._tell_once("export", order.name, self._messages.export, swept, [OUTPUT])
            else:
                self._ordered.add(order.job)
                await self._tell_once("finish", order.job, self._messages.finish, swept, [PROCESS])

    async def _show(self, running: list[Job]) -> None:
        """Have onlookers see how far jobs are, those that have ended since the last sweep, too."""
        names = {job.id for job in running}
        ended = [await self._store.jobs.get(job) for job in sorted(self._running - names)]
        self._running = names
        kept = names | self._ordered
        self._told = {key: at for key, at in self._told.items() if key[1] in kept}
        if self._on_job is not None:
            for job in [*running, *ended]:
                if not await self._on_job(job):
                    self._running.add(job.id)  # shown with the next sweep
