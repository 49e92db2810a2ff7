"""SQLite: a database file with one table, `records`."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing
from typing import BinaryIO

from longline.export.atomic_files import working_folder
from longline.export.columns import ColumnType, distinct_names
from longline.export.table import Table, check_width

_MAX_COLUMNS = 2_000
_TYPES = {
    ColumnType.BOOLEAN: "BOOLEAN",  # SQLite stores 0 and 1
    ColumnType.INTEGER: "INTEGER",
    ColumnType.NUMBER: "REAL",
    ColumnType.TEXT: "TEXT",
    ColumnType.TIMESTAMP: "TEXT",  # the date functions of SQLite read ISO 8601
    ColumnType.JSON: "TEXT",
}


def write_sqlite(table: Table, target: BinaryIO) -> list[str]:
    """Write a temporary file, since SQLite needs a path, and copy it."""
    check_width(table, _MAX_COLUMNS)
    with working_folder(target) as folder:
        path = folder / "records.sqlite"
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                _fill_sqlite(connection, table)
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise OSError(errno.ENOSPC if is_full else 0, str(error)) from error
        with path.open("rb") as made:
            shutil.copyfileobj(made, target)
    return []


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _fill_sqlite(connection: sqlite3.Connection, table: Table) -> None:
    columns = zip(distinct_names(table.names), table.columns, strict=True)
    definitions = ", ".join(
        f"{quote_identifier(name)} {_TYPES[column.type]}" for name, column in columns
    )
    places = ", ".join("?" for _ in table.columns)
    connection.execute("PRAGMA journal_mode = OFF")  # a file that fails is discarded
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.execute(f"CREATE TABLE records ({definitions})")
    connection.executemany(f"INSERT INTO records VALUES ({places})", table.lines())  # noqa: S608  # only question marks
    connection.execute("COMMIT")
