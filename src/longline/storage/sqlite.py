"""SQLite as the database: one file with one writer at a time."""

from __future__ import annotations

import sqlite3
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from longline.config.settings import is_read_only
from longline.core.errors import StoreBusy, StoreDamaged, StoreError, StoreFull, StoreUnreachable
from longline.core.files import make_private_file
from longline.core.redaction import redact_url
from longline.core.sqlite_files import is_damaged, undecodable_is_damage
from longline.storage.bulk import as_json
from longline.storage.errors import StoreReadOnly
from longline.storage.transactions import Backend, Fault

# ---------------- Files on a read-only file system: opened again for every read

_PAUSES = (0.001, 0.01, 0.1, 1.0)  # seconds before each further attempt


def open_read_only(file: Path, address: str) -> sqlite3.Connection:
    """Open a file that only other processes can write, through another mount.

    The connection is valid for one transaction; the next one opens the file again.

    Raises:
        StoreReadOnly: the last changes are in the WAL, which cannot be read here.
    """
    for pause in _PAUSES:
        try:
            return _open_once(file.absolute(), address)
        except (sqlite3.OperationalError, StoreReadOnly):
            time.sleep(pause)  # another process may be creating or removing its WAL files
    return _open_once(file.absolute(), address)


def _open_once(file: Path, address: str) -> sqlite3.Connection:
    wal, shared = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    mode = "mode=ro"
    if not (wal.exists() and shared.exists()):
        if _file_size(wal):
            problem = f"its last changes are in {wal.name}, which only a writer can read"
            raise StoreReadOnly(address, problem)
        # SQLite cannot create the two files here, and needs none if nothing changes.
        mode += "&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(file))}?{mode}", uri=True, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA schema_version")  # from here on its files stay
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


# ---------------- The backend

DRIVERS = ("sqlite", "sqlite+pysqlite")
_REMEDY = (
    "Nothing was changed. Restore a backup of the file, or recover what is readable: "
    "sqlite3 OLD .recover | sqlite3 NEW. Archived responses are in separate files"
)


class SqliteBackend(Backend):
    """One file. The result of a commit is always known, so nothing is marked or asked again."""

    def __init__(self, url: URL, timeout: float) -> None:
        """Raise StoreUnreachable if the URL names no file."""
        self.address = redact_url(url.render_as_string(hide_password=True))
        self.timeout = timeout
        self._url = url
        if url.host:
            problem = "a SQLite URL has three slashes before the file"
            raise StoreUnreachable(self.address, problem)
        if url.database in (None, "", ":memory:"):
            raise StoreUnreachable(
                self.address, "it names no file; a database in memory cannot be shared"
            )

    def writer_engine(self) -> Engine:
        return self._engine("BEGIN IMMEDIATE", 1)

    def reader_engine(self, size: int) -> Engine:
        return self._engine("BEGIN", size)

    def lock_tables(self, connection: Connection) -> None:
        """Do nothing: BEGIN IMMEDIATE holds the lock already."""

    def mark_commit(self, connection: Connection) -> str | None:
        del connection
        return None

    def was_committed(self, connection: Connection, mark: str) -> bool:
        del connection, mark
        return False

    def change_token(self, connection: Connection) -> object:
        return connection.exec_driver_sql("PRAGMA data_version").scalar()

    def classify(self, error: DBAPIError) -> Fault:
        """Return OTHER: SQLite itself has waited for its lock."""
        del error
        return Fault.OTHER

    def translate(self, error: DBAPIError) -> StoreError:
        text = str(error.orig)
        if "disk is full" in text or "disk I/O error" in text:
            return StoreFull(self.address)
        if "locked" in text:
            return StoreBusy(self.address, self.timeout)
        if "readonly" in text:
            return StoreReadOnly(self.address, "the operation would change it")
        if is_damaged(error.orig):
            return StoreDamaged(self.address, text, _REMEDY)
        return StoreUnreachable(self.address, text)

    def _engine(self, begin: str, size: int) -> Engine:
        pool: dict[str, Any] = {"poolclass": QueuePool, "pool_size": size, "max_overflow": 0}
        file = Path(str(self._url.database))
        if is_read_only(file):
            creator = partial(open_read_only, file, self.address)
            pool = {"poolclass": NullPool, "creator": creator}
        elif not str(file).startswith("file:"):  # a URI, which only SQLite understands
            with suppress(OSError, ValueError):  # SQLite reports what is wrong
                make_private_file(file)
        engine = create_engine(
            self._url, json_serializer=as_json, json_deserializer=_load_json, **pool
        )
        _prepare(engine, begin, self.timeout)
        event.listen(engine, "handle_error", self._explain)
        return engine

    def _explain(self, context: ExceptionContext) -> None:
        """Raise StoreDamaged for text that is not UTF-8, which is not a driver error."""
        if isinstance(context.original_exception, UnicodeDecodeError):
            problem = f"it contains text that is not UTF-8: {context.original_exception}"
            raise StoreDamaged(self.address, problem, _REMEDY)


def _prepare(engine: Engine, begin: str, timeout: float) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we send BEGIN ourselves, so that it covers DDL too
        # SQLite's own lower() covers ASCII only, and a search would distinguish ü from Ü.
        connection.create_function("lower", 1, _lower, deterministic=True)
        with undecodable_is_damage():
            prepare(connection)

    def prepare(connection: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(timeout * 1000)}")
        cursor.execute("PRAGMA journal_mode=WAL")
        # A killed process loses nothing. A power cut may undo the last commits, whose items are
        # then collected again, so nothing is lost or duplicated.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _load_json(value: Any) -> Any:
    # A column of type JSON has numeric affinity: it returns numeric text as a number.
    return orjson.loads(value) if isinstance(value, (str, bytes)) else value
