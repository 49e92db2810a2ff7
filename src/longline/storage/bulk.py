"""Statements for many rows, on the busy path of every item.

SQLAlchemy compiles them once; the values are then handed to the driver as they are. Its own way
prepares each value of each row in Python, which cost more than the database did.

Rows are inserted by one statement for many of them. The driver lets go of the interpreter for
every step of a statement and must then win it back from the event loop, which is busy: a step a
row made writing as slow as the loop's longest breath times the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
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
from sqlalchemy.types import TypeEngine

from longline.core.json_values import to_json
from longline.storage.columns import kept_value

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # not of a backslash that is itself meant
_SIZES = (64, 32, 16, 8, 4, 2, 1)  # few sizes, so that few statements are compiled and kept


_Places = list[tuple[int, str]]  # which value of which row comes next
_Compiled = tuple[str, _Places]


class BulkInsert:
    """Inserts rows whose JSON is text already.

    `names` are the columns that every row brings; `start` makes the bare INSERT, and `finish` adds
    to it what comes after its values.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        *,
        start: Callable[[Table], Any] = Insert,
        finish: Callable[[Any], Any] = lambda statement: statement,
    ) -> None:
        self._table = table
        self._names = names
        self._start = start
        self._finish = finish
        self._compiled: dict[tuple[str, int], _Compiled] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows in their order."""
        for some in _parts(rows):
            key = (connection.dialect.name, len(some))
            if key not in self._compiled:
                self._compiled[key] = self._compile(connection, len(some))
            _execute(connection, *self._compiled[key], some)

    def _compile(self, connection: Connection, size: int) -> _Compiled:
        values: list[dict[str, BindParameter[Any]]] = [
            {name: bindparam(f"p{i}_{name}") for name in self._names} for i in range(size)
        ]
        statement = self._finish(self._start(self._table).values(values))
        return _compiled(connection, statement, self._names, size)


class BulkUpdate:
    """Runs an UPDATE with named parameters for many rows."""

    def __init__(self, statement: Update) -> None:
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
    """Runs an UPDATE for many rows, no two of them for the same one.

    `make(given)` returns it, where `given.name` is a value that each row brings, of those that
    `types` names. A server gets one statement for many rows: one for each took it longer than the
    rows themselves.
    """

    def __init__(self, types: Mapping[str, TypeEngine[Any]], make: Callable[[Any], Update]) -> None:
        self._types = types
        self._make = make
        self._each = BulkUpdate(make(SimpleNamespace(**{name: bindparam(name) for name in types})))
        self._compiled: dict[int, _Compiled] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Change what the rows say."""
        if connection.dialect.name == "sqlite":
            self._each.run(connection, rows)
            return
        for some in _parts(rows):
            if len(some) not in self._compiled:
                self._compiled[len(some)] = self._compile(connection, len(some))
            _execute(connection, *self._compiled[len(some)], some)

    def _compile(self, connection: Connection, size: int) -> _Compiled:
        given = values(*(column(name, type_) for name, type_ in self._types.items()), name="given")
        rows = [
            tuple(cast(bindparam(f"p{i}_{name}"), type_) for name, type_ in self._types.items())
            for i in range(size)
        ]
        return _compiled(connection, self._make(given.data(rows).c), list(self._types), size)


def _parts(rows: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    done = 0
    for size in _SIZES:
        while len(rows) - done >= size:
            yield rows[done : done + size]
            done += size


def _compiled(connection: Connection, statement: Any, names: Sequence[str], size: int) -> _Compiled:
    places = {f"p{i}_{name}": (i, name) for i in range(size) for name in names}
    compiled = statement.compile(dialect=connection.dialect)
    return str(compiled), [places[name] for name in compiled.positiontup]


def _execute(
    connection: Connection, sql: str, order: _Places, rows: Sequence[Mapping[str, Any]]
) -> None:
    connection.exec_driver_sql(sql, tuple([rows[index][name] for index, name in order]))


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON column.

    The sign of code 0 becomes U+FFFD, which says that something unreadable stood there: PostgreSQL
    can keep it nowhere, and would fail each time that a field of such a row is asked for.

    Raises:
        TypeError: a part of it is no data, or cannot be written; it names the field.
    """
    text = to_json(value).decode()
    return _NUL.sub("\\1\ufffd", text) if "\\u0000" in text else text


def as_kept_json(value: Any) -> str:
    """Return it likewise, with the escape of half a surrogate pair, and what is no data as text."""
    try:
        return as_json(value)
    except TypeError:
        return as_json(kept_value(value))
