"""DuckDB: a database file with one table, `records`."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.base import working_folder
from longline.export.columns import Kind, distinct
from longline.export.formats.arrow import arrow, record_batches, schema_of
from longline.export.formats.sqlite import quoted
from longline.export.tables import Table

# Without a time zone, in UTC: DuckDB's own reader for Python cannot read one with it unless a
# further package is there.
_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.JSON: "VARCHAR",
}


def write_duckdb(table: Table, target: BinaryIO) -> list[str]:
    """Write the file elsewhere, since DuckDB wants a path of its own, and copy it.

    Raises:
        MissingExtra: duckdb or pyarrow is not installed.
    """
    with working_folder(target) as folder:
        path = folder / "records.duckdb"
        _fill(path, table)
        with path.open("rb") as made:
            shutil.copyfileobj(made, target)
    return []


def _fill(path: Path, table: Table) -> None:
    pa = arrow("duckdb", "DuckDB")
    try:
        import duckdb  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise MissingExtra("duckdb", "DuckDB") from error
    names = distinct(table.names)
    schema = schema_of(pa, table, names, None)
    columns = zip(names, table.columns, strict=True)
    said = ", ".join(f"{quoted(name)} {_TYPES[column.kind]}" for name, column in columns)
    settings: dict[str, Any] = {
        "memory_limit": "100MB",
        "threads": 1,
        "temp_directory": str(path.parent),
    }
    try:
        with duckdb.connect(path, config=settings) as connection:
            connection.execute(f"CREATE TABLE records ({said})")
            for batch in record_batches(pa, table, schema):
                connection.register("batch", pa.Table.from_batches([batch]))
                connection.execute("INSERT INTO records SELECT * FROM batch")
    except duckdb.Error as error:
        told = " ".join(str(error).split())
        # It tells a full disk only in the words of the system.
        is_full = os.strerror(errno.ENOSPC) in told
        raise OSError(errno.ENOSPC if is_full else 0, told) from error
