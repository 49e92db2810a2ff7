"""Commit the outcomes of all jobs of a process, many in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from longline.core.clock import sleep_or_wake
from longline.core.errors import LonglineError, StoreError, Unexpected
from longline.core.model import ItemState, Lease
from longline.engine.extractor import Extraction
from longline.storage.errors import LeaseLost
from longline.storage.queue.outcomes import Completion
from longline.storage.queue.queue import Queue

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
