"""Live parts of pages: rendered once per change for all who look, and sent over SSE.

Each part of a page that changes has a name and a function that renders it. While
at least one browser is connected, the part is rendered again when the event log has grown, at most
once per second, and sent to all of them if its text has changed. A message is the whole part, so
that a browser which was away misses nothing: it gets the present state when it connects again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from longline.core.errors import LonglineError
from longline.server.web.access import Caller
from longline.server.web.context import Web
from longline.server.web.rendering import access_of, environment

_LOG = logging.getLogger(__name__)

_INTERVAL = 1.0  # seconds between two renderings
_UNCHANGED = 15.0  # seconds after which a part is rendered again even without a new event
LONGEST_STREAM = 3600.0  # seconds after which a client has to connect, and authenticate, again
_KEEP_ALIVE = b": still here\n\n"
SSE_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The headers of streams: neither caches nor proxies keep messages back."""
_END = b""  # wakes a stream that is to end

ReadPart = Callable[[Web, Mapping[str, str]], Awaitable[Mapping[str, Any]]]
"""Returns the values of the template of a part; the arguments are those of its address."""


@dataclass(frozen=True, slots=True)
class LivePart:
    """A part of a page: its template, and what reads its values."""

    template: str
    read: ReadPart


@dataclass(slots=True)
class _Channel:
    """A part with its arguments for callers of one role, and the browsers that show it."""

    task: asyncio.Task[None] | None = None
    queues: set[asyncio.Queue[bytes]] = field(default_factory=set)
    last: bytes = b""


class LiveParts:
    """All parts of all pages; `parts` are by name.

    A stream ends after `longest` seconds, so that a session that was revoked or has expired is
    refused when its browser connects again.
    """

    def __init__(
        self, web: Web, parts: Mapping[str, LivePart], *, longest: float = LONGEST_STREAM
    ) -> None:
        self._web = web
        self._parts = parts
        self._longest = longest
        self._channels: dict[tuple[Any, ...], _Channel] = {}
        self._is_closed = False

    def __contains__(self, name: str) -> bool:
        return name in self._parts

    async def render(self, name: str, arguments: Mapping[str, str], caller: Caller) -> str:
        """Return a part as HTML."""
        part = self._parts[name]
        values = await part.read(self._web, arguments)
        template = environment().get_template(part.template)
        # In a thread: a large table would block the loop for some milliseconds.
        return await asyncio.to_thread(template.render, **values, **access_of(caller))

    async def stream(
        self, name: str, arguments: Mapping[str, str], caller: Caller
    ) -> AsyncIterator[bytes]:
        """Yield SSE messages with the part, whenever it has changed, until `close` is called."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._longest
        key = (name, tuple(sorted(arguments.items())), caller.role)
        channel = self._channels.setdefault(key, _Channel())
        queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=4)
        channel.queues.add(queue)
        if channel.task is None:
            channel.task = asyncio.create_task(self._feed(key, channel, arguments, caller))
        elif channel.last:
            queue.put_nowait(channel.last)
        try:
            while not self._is_closed:
                try:
                    message = await asyncio.wait_for(queue.get(), _UNCHANGED)
                except TimeoutError:
                    message = _KEEP_ALIVE
                if message != _END:
                    yield message
                if loop.time() >= end:
                    return
        finally:
            channel.queues.discard(queue)
            if not channel.queues and channel.task is not None:
                channel.task.cancel()
                self._channels.pop(key, None)

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for channel in self._channels.values():
            for queue in channel.queues:
                _put_newest(queue, _END)

    async def _feed(
        self,
        key: tuple[Any, ...],
        channel: _Channel,
        arguments: Mapping[str, str],
        caller: Caller,
    ) -> None:
        seen, waited = -1, 0.0
        while True:
            try:
                newest = await self._web.store.events.newest()
                if newest != seen or waited >= _UNCHANGED:
                    seen, waited = newest, 0.0
                    text = await self.render(key[0], arguments, caller)
                    self._send(channel, sse_message(text, seen))
            except LonglineError:  # the database does not respond
                pass
            except Exception:  # noqa: BLE001  # the page would show its last state for ever
                _LOG.exception("the live part %s could not be rendered", key[0])
            await asyncio.sleep(_INTERVAL)
            waited += _INTERVAL

    def _send(self, channel: _Channel, message: bytes) -> None:
        if message.partition(b"\n")[2] == channel.last.partition(b"\n")[2]:
            return
        channel.last = message
        for queue in channel.queues:
            _put_newest(queue, message)


def _put_newest(queue: asyncio.Queue[bytes], message: bytes) -> None:
    if queue.full():  # a slow browser needs only the newest state
        queue.get_nowait()
    queue.put_nowait(message)


def sse_message(text: str, number: int, event: str | None = None) -> bytes:
    """Return a message of server-sent events; its id comes first."""
    name = f"event: {event}\n" if event else ""
    lines = "\n".join(f"data: {one}" for one in text.splitlines())
    return f"id: {number}\n{name}{lines}\n\n".encode()
