"""What there is to say about a database: what it is, how large, and how much is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from longline.stores.schema import metadata

_SIZES = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}
_VERSION = text("SELECT version_num FROM alembic_version")


@dataclass(frozen=True, slots=True)
class Description:
    """A database as it is now; `tables_version` is that of our migrations."""

    kind: str
    version: str
    tables_version: str
    size_bytes: int
    rows: Mapping[str, int]


def describe(connection: Connection) -> Description:
    """Return what a database with our tables is like."""
    dialect = connection.dialect
    version = dialect.server_version_info or ()
    return Description(
        kind=dialect.name,
        version=".".join(map(str, version)),
        tables_version=str(connection.scalar(_VERSION)),
        size_bytes=int(connection.scalar(_SIZES[dialect.name]) or 0),
        rows={
            str(table.name): connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        },
    )
