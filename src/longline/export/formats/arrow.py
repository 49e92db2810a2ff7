"""Tables as Arrow has them, for the formats that are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.columns import Kind
from longline.export.tables import Table


def arrow(extra: str, what: str) -> Any:
    """Return the library.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
    except ImportError as error:
        raise MissingExtra(extra, what) from error
    return pa


def schema_of(pa: Any, table: Table, names: Sequence[str], zone: str | None = "UTC") -> Any:
    """Return the names and types of the columns; moments are in UTC, and say so with a zone."""
    types = {
        Kind.BOOLEAN: pa.bool_(),
        Kind.INTEGER: pa.int64(),
        Kind.NUMBER: pa.float64(),
        Kind.TEXT: pa.string(),
        Kind.TIMESTAMP: pa.timestamp("us", zone),
        Kind.JSON: pa.string(),
    }
    columns = zip(names, table.columns, strict=True)
    return pa.schema([(name, types[column.kind]) for name, column in columns])


def record_batches(pa: Any, table: Table, schema: Any) -> Iterator[Any]:
    """Yield the lines of a table, a few megabytes at once."""
    for batch in table.batches():
        arrays = []
        for index, column in enumerate(table.columns):
            values = [line[index] for line in batch]
            if column.kind is Kind.TIMESTAMP:
                values = [value and datetime.fromisoformat(value) for value in values]
            arrays.append(pa.array(values, schema.field(index).type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


# ---------------- Parquet: typed columns, compressed


def write_parquet(table: Table, target: BinaryIO) -> list[str]:
    """Write a row group for every few megabytes.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    pa = arrow("parquet", "Parquet")
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415  # the same

    schema = schema_of(pa, table, table.names)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for batch in record_batches(pa, table, schema):
            writer.write_batch(batch)
    return []
