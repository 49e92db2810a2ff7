"""Threads that a process does not wait for when it ends: for blocking calls and long computing."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_DEFAULT_THREADS = 32
LARGE_BYTES = 1_000_000
"""From this size on, reading a body takes long enough to hold up the event loop."""


async def off_loop(
    size_bytes: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that computes; in a daemon thread if what it reads is large.

    The event loop goes on meanwhile, since Python switches threads every few milliseconds. Neither
    a task that is cancelled nor a process that ends waits for the thread.
    """
    if size_bytes < LARGE_BYTES:
        return function(*args, **kwargs)
    thread = Threads(1, "longline-computing")
    try:
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(thread, call)
    finally:
        thread.shutdown()


def use_daemon_threads() -> None:
    """Run what this event loop runs in threads in daemon threads.

    A loop waits for its own threads when it is closed: a blocking call that hangs would keep the
    process.
    """
    asyncio.get_running_loop().set_default_executor(Threads(_DEFAULT_THREADS, "longline-default"))


def have_ended(threads: Iterable[threading.Thread], within: float | None) -> bool:
    """Say whether all threads end within so many seconds; None: wait until they have."""
    deadline = None if within is None else time.monotonic() + within
    for thread in threads:
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


class Threads(ThreadPoolExecutor):
    """Runs functions in so many threads at most, each begun when it is first needed.

    Those of Python's own are joined when the interpreter ends: one that waits for a server which
    says nothing would keep the process for as long. It is a ThreadPoolExecutor since a loop takes
    no other kind for its own.
    """

    def __init__(self, count: int, name: str) -> None:
        super().__init__(1)
        self._count = count
        self._name = name
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._begun: list[threading.Thread] = []
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
                message = "these threads have ended"
                raise RuntimeError(message)
            self._waiting.put(work)
            if not self._idle.acquire(blocking=False) and len(self._begun) < self._count:
                self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # Executor's own signature
        """Finish what is queued, but let nobody wait for it: `have_ended` does, if asked."""
        del wait, cancel_futures
        with self._lock:
            if self._is_open:
                self._is_open = False
                for _ in self._begun:
                    self._waiting.put(None)

    def have_ended(self, within: float | None) -> bool:
        """Say whether all of them end within so many seconds; None: wait until they have."""
        return have_ended(self._begun, within)

    def _begin(self) -> None:
        name = f"{self._name}-{len(self._begun)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._begun.append(thread)
        thread.start()

    def _serve(self) -> None:
        while (work := self._waiting.get()) is not None:
            work()
            del work  # what it holds would live until the next one comes
            self._idle.release()


class LoopThread:
    """An event loop in a thread of its own, for code without one; a context manager."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        asyncio.run_coroutine_threadsafe(_wind_up(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], *, on_interrupt: Callable[[], None]) -> T:
        """Run a coroutine and return its result.

        ctrl-c calls `on_interrupt` in the loop and waits until the work has ended; a second one
        cancels it.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(on_interrupt)
            try:
                wait([future])
            except KeyboardInterrupt:
                future.cancel()
                raise
            raise


async def _wind_up() -> None:
    """Let what was cancelled come to its end before the loop is closed."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
