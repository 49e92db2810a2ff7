"""DuckDB: a database file with one table, `records`."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.atomic_files import working_folder
from longline.export.columns import ColumnType, distinct_names
from longline.export.formats.arrow import arrow_schema, load_pyarrow, record_batches
from longline.export.formats.sqlite import quote_identifier
from longline.export.table import Table

# Timestamps are in UTC without a zone: DuckDB reads a zone in Python only with another package.
_TYPES = {
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.INTEGER: "BIGINT",
    ColumnType.NUMBER: "DOUBLE",
    ColumnType.TEXT: "VARCHAR",
    ColumnType.TIMESTAMP: "TIMESTAMP",
    ColumnType.JSON: "VARCHAR",
}


def write_duckdb(table: Table, target: BinaryIO) -> list[str]:
    """Write a temporary file, since DuckDB needs a path, and copy it.

    Raises:
        MissingExtra: duckdb or pyarrow is not installed.
    """
    with working_folder(target) as folder:
        path = folder / "records.duckdb"
        _fill_duckdb(path, table)
        with path.open("rb") as made:
            shutil.copyfileobj(made, target)
    return []


def _fill_duckdb(path: Path, table: Table) -> None:
    pa = load_pyarrow("duckdb", "DuckDB")
    try:
        import duckdb  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise MissingExtra("duckdb", "DuckDB") from error
    names = distinct_names(table.names)
    schema = arrow_schema(pa, table, names, None)
    columns = zip(names, table.columns, strict=True)
    definitions = ", ".join(
        f"{quote_identifier(name)} {_TYPES[column.type]}" for name, column in columns
    )
    settings: dict[str, Any] = {
        "memory_limit": "100MB",
        "threads": 1,
        "temp_directory": str(path.parent),
    }
    try:
        with duckdb.connect(path, config=settings) as connection:
            connection.execute(f"CREATE TABLE records ({definitions})")
            for batch in record_batches(pa, table, schema):
                connection.register("batch", pa.Table.from_batches([batch]))
                connection.execute("INSERT INTO records SELECT * FROM batch")
    except duckdb.Error as error:
        text = " ".join(str(error).split())
        is_full = os.strerror(errno.ENOSPC) in text  # there is no code for it
        raise OSError(errno.ENOSPC if is_full else 0, text) from error
