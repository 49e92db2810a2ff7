"""Daemon threads for blocking calls, long computations and event loops.

A process does not wait for them when it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_DEFAULT_THREADS = 32
_M_ARENA_MAX = -8  # from malloc.h
LARGE_BYTES = 1_000_000
"""From this size on, reading a body takes long enough to hold up the event loop."""


async def off_loop(
    size_bytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that computes; in a daemon thread if its input is large.

    The event loop continues meanwhile: Python switches threads every few milliseconds.
    """
    if size_bytes < LARGE_BYTES:
        return function(*args, **kwargs)
    thread = Threads(1, "longline-computing")
    try:
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown()


def use_one_malloc_arena() -> None:
    """Make all threads that start later allocate from one arena, which takes less memory.

    glibc gives each thread an arena of its own, whose free memory the others cannot use. Threads of
    Python hardly ever allocate at the same time.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def use_daemon_threads() -> None:
    """Make daemon threads the default executor of this event loop.

    A loop waits for its own threads when it is closed, so a blocking call that hangs would keep the
    process alive.
    """
    asyncio.get_running_loop().set_default_executor(Threads(_DEFAULT_THREADS, "longline-default"))


def have_ended(threads: Iterable[threading.Thread], within: float | None) -> bool:
    """Join all threads; return False if one still runs after `within` seconds (None: no limit)."""
    deadline = None if within is None else time.monotonic() + within
    for thread in threads:
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class Threads(ThreadPoolExecutor):
    """Executor with at most `count` daemon threads, each started when it is first needed.

    Python joins its own executor threads when the interpreter ends, so one that waits for a silent
    server would keep the process alive. A subclass of ThreadPoolExecutor because a loop accepts no
    other default executor.
    """

    def __init__(self, count: int, name: str) -> None:
        super().__init__(1)
        self._count = count
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._is_open = True

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue `fn(*args, **kwargs)`."""
        future: Future[Any] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # every kind belongs to the caller
                future.set_exception(error)

        with self._lock:
            if not self._is_open:
                message = "the thread pool is closed"
                raise RuntimeError(message)
            self._waiting.put(work)
            if not self._idle.acquire(blocking=False) and len(self._started) < self._count:
                name = f"{self._name}-{len(self._started)}"
                thread = threading.Thread(target=self._run_queue, name=name, daemon=True)
                self._started.append(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # Executor's own signature
        """Finish what is queued without waiting for it; `have_ended` waits."""
        del wait, cancel_futures
        with self._lock:
            if self._is_open:
                self._is_open = False
                for _ in self._started:
                    self._waiting.put(None)

    def have_ended(self, within: float | None) -> bool:
        """Join all threads; return False if one still runs after `within` seconds."""
        return have_ended(self._started, within)

    def _run_queue(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
            del work  # it would keep its arguments alive until the next one
            self._idle.release()


class LoopThread:
    """An event loop in a daemon thread, for code that has none; a context manager."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def run(
        self, work: Coroutine[Any, Any, T], *, on_interrupt: Callable[[], None] | None = None
    ) -> T:
        """Run a coroutine on the loop and return its result.

        Ctrl-C calls `on_interrupt` on the loop and waits until the work has ended; a second one
        cancels it. Without `on_interrupt`, the first one cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            if on_interrupt is None:
                future.cancel()
                raise
            self._loop.call_soon_threadsafe(on_interrupt)
            try:
                wait([future])
            except KeyboardInterrupt:
                future.cancel()
                raise
            raise

    def close(self, timeout: float | None = None) -> None:
        """Cancel what still runs and end the thread; give up after `timeout` seconds."""
        with suppress(TimeoutError):
            ending = asyncio.run_coroutine_threadsafe(_cancel_all_tasks(), self._loop)
            ending.result(timeout)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)
        if not self._loop.is_running():
            self._loop.close()


async def _cancel_all_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
