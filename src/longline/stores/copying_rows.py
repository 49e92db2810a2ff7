"""Rows as they stand in a database, JSON as the text that it is, and whether two sets are equal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    Integer,
    Table,
    Text,
    bindparam,
    cast,
    insert,
    select,
)

from longline.stores.columns import Json

_CIRCLE = 2**64
_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # after an even number of backslashes: an escape
_BITS = {Integer: 31, BigInteger: 63}  # of a number in PostgreSQL, without its sign


def rows_of(connection: Connection, table: Table, batch: int) -> Iterator[list[dict[str, Any]]]:
    """Yield all rows, some at a time; JSON is text, so that reading it changes nothing in it."""
    columns = [
        cast(one, Text).label(one.name) if isinstance(one.type, Json) else one
        for one in table.columns
    ]
    options = {"yield_per": batch, "stream_results": True}
    found = connection.execute(select(*columns), execution_options=options)
    for part in found.mappings().partitions():
        yield [dict(row) for row in part]


class Insertion:
    """Inserts rows whose JSON is text already, a batch at a time.

    One statement a row, sent together: of one for many rows the driver of PostgreSQL reads every
    word each time, which cost as much as all the rest.
    """

    def __init__(self, connection: Connection, table: Table) -> None:
        self._connection = connection
        values: dict[str, BindParameter[Any]] = {
            column.name: bindparam(column.name) for column in table.columns
        }
        compiled: Any = insert(table).values(values).compile(dialect=connection.dialect)
        self._sql = str(compiled)
        self._order: tuple[str, ...] = tuple(compiled.positiontup)

    def run(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows."""
        given = [tuple([row[name] for name in self._order]) for row in rows]
        if given:
            self._connection.exec_driver_sql(self._sql, given)


class Tally:
    """How many rows there are and a sum of their hashes, whatever their order."""

    def __init__(self, table: Table) -> None:
        self.rows = 0
        self._sum = 0
        self._columns = [(one.name, isinstance(one.type, Json)) for one in table.columns]

    @property
    def checksum(self) -> str:
        """The sum, as it is shown."""
        return f"{self._sum:016x}"

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Count rows."""
        for row in rows:
            content = orjson.dumps(
                [_plainly(row[name]) if is_json else row[name] for name, is_json in self._columns]
            )
            self._sum += int.from_bytes(blake2b(content, digest_size=8).digest())
            self._sum %= _CIRCLE
            self.rows += 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.rows, self._sum) == (other.rows, other._sum)

    __hash__ = None  # type: ignore[assignment]  # it changes


class Misfits:
    """Finds what of a table's rows PostgreSQL cannot keep."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._kinds = {column.name: isinstance(column.type, Json) for column in table.columns}
        self._bits = {column.name: _bits(column.type) for column in table.columns}

    def find(self, row: Mapping[str, Any]) -> str | None:
        """Return what is wrong with a row, in words; None when it can be kept."""
        for name, value in row.items():
            if isinstance(value, str):
                if value == self._mended(name, value):
                    continue
                problem = "holds a NUL character, which PostgreSQL cannot keep; --mend mends that"
            elif isinstance(value, int):
                if -(2 ** self._bits[name]) <= value < 2 ** self._bits[name]:
                    continue
                problem = f"is {value}, which is too large for PostgreSQL"
            else:
                continue
            return f"{name} of the row {_called(self._table, row)} in {self._table.name} {problem}"
        return None

    def mend(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with U+FFFD for each NUL, as the store writes it itself."""
        return {
            name: self._mended(name, value) if isinstance(value, str) else value
            for name, value in row.items()
        }

    def _mended(self, name: str, value: str) -> str:
        if not self._kinds[name]:
            return value.replace("\x00", "\ufffd")
        return _NUL.sub(r"\1\\ufffd", value) if "\\u0000" in value else value


def _bits(kind: object) -> int:
    return next((_BITS[one] for one in (BigInteger, Integer) if isinstance(kind, one)), 1)


def _called(table: Table, row: Mapping[str, Any]) -> str:
    """Return the name of a row: its primary key, and its key if it has one besides."""
    names = [column.name for column in table.primary_key]
    if "key" in table.columns and "key" not in names:
        names.append("key")
    return ", ".join(f"{name}={row[name]!r}" for name in names)


def _plainly(written: str | None) -> str | float | None:
    """Return JSON as it is compared: SQLite keeps the text 1.0 of a bare number as 1."""
    if written is None or written[:1] not in "-0123456789":
        return written
    return float(written)
