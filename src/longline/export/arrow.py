"""Parquet and DuckDB files, written through Arrow."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.atomic_files import working_folder
from longline.export.columns import ColumnType, distinct_names
from longline.export.table import Table


def load_pyarrow(extra: str, what: str) -> Any:
    """Import pyarrow; raise MissingExtra if it is not installed."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
    except ImportError as error:
        raise MissingExtra(extra, what) from error
    return pa


def arrow_schema(pa: Any, table: Table, names: Sequence[str], zone: str | None = "UTC") -> Any:
    """Return the names and types of the columns; timestamps are in UTC, with or without a zone."""
    types = {
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.INTEGER: pa.int64(),
        ColumnType.NUMBER: pa.float64(),
        ColumnType.TEXT: pa.string(),
        ColumnType.TIMESTAMP: pa.timestamp("us", zone),
        ColumnType.JSON: pa.string(),
    }
    columns = zip(names, table.columns, strict=True)
    return pa.schema([(name, types[column.type]) for name, column in columns])


def record_batches(pa: Any, table: Table, schema: Any) -> Iterator[Any]:
    """Yield the lines of a table in batches of a few megabytes."""
    for batch in table.batches():
        arrays = []
        for index, column in enumerate(table.columns):
            values = [line[index] for line in batch]
            if column.type is ColumnType.TIMESTAMP:
                values = [value and datetime.fromisoformat(value) for value in values]
            arrays.append(pa.array(values, schema.field(index).type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def write_parquet(table: Table, target: BinaryIO) -> list[str]:
    """Write compressed row groups of a few megabytes; raise MissingExtra without pyarrow."""
    pa = load_pyarrow("parquet", "Parquet")
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415  # the same

    schema = arrow_schema(pa, table, table.names)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in record_batches(pa, table, schema):
            writer.write_batch(batch)
    return []


# ---------------- DuckDB: a database file with one table, `records`

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
    pa = load_pyarrow("duckdb", "DuckDB")
    try:
        import duckdb  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise MissingExtra("duckdb", "DuckDB") from error
    names = distinct_names(table.names)
    schema = arrow_schema(pa, table, names, None)
    with working_folder(target) as folder:
        path = folder / "records.duckdb"
        settings: dict[str, Any] = {"memory_limit": "100MB", "threads": 1}
        settings["temp_directory"] = str(folder)
        try:
            with duckdb.connect(path, config=settings) as connection:
                connection.execute(f"CREATE TABLE records ({table.definitions(names, _TYPES)})")
                for batch in record_batches(pa, table, schema):
                    connection.register("batch", pa.Table.from_batches([batch]))
                    connection.execute("INSERT INTO records SELECT * FROM batch")
        except duckdb.Error as error:
            text = " ".join(str(error).split())
            is_full = os.strerror(errno.ENOSPC) in text  # there is no code for it
            raise OSError(errno.ENOSPC if is_full else 0, text) from error
        with path.open("rb") as made:
            shutil.copyfileobj(made, target)
    return []
