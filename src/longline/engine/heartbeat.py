"""Heartbeat: renew the leases of all work in this process, and notice jobs that were stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from longline.core.clock import Clock
from longline.core.model import JobState
from longline.engine.owner import dead_among
from longline.storage.queue.leases import BY_HAND, Reclaim
from longline.storage.store import Store

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
