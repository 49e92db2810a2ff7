"""Small SQLite files next to the database, each shared by several processes."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from longline.core.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreTooNew,
    StoreUnreachable,
)
from longline.core.files import make_private_file

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """How to open one of our files.

    Args:
        path: the file; created with its tables when it is missing.
        application_id: marks the file as ours in its header.
        version: of the schema; a file of a later one is refused.
        schema: statements, with semicolons between them, that may run again on a complete file.
        remedy: what to do when the file is damaged, and what is lost then.
        pragmas: set on each connection, before the tables are created.
        creation_pragmas: set once, before the first table; they need the write lock.
        timeout: seconds to wait for other processes.
    """

    path: Path
    application_id: int
    version: int
    schema: str
    remedy: str
    pragmas: tuple[str, ...] = ("synchronous = NORMAL",)
    creation_pragmas: tuple[str, ...] = ()
    timeout: float = 30.0

    def open(self) -> sqlite3.Connection:
        """Open the file; several processes may create it at the same time.

        Call it in `run`, which waits for other processes and translates errors. The connection may
        be closed by another thread than the one that uses it.

        Raises:
            StoreUnreachable: another program wrote the file.
            StoreTooNew: a later longline wrote it.
            sqlite3.Error: it cannot be opened.
        """
        with contextlib.suppress(OSError):  # SQLite reports what is wrong
            make_private_file(self.path)
        connection = sqlite3.connect(
            self.path, timeout=self.timeout, isolation_level=None, check_same_thread=False
        )
        try:
            self._prepare_connection(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def run(self, work: Callable[[], T]) -> T:
        """Call `work`, again while other processes hold a lock: SQLite itself does not always wait.

        Raises:
            StoreError: the file cannot be used, or stays locked for longer than the timeout.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                with undecodable_is_damage():
                    return work()
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise self.translate(error) from error
            time.sleep(random.uniform(0.001, 0.01))  # noqa: S311  # not a secret

    def translate(self, error: sqlite3.Error) -> StoreError:
        """Return our error for one of SQLite."""
        path = str(self.path)
        if is_busy(error):
            return StoreBusy(path, self.timeout)
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            return StoreFull(path)
        if is_damaged(error):
            return StoreDamaged(path, str(error), self.remedy)
        return StoreUnreachable(path, str(error))

    def _prepare_connection(self, connection: sqlite3.Connection) -> None:
        is_new = self._is_new(connection)
        for pragma in (*(self.creation_pragmas if is_new else ()), *self.pragmas):
            connection.execute(f"PRAGMA {pragma}")
        if not is_new:
            return
        connection.execute("PRAGMA journal_mode = WAL")
        with transaction(connection):
            for statement in self.schema.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self.application_id}")
            connection.execute(f"PRAGMA user_version = {self.version}")

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        # In one transaction, or another process could create the tables in between.
        with transaction(connection, "BEGIN"):
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application != self.application_id and (application or tables):
            raise StoreUnreachable(str(self.path), "it belongs to another program")
        if version > self.version:
            raise StoreTooNew(str(self.path), str(version), str(self.version))
        return bool(version < self.version)


@contextlib.contextmanager
def transaction(
    connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE"
) -> Iterator[sqlite3.Connection]:
    """Commit the changes of the block, or none of them."""
    connection.execute(begin)
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def undecodable_is_damage() -> Iterator[None]:
    """Turn the UnicodeDecodeError for text that is not UTF-8 into a sqlite3.DatabaseError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError("malformed text in the file") from error


def is_damaged(error: BaseException | None) -> bool:
    """Return whether the error means that the file is damaged or not a database at all."""
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_undecodable = "Could not decode to UTF-8" in str(error)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return code in damage or is_undecodable or "malformed" in str(error)


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process holds a lock."""
    # The lower byte is the plain code; the rest says why (recovery, snapshot).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
