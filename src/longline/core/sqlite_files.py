"""What every small SQLite file of ours needs: whole changes, and whether others are in the way."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator


@contextlib.contextmanager
def transaction(
    connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE"
) -> Iterator[sqlite3.Connection]:
    """Commit what is done inside, or nothing of it."""
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
    """Make an error of SQLite of what Python raises for text in a file, or an error, not UTF-8.

    Raises:
        sqlite3.DatabaseError: the file holds such text.
    """
    try:
        yield
    except UnicodeDecodeError as error:
        raise sqlite3.DatabaseError("malformed text in the file") from error


def is_damaged(error: BaseException | None) -> bool:
    """Say whether an error of SQLite means that the file is damaged, or not a database at all."""
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    is_undecodable = "Could not decode to UTF-8" in str(error)
    damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return code in damage or is_undecodable or "malformed" in str(error)


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another process is in the way."""
    # The lower byte is the plain code; the rest says why (recovery, snapshot).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
