"""Statements for many rows, on the busy path of every item.

SQLAlchemy compiles them once; the rows are then handed to the driver as they are. Its own way
prepares each value of each row in Python, which cost more than the database did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection
from sqlalchemy.sql.elements import ClauseElement


class Bulk:
    """One INSERT or UPDATE, run for rows whose JSON is text already.

    `names` are the columns that every row of an INSERT brings; an UPDATE has named parameters.
    """

    def __init__(self, statement: ClauseElement, names: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._names = None if names is None else list(names)
        self._compiled: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run the statement for each row."""
        if not rows:
            return
        sql, order = self._for(connection)
        connection.exec_driver_sql(sql, [tuple([row[name] for name in order]) for row in rows])

    def _for(self, connection: Connection) -> tuple[str, tuple[str, ...]]:
        dialect = connection.dialect
        if dialect.name not in self._compiled:
            compiled: Any = self._statement.compile(dialect=dialect, column_keys=self._names)
            self._compiled[dialect.name] = (str(compiled), tuple(compiled.positiontup))
        return self._compiled[dialect.name]


def as_json(value: Any) -> str:
    """Return a value as the text of a JSON column."""
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
