"""The socket that the web interface listens on."""

from __future__ import annotations

import asyncio
import socket

from longline.server.web.part import listen


async def test_responses_do_not_wait_for_an_acknowledgement() -> None:
    options: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def respond(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        options.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen("127.0.0.1:0")
    async with await asyncio.start_server(respond, sock=listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        await reader.read()
        writer.close()
        await writer.wait_closed()

    assert await options
