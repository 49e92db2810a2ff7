"""Discovery of a job: one process at a time finds items and enqueues them.

A failure ends discovery, not the work on the items that were found before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from longline.core.clock import Clock
from longline.core.errors import (
    BudgetSpent,
    CircuitOpen,
    Deferred,
    DiscoveryFailed,
    FailureKind,
    LonglineError,
    StoreError,
)
from longline.core.logging import LogContext
from longline.core.model import Cursor, Item
from longline.engine.collector import (
    Collector,
    NoStrayCancellation,
    describe_source_error,
    ends_process,
)
from longline.engine.owner import dead_among
from longline.engine.pause_policy import TimeLimit
from longline.engine.runtime import LEASE
from longline.http.errors import NoProxy, RobotsDisallowed, SessionEnded
from longline.sources.base import Visit
from longline.storage.events.events import event_row
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store

LARGEST_BATCH = 200
"""Items that are enqueued in one transaction."""
IDLE_POLL = 0.5
"""Seconds between two checks whether other processes have left something to do."""
_SILENT = (FailureKind.NETWORK, FailureKind.TIMEOUT)
_BATCH_SECONDS = 0.25  # that found items wait for others


@dataclass(slots=True)
class Batch:
    """Found items, and the cursor after them; the last batch may have the `error` of the source."""

    items: list[Item] = field(default_factory=list)
    cursor: Cursor | None = None
    is_last: bool = False
    error: BaseException | None = None

    def add(self, found: Item | Cursor | BaseException | None) -> None:
        """Add what was found next; None or an error ends the discovery."""
        if isinstance(found, Item):
            self.items.append(found)
        elif isinstance(found, Cursor):
            self.cursor = found
        else:
            self.is_last, self.error = True, found


_Line = asyncio.Queue[Item | Cursor | BaseException | None]


async def discover_batches(
    stream: AsyncIterator[Item | Cursor], enqueue: Callable[[Batch], Awaitable[bool]]
) -> None:
    """Pass batches of a source's items to `enqueue` until it returns False, or there are no more.

    Raises:
        StoreError: what `enqueue` raised.
        BaseException: what the source raised, after all that it had found was enqueued.
    """
    line: _Line = asyncio.Queue(LARGEST_BATCH)

    async def read() -> None:
        end: BaseException | None = None
        try:
            with NoStrayCancellation():
                async for found in stream:
                    await line.put(found)
        except BaseException as error:  # raised again after the last batch
            if ends_process(error):
                raise
            end = error
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()
        await line.put(end)

    batch = Batch()
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            while not batch.is_last:
                batch = await _next_batch(line)
                if not await enqueue(batch):
                    reading.cancel()
                    break
    except* StoreError as several:
        raise several.exceptions[0] from several
    if batch.error is not None:
        raise batch.error


async def _next_batch(line: _Line) -> Batch:
    batch = Batch()
    batch.add(await line.get())
    with contextlib.suppress(TimeoutError):  # no further item yet
        async with asyncio.timeout(_BATCH_SECONDS):
            while not batch.is_last and len(batch.items) < LARGEST_BATCH:
                batch.add(await line.get())
    return batch


class Discovery:
    """Finds the items of one job; one object per run.

    `is_stopped` returns whether discovery has to stop, `on_found` is called when items were
    enqueued. At the `time_limit` discovery ends, and the job notes that not everything was found.
    """

    def __init__(
        self,
        store: Store,
        collector: Collector,
        clock: Clock,
        owner: str,
        *,
        limit: int | None,
        patience: float,
        is_stopped: Callable[[], bool],
        on_found: Callable[[], None],
        time_limit: TimeLimit | None = None,
    ) -> None:
        self._store = store
        self._collector = collector
        self._clock = clock
        self._owner = owner
        self._limit = limit
        self._patience = patience
        self._is_stopped = is_stopped
        self._on_found = on_found
        self._time_limit = time_limit
        self.failure: LonglineError | None = None
        """Why not all could be found."""

    async def run(self, job: str) -> None:
        """Discover, unless another process does, until all items are found."""
        try:
            with LogContext(job=job, source=self._collector.source.name):
                while not self._is_stopped() and await self._discover_once(job):
                    pass
        finally:
            self._on_found()

    async def _discover_once(self, job: str) -> bool:
        """Run the source's discovery from the cursor; True when it has to be run again."""
        now, dead = self._clock.now(), dead_among(await self._store.queue.owners(job))
        if not await self._store.jobs.lease_discovery(
            job, self._owner, at=now, until=now + LEASE, dead=dead
        ):
            return False
        source = self._collector.source
        visit = self._collector.visit(cursor=(await self._store.jobs.get(job)).cursor)
        try:
            async with self._timed():
                with NoStrayCancellation():
                    await source.prepare(visit)
                await self._enqueue_all(job, visit)
        except StoreError:
            raise  # not a failure of the source: the run ends
        except BudgetSpent as error:
            problem = f"discovery ended early: {error.limit} is exhausted"
            await self._enqueue(job, Batch(), visit, shortfall=problem)
        except RobotsDisallowed as error:
            self.failure = error
        except (CircuitOpen, Deferred) as error:
            return await self._is_worth_waiting(job, error)
        except BaseException as error:  # any error of a source ends its discovery
            if ends_process(error):
                raise
            self.failure = _discovery_failure(source.name, error)
        finally:
            await self._enqueue(job, Batch(), visit)  # usage and events since the last batch
            at = self._clock.now()
            notes = [
                event_row(job, at, "discovery.note", field=note.field, text=note.text)
                for note in visit.notes
            ]
            await self._store.events.append(*notes)
        return False

    @contextlib.asynccontextmanager
    async def _timed(self) -> AsyncIterator[None]:
        """Cancel the block at the time limit.

        Raises:
            BudgetSpent: the limit was reached.
        """
        limit = self._time_limit
        left = None if limit is None else max(0.0, limit.left(self._clock.now()))
        timeout = asyncio.timeout(left)
        try:
            async with timeout:
                yield
        except StoreError:
            raise
        except Exception as error:
            if limit is None or not timeout.expired():
                raise
            raise BudgetSpent("", limit.words) from error

    async def _is_worth_waiting(self, job: str, error: CircuitOpen | Deferred) -> bool:
        """Wait until the site may be requested again; False when that takes too long."""
        wait = error.until - self._clock.now()
        if error.kind is FailureKind.BLOCKED or wait > self._patience:
            self.failure = error
            return False
        # Without a proxy, nothing is known about the site.
        is_sent = isinstance(error, Deferred) and not isinstance(error, (NoProxy, SessionEnded))
        is_silent = is_sent and error.kind in _SILENT
        if is_silent and not sum((await self._store.queue.counts(job)).values()):
            # A site that has never answered may have a wrong address.
            self.failure = _discovery_failure(self._collector.source.name, error)
            return False
        if self._time_limit is not None:  # after it, the next discovery ends immediately
            wait = min(wait, self._time_limit.left(self._clock.now()))
        await self._clock.sleep(max(wait, IDLE_POLL))
        return True

    async def _enqueue_all(self, job: str, visit: Visit) -> None:
        async def enqueue(batch: Batch) -> bool:
            total = await self._enqueue(job, batch, visit)
            is_full = self._limit is not None and (total or 0) >= self._limit
            return not self._is_stopped() and not is_full

        await discover_batches(self._collector.source.discover(visit), enqueue)
        if not self._is_stopped():
            await self._enqueue(job, Batch(), visit, is_last=True)

    async def _enqueue(
        self,
        job: str,
        batch: Batch,
        visit: Visit,
        *,
        is_last: bool = False,
        shortfall: str | None = None,
    ) -> int | None:
        await visit.usage.settle()
        found = Discovered(
            job,
            batch.items,
            self._clock.now(),
            cursor=batch.cursor.value if batch.cursor else None,
            is_last=is_last or shortfall is not None,
            limit=self._limit,
            usage=visit.usage.take(),
            shortfall=shortfall,
        )
        total = await self._store.queue.enqueue(found)
        self._on_found()
        return total


def _discovery_failure(source: str, error: BaseException) -> DiscoveryFailed:
    """Return the failure of a discovery that raised `error`."""
    if isinstance(error, DiscoveryFailed):  # wrapping it would repeat the sentence
        return error
    failure = DiscoveryFailed(source, describe_source_error(error))
    failure.__cause__ = error
    return failure
