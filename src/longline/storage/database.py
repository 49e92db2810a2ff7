"""The connection to the database: migrations, one writer thread, a few readers, reconnects."""

from __future__ import annotations

import asyncio
import hashlib
import queue
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Dialect,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    RowMapping,
    String,
    Table,
    bindparam,
    func,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from longline.core.errors import StoreBusy, StoreGone, StoreTooNew, StoreUnreachable
from longline.core.redaction import redact_server_url, redact_url
from longline.core.threads import Threads, have_ended
from longline.storage.backends import Backend, PostgresBackend, SqliteBackend
from longline.storage.schema import jobs, metadata, plumbing

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="Repository")
_READERS = 3
TIMEOUT = 60.0
"""Seconds to wait for writes of other processes; the longest wait that was measured was 2 s."""
_BACKENDS: Mapping[str, Callable[[URL, float], Backend]] = {
    "sqlite": SqliteBackend,
    "sqlite+pysqlite": SqliteBackend,
    "postgres": PostgresBackend,
    "postgresql": PostgresBackend,
    "postgresql+psycopg": PostgresBackend,
}


class Database:
    """One open database; create it with `open_database`."""

    def __init__(self, backend: Backend, writer_engine: Engine, retry: TransactionRetry) -> None:
        self.address = backend.address
        self._backend = backend
        self._retry = retry
        self._reader_engine = backend.reader_engine(_READERS + 1)
        self._transactor = Transactor(backend, writer_engine, retry)
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
        # Not `wrap_future`: the loop of the tests stops its clock for work of executors only.

        def work(connection: Connection) -> T:
            return function(connection, *args, **kwargs)

        result: T = await asyncio.get_running_loop().run_in_executor(
            self._writer,
            work,  # type: ignore[arg-type]  # the writer passes the connection
        )
        return result

    @property
    def is_away(self) -> bool:
        """Whether the server did not respond to the last attempt."""
        return self._retry.is_away

    def write_soon(self, function: Callable[[Connection], T]) -> Future[T]:
        """Queue `function(connection)` as `write` does, from any thread, and do not wait.

        Raises:
            RuntimeError: the database is closed.
        """
        return self._writer.submit(function)

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Run `function(connection)` on a snapshot in a reader thread; never blocks the writer."""

        def attempt() -> T:
            with self._reader_engine.connect() as connection:
                return function(connection)

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._retry.run, attempt)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a connection, in this thread, that sees the database as it is now until closed.

        For reading row by row what does not fit into memory.
        """

        def connect() -> Connection:
            connection = self._reader_engine.connect()
            try:
                connection.execute(text("SELECT 1"))  # begins the snapshot
            except DBAPIError:
                connection.close()
                raise
            return connection

        try:
            with self._retry.run(connect) as connection:
                # Rows stay on the server until they are fetched.
                yield connection.execution_options(stream_results=True)
        except DBAPIError as error:
            raise self._backend.translate(error) from error

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
        self._writer.shutdown()
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


def open_database(
    address: str,
    *,
    timeout: float = TIMEOUT,
    is_stopping: Callable[[], bool] = lambda: False,
    prepare: Callable[[Connection], None] = lambda _connection: None,
) -> Database:
    """Open the database at a SQLAlchemy URL and create or migrate its tables.

    Args:
        address: for example sqlite:///longline.sqlite or postgresql://user@host/longline.
        timeout: seconds to wait for writes of other processes, and for a server that goes away
            after it was opened.
        is_stopping: returns whether the process is shutting down, which leaves an unavailable
            server a few seconds.
        prepare: called in the transaction of the migrations, after them.

    Raises:
        StoreUnreachable: there is no such database or no permission to use it.
        StoreTooNew: a newer longline has written it.
        StoreBusy: other processes held the write lock for longer than `timeout`.
        MissingExtra: the driver of PostgreSQL is not installed.
    """
    try:
        url: URL = make_url(address)
    except (ArgumentError, ValueError):
        # Without the cause, whose text may hold the password.
        raise StoreUnreachable(redact_server_url(address), "it is not a database URL") from None
    if url.drivername not in _BACKENDS:
        shown = redact_url(url.render_as_string(hide_password=True))
        raise StoreUnreachable(shown, "only SQLite and PostgreSQL (psycopg) are supported")
    backend = _BACKENDS[url.drivername](url, timeout)
    engine = backend.writer_engine()
    try:
        migrate(engine, backend, prepare)
    except DBAPIError as error:
        engine.dispose()
        raise backend.translate(error) from error
    except Exception:
        engine.dispose()
        raise
    return Database(backend, engine, TransactionRetry(backend, is_stopping))


# ---------------- Migrations

_REVISIONS = (  # oldest first
    *("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010"),
    "0011",
)
NEWEST = _REVISIONS[-1]
_SCRIPTS = Path(__file__).parent / "migrations"
_version_table = Table(  # as Alembic defines it
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def migrate(engine: Engine, backend: Backend, prepare: Callable[[Connection], None]) -> None:
    """Create the tables or run the missing migrations, then `prepare`, all in one transaction.

    Raises:
        StoreTooNew: the database has a version that this program does not know.
    """
    with engine.begin() as connection:
        backend.lock_tables(connection)  # other processes that open it wait here
        found: str | None = None
        if inspect(connection).has_table(_version_table.name):
            found = connection.scalar(select(_version_table.c.version_num))
        if found is None:
            create_tables(connection)
        elif found not in _REVISIONS:
            raise StoreTooNew(backend.address, found, NEWEST)
        elif found != NEWEST:
            run_migrations(connection)
        prepare(connection)


def create_tables(connection: Connection) -> None:
    """Create all tables at the newest version without Alembic.

    Importing Alembic takes 10 MB and longer than creating the tables.
    """
    for statement in _definitions(connection.dialect):
        connection.exec_driver_sql(statement)
    _version_table.create(connection, checkfirst=True)  # a full downgrade leaves it empty
    connection.execute(_version_table.insert().values(version_num=NEWEST))


_compiled_definitions: dict[str, list[str]] = {}  # by dialect; to compile them takes longest


def _definitions(dialect: Dialect) -> list[str]:
    """Return the statements that create all tables and their indexes."""
    if dialect.name not in _compiled_definitions:
        tables = [*metadata.sorted_tables]
        if dialect.name == "postgresql":
            tables += plumbing.sorted_tables
        made: list[ExecutableDDLElement] = []
        for table in tables:
            made += [CreateTable(table), *map(CreateIndex, table.indexes)]
        _compiled_definitions[dialect.name] = [str(one.compile(dialect=dialect)) for one in made]
    return _compiled_definitions[dialect.name]


def run_migrations(connection: Connection) -> None:
    """Run the migrations that this database lacks."""
    # Alembic is slow to import, and there is nearly always nothing to migrate.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


# ---------------- Retries after a conflict, or once a lost server is back

_MAX_CONFLICTS = 8
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_CHECK_INTERVAL = 0.2  # seconds between checks of the deadline while pausing
_STOPPING_TIMEOUT = 5.0  # seconds for the server to come back once this process is stopping


class TransactionRetry:
    """Runs the transactions of all threads of one database, again where that may help.

    Each waits for a lost server up to the backend's timeout. Once the process is stopping, the
    server has a few seconds left, counted once for all threads.

    Args:
        backend: the database.
        is_stopping: returns whether this process is shutting down; called from several threads.
    """

    def __init__(self, backend: Backend, is_stopping: Callable[[], bool] = lambda: False) -> None:
        self._backend = backend
        self._is_stopping = is_stopping
        self._away_since: float | None = None
        self._stopping_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether the server did not respond to the last attempt of any thread."""
        return self._away_since is not None

    def run(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it succeeds, or fails for good.

        Raises:
            StoreGone: the server did not respond in time.
            StoreError: another error of the database.
        """
        begun: float | None = None
        pause, conflicts = _FIRST_PAUSE, 0
        while True:
            try:
                result = attempt()
            except DBAPIError as error:
                if self._backend.is_gone(error):
                    begun = begun or time.monotonic()
                    self._wait(begun, pause, error)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                elif self._backend.is_conflict(error) and conflicts < _MAX_CONFLICTS:
                    conflicts += 1
                    time.sleep(random.uniform(0, 0.005) * 2**conflicts)  # noqa: S311  # jitter, not a secret
                else:
                    raise self._backend.translate(error) from error
            else:
                self._away_since = None
                return result

    def _wait(self, begun: float, pause: float, error: DBAPIError) -> None:
        away = self._away_since = self._away_since or begun
        wake = time.monotonic() + pause
        while (now := time.monotonic()) < wake:
            end = begun + self._backend.timeout
            if self._is_stopping():
                self._stopping_since = self._stopping_since or now
                end = min(end, max(away, self._stopping_since) + _STOPPING_TIMEOUT)
            if now >= end:
                waited = min(round(now - away), self._backend.timeout)
                problem = getattr(self._backend.translate(error), "problem", str(error.orig))
                raise StoreGone(self._backend.address, problem, waited) from error
            time.sleep(min(wake - now, end - now, _CHECK_INTERVAL))


# ---------------- Write transactions

_DEFERRED = "longline.deferred"


def defer_write(
    connection: Connection,
    function: Callable[[Connection, list[Any]], None],
    argument: Any,
    *,
    is_last: bool = False,
) -> None:
    """Call `function(connection, arguments)` once, with all arguments, before the commit.

    For rows that many processes update: they are locked last and briefly. With `is_last`, it is
    called after the others, so that all transactions lock in the same order.
    """
    deferred = connection.info.get(_DEFERRED)
    if deferred is None:  # not a transaction of the writer
        function(connection, [argument])
    else:
        deferred.setdefault((is_last, function), []).append(argument)


class Transactor:
    """The connection that writes; it stays open, since a new one costs more than a small commit."""

    def __init__(self, backend: Backend, engine: Engine, retry: TransactionRetry) -> None:
        self._backend = backend
        self._engine = engine
        self._retry = retry
        self._connection: Connection | None = None
        # Of a transaction whose COMMIT was sent and whose response did not arrive.
        self._unknown: tuple[str, Any] | None = None

    def run(self, work: Callable[[Connection], Any]) -> Any:
        """Run `work(connection)` in a transaction; return its result once it is committed.

        `work` may be called several times, each time after its earlier changes were rolled back.

        Raises:
            StoreError: it could not be committed; nothing of it was.
        """
        self._unknown = None
        return self._retry.run(lambda: self._transact_once(work))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._engine.dispose()

    def _transact_once(self, work: Callable[[Connection], Any]) -> Any:
        mark: str | None = None
        result: Any = None
        try:
            if self._connection is None:
                self._connection = self._engine.connect()
            connection = self._connection
            if self._unknown is not None:
                with connection.begin():
                    is_committed = self._backend.was_committed(connection, self._unknown[0])
                if is_committed:
                    return self._unknown[1]
                self._unknown = None
            with connection.begin():
                connection.info[_DEFERRED] = {}
                result = work(connection)
                deferred = connection.info.pop(_DEFERRED)
                for is_last in (False, True):
                    for (one, function), arguments in deferred.items():
                        if one is is_last:
                            function(connection, arguments)
                mark = self._backend.mark_commit(connection)
        except DBAPIError as error:
            if self._backend.is_gone(error):
                if mark is not None:
                    self._unknown = (mark, result)
                self._disconnect()
            raise
        return result

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
            with suppress(SQLAlchemyError):
                connection.close()


_LARGEST_GROUP = 512
_Work = tuple[Future[Any], Callable[[Connection], Any]]


class Writer(Executor):
    """Group commit: run functions of a connection in one thread, many per transaction.

    Functions that are submitted while it commits share the next transaction. A future is done only
    after its transaction is committed. It is an Executor so that a loop knows what it waits for.
    """

    def __init__(self, transact: Callable[[Callable[[Connection], Any]], Any]) -> None:
        """Take `transact(work)`, which runs `work(connection)` in one transaction."""
        self._transact = transact
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._is_open = True
        self._thread = threading.Thread(
            target=self._write_groups, name="longline-writer", daemon=True
        )
        self._thread.start()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Queue `fn(connection, ...)`."""
        if not self._is_open:
            message = "the store is closed"
            raise RuntimeError(message)
        future: Future[Any] = Future()
        self._queue.put((future, lambda connection: fn(connection, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002  # Executor's own signature
        """Let the thread end once everything that is queued is committed; do not wait for it."""
        del wait, cancel_futures
        if self._is_open:
            self._is_open = False
            self._queue.put(None)

    def has_ended(self, within: float | None) -> bool:
        """Return whether the thread ends within this many seconds; None waits until it has."""
        return have_ended([self._thread], within)

    def _write_groups(self) -> None:
        is_open = True
        while is_open:
            group = [self._queue.get()]
            with suppress(queue.Empty):
                while len(group) < _LARGEST_GROUP:
                    group.append(self._queue.get_nowait())
            is_open = None not in group
            # A caller that was cancelled before its turn does not get its write.
            works = [work for work in group if work and work[0].set_running_or_notify_cancel()]
            if works:
                self._commit_group(works)

    def _commit_group(self, works: list[_Work]) -> None:
        try:
            results = self._transact(
                lambda connection: [function(connection) for _, function in works]
            )
        except Exception as error:  # noqa: BLE001  # every kind of failure belongs to the caller
            # One bad write must not fail the others: each gets a transaction of its own. A lock or
            # a server that timed out fails all of them: they would time out one by one.
            if len(works) > 1 and not isinstance(error, (StoreBusy, StoreGone)):
                for work in works:
                    self._commit_group([work])
                return
            for future, _ in works:
                future.set_exception(error)
            return
        for (future, _), result in zip(works, results, strict=True):
            future.set_result(result)


# ---------------- Operations on tables


class Repository:
    """Operations on some tables of a database.

    An operation is a method whose first argument is a connection, decorated with `reads` or
    `writes`. Callers leave the connection out and await the result.
    """

    def __init__(self, database: Database) -> None:
        self._database = database


_Method = Callable[Concatenate[R, Connection, P], T]
_Operation = Callable[Concatenate[R, P], Coroutine[Any, Any, T]]


def reads(method: _Method[R, P, T]) -> _Operation[R, P, T]:
    """Run a method of a `Repository` on a snapshot of the database."""
    return _run_with(Database.read, method)


def writes(method: _Method[R, P, T]) -> _Operation[R, P, T]:
    """Run a method of a `Repository` in a transaction; it returns once that is committed."""
    return _run_with(Database.write, method)


def _run_with(
    access: Callable[[Database, Callable[[Connection], T]], Coroutine[Any, Any, T]],
    method: _Method[R, P, T],
) -> _Operation[R, P, T]:
    @wraps(method)
    async def run(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await access(
            self._database, lambda connection: method(self, connection, *args, **kwargs)
        )

    return run


Row = dict[str, Any]


def plain_rows(rows: Iterable[RowMapping]) -> list[Row]:
    """Return rows as dicts; SQLAlchemy's keys are of a `str` subclass, which orjson refuses."""
    return [{str(name): value for name, value in row.items()} for row in rows]


# ---------------- Locks until the end of the transaction; SQLite's single writer needs none

# "Key share" lets other transactions insert rows that refer to the job.
_LOCK_JOB = select(jobs.c.id).where(jobs.c.id == bindparam("b_job")).with_for_update(key_share=True)
_LOCK_NAME = text("SELECT pg_advisory_xact_lock(:key)")


def lock_job(connection: Connection, job: str) -> None:
    """Wait until no other transaction adds to this job or ends it, and keep others out."""
    if connection.dialect.name != "sqlite":
        connection.execute(_LOCK_JOB, {"b_job": job})


def lock_name(connection: Connection, name: str) -> None:
    """Wait for a lock on a name that is not a row yet."""
    if connection.dialect.name != "sqlite":
        digest = hashlib.sha256(name.encode()).digest()
        connection.execute(_LOCK_NAME, {"key": int.from_bytes(digest[:8], signed=True)})


# ---------------- The content of a database

_SIZES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """Kind, versions, size and row counts; `tables_version` is that of our migrations."""

    kind: str
    version: str
    tables_version: str
    size_bytes: int
    rows: Mapping[str, int]


def size_of(connection: Connection) -> int:
    """Return the size of a database in bytes."""
    return int(connection.scalar(_SIZES[connection.dialect.name]) or 0)


def describe(connection: Connection) -> DatabaseInfo:
    """Return kind, version, size and rows of a database with our tables."""
    dialect = connection.dialect
    return DatabaseInfo(
        kind=dialect.name,
        version=".".join(map(str, dialect.server_version_info or ())),
        tables_version=str(connection.scalar(select(_version_table.c.version_num))),
        size_bytes=size_of(connection),
        rows={
            str(table.name): connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        },
    )
