"""Looking at a running job: progress for people, checkpoints for whoever comes after."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from longline.core.clock import Clock
from longline.engine.checkpoints import Checkpoints
from longline.engine.progress import Progress, ProgressTracker, rest_after
from longline.storage.errors import StoreGone
from longline.storage.events import EventLog, event_row

_CHECKPOINT_ITEMS = 50
_CHECKPOINT_SECONDS = 1.0  # a checkpoint's id is its second
_LOOK = 0.5  # seconds between two pictures of the progress

OnProgress = Callable[[Progress], None]


class Watch:
    """Looks at a running job: shows its progress and writes its checkpoints."""

    def __init__(
        self,
        tracker: ProgressTracker,
        checkpoints: Checkpoints,
        event_log: EventLog,
        clock: Clock,
        *,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._tracker = tracker
        self._checkpoints = checkpoints
        self._event_log = event_log
        self._clock = clock
        self._on_progress = on_progress
        self._due = asyncio.Event()
        self._items = 0
        self._written = 0.0

    def count(self) -> None:
        """Note that an item was committed."""
        self._items += 1
        if self._items % _CHECKPOINT_ITEMS == 0:
            self._due.set()

    async def run(self) -> None:
        """Show progress twice a second, and write a checkpoint after every fifty items.

        Both more rarely once there are so many items that counting them takes its time.
        """
        pause = _LOOK
        while True:
            await self._clock.sleep(pause)
            begun = self._clock.now()
            with contextlib.suppress(StoreGone):  # whoever works says so, or waits for it
                await self._look()
            pause = rest_after(self._clock.now() - begun, every=_LOOK)

    async def _look(self) -> None:
        now = self._clock.now()
        if self._due.is_set() and now - self._written >= _CHECKPOINT_SECONDS:
            self._due.clear()
            self._written = now
            await self.checkpoint()
        elif self._on_progress:
            self._on_progress(await self._tracker.snapshot())

    async def checkpoint(self) -> Progress:
        """Write a checkpoint of this moment; one that cannot be written is noted as an event.

        Raises:
            StoreFull: no room is left, so the database will not take any more either.
        """
        now = self._clock.now()
        progress = await self._tracker.snapshot()
        if await self._is_written(progress, now):
            self._tracker.last_checkpoint_at = now
            progress = replace(progress, last_checkpoint_at=now)
        if self._on_progress:
            self._on_progress(progress)
        return progress

    async def _is_written(self, progress: Progress, now: float) -> bool:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, self._checkpoints.write, progress, now)
        except OSError as error:  # nothing depends on the document: the run goes on
            told = event_row(progress.job, now, "checkpoint.failed", reason=str(error))
            await self._event_log.append(told)
            return False
        return True
