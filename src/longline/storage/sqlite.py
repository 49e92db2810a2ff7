"""SQLite as the database: a file, whose one writer at a time is waited for."""

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
from longline.storage.transactions import Backend, Disturbance

# ---------------- SQLite files on file systems that may only be read here: opened anew for every

_PAUSES = (0.001, 0.01, 0.1, 1.0)  # seconds, before each further try


def opened_to_look(file: Path, address: str) -> sqlite3.Connection:
    """Open a file that we cannot write; others may, by another mount, at any time.

    So it is right for one look only, and the next one takes another.

    Raises:
        StoreReadOnly: what is in the file is not all, and the rest cannot be read.
    """
    for pause in _PAUSES:
        try:
            return _opened(file.absolute(), address)
        except (sqlite3.OperationalError, StoreReadOnly):
            time.sleep(pause)  # others may just come or go, and their files with them
    return _opened(file.absolute(), address)


def _opened(file: Path, address: str) -> sqlite3.Connection:
    wal, shared = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    how = "mode=ro"
    if not (wal.exists() and shared.exists()):
        if _size(wal):
            problem = f"its last changes are in {wal.name}, which takes writing to be read"
            raise StoreReadOnly(address, problem)
        # SQLite cannot make the two files here, unless told that nobody changes the database.
        how += "&immutable=1"
    connection = sqlite3.connect(
        f"file:{quote(str(file))}?{how}", uri=True, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA schema_version")  # from here on nobody takes its files away
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


DRIVERS = ("sqlite", "sqlite+pysqlite")
_REMEDY = (
    "Nothing was changed. Restore a backup of the file, or rescue what can be read: "
    "sqlite3 OLD .recover | sqlite3 NEW. Archived answers are in files of their own"
)


class SqliteBackend(Backend):
    """One file; a write is in it or not, so that nothing is ever asked for again."""

    def __init__(self, url: URL, patience: float) -> None:
        """Take an address.

        Raises:
            StoreUnreachable: it names no file.
        """
        self.address = redact_url(url.render_as_string(hide_password=True))
        self.patience = patience
        self._url = url
        if url.host:
            problem = "an address of SQLite has three slashes before the file"
            raise StoreUnreachable(self.address, problem)
        if url.database in (None, "", ":memory:"):
            raise StoreUnreachable(self.address, "it names no file, and memory cannot be shared")

    def writing(self) -> Engine:
        return self._engine("BEGIN IMMEDIATE", 1)

    def reading(self, size: int) -> Engine:
        return self._engine("BEGIN", size)

    def lock_tables(self, connection: Connection) -> None:
        """Do nothing: BEGIN IMMEDIATE has the lock already."""

    def mark(self, connection: Connection) -> str | None:
        del connection
        return None

    def was_committed(self, connection: Connection, mark: str) -> bool:
        del connection, mark
        return False

    def change(self, connection: Connection) -> object:
        return connection.exec_driver_sql("PRAGMA data_version").scalar()

    def trouble(self, error: DBAPIError) -> Disturbance:
        """Return OTHER always: SQLite itself has waited for its lock."""
        del error
        return Disturbance.OTHER

    def translated(self, error: DBAPIError) -> StoreError:
        text = str(error.orig)
        if "disk is full" in text or "disk I/O error" in text:
            return StoreFull(self.address)
        if "locked" in text:
            return StoreBusy(self.address, self.patience)
        if "readonly" in text:
            return StoreReadOnly(self.address, "this would change it")
        if is_damaged(error.orig):
            return StoreDamaged(self.address, text, _REMEDY)
        return StoreUnreachable(self.address, text)

    def _engine(self, begin: str, size: int) -> Engine:
        pool: dict[str, Any] = {"poolclass": QueuePool, "pool_size": size, "max_overflow": 0}
        file = Path(str(self._url.database))
        if is_read_only(file):
            look = partial(opened_to_look, file, self.address)
            pool = {"poolclass": NullPool, "creator": look}
        elif not str(file).startswith("file:"):  # a URI, which only SQLite understands
            with suppress(OSError, ValueError):  # SQLite says what is wrong
                make_private_file(file)
        engine = create_engine(
            self._url, json_serializer=as_json, json_deserializer=_loaded, **pool
        )
        _prepare(engine, begin, self.patience)
        event.listen(engine, "handle_error", self._explain)
        return engine

    def _explain(self, context: ExceptionContext) -> None:
        """Report text that is not UTF-8, which SQLAlchemy does not take for the database's error.

        Raises:
            StoreDamaged: that is what happened.
        """
        if isinstance(context.original_exception, UnicodeDecodeError):
            problem = f"it has text that is not UTF-8: {context.original_exception}"
            raise StoreDamaged(self.address, problem, _REMEDY)


def _prepare(engine: Engine, begin: str, patience: float) -> None:
    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, so that DDL is in it too
        # SQLite's own knows ASCII only, and searches would tell ü from Ü.
        connection.create_function("lower", 1, _lower, deterministic=True)
        with undecodable_is_damage():
            prepare(connection)

    def prepare(connection: Any) -> None:
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


def _loaded(value: Any) -> Any:
    # A column called JSON makes a number of a text that is one, and hands that out.
    return orjson.loads(value) if isinstance(value, (str, bytes)) else value
