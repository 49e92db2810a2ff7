"""A SOCKS5 proxy for the browser that applies the address policy to every connection.

A browser resolves names and follows redirects of a page's parts by itself, so its connections can
only be checked when they are made. It uses this proxy for everything, loopback included.
"""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from contextlib import suppress

from longline.http.address_policy import AddressPolicy
from longline.http.errors import PrivateAddress

_VERSION, _CONNECT = 5, 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_GRANTED, _NOT_ALLOWED, _UNREACHABLE, _UNSUPPORTED = 0, 2, 4, 7
_CHUNK = 65_536  # bytes
_GREETING = 10.0  # seconds for the SOCKS handshake
_MOST_REFUSALS = 1000


class BrowserProxy:
    """A proxy on a local port, for one browser."""

    def __init__(self, addresses: AddressPolicy) -> None:
        self._addresses = addresses
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._refusals: dict[str, PrivateAddress] = {}

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def close(self) -> None:
        """End all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that make Chromium use it, for loopback and WebRTC as well."""
        assert self._server is not None  # noqa: S101  # it was started
        port = self._server.sockets[0].getsockname()[1]
        return (
            f"--proxy-server=socks5://127.0.0.1:{port}",
            "--proxy-bypass-list=<-loopback>",
            "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        )

    def refusal(self, host: str) -> PrivateAddress | None:
        """Return why a connection to a host was refused; None when it was not."""
        return self._refusals.get(host)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # asyncio calls this in a task
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, UnicodeError):
            pass  # either side may end a connection at any time
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_GREETING):
            _version, count = await reader.readexactly(2)
            await reader.readexactly(count)
            writer.write(bytes([_VERSION, 0]))
            asked = await _read_target(reader)
        if asked is None:
            _reply(writer, _UNSUPPORTED)
            return
        host, port = asked
        try:
            there_reader, there_writer = await self._connect(host, port)
        except PrivateAddress as error:
            self._remember_refusal(host, error)
            _reply(writer, _NOT_ALLOWED)
            return
        except OSError:
            _reply(writer, _UNREACHABLE)
            return
        _reply(writer, _GRANTED)
        try:
            await _relay((reader, there_writer), (there_reader, writer))
        finally:
            there_writer.close()

    async def _connect(
        self, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first allowed address of a host that accepts."""
        problem: Exception = OSError("unknown host")
        bracketed = f"[{host}]" if ":" in host else host
        for address in await self._addresses.addresses_of(host):
            try:
                self._addresses.check(f"http://{bracketed}:{port}/", address)
                return await asyncio.open_connection(address, port)
            except (PrivateAddress, OSError) as error:
                problem = error
        raise problem

    def _remember_refusal(self, host: str, error: PrivateAddress) -> None:
        if len(self._refusals) >= _MOST_REFUSALS:
            self._refusals.clear()  # only the last ones matter
        self._refusals[host.lower().rstrip(".")] = error


async def _read_target(reader: asyncio.StreamReader) -> tuple[str, int] | None:
    """Read the requested host and port; None for other commands."""
    _version, command, _reserved, kind = await reader.readexactly(4)
    if kind == _NAME:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii")
    elif kind in (_IPV4, _IPV6):
        packed = await reader.readexactly(4 if kind == _IPV4 else 16)
        host = str(ipaddress.ip_address(packed))
    else:
        return None
    (port,) = struct.unpack("!H", await reader.readexactly(2))
    return (host, port) if command == _CONNECT else None


def _reply(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes([_VERSION, code, 0, _IPV4]) + bytes(6))


async def _relay(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    async with asyncio.TaskGroup() as both:
        for source, target in ways:
            both.create_task(_pump(source, target))


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
    with suppress(OSError, RuntimeError):
        if target.can_write_eof():
            target.write_eof()
