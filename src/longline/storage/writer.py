"""The one thread that writes: functions queued while it commits share the next transaction."""

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
    function: Callable[[Connection], Any]


class Writer(Executor):
    """Group commit: run functions of a connection in one thread, many per transaction.

    A future is done only after its transaction is committed. It is an Executor, so an event loop
    waits for it with `run_in_executor`.
    """

    def __init__(self, transact: Callable[[Callable[[Connection], Any]], Any]) -> None:
        """Take `transact(work)`, which runs `work(connection)` in one transaction."""
        self._transact = transact
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="longline-writer", daemon=True)
        self._thread.start()

    def submit(self, fn: Any, /, *args: Any, **_kwargs: Any) -> Future[Any]:
        """Queue `fn(connection, *args)`."""
        if not self._is_open:
            message = "the store is closed"
            raise RuntimeError(message)
        future: Future[Any] = Future()
        self._queue.put(_Work(future, lambda connection: fn(connection, *args)))
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
        """Return whether the thread ends within this many seconds; None waits until it has."""
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
                lambda connection: [work.function(connection) for work in works]
            )
        except Exception as error:  # noqa: BLE001  # every kind of failure belongs to the caller
            # One bad write must not fail the others: each gets a transaction of its own. A lock or
            # a server that timed out fails all of them: they would time out one by one.
            if len(works) > 1 and not isinstance(error, (StoreBusy, StoreGone)):
                for work in works:
                    self._commit([work])
                return
            for work in works:
                work.future.set_exception(error)
            return
        for work, result in zip(works, results, strict=True):
            work.future.set_result(result)
