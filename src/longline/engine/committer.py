"""Committing outcomes many at a time, beside the work on the next items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from longline.core.clock import sleep_or_wake
from longline.core.errors import LonglineError, Unexpected
from longline.core.model import ItemState, Lease
from longline.engine.extractor import Extraction
from longline.storage.errors import LeaseLost
from longline.storage.queue.outcomes import Completion
from longline.storage.queue.queue import Queue

_COMPANY = 0.05  # seconds that outcomes wait for each other while they come in numbers


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
    """Takes outcomes from the workers and commits what has come together in one transaction.

    `on_commit` is told the new state of each item, or None when its lease was lost; `in_work` says
    how many items are not committed yet.
    """

    def __init__(
        self,
        queue: Queue,
        most_waiting: int,
        on_commit: Callable[[Completion, ItemState | None], None],
        in_work: Callable[[], int],
    ) -> None:
        self._queue = queue
        self._room = asyncio.Semaphore(most_waiting)
        self._on_commit = on_commit
        self._in_work = in_work
        self._waiting: list[Completion] = []
        self._arrived = asyncio.Event()
        self._is_lone = asyncio.Event()
        self._is_closing = False

    async def hand_over(self, finish: Completion) -> None:
        """Leave an outcome to be committed; waits only when too many are waiting already."""
        await self._room.acquire()
        self._waiting.append(finish)
        self._arrived.set()
        if self._is_all_there():
            self._is_lone.set()

    def close(self) -> None:
        """Let `run` return once everything handed over is committed."""
        self._is_closing = True
        self._arrived.set()
        self._is_lone.set()

    async def run(self) -> None:
        """Commit until closed.

        Raises:
            StoreError: the database does not take any more.
        """
        size = 0
        while True:
            await self._arrived.wait()
            if size > 1:
                await self._wait_for_company()
            self._arrived.clear()
            batch, self._waiting = self._waiting, []
            size = len(batch)
            for finish in batch:
                await finish.usage.settle()
            ends = await self._queue.complete_all(batch) if batch else []
            for finish, end in zip(batch, ends, strict=True):
                self._room.release()
                self._on_commit(finish, None if isinstance(end, LeaseLost) else end)
            if self._is_closing and not self._waiting:
                return

    async def _wait_for_company(self) -> None:
        """Wait a little for more outcomes, unless no work is under way that could bring any."""
        if self._is_all_there():
            return
        if await sleep_or_wake(_COMPANY, self._is_lone) and not self._is_closing:
            self._is_lone.clear()

    def _is_all_there(self) -> bool:
        return self._in_work() <= len(self._waiting)


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
