"""SQLite: a database file with one table, `records`."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from contextlib import closing
from typing import BinaryIO

from longline.export.base import working_folder
from longline.export.columns import Kind, distinct
from longline.export.tables import Table, check_width

_MOST_COLUMNS = 2_000
_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",  # SQLite keeps 0 and 1; readers see what is meant
    Kind.INTEGER: "INTEGER",
    Kind.NUMBER: "REAL",
    Kind.TEXT: "TEXT",
    Kind.TIMESTAMP: "TEXT",  # SQLite's functions for dates read ISO 8601
    Kind.JSON: "TEXT",
}


def write_sqlite(table: Table, target: BinaryIO) -> list[str]:
    """Write the file elsewhere, since SQLite wants a path of its own, and copy it."""
    check_width(table, _MOST_COLUMNS)
    with working_folder(target) as folder:
        path = folder / "records.sqlite"
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                _fill(connection, table)
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise OSError(errno.ENOSPC if is_full else 0, str(error)) from error
        with path.open("rb") as made:
            shutil.copyfileobj(made, target)
    return []


def quoted(name: str) -> str:
    """Return a name as SQL takes it, whatever stands in it."""
    return '"' + name.replace('"', '""') + '"'


def _fill(connection: sqlite3.Connection, table: Table) -> None:
    columns = zip(distinct(table.names), table.columns, strict=True)
    said = ", ".join(f"{quoted(name)} {_TYPES[column.kind]}" for name, column in columns)
    places = ", ".join("?" for _ in table.columns)
    connection.execute("PRAGMA journal_mode = OFF")  # a file that fails is thrown away
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("BEGIN")
    connection.execute(f"CREATE TABLE records ({said})")
    connection.executemany(f"INSERT INTO records VALUES ({places})", table.lines())  # noqa: S608  # only question marks
    connection.execute("COMMIT")
