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


def is_busy(error: sqlite3.Error) -> bool:
    """Say whether another process is in the way."""
    # The lower byte is the plain code; the rest says why (recovery, snapshot).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
