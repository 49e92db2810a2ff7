"""The connection to the database: one writing thread, some reading ones, errors in our words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, func, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from longline.core.errors import LonglineError, StoreUnreachable
from longline.core.redaction import redact_server_url, redact_url
from longline.core.threads import Threads
from longline.storage import postgres, sqlite
from longline.storage.columns import DamagedValue
from longline.storage.migrate import bring_up_to_date
from longline.storage.schema import metadata
from longline.storage.transactions import (
    ABSENT,
    Backend,
    Disturbance,
    IsHasty,
    ReconnectPolicy,
    ReconnectWait,
    Transactor,
    never,
)
from longline.storage.writer import Writer

T = TypeVar("T")
_READERS = 3
_PATIENCE = 60.0  # seconds to wait for other processes' writes; their worst was measured at 2 s


class Database:
    """One database, opened; make it with `open_database`."""

    def __init__(self, backend: Backend, writing: Engine, patience: ReconnectPolicy) -> None:
        self.address = backend.address
        self._backend = backend
        self._patience = patience
        self._reading = backend.reading(_READERS + 1)
        self._transactor = Transactor(backend, writing, patience)
        self._writer = Writer(self._transactor.run)
        self._readers = Threads(_READERS, "longline-reader")

    async def write(self, function: Callable[..., Any], argument: Any = None) -> Any:
        """Run `function(connection, argument)` in the writer; return when it is committed.

        It may be run again from the start, when others were in its way or the server went away:
        it changes nothing but the database.

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
        with self.snapshot() as connection:
            return function(connection)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection that sees the database as it is now for as long as it is held.

        In this thread; for reading row by row what would not fit into memory.
        """
        connection = self._patiently(self._looking)
        try:
            with connection:
                # Rows stay on a server until they are asked for.
                yield connection.execution_options(stream_results=True)
        except DBAPIError as error:
            raise self._backend.translated(error) from error
        except DamagedValue as error:
            raise error.at(self._backend.address) from error

    @contextmanager
    def watching(self) -> Iterator[Callable[[], bool]]:
        """Give what says, in any thread, whether nobody else has committed anything since."""
        with self._reading.connect() as connection:

            def look() -> object:
                with connection.begin():
                    return self._backend.change(connection)

            before = look()
            yield lambda: look() == before

    def close(self, within: float | None = None) -> bool:
        """Commit what is queued and let go of the files; True when that is done.

        After `within` seconds (None: however long it takes) what still waits for the server is left
        alone: it ends with the process. To call it again is to ask again.
        """
        self._writer.shutdown(wait=False)
        self._readers.shutdown()
        begun = time.monotonic()
        if not self._writer.has_ended(within):
            return False
        left = None if within is None else max(0.0, begun + within - time.monotonic())
        if not self._readers.have_ended(left):
            return False
        self._transactor.close()
        self._reading.dispose()
        return True

    def _read_now(self, function: Callable[[Connection], T]) -> T:
        def look() -> T:
            with self._reading.connect() as connection:
                return function(connection)

        return self._patiently(look)

    def _looking(self) -> Connection:
        """Return a connection whose snapshot is taken, by a first question that proves it works."""
        connection = self._reading.connect()
        try:
            connection.execute(text("SELECT 1"))
        except DBAPIError:
            connection.close()
            raise
        return connection

    def _patiently(self, look: Callable[[], T]) -> T:
        waiting = ReconnectWait(self._patience)
        while True:
            try:
                seen = look()
            except DBAPIError as error:
                ours = self._backend.translated(error)
                if self._backend.trouble(error) not in ABSENT:
                    raise ours from error
                waiting.pause(error, getattr(ours, "problem", str(ours)))
            except DamagedValue as error:
                raise error.at(self._backend.address) from error
            else:
                self._patience.answered()
                return seen


def open_database(
    address: str, *, patience: float = _PATIENCE, is_hasty: IsHasty = never
) -> Database:
    """Open the database at a SQLAlchemy address and bring its tables up to date.

    Args:
        address: for example sqlite:///longline.sqlite or postgresql://user@host/longline.
        patience: seconds to wait for the writes of other processes, and for a server that goes
            away once it is open.
        is_hasty: says that the process is to end: a server that is away has a few seconds left.

    Raises:
        StoreUnreachable: there is no such database or no right to use it.
        StoreTooNew: a newer longline has written it.
        StoreBusy: others held the write lock for longer than `patience`.
        MissingExtra: the driver of PostgreSQL is not installed.
    """
    backend = _backend(_parsed(address), patience)
    waited = ReconnectPolicy(backend, is_hasty)
    writing = backend.writing()
    try:
        _open(backend, writing, waited)
    except DBAPIError as error:
        writing.dispose()
        raise backend.translated(error) from error
    except LonglineError:
        writing.dispose()
        raise
    return Database(backend, writing, waited)


def _open(backend: Backend, writing: Engine, patience: ReconnectPolicy) -> None:
    waiting = ReconnectWait(patience)
    while True:
        try:
            bring_up_to_date(writing, backend)
        except DBAPIError as error:
            if backend.trouble(error) is not Disturbance.STARTING:
                raise
            waiting.pause(error, "it is still starting up")
        else:
            return


def _backend(url: URL, patience: float) -> Backend:
    if url.drivername in sqlite.DRIVERS:
        return sqlite.SqliteBackend(url, patience)
    if url.drivername in postgres.DRIVERS:
        return postgres.PostgresBackend(url, patience)
    shown = redact_url(url.render_as_string(hide_password=True))
    raise StoreUnreachable(shown, "longline keeps its data in SQLite or PostgreSQL (psycopg)")


def _parsed(address: str) -> URL:
    try:
        return make_url(address)
    except (ArgumentError, ValueError):
        # Without the cause, whose text may hold the password.
        raise StoreUnreachable(redact_server_url(address), "that is not an address") from None


# ---------------- What there is to say about a database: what it is, how large, and how much is

_SIZES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}
_VERSION = text("SELECT version_num FROM alembic_version")


@dataclass(frozen=True, slots=True)
class Description:
    """A database as it is now; `tables_version` is that of our migrations."""

    kind: str
    version: str
    tables_version: str
    size_bytes: int
    rows: Mapping[str, int]


def describe(connection: Connection) -> Description:
    """Return what a database with our tables is like."""
    dialect = connection.dialect
    version = dialect.server_version_info or ()
    return Description(
        kind=dialect.name,
        version=".".join(map(str, version)),
        tables_version=str(connection.scalar(_VERSION)),
        size_bytes=int(connection.scalar(_SIZES[dialect.name]) or 0),
        rows={
            str(table.name): connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        },
    )
