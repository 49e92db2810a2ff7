"""The event log as server-sent events: read once for all streams, resumed by the id of an event.

While there are streams, one task polls the log and keeps the newest events in memory, each as the
message that is sent. A stream has a cursor: it takes what follows from memory, or, if that is too
old, from the database. So a slow stream needs no queue, and none misses or repeats an event.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from longline.core.errors import LonglineError
from longline.core.model import Event
from longline.server import models
from longline.server.web.context import Web
from longline.server.web.live import LONGEST_STREAM
from longline.storage.events.events import EventFilter

_INTERVAL = 0.5  # seconds between two polls
_BATCH = 500  # events that are read, or sent, together
_SPAN = 100_000  # ids that one query searches for a rare type
_KEPT = 2000  # events in memory
_SILENCE = 15.0  # seconds after which a stream without events sends its cursor
_RETRY = 2000  # milliseconds after which a client connects again

IsWanted = Callable[[Event, str | None], bool]


@dataclass(frozen=True, slots=True)
class _Line:
    """An event, the source of its job, and its message."""

    event: Event
    source: str | None
    message: bytes


class EventStreams:
    """All streams of events of a server; each ends after some time, in seconds."""

    def __init__(self, web: Web, *, longest: float = LONGEST_STREAM) -> None:
        self._web = web
        self._longest = longest
        self._streams = 0
        self._polling: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._lines: list[_Line] = []
        self._ids: list[int] = []
        self._floor = 0  # all events after it, up to `_position`, are in `_lines`
        self._position = 0
        self._is_closed = False

    async def open(self, wanted: EventFilter, after: int | None) -> AsyncIterator[bytes]:
        """Return the messages of the events after an id; None: after the newest.

        They end when `close` is called, and after an hour, so that a token that is revoked or has
        expired is refused when the client connects again.

        Raises:
            BadOption: there is no such event type, or no event has this id yet.
        """
        is_wanted = wanted.test()
        newest = await self._web.store.events.newest()
        if after is not None:
            await self._web.store.events.read(after, wanted, limit=1, span=1)
        return self._follow(wanted, is_wanted, newest if after is None else after, newest)

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        self._changed.set()

    async def _follow(
        self, wanted: EventFilter, is_wanted: IsWanted, cursor: int, newest: int
    ) -> AsyncIterator[bytes]:
        self._streams += 1
        end = asyncio.get_running_loop().time() + self._longest
        polling = self._polling
        if polling is None or polling.done():
            self._lines, self._ids = [], []
            self._floor = self._position = newest
            self._changed = asyncio.Event()
            self._polling = polling = asyncio.create_task(self._poll())
            polling.add_done_callback(self._end_streams_of)
        try:
            # The client has a cursor from the beginning, even if no event comes.
            yield f"retry: {_RETRY}\n".encode() + _cursor_message(cursor)
            while not (self._is_closed or polling.done()):
                if asyncio.get_running_loop().time() > end:
                    return
                before = cursor
                if cursor < self._floor:
                    messages, cursor = await self._read(wanted, cursor)
                else:
                    messages, cursor = self._recall(is_wanted, cursor)
                if messages:
                    yield b"".join(messages)
                elif cursor == before and not await self._wait():
                    yield _cursor_message(cursor)
        finally:
            self._streams -= 1
            if not self._streams:
                polling.cancel()
                self._polling = None

    def _end_streams_of(self, polling: asyncio.Task[None]) -> None:
        if polling is self._polling:  # it has failed; clients connect again
            self._changed.set()

    async def _read(self, wanted: EventFilter, cursor: int) -> tuple[Sequence[bytes], int]:
        """Return the next messages from the database, and the cursor after them."""
        read = self._web.store.events.read
        try:
            found, cursor = await read(cursor, wanted, limit=_BATCH, span=_SPAN)
        except LonglineError:  # the database does not respond
            await asyncio.sleep(_INTERVAL)
            return [], cursor
        return [_message(one) for one in found], cursor

    def _recall(self, is_wanted: IsWanted, cursor: int) -> tuple[Sequence[bytes], int]:
        """Return the next messages from memory, and the cursor after them."""
        start = bisect_right(self._ids, cursor)
        some = self._lines[start : start + _BATCH]
        messages = [one.message for one in some if is_wanted(one.event, one.source)]
        is_last = start + _BATCH >= len(self._lines)
        return messages, max(cursor, self._position) if is_last else some[-1].event.id

    async def _wait(self) -> bool:
        """Wait for new events; return False if there was none for some time."""
        changed = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE):
                return await changed.wait()
        return False

    async def _poll(self) -> None:
        store = self._web.store
        while True:
            with contextlib.suppress(LonglineError):  # the database does not respond
                found, position = await store.events.read(
                    self._position, EventFilter(), limit=_BATCH
                )
                names = {one.job for one in found if one.job is not None}
                sources = await store.events.sources(names) if names else {}
                self._keep([_Line(one, sources.get(one.job), _message(one)) for one in found])
                self._position = position
                if found:
                    changed, self._changed = self._changed, asyncio.Event()
                    changed.set()
                if len(found) == _BATCH:
                    continue
            await asyncio.sleep(_INTERVAL)

    def _keep(self, lines: Sequence[_Line]) -> None:
        self._lines += lines
        self._ids += [one.event.id for one in lines]
        if (surplus := len(self._lines) - _KEPT) > 0:
            self._floor = self._ids[surplus - 1]
            del self._lines[:surplus], self._ids[:surplus]


def _message(event: Event) -> bytes:
    # JSON of a model has no line breaks, so no text can end its message.
    text = models.Event.model_validate(event).model_dump_json()
    return f"id: {event.id}\ndata: {text}\n\n".encode()


def _cursor_message(cursor: int) -> bytes:
    """Return a message without data: a client remembers its id, and reports no event."""
    return f"id: {cursor}\n\n".encode()
