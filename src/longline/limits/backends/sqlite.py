"""Shared state in a small SQLite file: processes share a limit, and a restart cannot burst.

Limits must survive `kill -9`, not a power cut, so no write waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypeVar

from longline.core.clock import Clock
from longline.core.errors import StoreDamaged
from longline.core.sqlite_files import SqliteFile, is_busy, transaction, undecodable_is_damage
from longline.limits.backends.state import Result, State, StateBackend, Update

_APPLICATION = 0x6C6C6B70  # "llkp"
_VERSION = 1
_SCHEMA = """CREATE TABLE IF NOT EXISTS cells (
    room TEXT, name TEXT, state TEXT NOT NULL, PRIMARY KEY (room, name)) WITHOUT ROWID"""
_READ = "SELECT state FROM cells WHERE room = ? AND name = ?"
_READ_ALL = "SELECT name, state FROM cells WHERE room = ? ORDER BY name"
_DELETE = "DELETE FROM cells WHERE room = ? AND name = ?"
_WRITE = "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"
_REMEDY = "Delete it: the limits of sites and their robots.txt are then learned again."

T = TypeVar("T")
Work = Callable[[sqlite3.Connection, Callable[[], float]], T]


class SqliteStateFile:
    """A file with the values of several backends, opened once for all of them in a process.

    A call runs on the event loop if the file is not locked: it takes about 20 microseconds, and
    nothing waits for the disk. If another process holds the lock, a thread waits for it. The file
    is opened on first use, so an object that was made before a fork can be used after it.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SqliteFile(
            path, _APPLICATION, _VERSION, _SCHEMA, _REMEDY, pragmas=("synchronous = OFF",)
        )
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="longline-limits")
        self._connection: sqlite3.Connection | None = None  # SQLite itself never waits on it
        self._lock = threading.Lock()  # of the connection, for the loops and the thread

    def backend(self, group: str, kind: type[State]) -> SqliteStateBackend[State]:
        """Return the values of one group, which are instances of the dataclass `kind`."""
        return SqliteStateBackend(self, group, kind)

    async def run(self, work: Work[T]) -> T:
        """Return `work(connection, now)`; `now` has to be called once the lock is held.

        Raises:
            StoreError: the file cannot be used, or another process held the lock for too long.
        """
        loop = asyncio.get_running_loop()
        # A clock of virtual time cannot be read in a thread; the loop's own time can.
        offset = self._clock.now() - loop.time()

        def now() -> float:
            return loop.time() + offset

        if self._connection is not None and self._lock.acquire(blocking=False):
            try:
                with undecodable_is_damage():
                    return work(self._connection, now)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise self._file.translate(error) from error
            finally:
                self._lock.release()
        return await loop.run_in_executor(self._thread, self._run_in_thread, work, now)

    async def close(self) -> None:
        """Close the file and end the thread; further calls do nothing."""
        with contextlib.suppress(RuntimeError):  # the thread has ended
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close_connection)
        self._thread.shutdown()

    def damaged(self, problem: str) -> StoreDamaged:
        """Return the error for a value that cannot be read."""
        return StoreDamaged(str(self._file.path), problem, _REMEDY)

    def _run_in_thread(self, work: Work[T], now: Callable[[], float]) -> T:
        def open_and_work() -> T:
            if self._connection is None:
                self._connection = replace(self._file, timeout=0.0).open()
            return work(self._connection, now)

        with self._lock:
            return self._file.run(open_and_work)  # again and again while the file is locked

    def _close_connection(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None


class SqliteStateBackend(StateBackend[State]):
    """Values as JSON, shared by all processes on this machine."""

    def __init__(self, file: SqliteStateFile, group: str, kind: type[State]) -> None:
        self._file = file
        self._group = group
        self._kind = kind

    async def change(self, name: str, update: Update[State, Result]) -> Result:
        def work(connection: sqlite3.Connection, now: Callable[[], float]) -> Result:
            with transaction(connection):
                value = self._read_value(connection, name)
                changed, result = update(value, now())
                if changed is not None and changed != value:
                    text = json.dumps(asdict(changed))  # type: ignore[call-overload]  # a dataclass
                    connection.execute(_WRITE, (self._group, name, text))
            return result

        return await self._file.run(work)

    async def read(self, name: str) -> tuple[State | None, float]:
        return await self._file.run(
            lambda connection, now: (self._read_value(connection, name), now())
        )

    async def all(self) -> dict[str, State]:
        def work(connection: sqlite3.Connection, _now: Callable[[], float]) -> dict[str, State]:
            rows = connection.execute(_READ_ALL, (self._group,)).fetchall()
            return {name: self._decode_row(name, text) for name, text in rows}

        return await self._file.run(work)

    async def forget(self, name: str) -> bool:
        def work(connection: sqlite3.Connection, _now: Callable[[], float]) -> bool:
            with transaction(connection):
                return connection.execute(_DELETE, (self._group, name)).rowcount == 1

        return await self._file.run(work)

    def _read_value(self, connection: sqlite3.Connection, name: str) -> State | None:
        row = connection.execute(_READ, (self._group, name)).fetchone()
        return None if row is None else self._decode_row(name, row[0])

    def _decode_row(self, name: str, text: str) -> State:
        try:
            return self._kind(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise self._file.damaged(f"the value of {name} cannot be read") from error
