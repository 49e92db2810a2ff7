"""A process that opens a page, says so, and then holds it until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import sys

from longline.core.clock import SystemClock
from longline.core.model import Usage
from longline.http.browser.manifest import BrowserOptions
from longline.http.browser.transport import BrowserTransport
from longline.http.messages import Request
from longline.http.transport import HttpOptions, HttpTransport


async def hold(url: str, chromium: str | None) -> None:
    transport = BrowserTransport(
        HttpTransport(HttpOptions(), SystemClock()),
        BrowserOptions(chromium=chromium),
        SystemClock(),
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    try:
        await transport(Request(url, is_rendered=True), Usage())
        sys.stdout.write("open\n")
        sys.stdout.flush()
        await stopping.wait()
    finally:
        await transport.close()


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2] if sys.argv[2:] else None))
