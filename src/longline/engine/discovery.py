"""Discovery of a job: one process at a time finds items and queues them, and goes on after others.

A failure ends discovery, not the work on the items that were found before it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from longline.core.clock import Clock, WaitTimer
from longline.core.errors import (
    BudgetSpent,
    CircuitOpen,
    Deferred,
    DiscoveryFailed,
    FailureKind,
    LonglineError,
    StoreError,
)
from longline.core.logging import log_context
from longline.core.model import Cursor, Item
from longline.engine.extractor import Collector, is_of_the_process, no_stray_cancellation
from longline.engine.owner import dead_among
from longline.engine.pause_policy import TimeLimit
from longline.engine.runtime import HEARTBEAT, LEASE, beside
from longline.http.errors import RobotsDisallowed
from longline.sources.base import Visit
from longline.storage.events import event_row
from longline.storage.queue.enqueue import Discovered
from longline.storage.store import Store


def _discovery_failure(source: str, error: BaseException) -> DiscoveryFailed:
    """Return the failure of a discovery that raised `error`, which is its cause.

    A `DiscoveryFailed` is returned unchanged: wrapping it would repeat the sentence.
    """
    if isinstance(error, DiscoveryFailed):
        return error
    problem = str(error) if isinstance(error, LonglineError) else repr(error)
    failure = DiscoveryFailed(source, problem)
    failure.__cause__ = error
    return failure


# ---------------- Discovery as a stream of chunks: what a source finds is queued soon, and many

LARGEST_CHUNK = 200
_OLDEST_CHUNK = 0.25  # seconds found items wait for company, however long the next one takes


class _End:
    """The last thing in the line: the source has no more, or has failed with `error`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@dataclass(slots=True)
class Chunk:
    """Items found, and how far discovery had come with them; `end` stands in the last chunk."""

    items: list[Item] = field(default_factory=list)
    cursor: Cursor | None = None
    end: _End | None = None

    def take(self, found: Item | Cursor | _End) -> None:
        """Add what was found next."""
        if isinstance(found, Item):
            self.items.append(found)
        elif isinstance(found, Cursor):
            self.cursor = found
        else:
            self.end = found

    @property
    def is_full(self) -> bool:
        """Whether it has to go now."""
        return self.end is not None or len(self.items) >= LARGEST_CHUNK


async def find_in_chunks(
    stream: AsyncIterator[Item | Cursor], queue_up: Callable[[Chunk], Awaitable[bool]]
) -> None:
    """Hand chunks of what a source finds to `queue_up` until it says False, or there are no more.

    Raises:
        StoreError: what `queue_up` raised.
        BaseException: whatever the source raised, after all that it had found was handed over.
    """
    line: asyncio.Queue[Item | Cursor | _End] = asyncio.Queue(LARGEST_CHUNK)
    chunk = Chunk()
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_read(stream, line))
            while chunk.end is None:
                chunk = await _next_chunk(line)
                if not await queue_up(chunk):
                    reading.cancel()
                    break
    except* StoreError as several:
        raise several.exceptions[0] from several
    if chunk.end is not None and chunk.end.error is not None:
        raise chunk.end.error


async def _read(
    stream: AsyncIterator[Item | Cursor], line: asyncio.Queue[Item | Cursor | _End]
) -> None:
    try:
        with no_stray_cancellation():
            async for found in stream:
                await line.put(found)
    except BaseException as error:  # raised again where the chunks are handed over
        if is_of_the_process(error):
            raise
        await line.put(_End(error))
    else:
        await line.put(_End())
    finally:
        if isinstance(stream, AsyncGenerator):
            await stream.aclose()


async def _next_chunk(line: asyncio.Queue[Item | Cursor | _End]) -> Chunk:
    chunk = Chunk()
    chunk.take(await line.get())
    try:
        async with asyncio.timeout(_OLDEST_CHUNK):
            while not chunk.is_full:
                chunk.take(await line.get())
    except TimeoutError:
        pass  # no further item yet: enqueue what was found
    return chunk


IDLE_POLL = 0.5  # seconds between two checks whether others have left something to do
WAITED = "discovery_waited"
"""The figure of a job that says for how many seconds its discovery has only waited."""

_SILENT = (FailureKind.NETWORK, FailureKind.TIMEOUT)


class Discovery:
    """Finds the items of one job; one object a run.

    `is_stopped` returns whether nothing more is to be begun, `on_found` is called when items were
    queued. At the `time_limit` discovery ends, and the job notes that not everything was found.
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
        self.is_under_way = False
        self._waiting = WaitTimer()

    async def run(self, job: str) -> None:
        """Discover, if nobody else does, until all is found."""
        self.is_under_way = True
        try:
            context = log_context(job=job, source=self._collector.source.name)
            async with beside(self._note_waits(job)):
                with context:
                    while not self._is_stopped() and await self._is_to_be_discovered(job):
                        pass
        finally:
            self.is_under_way = False
            self._on_found()

    async def _is_to_be_discovered(self, job: str) -> bool:
        """Take one turn at discovery; False when there is nothing more to do about it."""
        if (await self._store.jobs.get(job)).is_discovered:
            return False
        if not await self._take_discovery(job):
            return False
        visit = self._collector.visit(cursor=(await self._store.jobs.get(job)).cursor)
        visit.usage.waiting = self._waiting
        try:
            async with self._timed():
                with no_stray_cancellation():
                    await self._collector.source.prepare(visit)
                await self._queue_all(job, visit)
        except StoreError:
            raise  # not the source's fault: the run ends, and says so
        except BudgetSpent as error:
            problem = f"discovery ended early: {error.limit} is exhausted"
            await self._queue(job, Chunk(), visit, shortfall=problem)
        except RobotsDisallowed as error:
            self.failure = error
        except (CircuitOpen, Deferred) as error:
            return await self._is_sat_out(job, error)
        except BaseException as error:  # whatever a source raises ends its discovery
            if is_of_the_process(error):
                raise
            self.failure = _discovery_failure(self._collector.source.name, error)
        finally:
            await self._close_discovery(job, visit)
        return False

    @contextlib.asynccontextmanager
    async def _timed(self) -> AsyncIterator[None]:
        """End what is done inside at the time limit, whatever it is waiting for.

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

    async def _is_sat_out(self, job: str, error: CircuitOpen | Deferred) -> bool:
        """Wait until the site may be asked again; False when that is not worth waiting for."""
        wait = error.until - self._clock.now()
        is_banned = error.kind is FailureKind.BLOCKED
        if is_banned or wait > self._patience:
            self.failure = error
            return False
        is_silent = isinstance(error, Deferred) and error.kind in _SILENT
        if is_silent and not sum((await self._store.queue.counts(job)).values()):
            # A site that has never said anything may as well be a wrong address.
            self.failure = DiscoveryFailed(self._collector.source.name, str(error))
            return False
        if self._time_limit is not None:  # then discovery ends when it is begun again
            wait = min(wait, self._time_limit.left(self._clock.now()))
        with self._waiting:
            await self._clock.sleep(max(wait, IDLE_POLL))
        return True

    async def _note_waits(self, job: str) -> None:
        """Have those who watch the job know that discovery only waits; never ends."""
        noted = 0.0
        while True:
            await self._clock.sleep(HEARTBEAT)
            waited = self._waiting.seconds()
            if waited > noted:
                await self._store.events.add_statistics(job, {WAITED: waited - noted})
                noted = waited

    async def _close_discovery(self, job: str, visit: Visit) -> None:
        await self._queue(job, Chunk(), visit)  # what was spent and met with since the last chunk
        now = self._clock.now()
        notes = [
            event_row(job, now, "discovery.note", field=note.field, text=note.text)
            for note in visit.notes
        ]
        await self._store.events.append(*notes)

    async def _take_discovery(self, job: str) -> bool:
        now = self._clock.now()
        dead = dead_among(await self._store.queue.owners(job))
        return await self._store.jobs.take_discovery(
            job, self._owner, at=now, until=now + LEASE, dead=dead
        )

    async def _queue_all(self, job: str, visit: Visit) -> None:
        async def queue_up(chunk: Chunk) -> bool:
            total = await self._queue(job, chunk, visit)
            is_full = self._limit is not None and (total or 0) >= self._limit
            return not self._is_stopped() and not is_full

        await find_in_chunks(self._collector.source.discover(visit), queue_up)
        if not self._is_stopped():
            await self._queue(job, Chunk(), visit, is_last=True)

    async def _queue(
        self,
        job: str,
        chunk: Chunk,
        visit: Visit,
        *,
        is_last: bool = False,
        shortfall: str | None = None,
    ) -> int | None:
        await visit.usage.settle()
        found = Discovered(
            job,
            chunk.items,
            self._clock.now(),
            cursor=chunk.cursor.value if chunk.cursor else None,
            is_last=is_last or shortfall is not None,
            limit=self._limit,
            usage=visit.usage.take(),
            shortfall=shortfall,
        )
        total = await self._store.queue.add(found)
        self._on_found()
        return total
