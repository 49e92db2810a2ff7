"""Discovery as a stream of chunks: what a source finds is queued soon, and many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from longline.errors import StoreError
from longline.jobs.straying import is_of_the_process, no_stray_cancellation
from longline.model import Cursor, Item

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
        pass  # the next find takes its time: what is there goes now
    return chunk
