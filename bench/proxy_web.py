"""A site with a limit that bans addresses, and proxies of every kind of fault, in one process.

Each proxy connects from its own address of this machine (127.0.1.N), which the site sees. It is
started by `proof_proxies`, and prints its ports as JSON. The fault `behind:PORT` is a relay that
adds 2 s to each request of a real HTTP proxy.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).parent.parent))
from tests.forward_proxy import SLOW, ForwardProxy, read_head

_OK = "<!doctype html><html><head><title>Page {path}</title></head><body><main class='page'>{text}</main></body></html>"  # noqa: E501  # one page
_BAN = "<!doctype html><html><head><title>Access denied</title></head><body><h1>Access denied</h1><p>Your IP address has been blocked. Reference #18.2f</p></body></html>"  # noqa: E501  # one page
_BANNED_AFTER = 20


@dataclass(slots=True)
class Site:
    """A site that allows `rate` requests per second, and bans some addresses after 20 requests."""

    rate: float
    burst: float
    banned: set[str]
    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    pages: Counter[str] = field(default_factory=Counter)
    proxies: list[ForwardProxy] = field(default_factory=list)
    tokens: float = 0.0
    at: float = 0.0
    first: float = 0.0
    last: float = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            address = writer.get_extra_info("peername")[0]
            while head := await read_head(reader):
                path = head.split(b" ", 2)[1].decode()
                path = urlsplit(path).path
                status, kind, body = self._answer(path, address)
                self.statuses[status] += 1
                reason = "OK" if status == 200 else "No"  # noqa: PLR2004  # the usual one
                more = "Retry-After: 1\r\n" if status == 429 else ""  # noqa: PLR2004  # refused
                writer.write(
                    f"HTTP/1.1 {status} {reason}\r\nDate: now\r\nServer: site\r\nContent-Type: "
                    f"{kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode()
                )
                await writer.drain()
        writer.close()

    def _answer(self, path: str, address: str) -> tuple[int, str, str]:
        now = time.monotonic()
        if path == "/figures":
            figures = {
                "statuses": self.statuses,
                "requests": self.requests,
                "pages": len(self.pages),
                "seconds": self.last - self.first,
                "through_proxies": sum(proxy.requests for proxy in self.proxies),
            }
            return 200, "application/json", json.dumps(figures)
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return 429, "text/plain", "too many requests"
        self.tokens -= 1
        if path == "/robots.txt":
            return 200, "text/plain", "User-agent: *\nAllow: /\n"
        self.requests[address] += 1
        if address in self.banned and self.requests[address] > _BANNED_AFTER:
            return 403, "text/html", _BAN
        self.first, self.last = self.first or now, now
        self.pages[path] += 1
        return 200, "text/html", _OK.format(path=path, text="word " * 200)


class Relay:
    """Adds 2 s to whatever a client sends to a real proxy; `requests` counts that."""

    def __init__(self, target: int) -> None:
        self.requests = 0
        self._target = target
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen on a free port, and return it."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1000)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            there, to_there = await asyncio.open_connection("127.0.0.1", self._target)
            answers = asyncio.create_task(_pour(there, writer))
            while piece := await reader.read(65_536):
                self.requests += 1
                await asyncio.sleep(SLOW)
                to_there.write(piece)
                await to_there.drain()
            to_there.close()
            await answers


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def main(faults: list[str], rate: float, burst: float, banned: set[str]) -> None:
    """Serve the site and one proxy for each fault until standard input ends.

    The site also bans the addresses `banned`.
    """
    owns = [f"127.0.1.{number + 1}" for number in range(len(faults))]
    banned |= {own for own, fault in zip(owns, faults, strict=True) if fault == "banned"}
    site = Site(rate, burst, banned, tokens=burst, at=time.monotonic())
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0, backlog=1000)
    ports = []
    for own, fault in zip(owns, faults, strict=True):
        if fault.startswith("behind:"):
            ports.append(await Relay(int(fault.partition(":")[2])).start())
        else:
            site.proxies.append(await ForwardProxy(fault, own).start())
            ports.append(site.proxies[-1].port)
    print(json.dumps({"site": server.sockets[0].getsockname()[1], "proxies": ports}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    _, given, a_rate, a_burst, *bans = sys.argv
    asyncio.run(main(given.split(","), float(a_rate), float(a_burst), set(bans)))
