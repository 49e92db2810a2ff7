"""HTTP endpoint of a server: /metrics for Prometheus, /livez and /readyz for supervisors.

It listens on this machine only, or requires a token. /livez responds as long as the process works,
whatever state sites, workers or the database are in; /readyz runs the checks that are needed to
work at all.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from pydantic import SecretStr

from longline.config.secrets import is_loopback
from longline.core.errors import LonglineError

_SHUTDOWN = 2.0  # seconds for responses in progress
_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class AddressUnusable(LonglineError):
    """The endpoint cannot listen at its address."""

    address: str
    problem: str
    message = "metrics and health are not served at {address}: {problem}"
    hint = "Free the address, or change monitoring_address."


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a process can work, and the findings of its checks as JSON."""

    is_ready: bool
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Responders:
    """What the endpoint responds: metrics for an Accept header, and the readiness."""

    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    readiness: Callable[[], Awaitable[Readiness]]


class MonitoringEndpoint:
    """The endpoint at `address` (host:port); `token` is required for /metrics and for details."""

    def __init__(self, address: str, responders: Responders, token: SecretStr | None) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._address = address
        self._responders = responders
        self._token = token

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen until the end of the context; yield the port.

        Raises:
            AddressUnusable: another process listens there, or the address does not exist.
        """
        app = web.Application(middlewares=[self._guard], client_max_size=1024)
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/livez", self._live),
                web.get("/readyz", self._ready),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except (OSError, OverflowError) as error:
            await runner.cleanup()
            raise AddressUnusable(self._address, _problem_of(error)) from error
        try:
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    async def serve(self) -> None:
        """Listen until it is cancelled.

        Raises:
            AddressUnusable: it cannot listen.
        """
        async with self.listening():
            await asyncio.Event().wait()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # A page in a browser on this machine may reach the port under a name of its own.
        host = request.host.rpartition(":")[0] if _has_port(request.host) else request.host
        if is_loopback(self._host) and not is_loopback(host.strip("[]")):
            return web.Response(status=421, text="unknown host\n", headers=_NO_STORE)
        response = await handler(request)
        response.headers.update(_NO_STORE)
        return response

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self._is_allowed(request):
            return _unauthorized()
        body, media_type = await self._responders.metrics(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": media_type})

    async def _live(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, request: web.Request) -> web.Response:
        found = await self._responders.readiness()
        status = 200 if found.is_ready else 503
        if not self._is_allowed(request):  # probes need only the status
            return web.Response(status=status, text="ready\n" if found.is_ready else "not ready\n")
        body = orjson.dumps(found.report, option=orjson.OPT_APPEND_NEWLINE)
        return web.Response(status=status, body=body, content_type="application/json")

    def _is_allowed(self, request: web.Request) -> bool:
        if self._token is None:
            return True
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        expected = self._token.get_secret_value().encode()
        is_same = hmac.compare_digest(given.strip().encode("utf-8", "surrogateescape"), expected)
        return scheme.lower() == "bearer" and is_same


def _unauthorized() -> web.Response:
    text = "send the header Authorization: Bearer TOKEN, with the token of monitoring_token\n"
    return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})


def _problem_of(error: OSError | OverflowError) -> str:
    number = getattr(error, "errno", None) or 0
    # Of a name that cannot be resolved, the number is negative.
    return os.strerror(number) if number > 0 else getattr(error, "strerror", None) or str(error)


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]") and host.count(":") > 0
