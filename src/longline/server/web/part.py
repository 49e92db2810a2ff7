"""The web interface in the server: listens at its address until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn

from longline.config.secrets import is_loopback
from longline.config.settings import Settings
from longline.core.clock import Clock
from longline.core.errors import ConfigError
from longline.engine.local import tuned_memory
from longline.orchestrator import Orchestrator
from longline.server.web.access import LINK_SECONDS
from longline.server.web.app import create_app
from longline.server.web.context import Web
from longline.storage.access import CredentialKind, NewCredential, Role
from longline.storage.store import Store

_BACKLOG = 128
_SHUTDOWN = 3  # seconds for responses in progress; streams end at once


class WebAddressUnusable(ConfigError):
    """The web interface cannot listen at its address."""

    address: str
    problem: str
    message = "the web interface cannot listen at {address}: {problem}"
    hint = "Stop the other process, or choose another address: longline serve --address HOST:PORT."


class WebNeedsToken(ConfigError):
    """Other machines could reach the web interface, and nothing would keep them out."""

    address: str
    message = "other machines can reach {address}, and there is no token to log in with"
    hint = "Create one: longline tokens add NAME --role admin. Or set web_user_header."


def listen(address: str) -> socket.socket:
    """Return a socket that listens at `host:port`.

    Raises:
        WebAddressUnusable: another process listens there, or the address does not exist.
    """
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol: else asyncio does not know that connections are TCP, and leaves them with
    # Nagle's algorithm, by which each response waits 40 ms for the browser to acknowledge its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        problem = getattr(error, "strerror", None) or str(error)
        raise WebAddressUnusable(address, problem) from error
    return listener


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of an address such as 127.0.0.1:8400 or [::1]:8400."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def check_access(store: Store, settings: Settings, now: float) -> None:
    """Refuse an address that other machines can reach without any credential to check.

    Raises:
        WebNeedsToken: there is no token, and no proxy that authenticates users.
    """
    host, _ = split_address(settings.web_address)
    if is_loopback(host) or settings.web_user_header is not None:
        return
    if not any(one.is_valid(now) for one in await store.credentials.tokens()):
        raise WebNeedsToken(settings.web_address)


async def make_link(store: Store, settings: Settings, now: float) -> str:
    """Return a URL that opens the web interface once, with the role admin."""
    new = NewCredential(CredentialKind.LINK, "local", Role.ADMIN, LINK_SECONDS)
    _, secret = await store.credentials.create(new, now)
    host, port = split_address(settings.web_address)
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104  # compared, not bound
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/login?link={secret}"


class WebPart:
    """Serves the web interface of a home on an open socket."""

    def __init__(self, settings: Settings, clock: Clock, listener: socket.socket) -> None:
        self._settings = settings
        self._clock = clock
        self._listener = listener

    async def run(self) -> None:
        """Serve until it is cancelled."""
        async with self._opened() as web:
            host, _ = split_address(self._settings.web_address)
            config = uvicorn.Config(
                create_app(web, host),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_SHUTDOWN,
            )
            server = _QuietServer(config)
            # uvicorn closes the socket that it is given; a restarted part needs it again.
            serving = asyncio.create_task(server.serve(sockets=[self._listener.dup()]))
            try:
                # A full collection would stop every page for a fifth of a second.
                with tuned_memory():
                    await asyncio.shield(serving)
            finally:
                # Cancelled in its middle, it would leave its socket and connections open.
                server.should_exit = True
                web.live.close()
                web.events.close()
                await serving

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Web]:
        # A store of its own: pages never wait for the writes of the executor.
        async with Orchestrator(
            settings=self._settings, clock=self._clock, stores_logs=False
        ) as orchestrator:
            yield Web(orchestrator, self._settings, self._clock)


class _QuietServer(uvicorn.Server):
    """A server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
