"""PostgreSQL: a table that is filled aside and put in place in one transaction."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from longline.core.errors import BadOption, DestinationUnwritable, MissingExtra
from longline.export.columns import Kind, distinct
from longline.export.formats.sqlite import quoted
from longline.export.tables import Table, check_width

SCHEMES = ("postgresql", "postgres")
_MOST_COLUMNS = 1_600
_LONGEST_NAME = 63
_PATIENCE = 15  # seconds to reach the server, and to wait for those who hold the table
_OURS = "written by longline export"
_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INTEGER: "bigint",
    Kind.NUMBER: "double precision",
    Kind.TEXT: "text",
    Kind.TIMESTAMP: "timestamptz",
    Kind.JSON: "json",  # as it was written; jsonb would refuse some texts
}


class PostgresTable:
    """A table on a server. `password` is used when the address has none."""

    def __init__(self, address: str, name: str, password: str | None = None) -> None:
        self._address = address
        self._schema, self._name = _parted(name)
        self._password = password
        self.shown = f"{hidden(address)} table {name}"

    def numbered(self) -> PostgresTable:
        """Return the table of the next number that is not there yet."""
        with self._connected() as connection:
            number = 1
            while self._found(connection, f"{self._name}_{number:04}") is not None:
                number += 1
        return PostgresTable(self._address, self._full(f"{self._name}_{number:04}"), self._password)

    def fill(self, table: Table, *, may_replace: bool = True) -> list[str]:
        """Write all lines, and replace what an earlier export left under this name.

        Raises:
            DestinationUnwritable: the server says no, or the table there is not ours.
            MissingExtra: psycopg is not installed.
        """
        check_width(table, _MOST_COLUMNS)
        with self._connected() as connection:
            known = (None, _OURS) if may_replace else (None,)
            if self._found(connection, self._name) not in known:
                raise DestinationUnwritable(self.shown, "another table of this name is there")
            return self._replace(connection, table)

    def _replace(self, connection: Any, table: Table) -> list[str]:
        aside = f"longline_{secrets.token_hex(6)}"
        names = distinct(table.names, longest=_LONGEST_NAME)
        columns = zip(names, table.columns, strict=True)
        said = ", ".join(f"{quoted(name)} {_TYPES[column.kind]}" for name, column in columns)
        place = self._quoted(aside)
        mended = 0
        # All of this is one transaction: readers see the old table until it is committed.
        connection.execute(f"CREATE TABLE {place} ({said})")
        with connection.cursor().copy(f"COPY {place} FROM STDIN") as copy:
            for line in table.lines():
                fitting = [_without_nul(value) for value in line]
                mended += fitting != line
                copy.write_row(fitting)
        connection.execute(f"DROP TABLE IF EXISTS {self._quoted(self._name)}")
        connection.execute(f"ALTER TABLE {place} RENAME TO {quoted(self._name)}")
        connection.execute(f"COMMENT ON TABLE {self._quoted(self._name)} IS '{_OURS}'")
        return [f"{mended} records had NUL characters, which PostgreSQL refuses"] if mended else []

    def _found(self, connection: Any, name: str) -> str | None:
        """Return the comment of what has this name, '' without one; None when nothing has it."""
        found = connection.execute(
            "SELECT coalesce(obj_description(c, 'pg_class'), '') FROM to_regclass(%s) AS c "
            "WHERE c IS NOT NULL",
            [self._quoted(name)],
        ).fetchone()
        return None if found is None else str(found[0])

    def _full(self, name: str) -> str:
        return f"{self._schema}.{name}" if self._schema else name

    def _quoted(self, name: str) -> str:
        return f"{quoted(self._schema)}.{quoted(name)}" if self._schema else quoted(name)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            import psycopg  # noqa: PLC0415  # an extra
        except ImportError as error:
            raise MissingExtra("postgres", "PostgreSQL") from error
        given: dict[str, Any] = {} if self._password is None else {"password": self._password}
        try:
            with psycopg.connect(self._address, connect_timeout=_PATIENCE, **given) as connection:
                connection.execute(f"SET lock_timeout = '{_PATIENCE}s'")
                yield connection
        except psycopg.Error as error:
            raise DestinationUnwritable(self.shown, self._told(error)) from error

    def _told(self, error: Exception) -> str:
        text = " ".join(str(error).split()).replace(self._address, hidden(self._address))
        secret = self._password or urlsplit(self._address).password
        return text.replace(secret, "***") if secret else text


def hidden(address: str) -> str:
    """Return an address without its password, and without what may hold one."""
    parts = urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    shown = f"{user.partition(':')[0]}@{host}" if user else host
    return urlunsplit((parts.scheme, shown, parts.path, "", ""))


def _parted(name: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    longest = _LONGEST_NAME - len("_0001")
    if not table or len(table.encode()) > longest or "\x00" in name:
        raise BadOption("--table", f"{name!r} is no name of a table, such as listings")
    return schema, table


def _without_nul(value: Any) -> Any:
    return value.replace("\x00", "\ufffd") if isinstance(value, str) and "\x00" in value else value
