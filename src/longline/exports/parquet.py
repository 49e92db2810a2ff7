"""Parquet: typed columns, compressed."""

from __future__ import annotations

from typing import BinaryIO

from longline.exports.arrow import arrow, record_batches, schema_of
from longline.exports.tables import Table


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
