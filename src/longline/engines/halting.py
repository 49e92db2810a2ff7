"""Why a piece of work has to come to its end, and its signs of life until then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from longline.clock import Clock
from longline.engines.discovering import HEARTBEAT, LEASE, STATE_LOOK
from longline.errors import UnknownJob
from longline.model import JobState
from longline.stores.store import Store


class Halt:
    """Says once, and for good, that nothing more is to be begun."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.grace: float | None = None
        """Seconds that what is in flight has at most; None: what the work allows."""
        self._said = asyncio.Event()

    def say(self, reason: str, *, grace: float | None = None) -> None:
        """Have the work come to its end; the first reason counts."""
        self.reason = self.reason or reason
        self.grace = grace if self.grace is None else self.grace
        self._said.set()

    async def wait(self) -> None:
        """Wait until it was said."""
        await self._said.wait()


async def beat(
    store: Store, clock: Clock, job: str, owners: Callable[[], Iterable[str]], halt: Halt
) -> None:
    """Keep what these owners hold, and notice that their job does not run any more; never ends.

    Raises:
        StoreError: the database does not take any more.
    """
    due = clock.now() + HEARTBEAT
    while True:
        await clock.sleep(STATE_LOOK)
        if clock.now() >= due:
            due = clock.now() + HEARTBEAT
            for owner in list(owners()):
                await store.queue.renew(job, owner, clock.now() + LEASE)
        if reason := await _stopped(store, job):
            halt.say(reason)


async def _stopped(store: Store, job: str) -> str | None:
    try:
        state = (await store.jobs.get(job)).state
    except UnknownJob:
        return "the job is gone"
    return None if state is JobState.RUNNING else f"the job is {state.value}"
