"""The socket that the web interface listens on."""

from __future__ import annotations

import asyncio
import socket

from longline.server.web.part import listen


async def test_responses_do_not_wait_for_an_acknowledgement() -> None:
    accepted: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

    def on_connection(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket"))
        writer.close()

    listener = listen("127.0.0.1:0")
    async with await asyncio.start_server(on_connection, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        options = (await accepted).getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()

    assert options
