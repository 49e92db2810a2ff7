"""Keepers in a small SQLite file, so that processes share a limit and a restart cannot burst.

A pace need not survive a power cut, only `kill -9`, so nothing waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
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


class SqliteCells(Cells[State]):
    """Values as JSON in one table; `room` keeps those of one keeper apart from the others'.

    All work is done in one thread, which opens the file when first asked: the event loop never
    waits for a lock, and an object made before a fork can be used after it.
    """

    def __init__(self, path: Path, room: str, kind: type[State], clock: Clock) -> None:
        self._path = path
        self._room = room
        self._kind = kind
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"longline-{room}")
        self._connection: sqlite3.Connection | None = None

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        return await self._run(lambda now: self._change(name, step, now))

    async def read(self, name: str) -> tuple[State | None, float]:
        return await self._run(lambda now: (self._load(name), now()))

    async def all(self) -> dict[str, State]:
        return await self._run(lambda _now: self._load_all())

    async def forget(self, name: str) -> bool:
        return await self._run(lambda _now: self._forget(name))

    async def close(self) -> None:
        """Close the file and end the thread."""
        with contextlib.suppress(RuntimeError):  # the thread has ended before
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[Callable[[], float]], T]) -> T:
        loop = asyncio.get_running_loop()
        # The time is to be read once the lock is held, in the thread, where a clock of the loop
        # (virtual time) cannot be asked. The loop's own time can.
        offset = self._clock.now() - loop.time()
        return await loop.run_in_executor(
            self._thread, self._patiently, lambda: work(lambda: loop.time() + offset)
        )

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do the work, again while others are in the way: SQLite itself does not always wait."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                with undecodable_is_damage():
                    return work()
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise self._translated(error) from error
                if time.monotonic() > deadline:
                    raise StoreBusy(str(self._path), _PATIENCE) from error
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311 - who comes first is no secret

    def _change(self, name: str, step: Step[State, Answer], now: Callable[[], float]) -> Answer:
        with transaction(self._open()) as connection:
            value = self._load(name)
            changed, answer = step(value, now())
            if changed is not None and changed != value:
                connection.execute(_WRITE, (self._room, name, _encode(changed)))
        return answer

    def _load(self, name: str) -> State | None:
        row = self._open().execute(_READ, (self._room, name)).fetchone()
        return None if row is None else self._decoded(name, row[0])

    def _load_all(self) -> dict[str, State]:
        rows = self._open().execute(_READ_ALL, (self._room,)).fetchall()
        return {name: self._decoded(name, text) for name, text in rows}

    def _forget(self, name: str) -> bool:
        with transaction(self._open()) as connection:
            return connection.execute(_FORGET, (self._room, name)).rowcount == 1

    def _decoded(self, name: str, text: str) -> State:
        try:
            return self._kind(**json.loads(text))
        except (TypeError, ValueError) as error:
            problem = f"what it holds of {name} cannot be read"
            raise StoreDamaged(str(self._path), problem, _REMEDY) from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            with contextlib.suppress(OSError):  # SQLite says what is wrong
                make_private_file(self._path)
            connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None)
            try:
                self._prepare(connection)
            except (sqlite3.Error, StoreError):
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Make the table, whoever of several processes comes first."""
        self._refuse_foreign(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
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
            raise StoreUnreachable(str(self._path), "it belongs to another program")
        if version > _VERSION:
            raise StoreTooNew(str(self._path), str(version), str(_VERSION))

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _translated(self, error: sqlite3.Error) -> StoreError:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return StoreFull(str(self._path))
        if is_damaged(error):
            return StoreDamaged(str(self._path), str(error), _REMEDY)
        return StoreUnreachable(str(self._path), str(error))


class SqliteRateLimitBackend(CellRateLimitBackend):
    """Buckets that all processes on this machine share."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SqliteCells(path, "pace", BucketState, clock)
        super().__init__(self._file)

    async def close(self) -> None:
        """Close the file and end the thread; calling it again does no harm."""
        await self._file.close()


class SqliteBreakerBackend(CellBreakerBackend):
    """Breakers that all processes on this machine share; may be in the same file as the buckets."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SqliteCells(path, "breaker", BreakerState, clock)
        super().__init__(self._file, freshness=_FRESHNESS)

    async def close(self) -> None:
        """Close the file and end the thread; calling it again does no harm."""
        await self._file.close()


class SqliteConcurrencyBackend(CellConcurrencyBackend):
    """Who is inside, over all processes on this machine; may be in the same file as the buckets."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SqliteCells(path, "crowd", InFlight, clock)
        super().__init__(self._file)

    async def close(self) -> None:
        """Close the file and end the thread; calling it again does no harm."""
        await self._file.close()


def _encode(value: Any) -> str:
    return json.dumps(asdict(value))
