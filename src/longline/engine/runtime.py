"""What all jobs of a process share: database, clock, committer, heartbeat, progress loop."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from longline.core.clock import Clock
from longline.engine.committer import Committer
from longline.engine.heartbeat import Heartbeat
from longline.engine.watch import ProgressLoop
from longline.storage.store import Store


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
