"""Parquet, and Arrow tables for other formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.columns import ColumnType
from longline.export.table import Table


def load_pyarrow(extra: str, what: str) -> Any:
    """Import pyarrow.

    Raises:
        MissingExtra: it is not installed.
    """
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
    """Write compressed row groups of a few megabytes.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    pa = load_pyarrow("parquet", "Parquet")
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415  # the same

    schema = arrow_schema(pa, table, table.names)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in record_batches(pa, table, schema):
            writer.write_batch(batch)
    return []
