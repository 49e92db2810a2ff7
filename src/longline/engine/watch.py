"""Progress of running jobs for people, and checkpoint documents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from longline.core.clock import Clock
from longline.engine.checkpoints import Checkpoints
from longline.engine.progress import Progress, ProgressTracker, rest_after
from longline.storage.errors import StoreGone
from longline.storage.events import EventLog, event_row
from longline.storage.queue.queue import JobCounts
from longline.storage.store import Store

_CHECKPOINT_ITEMS = 50
_CHECKPOINT_SECONDS = 1.0  # a checkpoint's id is its second
_POLL = 0.5  # seconds between two snapshots of the progress

OnProgress = Callable[[Progress], None]


class Watch:
    """Shows the progress of one running job and writes its checkpoints."""

    def __init__(
        self,
        tracker: ProgressTracker,
        checkpoints: Checkpoints,
        events: EventLog,
        clock: Clock,
        *,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._tracker = tracker
        self._checkpoints = checkpoints
        self._event_log = events
        self._clock = clock
        self._on_progress = on_progress
        self._is_checkpoint_due = False
        self._items = 0
        self._written = 0.0
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Gets the error that ended the watch, if there is one."""

    @property
    def job(self) -> str:
        """The id of the job."""
        return self._tracker.job

    @property
    def is_due(self) -> bool:
        """Whether somebody wants to see the progress, or a checkpoint has to be written."""
        return self._on_progress is not None or self._has_to_write()

    def count(self) -> None:
        """Note that an item was committed."""
        self._items += 1
        if self._items % _CHECKPOINT_ITEMS == 0:
            self._is_checkpoint_due = True

    async def wait_for_failure(self) -> None:
        """Wait until the progress cannot be read or written; never returns otherwise.

        Raises:
            StoreError: the database does not take any more.
        """
        await self.failure

    async def show(self, counts: JobCounts) -> None:
        """Show the progress, or write a checkpoint if one is due."""
        if self._has_to_write():
            self._is_checkpoint_due = False
            self._written = self._clock.now()
            await self._checkpoint(self._tracker.progress(counts))
        elif self._on_progress:
            self._on_progress(self._tracker.progress(counts))

    async def checkpoint(self) -> Progress:
        """Write a checkpoint now; one that cannot be written is noted as an event.

        Raises:
            StoreFull: no room is left, so the database will not take any more either.
        """
        return await self._checkpoint(await self._tracker.snapshot())

    def _has_to_write(self) -> bool:
        return self._is_checkpoint_due and (
            self._clock.now() - self._written >= _CHECKPOINT_SECONDS
        )

    async def _checkpoint(self, progress: Progress) -> Progress:
        now = self._clock.now()
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
            reason = str(error)
            await self._event_log.append(
                event_row(progress.job, now, "checkpoint.failed", reason=reason)
            )
            return False
        return True


class ProgressLoop:
    """Shows the progress of all jobs of a process twice a second, with one query.

    It polls less often once there are so many items that counting them takes long.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watches: set[Watch] = set()
        self._has_watches = asyncio.Event()

    @contextlib.contextmanager
    def following(self, watch: Watch) -> Iterator[None]:
        """Show the progress of a job while the block runs."""
        self._watches.add(watch)
        self._has_watches.set()
        try:
            yield
        finally:
            self._watches.discard(watch)
            if not self._watches:
                self._has_watches.clear()
            watch.failure.cancel()

    async def run(self) -> None:
        """Show the progress of jobs, until cancelled; errors are given to the jobs."""
        pause = _POLL
        while True:
            await self._has_watches.wait()
            await self._clock.sleep(pause)
            begun = self._clock.now()
            due = [watch for watch in self._watches if watch.is_due]
            try:
                await self._show(due)
            except StoreGone:
                pass  # the work itself reports it, or waits for the database
            except Exception as error:  # noqa: BLE001  # every kind belongs to the jobs
                for watch in due:
                    _fail(watch, error)
            pause = rest_after(self._clock.now() - begun, every=_POLL)

    async def _show(self, watches: list[Watch]) -> None:
        if not watches:
            return
        counts = await self._store.queue.progress([watch.job for watch in watches])
        for watch in watches:
            if watch not in self._watches or watch.job not in counts:
                continue  # it has ended meanwhile
            try:
                await watch.show(counts[watch.job])
            except StoreGone:
                raise
            except Exception as error:  # noqa: BLE001  # that of one job is not that of the others
                _fail(watch, error)


def _fail(watch: Watch, error: Exception) -> None:
    if not watch.failure.done():
        watch.failure.set_exception(error)
