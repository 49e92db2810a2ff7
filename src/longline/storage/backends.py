"""The supported databases, SQLite and PostgreSQL: connections, values to store, bulk statements."""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from sqlalchemy import (
    URL,
    BindParameter,
    Connection,
    Engine,
    ExceptionContext,
    Insert,
    Table,
    Update,
    bindparam,
    cast,
    column,
    create_engine,
    event,
    text,
    values,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.types import TypeEngine

from longline.config.settings import is_read_only
from longline.core.errors import (
    LonglineError,
    MissingExtra,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)
from longline.core.files import make_private_file
from longline.core.json import to_json
from longline.core.redaction import redact_url
from longline.core.sqlite_files import is_damaged, undecodable_is_damage


class Backend:
    """One kind of database at one address.

    The defaults are those of a file, where the result of a commit is always known.

    Args:
        url: the address of the database.
        timeout: seconds to wait for locks, and for a server that went away.
    """

    def __init__(self, url: URL, timeout: float) -> None:
        self._url = url
        self.address = redact_url(url.render_as_string(hide_password=True))  # for messages
        self.timeout = timeout

    def writer_engine(self) -> Engine:
        """Return an engine for the one connection that writes."""
        raise NotImplementedError

    def reader_engine(self, size: int) -> Engine:
        """Return an engine for read-only transactions, each on one snapshot."""
        raise NotImplementedError

    def lock_tables(self, connection: Connection) -> None:
        """Keep other processes from changing the schema until the transaction ends."""

    def mark_commit(self, connection: Connection) -> str | None:
        """Mark a transaction that has written; None if its result is always known."""
        del connection
        return None

    def was_committed(self, connection: Connection, mark: str) -> bool:
        """Return whether the transaction with this mark was committed."""
        raise NotImplementedError

    def change_token(self, connection: Connection) -> object:
        """Return a value that changes when another connection commits."""
        raise NotImplementedError

    def is_gone(self, error: DBAPIError) -> bool:
        """Return whether the server went away and may come back."""
        del error
        return False

    def is_conflict(self, error: DBAPIError) -> bool:
        """Return whether another transaction interfered, so that the same one may run again."""
        del error
        return False

    def translate(self, error: DBAPIError) -> LonglineError | DBAPIError:
        """Return our error for the driver's; values that fit no column keep the driver's."""
        raise NotImplementedError


# ---------------- SQLite

_REMEDY = (
    "Nothing was changed. Restore a backup of the file, or recover what is readable: "
    "sqlite3 OLD .recover | sqlite3 NEW. Archived responses are in separate files"
)


class SqliteBackend(Backend):
    """One file with one writer at a time."""

    def __init__(self, url: URL, timeout: float) -> None:
        """Raise StoreUnreachable if the URL names no file."""
        super().__init__(url, timeout)
        if url.host:
            problem = "a SQLite URL has three slashes before the file"
            raise StoreUnreachable(self.address, problem)
        if url.database in (None, "", ":memory:"):
            problem = "it names no file; a database in memory cannot be shared"
            raise StoreUnreachable(self.address, problem)

    def writer_engine(self) -> Engine:
        return self._engine("BEGIN IMMEDIATE", 1)  # which locks the tables, too

    def reader_engine(self, size: int) -> Engine:
        engine = self._engine("BEGIN", size)
        # By default each of several connections keeps 2 MB of pages, which the system has, too.
        event.listen(engine, "connect", lambda one, _: one.execute("PRAGMA cache_size=-256"))
        return engine

    def change_token(self, connection: Connection) -> object:
        return connection.exec_driver_sql("PRAGMA data_version").scalar()

    def translate(self, error: DBAPIError) -> StoreError:
        problem = str(error.orig)
        if "disk is full" in problem or "disk I/O error" in problem:
            return StoreFull(self.address)
        if "locked" in problem:
            return StoreBusy(self.address, self.timeout)
        if "readonly" in problem:
            return StoreReadOnly(self.address, "the operation would change it")
        if is_damaged(error.orig):
            return StoreDamaged(self.address, problem, _REMEDY)
        return StoreUnreachable(self.address, problem)

    def _engine(self, begin: str, size: int) -> Engine:
        pool: dict[str, Any] = {"poolclass": QueuePool, "pool_size": size, "max_overflow": 0}
        file = Path(str(self._url.database))
        if is_read_only(file):
            creator = partial(_open_read_only, file.absolute(), self.address)
            pool = {"poolclass": NullPool, "creator": creator}
        elif not str(file).startswith("file:"):  # a URI, which only SQLite understands
            with suppress(OSError, ValueError):  # SQLite reports what is wrong
                make_private_file(file)
        engine = create_engine(
            self._url, json_serializer=as_json, json_deserializer=self._load_json, **pool
        )
        event.listen(engine, "connect", self._prepare)
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        event.listen(engine, "handle_error", self._explain)
        return engine

    def _prepare(self, connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we send BEGIN ourselves, so that it covers DDL too
        # SQLite's own lower() covers ASCII only, and a search would distinguish ü from Ü.
        connection.create_function("lower", 1, _lower, deterministic=True)
        with undecodable_is_damage():
            connection.execute(f"PRAGMA busy_timeout={int(self.timeout * 1000)}")
            connection.execute("PRAGMA journal_mode=WAL")
            # A killed process loses nothing. A power cut may undo the last commits, whose items
            # are then collected again, so nothing is lost or duplicated.
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA foreign_keys=ON")

    def _explain(self, context: ExceptionContext) -> None:
        """Raise StoreDamaged for text that is not UTF-8, which is not a driver error."""
        if isinstance(context.original_exception, UnicodeDecodeError):
            problem = f"it contains text that is not UTF-8: {context.original_exception}"
            raise StoreDamaged(self.address, problem, _REMEDY)

    def _load_json(self, value: Any) -> Any:
        # A column of type JSON has numeric affinity: it returns numeric text as a number.
        if not isinstance(value, (str, bytes)):
            return value
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            problem = f"a value should be JSON and is not: {error}"
            raise StoreDamaged(self.address, problem, _REMEDY) from error


def _open_read_only(file: Path, address: str) -> sqlite3.Connection:
    """Open a file, for one transaction, that only other processes can write.

    Raises:
        StoreReadOnly: the last changes are in the WAL, which cannot be read here.
    """
    wal, shared = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    mode = "mode=ro"
    if not (wal.exists() and shared.exists()):
        if wal.exists() and wal.stat().st_size:
            problem = f"its last changes are in {wal.name}, which only a writer can read"
            raise StoreReadOnly(address, problem)
        # SQLite cannot create the two files here, and needs none if nothing changes.
        mode += "&immutable=1"
    return sqlite3.connect(f"file:{quote(str(file))}?{mode}", uri=True, check_same_thread=False)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


# ---------------- PostgreSQL

_DENIED = "42501"


def explain_failure(message: str, state: str | None) -> str:
    """Return the cause in one line, from the driver's message and SQLSTATE (None: no server)."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    cause = lines[0].rpartition("FATAL:")[2].strip() if lines else "the server gave no reason"
    if state == _DENIED:
        cause += "; its owner grants that with GRANT CREATE, USAGE ON SCHEMA public TO USER"
    return cause


OLDEST = 13  # older versions are not maintained, and not tested here
_CONNECT_OPTIONS = {
    "application_name": "longline",
    "connect_timeout": 10,
    # A broken link sends nothing: after half a minute without a response it is lost.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_SCHEMA_LOCK = int.from_bytes(b"longline")  # advisory lock for schema changes

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DISK_FULL = "53100"
_LOCK_TIMEOUT = "55P03"
_CONFLICTS = {"40P01", "40001", "23505"}  # deadlock, serialization failure, unique violation
_GONE = {
    *("57P01", "57P02", "57P03", "57P05"),  # shut down, crashed, starting up, idle too long
    *("25P03", "53300"),  # idle too long in a transaction, too many connections
    *("08000", "08003", "08006", "08001", "08004"),  # the connection itself
}

# Transaction ids do not do: after a crash an id is given to another transaction.
_MARK = text(
    "INSERT INTO writers (name, word, until) "
    "SELECT :name, :word, extract(epoch FROM now()) + 86400 FROM pg_advisory_xact_lock(:key) "
    "WHERE pg_current_xact_id_if_assigned() IS NOT NULL "
    "ON CONFLICT (name) DO UPDATE SET word = excluded.word, until = excluded.until "
    "RETURNING word"
)
_PRUNE = text("DELETE FROM writers WHERE until < extract(epoch FROM now())")
# Our own transaction whose client is gone: the server has not noticed and holds its locks.
_TERMINATE = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 "
    "AND ((CAST(classid AS bigint) << 32) | CAST(objid AS bigint)) = :key "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND pid <> pg_backend_pid()"
)
_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
_LAST_MARK = text("SELECT word FROM writers WHERE name = :name")
_CHANGE_TOKEN = text("SELECT md5(string_agg(name || ' ' || word, ',' ORDER BY name)) FROM writers")


class PostgresBackend(Backend):
    """One database of a server, through psycopg."""

    def __init__(self, url: URL, timeout: float) -> None:
        """Raise StoreUnreachable if the URL names no database."""
        super().__init__(url.set(drivername="postgresql+psycopg"), timeout)
        self._key = secrets.randbits(63)  # identifies this writer
        self._name = f"{self._key:x}"
        self._has_pruned = False
        if not url.database:
            raise StoreUnreachable(self.address, "it names no database; use postgresql://host/name")

    def writer_engine(self) -> Engine:
        engine = self._engine(1, isolation_level="READ COMMITTED")
        milliseconds = max(1, int(self.timeout * 1000))

        @event.listens_for(engine, "connect")
        def connect(connection: Any, _record: Any) -> None:
            connection.autocommit = True
            connection.execute(f"SET lock_timeout = {milliseconds}")
            # Writes find their rows by an index. A cached plan from when the table was empty reads
            # the whole table until autovacuum has analyzed it, a minute later.
            connection.execute("SET enable_seqscan = off")
            # A process that is stopped or cut off must not keep its locks.
            connection.execute("SET idle_in_transaction_session_timeout = '60s'")
            connection.autocommit = False

        return engine

    def reader_engine(self, size: int) -> Engine:
        read_only = {"postgresql_readonly": True}
        return self._engine(size, isolation_level="REPEATABLE READ", execution_options=read_only)

    def lock_tables(self, connection: Connection) -> None:
        """Wait for other processes that migrate.

        Raises:
            StoreUnreachable: the server is too old.
        """
        found = connection.dialect.server_version_info or (0,)
        if int(found[0]) < OLDEST:
            version = ".".join(map(str, found))
            problem = f"PostgreSQL {version} is too old; {OLDEST} or newer is required"
            raise StoreUnreachable(self.address, problem)
        connection.execute(_LOCK, {"key": _SCHEMA_LOCK})

    def mark_commit(self, connection: Connection) -> str | None:
        if not self._has_pruned:
            connection.execute(_PRUNE)
            self._has_pruned = True
        marked: str | None = connection.scalar(
            _MARK, {"name": self._name, "key": self._key, "word": secrets.token_hex(8)}
        )
        return marked

    def was_committed(self, connection: Connection, mark: str) -> bool:
        connection.execute(_TERMINATE, {"key": self._key})
        connection.execute(_LOCK, {"key": self._key})
        return bool(connection.scalar(_LAST_MARK, {"name": self._name}) == mark)

    def change_token(self, connection: Connection) -> object:
        return connection.scalar(_CHANGE_TOKEN)

    def is_gone(self, error: DBAPIError) -> bool:
        state = _sqlstate(error)
        # Without a SQLSTATE the server was not reached, or the connection broke.
        is_lost = isinstance(error, OperationalError) and state is None
        return is_lost or error.connection_invalidated or state in _GONE

    def is_conflict(self, error: DBAPIError) -> bool:
        return _sqlstate(error) in _CONFLICTS

    def translate(self, error: DBAPIError) -> LonglineError | DBAPIError:
        if isinstance(error, DataError):
            return error
        if _sqlstate(error) == _DISK_FULL:
            return StoreFull(self.address)
        if _sqlstate(error) == _LOCK_TIMEOUT:
            return StoreBusy(self.address, self.timeout)
        return StoreUnreachable(self.address, explain_failure(str(error.orig), _sqlstate(error)))

    def _engine(self, size: int, **options: Any) -> Engine:
        try:
            engine = create_engine(
                self._url,
                pool_size=size,
                max_overflow=0,
                paramstyle="format",  # by position, as bulk statements pass their values
                use_native_hstore=False,  # unused, and each connection would query for it
                json_serializer=as_json,
                json_deserializer=orjson.loads,
                connect_args={
                    name: value
                    for name, value in _CONNECT_OPTIONS.items()
                    if name not in self._url.query
                },
                **options,
            )
        except ImportError as error:
            raise MissingExtra("postgres", "PostgreSQL as the database") from error
        event.listen(engine, "before_cursor_execute", _replace_nul, retval=True)
        return engine


def _replace_nul(
    _connection: Any, _cursor: Any, statement: str, values: Any, *_: Any
) -> tuple[str, Any]:
    """Replace NUL characters, which PostgreSQL cannot store in text, by U+FFFD."""
    is_many = isinstance(values, list)
    rows = [
        tuple(one.replace("\x00", "\ufffd") if isinstance(one, str) else one for one in row)
        if any(type(one) is str and "\x00" in one for one in row)
        else row
        for row in (values if is_many else [values])
    ]
    return statement, rows if is_many else rows[0]


def _sqlstate(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state


# ---------------- Values that every database can store


def sanitize_text(text: str) -> str:
    """Return text with lone surrogates, as broken JSON has them, written as escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def sanitize_value(value: Any) -> Any:
    """Return a JSON value with all text sanitized, and other objects as text."""
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, Mapping):
        return {
            (sanitize_text(name) if isinstance(name, str) else name): sanitize_value(one)
            for name, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [sanitize_value(one) for one in value]
    if value is None or isinstance(value, int | float):
        return value
    try:
        to_json(value)
    except TypeError:
        return sanitize_text(str(value))
    return value


_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # not after an escaped backslash


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON column.

    A NUL character becomes U+FFFD: PostgreSQL stores it nowhere, and would fail each time a field
    of such a row is queried.

    Raises:
        TypeError: a part of it cannot be written as JSON; the message names the field.
    """
    return replace_nul_escapes(to_json(value).decode())


def replace_nul_escapes(json: str) -> str:
    """Replace the escape of each NUL character in a JSON text by U+FFFD."""
    return _NUL.sub("\\1\ufffd", json) if "\\u0000" in json else json


def as_sanitized_json(value: Any) -> str:
    """Return a value like `as_json`, with what JSON cannot hold written as text."""
    try:
        return as_json(value)
    except TypeError:
        return as_json(sanitize_value(value))


_MAX_KEY_BYTES = 2000  # PostgreSQL limits the size of an index row, which has other columns, too
_PREFIX_BYTES = 1900  # readable start of a longer key


def sanitize_key(key: str) -> str:
    """Return a key as it is stored: a long one is cut and ends in a hash of the whole.

    A NUL character becomes U+FFFD, a lone surrogate its escape.
    """
    if key.isascii() and len(key) <= _MAX_KEY_BYTES and "\x00" not in key:
        return key  # nearly all, and this runs several times for every item
    readable = sanitize_text(key.replace("\x00", "\ufffd"))
    written = readable.encode()
    if len(written) <= _MAX_KEY_BYTES:
        return readable
    prefix = written[:_PREFIX_BYTES].decode(errors="ignore")  # drops a cut character
    return f"{prefix}~{hashlib.sha256(written).hexdigest()}"


# ---------------- Statements for many rows, on the path of every item
#
# SQLAlchemy compiles a statement for one row, whose VALUES are repeated for more; the values go to
# the driver as they are. Its own bulk insert prepares each value of each row in Python, which cost
# more than the database did.
#
# One statement inserts many rows. The driver releases the GIL for each step of a statement and then
# competes for it with the busy event loop, so one step per row made writing slow.

_SIZES = (128, 64, 32, 16, 8, 4, 3, 2, 1)  # few, so that the driver has few statements to prepare


@dataclass(frozen=True, slots=True)
class _RowStatement:
    """A compiled statement with the VALUES of one row, of at least two columns."""

    head: str
    row: str  # such as (?, ?)
    tail: str
    values_of: Callable[[Mapping[str, Any]], tuple[Any, ...]]  # in the order of `row`

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run it for all rows; return how many were inserted or updated."""
        count = done = 0
        for size in _SIZES:
            while len(rows) - done >= size:
                some = rows[done : done + size]
                sql = f"{self.head}{', '.join([self.row] * size)}{self.tail}"
                values = tuple(chain.from_iterable(map(self.values_of, some)))
                count += connection.exec_driver_sql(sql, values).rowcount
                done += size
        return count


def _compile(connection: Connection, statement: Any) -> _RowStatement:
    """Compile a statement with one row of values, each bound by `_bind`, and no others."""
    compiled = statement.compile(dialect=connection.dialect)
    head, keyword, rest = str(compiled).partition("VALUES ")
    depth = end = 0
    while end == 0 or depth > 0:
        depth += {"(": 1, ")": -1}.get(rest[end], 0)
        end += 1
    names = [name.removeprefix(_PREFIX) for name in compiled.positiontup]
    return _RowStatement(head + keyword, rest[:end], rest[end:], itemgetter(*names))


_PREFIX = "given_"  # SQLAlchemy refuses the names of columns


def _bind(name: str) -> BindParameter[Any]:
    return bindparam(_PREFIX + name)


def upsert(connection: Connection, table: Table) -> Any:
    """Return an INSERT that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415  # slow to import

    return postgresql.insert(table)


class BulkInsert:
    """Insert rows whose JSON is text already.

    `names` are the columns of every row; `finish` adds what comes after the values.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        *,
        finish: Callable[[Any], Any] = lambda statement: statement,
    ) -> None:
        self._table = table
        self._names = names
        self._finish = finish
        self._compiled: dict[str, _RowStatement] = {}  # by dialect

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Insert the rows in their order; return how many were inserted or updated."""
        dialect = connection.dialect.name
        if dialect not in self._compiled:
            row = {name: _bind(name) for name in self._names}
            # Inline: it returns no ids, which would take PostgreSQL a quarter of the time.
            statement = upsert(connection, self._table).values(row).inline()
            self._compiled[dialect] = _compile(connection, self._finish(statement))
        return self._compiled[dialect].run(connection, rows)


class BulkUpsert(BulkInsert):
    """Insert rows, and update those whose `key` exists.

    `update(statement)` returns the new values of an existing row by column, of which
    `statement.excluded` has the inserted ones; by default all columns outside the key are replaced.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        *,
        key: Sequence[str],
        update: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        def replace(statement: Any) -> Mapping[str, Any]:
            return {name: statement.excluded[name] for name in names if name not in key}

        def finish(statement: Any) -> Any:
            changes = (update or replace)(statement)
            return statement.on_conflict_do_update(index_elements=list(key), set_=changes)

        super().__init__(table, names, finish=finish)


class BulkUpdate:
    """Run an UPDATE, or an INSERT of one row, with named parameters for many rows."""

    def __init__(self, statement: Update | Insert) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run the statement for each row."""
        if not rows:
            return
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            compiled: Any = self._statement.compile(dialect=dialect)
            self._compiled[dialect.name] = (str(compiled), tuple(compiled.positiontup))
        sql, order = self._compiled[dialect.name]
        connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows])


class BulkChange:
    """Run an UPDATE for many rows, each for a different row of the table.

    `make(given)` returns the UPDATE, where `given.name` is a value of each row, of those named in
    `types`. It is one statement for many rows: after each statement, a thread would wait for the
    interpreter lock.
    """

    def __init__(self, types: Mapping[str, TypeEngine[Any]], make: Callable[[Any], Update]) -> None:
        self._types = types
        self._make = make
        self._compiled: dict[str, _RowStatement] = {}  # by dialect

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run the statement for all rows."""
        dialect = connection.dialect.name
        if dialect not in self._compiled:
            self._compiled[dialect] = _compile(connection, self._make(self._given(dialect)))
        self._compiled[dialect].run(connection, rows)

    def _given(self, dialect: str) -> Any:
        def value(name: str, type_: TypeEngine[Any]) -> Any:
            # PostgreSQL has to know the type.
            return _bind(name) if dialect == "sqlite" else cast(_bind(name), type_)

        given = values(*(column(name, type_) for name, type_ in self._types.items()), name="given")
        row = tuple(value(name, type_) for name, type_ in self._types.items())
        return given.data([row]).cte("given").c
