"""What the servers of the practice web share: listening on a port, and closing it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiohttp import web

_KEEP_ALIVE = 86_400.0  # on virtual time an idle hour passes in no time: never hang up first
_LAST_WORDS = 0.1


class PracticeServer:
    """An HTTP server that runs during an `async with`; port 0 takes a free one."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address of the site; the port is known once the server has started."""
        return f"http://{self._host}:{self._port}"

    @property
    def port(self) -> int:
        """The port, once the server has started."""
        return self._port

    async def start(self) -> None:
        """Begin to listen; calls before this one get no connection.

        Raises:
            OSError: the port is taken.
        """
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=_KEEP_ALIVE,
            shutdown_timeout=_LAST_WORDS,
        )
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, self._host, self._port).start()
        self._port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Close every connection and stop listening; responses in flight are cut off."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _application(self) -> web.Application:
        raise NotImplementedError
