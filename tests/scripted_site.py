"""A small real web server whose answers a test writes; for what the practice web does not do."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedSite:
    """Answers each path by the handler in `answers`; others get 404. Counts what it was asked."""

    def __init__(self, host: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._tls = tls
        self.answers: dict[str, Answer] = {}
        self.hits: Counter[str] = Counter()
        self.log: list[tuple[str, float]] = []
        self.credentials: list[str] = []
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, keepalive_timeout=1e6, shutdown_timeout=0.01
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, 0, ssl_context=self._tls)
        await site.start()
        self.url = f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        assert self._runner is not None
        port: int = self._runner.addresses[0][1]
        return port

    @property
    def moments(self) -> list[float]:
        return [moment for _, moment in self.log]

    def says(
        self,
        path: str,
        text: str = "",
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Answer a path with this text, always."""
        self.answers[path] = _fixed(web.Response, text=text, status=status, headers=headers)

    def says_in_turn(self, path: str, *statuses: int) -> None:
        """Answer a path with these statuses one after the other; the last one stays."""
        left = list(statuses)

        async def answer(_request: web.Request) -> web.StreamResponse:
            status = left.pop(0) if len(left) > 1 else left[0]
            return web.Response(status=status, text="ok")

        self.answers[path] = answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.hits[request.path] += 1
        if sent := request.headers.get("Authorization"):
            self.credentials.append(sent)
        self.log.append((request.path, asyncio.get_running_loop().time()))
        handler = self.answers.get(request.path)
        return await handler(request) if handler else web.Response(status=404)


def _fixed(make: Callable[..., web.StreamResponse], **values: object) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return make(**values)

    return answer


async def drop(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
