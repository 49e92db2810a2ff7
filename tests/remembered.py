"""New databases of SQLite at once: migrations run the first time, and what they made comes after.

Fifty milliseconds for each of two thousand tests would be minutes. A file that has anything in it,
another process and every other kind of database are migrated for real.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

_TABLES = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY rowid"
_VERSION = "SELECT version_num FROM alembic_version"


class Remembered:
    """A migration that says the statements again by which an earlier one made all tables."""

    def __init__(self, migrate: Callable[[Connection], None]) -> None:
        self._migrate = migrate
        self._statements: list[str] = []

    def __call__(self, connection: Connection) -> None:
        is_new = connection.dialect.name == "sqlite" and not _tables(connection)
        if is_new and self._statements:
            for statement in self._statements:
                connection.exec_driver_sql(statement)
            return
        self._migrate(connection)
        if is_new:
            version = connection.exec_driver_sql(_VERSION).scalar_one()
            insert = f"INSERT INTO alembic_version VALUES ('{version}')"  # noqa: S608  # our own
            self._statements = [*_tables(connection), insert]


def _tables(connection: Connection) -> list[str]:
    return list(connection.exec_driver_sql(_TABLES).scalars())
