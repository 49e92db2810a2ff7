"""Backends in a small SQLite file: processes share a limit, and a restart cannot burst.

The state need not survive a power cut, only `kill -9`, so nothing waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from longline.core.clock import Clock
from longline.core.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnreachable,
)
from longline.core.files import make_private_file
from longline.core.sqlite_files import is_busy, is_damaged, transaction, undecodable_is_damage
from longline.limits.backends.cells import (
    Answer,
    CellBreakerBackend,
    CellConcurrencyBackend,
    CellRateLimitBackend,
    Cells,
    State,
    Step,
)
from longline.limits.breaker import BreakerState
from longline.limits.concurrency import InFlight
from longline.limits.rate_limit import BucketState

_PATIENCE = 30.0  # seconds to wait for other processes
_APPLICATION = 0x6C6C6B70  # "llkp", in the header of each of our files
_VERSION = 1
_FRESHNESS = 0.5  # seconds; a breaker that opens elsewhere is heard of this soon
_READ = "SELECT state FROM cells WHERE room = ? AND name = ?"
_READ_ALL = "SELECT name, state FROM cells WHERE room = ? ORDER BY name"
_FORGET = "DELETE FROM cells WHERE room = ? AND name = ?"
_WRITE = "INSERT INTO cells VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET state = excluded.state"
_CREATE = """CREATE TABLE IF NOT EXISTS cells (
    room TEXT, name TEXT, state TEXT NOT NULL, PRIMARY KEY (room, name)) WITHOUT ROWID"""

_REMEDY = "Delete it: the limits of sites and their robots.txt are then learned again."

T = TypeVar("T")
Work = Callable[[sqlite3.Connection, Callable[[], float]], T]


class SqliteFile:
    """One file of shared state, opened once for all backends of a process.

    A call is made on the event loop if the file is free: it takes some 20 microseconds, and
    nothing waits for the disk. If another process holds the lock, a thread waits for it. The file
    is opened on first use, so an object made before a fork can be used after it.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="longline-limits")
        self._patient: sqlite3.Connection | None = None  # of the thread
        self._hasty: sqlite3.Connection | None = None  # of the event loop: never waits for a lock
        self._hasty_lock = threading.Lock()  # an object may be used by several loops

    async def run(self, work: Work[T]) -> T:
        """Return `work(connection, now)`; `now` is to be read once the lock is held.

        Raises:
            StoreError: the file cannot be used, or another process held the lock for too long.
        """
        loop = asyncio.get_running_loop()
        # A clock of virtual time cannot be read in a thread; the loop's own time can.
        offset = self._clock.now() - loop.time()

        def now() -> float:
            return loop.time() + offset

        if self._hasty is not None and self._hasty_lock.acquire(blocking=False):
            try:
                with undecodable_is_damage():
                    return work(self._hasty, now)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise self._translated(error) from error
            finally:
                self._hasty_lock.release()
        return await loop.run_in_executor(self._thread, self._wait_and_run, work, now)

    async def close(self) -> None:
        """Close the file and end the thread; a second call has no effect."""
        with contextlib.suppress(RuntimeError):  # the thread has ended before
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _wait_and_run(self, work: Work[T], now: Callable[[], float]) -> T:
        """Do the work, again while others are in the way: SQLite itself does not always wait."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with undecodable_is_damage():
                    return work(self._open(), now)
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise self._translated(error) from error
                if time.monotonic() > deadline:
                    raise StoreBusy(str(self.path), _PATIENCE) from error
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - who comes first is no secret

    def _open(self) -> sqlite3.Connection:
        if self._patient is None:
            with contextlib.suppress(OSError):  # SQLite says what is wrong
                make_private_file(self.path)
            connection = self._connected(_PATIENCE)
            try:
                self._prepare(connection)
                self._hasty = self._connected(0.0)
            except (sqlite3.Error, StoreError):
                connection.close()
                raise
            self._patient = connection
        return self._patient

    def _connected(self, timeout: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=timeout, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the table, whoever of several processes comes first."""
        self._refuse_foreign(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection):
            connection.execute(_CREATE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")

    def _refuse_foreign(self, connection: sqlite3.Connection) -> None:
        # In one transaction, or another process could make the table between the questions.
        with transaction(connection, "BEGIN"):
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != _APPLICATION and (application or tables):
            raise StoreUnreachable(str(self.path), "it belongs to another program")
        if version > _VERSION:
            raise StoreTooNew(str(self.path), str(version), str(_VERSION))

    def _close(self) -> None:
        with self._hasty_lock:
            for connection in (self._hasty, self._patient):
                if connection is not None:
                    connection.close()
            self._hasty = self._patient = None

    def _translated(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return StoreFull(str(self.path))
        if is_damaged(error):
            return StoreDamaged(str(self.path), str(error), _REMEDY)
        return StoreUnreachable(str(self.path), str(error))


class SqliteCells(Cells[State]):
    """Values as JSON in one table of a file; `room` keeps those of one kind apart."""

    def __init__(self, file: SqliteFile, room: str, kind: type[State]) -> None:
        self._file = file
        self._room = room
        self._kind = kind
        self.close = file.close

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        def work(connection: sqlite3.Connection, now: Callable[[], float]) -> Answer:
            with transaction(connection):
                value = self._load(connection, name)
                changed, answer = step(value, now())
                if changed is not None and changed != value:
                    connection.execute(_WRITE, (self._room, name, _encode(changed)))
            return answer

        return await self._file.run(work)

    async def read(self, name: str) -> tuple[State | None, float]:
        return await self._file.run(lambda connection, now: (self._load(connection, name), now()))

    async def all(self) -> dict[str, State]:
        def work(connection: sqlite3.Connection, _now: Callable[[], float]) -> dict[str, State]:
            rows = connection.execute(_READ_ALL, (self._room,)).fetchall()
            return {name: self._decoded(name, text) for name, text in rows}

        return await self._file.run(work)

    async def forget(self, name: str) -> bool:
        def work(connection: sqlite3.Connection, _now: Callable[[], float]) -> bool:
            with transaction(connection):
                return connection.execute(_FORGET, (self._room, name)).rowcount == 1

        return await self._file.run(work)

    def _load(self, connection: sqlite3.Connection, name: str) -> State | None:
        row = connection.execute(_READ, (self._room, name)).fetchone()
        return None if row is None else self._decoded(name, row[0])

    def _decoded(self, name: str, text: str) -> State:
        try:
            return self._kind(**json.loads(text))
        except (TypeError, ValueError) as error:
            problem = f"what it holds of {name} cannot be read"
            raise StoreDamaged(str(self._file.path), problem, _REMEDY) from error


class SqliteRateLimitBackend(CellRateLimitBackend):
    """Buckets that all processes on this machine share."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__(SqliteCells(file, "pace", BucketState))
        self.close = file.close


class SqliteBreakerBackend(CellBreakerBackend):
    """Breakers that all processes on this machine share."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__(SqliteCells(file, "breaker", BreakerState), freshness=_FRESHNESS)
        self.close = file.close


class SqliteConcurrencyBackend(CellConcurrencyBackend):
    """Requests in flight, over all processes on this machine."""

    def __init__(self, file: SqliteFile) -> None:
        super().__init__(SqliteCells(file, "crowd", InFlight))
        self.close = file.close


def _encode(value: Any) -> str:
    return json.dumps(asdict(value))
