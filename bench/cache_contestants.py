"""The caches under test: the request chain of longline, and hishel alone in its RFC mode."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import hishel
import requests
from hishel.requests import CacheAdapter

from longline.core.clock import SystemClock
from longline.core.errors import FetchError
from longline.core.model import Usage
from longline.http.cache import HttpCache
from longline.http.messages import Request
from longline.http.middleware.breaker import BreakerMiddleware
from longline.http.middleware.cache import CacheMiddleware
from longline.http.transport import HttpOptions, HttpTransport
from longline.limits.breaker import CircuitBreaker

_AT_ONCE = 128
_PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Question:
    """A request of the tests."""

    url: str
    method: str
    headers: list[tuple[str, str]]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class Reply:
    """The response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Contestant(Protocol):
    """A cache under test."""

    async def __call__(self, question: Question) -> Reply:
        """Return the response.

        Raises:
            ConnectionError: there is none.
        """


@contextlib.asynccontextmanager
async def ours(folder: Path) -> AsyncIterator[Contestant]:
    """Build the request chain without a rate limit, from the cache inwards.

    The middlewares outside the cache (retries, redirects, statuses) would hide responses.
    """
    clock = SystemClock()
    transport = HttpTransport(HttpOptions(timeout=_PATIENCE), clock)
    # The tests make the site fail on purpose; a breaker would judge it by that.
    inner = BreakerMiddleware(transport, CircuitBreaker(threshold=10**9, clock=clock), clock)
    cache = HttpCache(folder / "longline.sqlite")
    link = CacheMiddleware(inner, cache, clock)

    async def ask(question: Question) -> Reply:
        request = Request(question.url, question.method, _joined(question), question.body)
        try:
            page = await link(request, Usage())
        except FetchError as error:
            raise ConnectionError(str(error)) from error
        return Reply(page.status, list(page.headers.items()), page.body)

    try:
        yield ask
    finally:
        await transport.close()
        await asyncio.to_thread(cache.close)


@contextlib.asynccontextmanager
async def hishel_alone(folder: Path) -> AsyncIterator[Contestant]:
    """Build hishel's own adapter for requests: RFC mode, private, its own SQLite storage."""
    storage = hishel.SqliteStorage(database_path=folder / "hishel.sqlite")
    options = hishel.CacheOptions(shared=False)
    session = requests.Session()
    session.mount("http://", CacheAdapter(pool_maxsize=_AT_ONCE, storage=storage, rfc=options))
    threads = ThreadPoolExecutor(_AT_ONCE)

    def ask(question: Question) -> Reply:
        try:
            response = session.request(
                question.method,
                question.url,
                headers=_joined(question),
                data=question.body,
                allow_redirects=False,
                timeout=_PATIENCE,
            )
        except requests.RequestException as error:
            raise ConnectionError(str(error)) from error
        return Reply(response.status_code, list(response.headers.items()), response.content)

    async def ask_in_thread(question: Question) -> Reply:
        return await asyncio.get_running_loop().run_in_executor(threads, ask, question)

    try:
        yield ask_in_thread
    finally:
        threads.shutdown()
        session.close()


def _joined(question: Question) -> dict[str, str]:
    """Return the headers as a mapping; several lines of one are a list, which is the same."""
    headers: dict[str, str] = {}
    for name, value in question.headers:
        known = headers.get(name)
        headers[name] = value if known is None else f"{known}, {value}"
    return headers
