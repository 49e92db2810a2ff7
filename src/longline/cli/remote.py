"""Commands on a server: with `--server`, a command asks its API instead of opening a home."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from longline.cli.options import ServerAddress, server_given

if TYPE_CHECKING:  # its HTTP library is imported only when a server is used
    from longline.client.client import Client

T = TypeVar("T")
_PAGE = 500  # entries of a page, at most


def or_on_server(
    on_server: Callable[..., Awaitable[int | None]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run `on_server` instead of a command when a server is named.

    It gets the client of the server and the arguments of the command, and may return an exit code.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*args: Any, **kwargs: Any) -> None:
            server = server_given()
            if server is None:
                command(*args, **kwargs)
                return
            sys.exit(with_client(server, lambda client: on_server(client, *args, **kwargs)) or 0)

        return run

    return decorate


def with_client(server: ServerAddress, use: Callable[[Client], Awaitable[T]]) -> T:
    """Connect to a server, use it, disconnect."""
    from longline.client.client import Client  # noqa: PLC0415  # see above

    async def connected() -> T:
        async with Client(server.url, token=server.token) as client:
            return await use(client)

    return asyncio.run(connected())


async def first(entries: AsyncGenerator[T, None], most: int) -> list[T]:
    """Return the first entries of a list, and read no further page."""
    found: list[T] = []
    async for one in entries:
        found.append(one)
        if len(found) == most:
            break
    await entries.aclose()
    return found


def page_size(most: int) -> int:
    """Return the size of the pages from which `most` entries are read."""
    return min(most, _PAGE)


def iso_text(at: datetime | None) -> str | None:
    """Return a time of the API as `iso_time` writes it."""
    return None if at is None else at.isoformat(timespec="seconds")


def seconds_of(at: datetime | None) -> float | None:
    """Return a time of the API in seconds since the epoch."""
    return None if at is None else at.timestamp()
