"""A forwarding proxy of plain HTTP with one fault, for what real proxies do not do on request."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

SLOW = 2.0
"""Seconds that a slow proxy adds."""
INJECTED = "<!doctype html><html><body><h1>Cheap loans!</h1></body></html>"
"""What an injecting proxy returns in place of every page."""
_ANSWERS = {
    "auth": "407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0",
    "gateway": "502 Bad Gateway\r\nContent-Length: 0",
    "empty": "200 OK\r\nContent-Length: 0",
    "text": "200 OK\r\nDate: now\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nexpired",
    "encoding": "200 OK\r\nDate: now\r\nContent-Encoding: xz\r\nContent-Length: 4\r\n\r\nabcd",
    "cut": "200 OK\r\nDate: now\r\nContent-Length: 1000",
}


class ForwardProxy:
    """A proxy that connects from the address `own` of this machine, which the site sees.

    `fault` is one of good, dead, silent, slow, auth, gateway, empty, text, inject, cut,
    encoding, garbage, hang-up, unreachable. With the last two, it is a SOCKS5 proxy.
    """

    def __init__(self, fault: str = "good", own: str = "127.0.0.1") -> None:
        self.fault = fault
        self.requests = 0
        self._own = own
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> Self:
        """Listen on a free port; a dead one then listens no longer."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        self.port = self._server.sockets[0].getsockname()[1]
        if self.fault == "dead":
            self._server.close()
        return self

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def line(self) -> str:
        """The proxy as a list has it."""
        scheme = "socks5" if self.fault in {"hang-up", "unreachable"} else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, ValueError):
                is_socks = self.line.startswith("socks5:")
                await (self._refuse if is_socks else self._forward)(reader, writer)
        finally:
            self._serving.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Close the connection, or refuse one to the site."""
        methods = (await reader.readexactly(2))[1]
        self.requests += 1
        if self.fault == "unreachable":
            await reader.readexactly(methods)
            writer.write(b"\x05\x00")
            await reader.read(100)
            writer.write(b"\x05\x05\x00\x01" + bytes(6))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while head := await read_head(reader):
                self.requests += 1
                if self.fault == "silent":
                    await asyncio.sleep(3600)
                if self.fault == "slow":
                    await asyncio.sleep(SLOW)
                if self.fault == "inject":
                    writer.write(_page(INJECTED))
                    continue
                if self.fault == "garbage":
                    writer.write(bytes(range(256)))
                    return
                if self.fault in _ANSWERS:
                    writer.write(f"HTTP/1.1 {_ANSWERS[self.fault]}\r\n\r\n".encode())
                    if self.fault == "cut":
                        return
                    continue
                url = urlsplit(head.split(b" ", 2)[1].decode())
                if there is None:
                    there = await asyncio.open_connection(
                        url.hostname, url.port, local_addr=(self._own, 0)
                    )
                there[1].write(head)
                answer = await read_head(there[0])
                length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                writer.write(answer + await there[0].readexactly(length))
                await writer.drain()
        finally:
            if there is not None:
                there[1].close()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    """Return the first lines of a request or response; empty at the end of the connection."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def _page(html: str) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(html)}\r\n\r\n"
    return f"{head}{html}".encode()
