"""Resolve host names in daemon threads of their own, so that a slow name server holds up no one.

The event loop's default executor has few threads, which other blocking work shares, and a process
waits for them when it ends.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from longline.threads import Threads

_THREADS = 64  # lookups at the same time; aiohttp makes one for each host and port
_FLAGS = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_SCOPED = 4  # fields of an IPv6 address, the last of which is its scope


class Resolver(AbstractResolver):
    """Looks host names up with the system's resolver."""

    def __init__(self) -> None:
        self._threads = Threads(_THREADS, "longline-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            OSError: the name server does not know it, or does not answer.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _lookup, host, port, family)

    async def close(self) -> None:
        """Let the threads end after their present lookup; nothing waits for that."""
        self._threads.shutdown()


def _lookup(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(
        host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return [
        ResolveResult(
            hostname=host,
            host=_numeric(address),
            port=int(address[1]),
            family=kind,
            proto=proto,
            flags=_FLAGS,
        )
        for kind, _, proto, _, address in found
    ]


def _numeric(address: tuple[Any, ...]) -> str:
    if len(address) == _SCOPED and address[3]:  # link-local: it means nothing without its scope
        return f"{address[0]}%{address[3]}"
    return str(address[0])
