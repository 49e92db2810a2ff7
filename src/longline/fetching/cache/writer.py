"""The one thread that writes to the cache: what arrives while it waits shares a transaction."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from longline.errors import StoreError
from longline.fetching.cache import file
from longline.fetching.cache.file import Change
from longline.resilience.keepers.transactions import transaction

_LARGEST_GROUP = 512
_GATHERING = 0.1  # seconds; nobody waits for a write, so it can wait for company
_EVICTION_EVERY = 50  # parts of the limit: the cache is at most so much too large

_Queued = tuple[str, Change] | threading.Event | None


class Writer:
    """Applies changes in order. `settle` is told of changes once they need no keeping."""

    def __init__(
        self,
        path: Path,
        limit: int,
        settle: Callable[[list[tuple[str, Change]]], None],
        fail: Callable[[StoreError], None],
    ) -> None:
        """Start the thread; `fail` is told why the changes of a group could not be written."""
        self._path = path
        self._limit = limit
        self._settle = settle
        self._fail = fail
        self._added_bytes = limit  # what others left behind is looked at first
        self._queue: queue.SimpleQueue[_Queued] = queue.SimpleQueue()
        self._is_hurried = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._thread = threading.Thread(target=self._serve, name="longline-cache", daemon=True)
        self._thread.start()

    def submit(self, url: str, change: Change) -> None:
        """Queue a change."""
        self._queue.put((url, change))

    def flush(self) -> None:
        """Wait until all that was queued is done."""
        done = threading.Event()
        self._is_hurried.set()
        self._queue.put(done)
        done.wait()
        self._is_hurried.clear()

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._is_hurried.set()
        self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        is_open = True
        while is_open:
            group = [self._queue.get()]
            self._is_hurried.wait(_GATHERING)
            with suppress(queue.Empty):
                while len(group) < _LARGEST_GROUP:
                    group.append(self._queue.get_nowait())
            is_open = None not in group
            self._write([one for one in group if isinstance(one, tuple)])
            for one in group:
                if isinstance(one, threading.Event):
                    one.set()
        if self._connection is not None:
            self._connection.close()

    def _write(self, changes: list[tuple[str, Change]]) -> None:
        try:
            with file.translated(self._path):
                self._commit([change for _, change in changes])
        except StoreError as error:
            self._fail(error)
        self._settle(changes)

    def _commit(self, changes: list[Change]) -> None:
        if not changes:
            return
        if self._connection is None:
            self._connection = file.open_file(self._path)
        with transaction(self._connection) as connection:
            self._added_bytes += file.apply_all(connection, changes)
            if self._added_bytes * _EVICTION_EVERY > self._limit:
                file.evict(connection, self._limit)
                self._added_bytes = 0
