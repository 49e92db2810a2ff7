"""PostgreSQL: replace a table in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from longline.core.errors import BadOption, DestinationUnwritable, MissingExtra
from longline.core.redaction import redact_server_url
from longline.export.columns import ColumnType, distinct_names, quote_identifier
from longline.export.table import Table

SCHEMES = ("postgresql", "postgres")
_MAX_COLUMNS = 1_600
_MAX_NAME = 63
_TIMEOUT = 15  # seconds to connect, and to wait for locks on the table
_COMMENT = "written by longline export"
_TYPES = {
    ColumnType.BOOLEAN: "boolean",
    ColumnType.INTEGER: "bigint",
    ColumnType.NUMBER: "double precision",
    ColumnType.TEXT: "text",
    ColumnType.TIMESTAMP: "timestamptz",
    ColumnType.JSON: "json",  # unchanged; jsonb refuses some texts
}


class PostgresTable:
    """A table on a server. `password` is used when the address has none."""

    def __init__(self, address: str, name: str, password: str | None = None) -> None:
        self._address = address
        self._schema, _, self._name = name.rpartition(".")
        max_bytes = _MAX_NAME - len("_0001")
        if not self._name or len(self._name.encode()) > max_bytes or "\x00" in name:
            raise BadOption("--table", f"{name!r} is not the name of a table, such as listings")
        self._password = password
        self.shown = f"{redact_server_url(address)} table {name}"

    def numbered(self) -> PostgresTable:
        """Return the table with the next free number."""
        with self._open_connection() as connection:
            number = 1
            while self._comment_of(connection, f"{self._name}_{number:04}") is not None:
                number += 1
        name = f"{self._schema}.{self._name}" if self._schema else self._name
        return PostgresTable(self._address, f"{name}_{number:04}", self._password)

    def fill(
        self, table: Table, *, may_replace: bool = True, previous: str | None = None
    ) -> list[str]:
        """Replace the table of an earlier export, and return notes.

        With `previous`, the replaced table gets this name, unless a table has it already. It raises
        DestinationUnwritable if the server refuses, or another program made the table.
        """
        table.check_width(_MAX_COLUMNS)
        with self._open_connection() as connection:
            known = (None, _COMMENT) if may_replace else (None,)
            if self._comment_of(connection, self._name) not in known:
                raise DestinationUnwritable(
                    self.shown,
                    "a table of this name exists, but `longline export` did not create it",
                )
            return self._replace_table(connection, table, previous)

    def exists(self) -> bool:
        """Return whether there is a table of this name."""
        with self._open_connection() as connection:
            return self._comment_of(connection, self._name) is not None

    def restore(self, previous: str | None) -> None:
        """Replace the table by the one that was kept; without a name, drop the table.

        If there is no table of that name, this one was not replaced, or is restored already.
        """
        with self._open_connection() as connection:
            if previous is None:
                self._drop_ours(connection, self._name)
            elif self._comment_of(connection, previous) is not None:
                connection.execute(f"DROP TABLE IF EXISTS {self._quoted(self._name)}")
                connection.execute(
                    f"ALTER TABLE {self._quoted(previous)} RENAME TO {quote_identifier(self._name)}"
                )

    def delete(self, previous: str | None) -> None:
        """Drop the table and the one that it has replaced, if it has replaced one."""
        with self._open_connection() as connection:
            if previous is None or self._comment_of(connection, previous) is not None:
                self._drop_ours(connection, self._name)
                self._drop_ours(connection, previous or self._name)

    def drop(self, previous: str) -> None:
        """Drop a table that was kept."""
        with self._open_connection() as connection:
            self._drop_ours(connection, previous)

    def _drop_ours(self, connection: Any, name: str) -> None:
        if self._comment_of(connection, name) == _COMMENT:
            connection.execute(f"DROP TABLE {self._quoted(name)}")

    def _replace_table(self, connection: Any, table: Table, previous: str | None) -> list[str]:
        temporary = f"longline_{secrets.token_hex(6)}"
        names = distinct_names(table.names, max_bytes=_MAX_NAME)
        place = self._quoted(temporary)
        changed = 0
        # One transaction: readers see the old table until it is committed.
        connection.execute(f"CREATE TABLE {place} ({table.definitions(names, _TYPES)})")
        with connection.cursor().copy(f"COPY {place} FROM STDIN") as copy:
            for line in table.lines():
                values = [
                    value.replace("\x00", "\ufffd") if isinstance(value, str) else value
                    for value in line
                ]
                changed += values != line
                copy.write_row(values)
        self._make_room(connection, previous)
        connection.execute(f"ALTER TABLE {place} RENAME TO {quote_identifier(self._name)}")
        connection.execute(f"COMMENT ON TABLE {self._quoted(self._name)} IS '{_COMMENT}'")
        return [f"NUL characters were replaced in {changed} records"] if changed else []

    def _make_room(self, connection: Any, previous: str | None) -> None:
        """Rename or drop the table that is replaced."""
        is_kept = previous is None or self._comment_of(connection, previous) is not None
        if previous is not None and not is_kept:
            connection.execute(
                f"ALTER TABLE IF EXISTS {self._quoted(self._name)} "
                f"RENAME TO {quote_identifier(previous)}"
            )
        connection.execute(f"DROP TABLE IF EXISTS {self._quoted(self._name)}")

    def _comment_of(self, connection: Any, name: str) -> str | None:
        """Return the comment of a table, '' without one; None when it does not exist."""
        found = connection.execute(
            "SELECT coalesce(obj_description(c, 'pg_class'), '') FROM to_regclass(%s) AS c "
            "WHERE c IS NOT NULL",
            [self._quoted(name)],
        ).fetchone()
        return None if found is None else str(found[0])

    def _quoted(self, name: str) -> str:
        return ".".join(quote_identifier(one) for one in (self._schema, name) if one)

    @contextmanager
    def _open_connection(self) -> Iterator[Any]:
        try:
            import psycopg  # noqa: PLC0415  # an extra
        except ImportError as error:
            raise MissingExtra("postgres", "PostgreSQL") from error
        login: dict[str, Any] = {} if self._password is None else {"password": self._password}
        try:
            with psycopg.connect(self._address, connect_timeout=_TIMEOUT, **login) as connection:
                connection.execute(f"SET lock_timeout = '{_TIMEOUT}s'")
                yield connection
        except psycopg.Error as error:
            text = " ".join(str(error).split())
            text = text.replace(self._address, redact_server_url(self._address))
            if secret := self._password or urlsplit(self._address).password:
                text = text.replace(secret, "***")
            raise DestinationUnwritable(self.shown, text) from error
