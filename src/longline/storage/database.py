"""The connection to the database: one writer thread, a few readers, and translated errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, RowMapping, func, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from longline.core.errors import LonglineError, StoreUnreachable
from longline.core.redaction import redact_server_url, redact_url
from longline.core.threads import Threads
from longline.storage import postgres, sqlite
from longline.storage.columns import DamagedValue
from longline.storage.errors import NOT_A_URL
from longline.storage.migrate import migrate
from longline.storage.schema import metadata
from longline.storage.transactions import (
    UNAVAILABLE,
    Backend,
    Fault,
    ReconnectPolicy,
    ReconnectWait,
    Transactor,
)
from longline.storage.writer import Writer

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="Repository")
_READERS = 3
_TIMEOUT = 60.0  # seconds to wait for writes of other processes; the longest measured was 2 s


class Database:
    """One open database; create it with `open_database`."""

    def __init__(self, backend: Backend, writer_engine: Engine, policy: ReconnectPolicy) -> None:
        self.address = backend.address
        self._backend = backend
        self._policy = policy
        self._reader_engine = backend.reader_engine(_READERS + 1)
        self._transactor = Transactor(backend, writer_engine, policy)
        self._writer = Writer(self._transactor.run)
        self._readers = Threads(_READERS, "longline-reader")

    async def write(
        self,
        function: Callable[Concatenate[Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function(connection, ...)` in the writer thread; return when it is committed.

        After a conflict or a lost server it runs again from the start, so it must change nothing
        but the database.

        Raises:
            StoreError: it could not be committed; nothing of it was.
        """
        work: Any = partial(function, **kwargs)  # the writer adds the connection
        result: T = await asyncio.get_running_loop().run_in_executor(self._writer, work, *args)
        return result

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` on a snapshot in a reader thread; never blocks the writer."""

        def look() -> T:
            with self._reader_engine.connect() as connection:
                return function(connection)

        return await asyncio.get_running_loop().run_in_executor(self._readers, self._retried, look)

    def stream(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` on a snapshot in this thread; for long reads."""
        with self.snapshot() as connection:
            return function(connection)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a connection, in this thread, that sees the database as it is now until closed.

        For reading row by row what does not fit into memory.
        """
        connection = self._retried(self._connect_reader)
        try:
            with connection:
                # Rows stay on the server until they are fetched.
                yield connection.execution_options(stream_results=True)
        except DBAPIError as error:
            raise self._backend.translate(error) from error
        except DamagedValue as error:
            raise error.at(self._backend.address) from error

    @contextmanager
    def watch_commits(self) -> Iterator[Callable[[], bool]]:
        """Yield a function, for any thread, that returns whether no other process has committed."""
        with self._reader_engine.connect() as connection:

            def token() -> object:
                with connection.begin():
                    return self._backend.change_token(connection)

            before = token()
            yield lambda: token() == before

    def close(self, within: float | None = None) -> bool:
        """Commit what is queued and close the files; return whether that is done.

        After `within` seconds (None waits without limit) it returns False, and what still waits
        for the server ends with the process. It may be called again.
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
        self._reader_engine.dispose()
        return True

    def _connect_reader(self) -> Connection:
        """Return a connection whose snapshot is taken, by a query that proves that it works."""
        connection = self._reader_engine.connect()
        try:
            connection.execute(text("SELECT 1"))
        except DBAPIError:
            connection.close()
            raise
        return connection

    def _retried(self, look: Callable[[], T]) -> T:
        """Call `look` until the server answers.

        Raises:
            StoreGone: it did not answer in time.
        """
        waiting = ReconnectWait(self._policy)
        while True:
            try:
                result = look()
            except DBAPIError as error:
                ours = self._backend.translate(error)
                if self._backend.classify(error) not in UNAVAILABLE:
                    raise ours from error
                waiting.pause(error, getattr(ours, "problem", str(ours)))
            except DamagedValue as error:
                raise error.at(self._backend.address) from error
            else:
                self._policy.answered()
                return result


def open_database(
    address: str, *, timeout: float = _TIMEOUT, is_stopping: Callable[[], bool] = lambda: False
) -> Database:
    """Open the database at a SQLAlchemy URL and create or migrate its tables.

    Args:
        address: for example sqlite:///longline.sqlite or postgresql://user@host/longline.
        timeout: seconds to wait for writes of other processes, and for a server that goes away
            after it was opened.
        is_stopping: returns whether the process is shutting down, which leaves an unavailable
            server a few seconds.

    Raises:
        StoreUnreachable: there is no such database or no permission to use it.
        StoreTooNew: a newer longline has written it.
        StoreBusy: other processes held the write lock for longer than `timeout`.
        MissingExtra: the driver of PostgreSQL is not installed.
    """
    backend = _backend_at(address, timeout)
    policy = ReconnectPolicy(backend, is_stopping)
    engine = backend.writer_engine()
    try:
        _migrate_once_started(engine, backend, policy)
    except DBAPIError as error:
        engine.dispose()
        raise backend.translate(error) from error
    except LonglineError:
        engine.dispose()
        raise
    return Database(backend, engine, policy)


def _migrate_once_started(engine: Engine, backend: Backend, policy: ReconnectPolicy) -> None:
    waiting = ReconnectWait(policy)
    while True:
        try:
            migrate(engine, backend)
        except DBAPIError as error:
            if backend.classify(error) is not Fault.STARTING:
                raise
            waiting.pause(error, "it is still starting up")
        else:
            return


def _backend_at(address: str, timeout: float) -> Backend:
    try:
        url: URL = make_url(address)
    except (ArgumentError, ValueError):
        # Without the cause, whose text may hold the password.
        raise StoreUnreachable(redact_server_url(address), NOT_A_URL) from None
    if url.drivername in sqlite.DRIVERS:
        return sqlite.SqliteBackend(url, timeout)
    if url.drivername in postgres.DRIVERS:
        return postgres.PostgresBackend(url, timeout)
    shown = redact_url(url.render_as_string(hide_password=True))
    raise StoreUnreachable(shown, "only SQLite and PostgreSQL (psycopg) are supported")


# ---------------- Operations on tables


class Repository:
    """Operations on some tables of a database.

    An operation is a method whose first argument is a connection, decorated with `reads` or
    `writes`. Callers leave the connection out and await the result.
    """

    def __init__(self, database: Database) -> None:
        self._database = database


def reads(
    method: Callable[Concatenate[R, Connection, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Run a method of a `Repository` on a snapshot of the database."""

    @wraps(method)
    async def run(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.read(
            lambda connection: method(self, connection, *args, **kwargs)
        )

    return run


def writes(
    method: Callable[Concatenate[R, Connection, P], T],
) -> Callable[Concatenate[R, P], Coroutine[Any, Any, T]]:
    """Run a method of a `Repository` in a transaction; it returns once that is committed."""

    @wraps(method)
    async def run(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(
            lambda connection: method(self, connection, *args, **kwargs)
        )

    return run


Row = dict[str, Any]


def plain_rows(rows: Iterable[RowMapping]) -> list[Row]:
    """Return rows as dicts; SQLAlchemy's keys are of a `str` subclass, which orjson refuses."""
    return [{str(name): value for name, value in row.items()} for row in rows]


# ---------------- What a database holds

_SIZES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}
_VERSION = text("SELECT version_num FROM alembic_version")


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """Kind, versions, size and row counts; `tables_version` is that of our migrations."""

    kind: str
    version: str
    tables_version: str
    size_bytes: int
    rows: Mapping[str, int]


def describe(connection: Connection) -> DatabaseInfo:
    """Return what a database with our tables holds."""
    dialect = connection.dialect
    version = dialect.server_version_info or ()
    return DatabaseInfo(
        kind=dialect.name,
        version=".".join(map(str, version)),
        tables_version=str(connection.scalar(_VERSION)),
        size_bytes=int(connection.scalar(_SIZES[dialect.name]) or 0),
        rows={
            str(table.name): connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        },
    )
