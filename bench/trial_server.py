"""A server for trials: every path is a small page after a delay; it records what it sent when."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

_LIST = "/list/"
_ITEM = "/item/"


class TrialServer:
    """Serves on a free port from its own thread; use `with`.

    `latency` is how long an item takes, `list_latency` a page of the list, in seconds; both may be
    changed between trials.
    """

    def __init__(self, *, latency: float = 0.03, list_latency: float = 0.03) -> None:
        self.latency = latency
        self.list_latency = list_latency
        self.asked: Counter[str] = Counter()
        self.last_sent = 0.0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.url = f"http://127.0.0.1:{starting.result(10)}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _start(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode("ascii", "replace")
                writer.write(await self._answer(path))
                await writer.drain()
                if path.startswith(_ITEM):
                    self.last_sent = time.monotonic()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client was killed, or this server is stopping
        finally:
            writer.close()

    async def _answer(self, path: str) -> bytes:
        self.asked[path] += 1
        if not path.startswith((_LIST, _ITEM)):
            return _response("404 Not Found", "<h1>nothing</h1>")
        await asyncio.sleep(self.latency if path.startswith(_ITEM) else self.list_latency)
        return _response("200 OK", f"<h1>{path.rpartition('/')[2]}</h1>" + "<p>water</p>" * 100)


def _response(status: str, body: str) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"{head}{body}".encode()
