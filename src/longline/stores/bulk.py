"""Statements for many rows, on the busy path of every item.

SQLAlchemy compiles them once; the values are then handed to the driver as they are. Its own way
prepares each value of each row in Python, which cost more than the database did.

Rows are inserted by one statement for many of them. The driver lets go of the interpreter for
every step of a statement and must then win it back from the event loop, which is busy: a step a
row made writing as slow as the loop's longest breath times the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import BindParameter, Connection, Insert, Table, Update, bindparam

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")  # not of a backslash that is itself meant
_SIZES = (64, 16, 4, 1)  # few sizes, so that few statements are compiled and kept


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
        self._compiled: dict[tuple[str, int], tuple[str, list[tuple[int, str]]]] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert the rows in their order."""
        done = 0
        for size in _SIZES:
            while len(rows) - done >= size:
                self._insert(connection, rows[done : done + size])
                done += size

    def _insert(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        key = (connection.dialect.name, len(rows))
        if key not in self._compiled:
            self._compiled[key] = self._compile(connection, len(rows))
        sql, order = self._compiled[key]
        connection.exec_driver_sql(sql, tuple([rows[index][name] for index, name in order]))

    def _compile(self, connection: Connection, size: int) -> tuple[str, list[tuple[int, str]]]:
        places = {f"p{i}_{name}": (i, name) for i in range(size) for name in self._names}
        values: list[dict[str, BindParameter[Any]]] = [
            {name: bindparam(f"p{i}_{name}") for name in self._names} for i in range(size)
        ]
        statement = self._finish(self._start(self._table).values(values))
        compiled = statement.compile(dialect=connection.dialect)
        return str(compiled), [places[name] for name in compiled.positiontup]


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


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON column.

    The sign of code 0 becomes U+FFFD, which says that something unreadable stood there: PostgreSQL
    can keep it nowhere, and would fail each time that a field of such a row is asked for.
    """
    text = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    return _NUL.sub("\\1\ufffd", text) if "\\u0000" in text else text
