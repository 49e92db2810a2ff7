"""The one thread that writes: what arrives while it commits shares the next transaction."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from longline.core.errors import StoreBusy
from longline.core.threads import have_ended
from longline.storage.errors import StoreGone

_LARGEST_GROUP = 512


@dataclass(frozen=True, slots=True)
class _Work:
    future: Future[Any]
    function: Callable[..., Any]
    argument: Any


class Writer(Executor):
    """Runs functions of a connection, one thread, many to a transaction.

    A future is done when its transaction is committed, never before. It is an Executor, so an
    event loop waits for it with `run_in_executor`.
    """

    def __init__(self, transact: Callable[[Callable[[Connection], Any]], Any]) -> None:
        """Take `transact(work)`, which runs `work(connection)` in one transaction."""
        self._transact = transact
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="longline-writer", daemon=True)
        self._thread.start()

    def submit(self, fn: Any, /, *args: Any, **_kwargs: Any) -> Future[Any]:
        """Queue `fn(connection, argument)`."""
        if not self._is_open:  # nobody would ever answer
            message = "the store is closed"
            raise RuntimeError(message)
        future: Future[Any] = Future()
        self._queue.put(_Work(future, fn, args[0] if args else None))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # Executor's own signature
        """Finish what is queued, then end the thread."""
        del cancel_futures
        if self._is_open:
            self._is_open = False
            self._queue.put(None)
        if wait:
            self._thread.join()

    def has_ended(self, within: float | None) -> bool:
        """Say whether its thread ends within so many seconds; None: wait until it has."""
        return have_ended([self._thread], within)

    def _serve(self) -> None:
        is_open = True
        while is_open:
            group = [self._queue.get()]
            with suppress(queue.Empty):
                while len(group) < _LARGEST_GROUP:
                    group.append(self._queue.get_nowait())
            is_open = None not in group
            # A caller that was cancelled before its turn does not get its write.
            works = [work for work in group if work and work.future.set_running_or_notify_cancel()]
            if works:
                self._commit(works)

    def _commit(self, works: list[_Work]) -> None:
        try:
            results = self._transact(
                lambda connection: [work.function(connection, work.argument) for work in works]
            )
        except Exception as error:  # noqa: BLE001  # every kind of failure belongs to the caller
            self._commit_apart(works, error)
            return
        for work, result in zip(works, results, strict=True):
            work.future.set_result(result)

    def _commit_apart(self, works: list[_Work], error: Exception) -> None:
        # One bad write must not fail its neighbours: each gets a transaction of its own. But a
        # lock or a server that was waited for in vain belongs to all: they would wait one by one.
        if len(works) > 1 and not isinstance(error, (StoreBusy, StoreGone)):
            for work in works:
                self._commit([work])
            return
        for work in works:
            work.future.set_exception(error)
