"""Blocking code in a thread: stream its results, send its requests through the chain."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any

from longline.core.errors import UnexpectedShape
from longline.core.threads import Threads
from longline.http.messages import Page
from longline.sources.visit import Visit

_MAX_BATCH_SECONDS = 0.1
_MAX_BATCH_RECORDS = 100


async def stream_from_thread(
    call: Callable[[], Any], *, may_be_none: bool = False
) -> AsyncGenerator[Any, None]:
    """Call a function in its own thread, and yield what it returns or yields.

    The thread pauses until its last batch is consumed, so a fast generator does not fill the
    memory.

    Raises:
        UnexpectedShape: it returned something that is not records.
        Exception: whatever the function raised, after everything that it yielded before.
    """
    loop = asyncio.get_running_loop()
    # One thread for all steps: a generator may hold thread-bound objects, such as SQLite's.
    thread = Threads(1, "longline-function")
    steps: Iterator[Any] = iter(())
    try:
        result = await loop.run_in_executor(thread, _call_without_exit, call)
        if isinstance(result, AsyncIterable | Awaitable):
            async for one in stream(result, may_be_none=may_be_none):
                yield one
            return
        steps = iter(_as_records(result, may_be_none=may_be_none))
        is_last = False
        while not is_last:
            batch = _Batch(loop)
            filling = loop.run_in_executor(thread, batch.fill, steps)
            filling.add_done_callback(batch.end)
            async for one in batch.records():
                yield one
            is_last = await filling
            if batch.error is not None:
                raise batch.error
    finally:
        thread.submit(_close, steps)
        thread.shutdown()  # a thread cannot be stopped; it ends after its present step


async def stream(result: Any, *, may_be_none: bool = False) -> AsyncIterator[Any]:
    """Yield what an async function returned or yields.

    Raises:
        UnexpectedShape: it is not records.
    """
    if isinstance(result, AsyncIterable):
        async for one in result:
            yield one
    elif isinstance(result, Awaitable):
        async for one in stream(await result, may_be_none=may_be_none):
            yield one
    else:
        for one in _as_records(result, may_be_none=may_be_none):
            yield one


def _as_records(result: Any, *, may_be_none: bool) -> Iterable[Any]:
    if result is None and may_be_none:
        return []
    if isinstance(result, Mapping):
        return [result]
    if isinstance(result, str | bytes) or not isinstance(result, Iterable):
        problem = f"it returned {type(result).__name__} instead of records (names and values)"
        raise UnexpectedShape("the function", problem)
    return result


class _Batch:
    """Records that a thread makes, each available to the event loop immediately."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Any] = deque()
        self._has_news = asyncio.Event()
        self._is_over = False
        self.error: Exception | None = None

    def fill(self, steps: Iterator[Any]) -> bool:
        """Take some steps, in the thread; return whether they are exhausted."""
        until = time.monotonic() + _MAX_BATCH_SECONDS
        try:
            for count, one in enumerate(steps, 1):
                self._waiting.append(one)
                self._notify()
                if count >= _MAX_BATCH_RECORDS or time.monotonic() >= until:
                    return False
        except SystemExit as error:
            self.error = _exit_error(error)
        except Exception as error:  # noqa: BLE001  # raised again in the event loop
            self.error = error
        return True

    def end(self, _filling: Any) -> None:
        """Note that no more records come."""
        self._is_over = True
        self._has_news.set()

    async def records(self) -> AsyncIterator[Any]:
        """Yield the records as they come, until the end."""
        while self._waiting or not self._is_over:
            if not self._waiting:
                self._has_news.clear()
                await self._has_news.wait()
            while self._waiting:
                yield self._waiting.popleft()

    def _notify(self) -> None:
        if len(self._waiting) == 1:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._has_news.set)


def _call_without_exit(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SystemExit as error:
        raise _exit_error(error) from error


def _exit_error(error: SystemExit) -> RuntimeError:
    # SystemExit itself would end the whole process.
    return RuntimeError(f"it called sys.exit({error.code!r})")


def _close(steps: Iterator[Any]) -> None:
    close = getattr(steps, "close", None)
    if close is not None:
        close()


class ThreadFetch:
    """`fetch(url, …)` for blocking code: every request goes through the request chain."""

    def __init__(self, visit: Visit, loop: asyncio.AbstractEventLoop) -> None:
        self._visit = visit
        self._loop = loop
        self._is_stopped = threading.Event()

    def __call__(self, url: str, **options: Any) -> Page:
        """Return the response; the options are those of `Visit.fetch`."""
        if self._is_stopped.is_set():
            # A thread cannot be cancelled, only kept from the network.
            raise ConnectionError("the run is over; nothing more is sent")
        fetching = self._visit.fetch(url, **options)
        return asyncio.run_coroutine_threadsafe(fetching, self._loop).result()

    def stop(self) -> None:
        """Send no further requests."""
        self._is_stopped.set()
