"""The connection to the database: one writing thread, some reading ones, errors in our words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import orjson
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import QueuePool

from longline.errors import LonglineError, StoreBusy, StoreError, StoreFull, StoreUnreachable
from longline.stores.bulk import as_json
from longline.stores.migrate import bring_up_to_date
from longline.stores.writer import Writer

T = TypeVar("T")
_READERS = 3
_PATIENCE = 60.0  # seconds to wait for other processes' writes; their worst was measured at 2 s
_DRIVERS = ("sqlite", "sqlite+pysqlite")


class Database:
    """One database, opened; make it with `open_database`."""

    def __init__(self, address: str, writing: Engine, reading: Engine, patience: float) -> None:
        self.address = address
        self._patience = patience
        self._writing = writing
        self._reading = reading
        self._connection: Connection | None = None
        self._writer = Writer(self._transact)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="longline-reader")

    async def write(self, function: Callable[..., Any], argument: Any = None) -> Any:
        """Run `function(connection, argument)` in the writer; return when it is committed.

        Raises:
            StoreError: it could not be committed; nothing of it was.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._writer, function, argument)

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` on a snapshot of the database; never blocks the writer."""
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, self._read_now, function
        )

    def stream(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` in this thread; for exports, which read for long."""
        return self._read_now(function)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection that sees the database as it is now for as long as it is held.

        In this thread; for reading row by row what would not fit into memory.
        """
        try:
            with self._reading.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise translated(error, self.address, self._patience) from error

    def close(self) -> None:
        """Commit what is queued and let go of the files."""
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        if self._connection is not None:
            self._connection.close()
        self._writing.dispose()
        self._reading.dispose()

    def _transact(self, work: Callable[[Connection], Any]) -> Any:
        try:
            # The writer keeps its connection: fetching it anew cost more than a small commit.
            if self._connection is None:
                self._connection = self._writing.connect()
            with self._connection.begin():
                return work(self._connection)
        except DBAPIError as error:
            raise translated(error, self.address, self._patience) from error

    def _read_now(self, function: Callable[[Connection], T]) -> T:
        with self.snapshot() as connection:
            return function(connection)


def open_database(address: str, *, patience: float = _PATIENCE) -> Database:
    """Open the database at a SQLAlchemy address and bring its tables up to date.

    Args:
        address: for example sqlite:///longline.sqlite.
        patience: seconds to wait for the writes of other processes.

    Raises:
        StoreUnreachable: there is no such database or no right to use it.
        StoreTooNew: a newer longline has written it.
        StoreBusy: others held the write lock for longer than `patience`.
    """
    url = _parsed(address)
    shown = url.render_as_string(hide_password=True)
    writing = _engine(url, patience, begin="BEGIN IMMEDIATE", size=1)
    try:
        bring_up_to_date(writing, shown)
    except DBAPIError as error:
        writing.dispose()
        raise translated(error, shown, patience) from error
    except LonglineError:
        writing.dispose()
        raise
    reading = _engine(url, patience, begin="BEGIN", size=_READERS + 1)
    return Database(shown, writing, reading, patience)


def translated(error: DBAPIError, address: str, patience: float) -> StoreError:
    """Return our error for one of the driver's."""
    text = str(error.orig)
    if "disk is full" in text or "disk I/O error" in text:
        return StoreFull(address)
    if "locked" in text:
        return StoreBusy(address, patience)
    return StoreUnreachable(address, text)


def _parsed(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as error:
        # It may hold a password somewhere, so only its beginning is shown.
        shown = f"{address.partition('://')[0]}://…" if "://" in address else address
        raise StoreUnreachable(shown or "''", "that is not an address") from error
    shown = url.render_as_string(hide_password=True)
    if url.drivername not in _DRIVERS:
        raise StoreUnreachable(shown, "this version keeps its data in SQLite only")
    if url.host:
        raise StoreUnreachable(shown, "an address of SQLite has three slashes before the file")
    if url.database in (None, "", ":memory:"):
        raise StoreUnreachable(shown, "it names no file, and memory cannot be shared")
    return url


def _engine(url: URL, patience: float, *, begin: str, size: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        json_serializer=as_json,
        json_deserializer=orjson.loads,
    )
    _prepare_sqlite(engine, begin, patience)
    return engine


def _prepare_sqlite(engine: Engine, begin: str, patience: float) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, so that DDL is in it too
        # SQLite's own knows ASCII only, and searches would tell ü from Ü.
        connection.create_function("lower", 1, _lower, deterministic=True)
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(patience * 1000)}")
        cursor.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing; a power cut may undo the last commits, whose items are
        # then collected again: nothing is lost or doubled either way.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value
