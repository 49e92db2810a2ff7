"""The connection to the database: one writing thread, some reading ones, errors in our words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import QueuePool

from longline.errors import LonglineError, StoreBusy, StoreError, StoreFull, StoreUnreachable
from longline.stores.migrate import bring_up_to_date
from longline.stores.writer import Batched, Writer

T = TypeVar("T")
_READERS = 3
_PATIENCE = 60.0  # seconds to wait for other processes' writes; their worst was measured at 2 s


class Database:
    """One database, opened; make it with `open_database`."""

    def __init__(self, address: str, writing: Engine, reading: Engine) -> None:
        self.address = address
        self._writing = writing
        self._reading = reading
        self._writer = Writer(self._transact)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="longline-reader")

    async def write(self, function: Callable[..., Any] | Batched, argument: Any = None) -> Any:
        """Run `function(connection, argument)` in the writer; return when it is committed.

        Raises:
            StoreError: it could not be committed; nothing of it was.
        """
        loop = asyncio.get_running_loop()
        # The writer knows what a Batched is; to the loop it is only something to hand over.
        return await loop.run_in_executor(self._writer, function, argument)  # type: ignore[arg-type]

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` on a snapshot of the database; never blocks the writer."""
        return await asyncio.get_running_loop().run_in_executor(
            self._readers, self._read_now, function
        )

    def stream(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` in this thread; for exports, which read for long."""
        return self._read_now(function)

    def close(self) -> None:
        """Commit what is queued and let go of the files."""
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        self._writing.dispose()
        self._reading.dispose()

    def _transact(self, work: Callable[[Connection], Any]) -> Any:
        try:
            with self._writing.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            raise translated(error, self.address) from error

    def _read_now(self, function: Callable[[Connection], T]) -> T:
        try:
            with self._reading.connect() as connection:
                return function(connection)
        except DBAPIError as error:
            raise translated(error, self.address) from error


def open_database(address: str) -> Database:
    """Open the database at a SQLAlchemy address and bring its tables up to date.

    Raises:
        StoreUnreachable: there is no such database or no right to use it.
        StoreTooNew: a newer longline has written it.
    """
    writing = _engine(address, begin="BEGIN IMMEDIATE", size=1)
    try:
        bring_up_to_date(writing, writing.url.render_as_string(hide_password=True))
    except DBAPIError as error:
        writing.dispose()
        problem = str(error.orig).strip().splitlines()[0]
        raise StoreUnreachable(_shown(address), problem) from error
    except LonglineError:
        writing.dispose()
        raise
    return Database(_shown(address), writing, _engine(address, begin="BEGIN", size=_READERS + 1))


def translated(error: DBAPIError, address: str) -> StoreError:
    """Return our error for one of the driver's."""
    text = str(error.orig)
    if "disk is full" in text or "disk I/O error" in text:
        return StoreFull(address)
    if "locked" in text:
        return StoreBusy(address, _PATIENCE)
    return StoreUnreachable(address, text)


def _shown(address: str) -> str:
    return make_url(address).render_as_string(hide_password=True)


def _engine(address: str, *, begin: str, size: int) -> Engine:
    try:
        url = make_url(address)
        engine = create_engine(
            url,
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=0,
            json_serializer=lambda value: orjson.dumps(value, default=str).decode(),
            json_deserializer=orjson.loads,
        )
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreUnreachable(address, str(error).splitlines()[0]) from error
    if url.get_backend_name() != "sqlite":
        problem = "this version keeps its data in SQLite only"
        raise StoreUnreachable(_shown(address), problem)
    _prepare_sqlite(engine, begin)
    return engine


def _prepare_sqlite(engine: Engine, begin: str) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, so that DDL is in it too
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(_PATIENCE * 1000)}")
        cursor.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing; a power cut may undo the last commits, whose items are
        # then collected again: nothing is lost or doubled either way.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
