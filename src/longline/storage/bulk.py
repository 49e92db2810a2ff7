"""Values that every database can store, and statements for many rows, on the path of every item.

SQLAlchemy compiles a statement once; the values then go to the driver as they are. Its own bulk
insert prepares each value of each row in Python, which cost more than the database did.

One statement inserts many rows. The driver releases the GIL for each step of a statement and then
competes for it with the busy event loop, so one step per row made writing slow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Insert,
    Table,
    Update,
    bindparam,
    cast,
    column,
    values,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from longline.core.json import to_json


def sanitize_text(text: str) -> str:
    """Return text with lone surrogates, as broken JSON has them, written as escapes."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def sanitize_value(value: Any) -> Any:
    """Return a JSON value with all text sanitized, and other objects as text."""
    if isinstance(value, str):
        return sanitize_text(value)
    if isinstance(value, Mapping):
        return {
            (sanitize_text(name) if isinstance(name, str) else name): sanitize_value(one)
            for name, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [sanitize_value(one) for one in value]
    if value is None or isinstance(value, int | float):
        return value
    try:
        to_json(value)
    except TypeError:
        return sanitize_text(str(value))
    return value


_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # not after an escaped backslash


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON column.

    A NUL character becomes U+FFFD: PostgreSQL stores it nowhere, and would fail each time a field
    of such a row is queried.

    Raises:
        TypeError: a part of it cannot be written as JSON; the message names the field.
    """
    return replace_nul_escapes(to_json(value).decode())


def replace_nul_escapes(json: str) -> str:
    """Replace the escape of each NUL character in a JSON text by U+FFFD."""
    return _NUL.sub("\\1\ufffd", json) if "\\u0000" in json else json


def as_sanitized_json(value: Any) -> str:
    """Return a value like `as_json`, with what JSON cannot hold written as text."""
    try:
        return as_json(value)
    except TypeError:
        return as_json(sanitize_value(value))


_MAX_KEY_BYTES = 2000  # PostgreSQL limits the size of an index row, which has other columns, too
_PREFIX_BYTES = 1900  # readable start of a longer key


def sanitize_key(key: str) -> str:
    """Return a key as it is stored: a long one is cut and ends in a hash of the whole.

    A NUL character becomes U+FFFD, a lone surrogate its escape.
    """
    readable = sanitize_text(key.replace("\x00", "\ufffd"))
    written = readable.encode()
    if len(written) <= _MAX_KEY_BYTES:
        return readable
    prefix = written[:_PREFIX_BYTES].decode(errors="ignore")  # drops a cut character
    return f"{prefix}~{hashlib.sha256(written).hexdigest()}"


# ---------------- Statements

_SIZES = (64, 32, 16, 8, 4, 2, 1)  # few sizes, so that few statements are compiled and cached
_INSERTS: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

_Order = list[tuple[int, str]]  # row number and column of each value, in the statement's order
_Compiled = tuple[str, _Order]


def upsert(connection: Connection, table: Table) -> Any:
    """Return an INSERT that has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return _INSERTS[connection.dialect.name](table)


class BulkInsert:
    """Insert rows whose JSON is text already.

    `names` are the columns of every row; `finish` adds what comes after the values.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        *,
        finish: Callable[[Any], Any] = lambda statement: statement,
    ) -> None:
        self._table = table
        self._names = names
        self._finish = finish
        self._compiled: dict[tuple[str, int], _Compiled] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows in their order."""
        for some in _batches(rows):
            key = (connection.dialect.name, len(some))
            if key not in self._compiled:
                values: list[dict[str, BindParameter[Any]]] = [
                    {name: bindparam(f"p{i}_{name}") for name in self._names}
                    for i in range(len(some))
                ]
                statement = self._finish(upsert(connection, self._table).values(values))
                self._compiled[key] = _compile(connection, statement, self._names, len(some))
            _execute(connection, *self._compiled[key], some)


class BulkUpsert(BulkInsert):
    """Insert rows, and update those whose `key` exists.

    `update(statement)` returns the new values of an existing row by column, of which
    `statement.excluded` has the inserted ones; by default all columns outside the key are replaced.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        *,
        key: Sequence[str],
        update: Callable[[Any], Mapping[str, Any]] | None = None,
    ) -> None:
        def replace(statement: Any) -> Mapping[str, Any]:
            return {name: statement.excluded[name] for name in names if name not in key}

        def finish(statement: Any) -> Any:
            changes = (update or replace)(statement)
            return statement.on_conflict_do_update(index_elements=list(key), set_=changes)

        super().__init__(table, names, finish=finish)


class BulkUpdate:
    """Run an UPDATE, or an INSERT of one row, with named parameters for many rows."""

    def __init__(self, statement: Update | Insert) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run the statement for each row."""
        if not rows:
            return
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            compiled: Any = self._statement.compile(dialect=dialect)
            self._compiled[dialect.name] = (str(compiled), tuple(compiled.positiontup))
        sql, order = self._compiled[dialect.name]
        connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows])


class BulkChange:
    """Run an UPDATE for many rows, each for a different row of the table.

    `make(given)` returns the UPDATE, where `given.name` is a value of each row, of those named in
    `types`. It is one statement for many rows: after each statement, a thread would wait for the
    interpreter lock.
    """

    def __init__(self, types: Mapping[str, TypeEngine[Any]], make: Callable[[Any], Update]) -> None:
        self._types = types
        self._make = make
        self._compiled: dict[tuple[str, int], _Compiled] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run the statement for all rows."""
        for some in _batches(rows):
            key = (connection.dialect.name, len(some))
            if key not in self._compiled:
                statement = self._make(self._given(*key))
                self._compiled[key] = _compile(connection, statement, list(self._types), key[1])
            _execute(connection, *self._compiled[key], some)

    def _given(self, dialect: str, size: int) -> Any:
        def value(name: str, type_: TypeEngine[Any], row: int) -> Any:
            bound: BindParameter[Any] = bindparam(f"p{row}_{name}")
            return bound if dialect == "sqlite" else cast(bound, type_)  # PostgreSQL has to know

        given = values(*(column(name, type_) for name, type_ in self._types.items()), name="given")
        rows = [
            tuple(value(name, type_, row) for name, type_ in self._types.items())
            for row in range(size)
        ]
        return given.data(rows).cte("given").c


def _batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    done = 0
    for size in _SIZES:
        while len(rows) - done >= size:
            yield rows[done : done + size]
            done += size


def _compile(connection: Connection, statement: Any, names: Sequence[str], size: int) -> _Compiled:
    places = {f"p{i}_{name}": (i, name) for i in range(size) for name in names}
    compiled = statement.compile(dialect=connection.dialect)
    return str(compiled), [places[name] for name in compiled.positiontup]


def _execute(
    connection: Connection, sql: str, order: _Order, rows: Sequence[Mapping[str, Any]]
) -> None:
    connection.exec_driver_sql(sql, tuple([rows[index][name] for index, name in order]))
