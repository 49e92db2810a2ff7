"""Pages of large tables: rows in the order of an index, and a search that ends in bounded time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select, tuple_

from longline.storage.database import Row, plain_rows

Position = tuple[Any, ...]
"""The values of the columns of a scan in the last known row."""
_WINDOW = 2_000  # rows that one step of a scan examines


@dataclass(frozen=True, slots=True)
class Scan:
    """The order of a scan: that of an index over the columns of `scope` and then `columns`.

    Within the scope, `columns` identify a row and are never null.
    """

    columns: Sequence[Any]
    scope: Sequence[ColumnElement[bool]] = ()
    is_descending: bool = False

    def ordered(self, query: Select[Any]) -> Select[Any]:
        """Return a query for rows of the scope in the order of the scan."""
        order = [one.desc() if self.is_descending else one.asc() for one in self.columns]
        return query.where(*self.scope).order_by(None).order_by(*order)

    def between(
        self, start: Position | None, end: Position | None
    ) -> Iterator[ColumnElement[bool]]:
        """Yield the conditions for rows after one position and up to another."""
        place = self.columns[0] if len(self.columns) == 1 else tuple_(*self.columns)
        if start is not None:
            first = start[0] if len(self.columns) == 1 else start
            yield place < first if self.is_descending else place > first
        if end is not None:
            last = end[0] if len(self.columns) == 1 else end
            yield place >= last if self.is_descending else place <= last

    def position_of(self, row: Row) -> Position:
        """Return the position of a row."""
        return tuple(row[one.name] for one in self.columns)


@dataclass(frozen=True, slots=True)
class ScannedPage:
    """Some of the rows that match.

    `position` is where the next page starts; None: there is none. Without `is_full`, the time was
    up before the page had all its rows: rows after the position may match, too.
    """

    rows: list[Row]
    position: Position | None
    is_full: bool = True


def scan_page(
    connection: Connection,
    scan: Scan,
    wanted: Select[Any],
    *,
    after: Position | None,
    size: int,
    seconds: float,
) -> ScannedPage:
    """Return up to `size` rows of a query after a position.

    Args:
        connection: the transaction.
        scan: the order, which an index has.
        wanted: selects the rows, with the columns of the scan; its conditions may have no index.
        after: the position of the last known row; None: from the start.
        size: how many rows.
        seconds: about how long to search.
    """
    ordered = scan.ordered(wanted)
    rows: list[Row] = []
    start, deadline = after, time.monotonic() + seconds
    while True:
        end = _end_of_window(connection, scan, start)
        some = ordered.where(*scan.between(start, end)).limit(size + 1 - len(rows))
        rows += plain_rows(connection.execute(some).mappings())
        if len(rows) > size:
            del rows[size:]
            return ScannedPage(rows, scan.position_of(rows[-1]))
        if end is None:
            return ScannedPage(rows, None)
        start = end
        if time.monotonic() > deadline:
            return ScannedPage(rows, start, is_full=False)


def _end_of_window(connection: Connection, scan: Scan, start: Position | None) -> Position | None:
    """Return the position of the last row of a window; None: the window has the last row."""
    rows = scan.ordered(select(*scan.columns)).where(*scan.between(start, None))
    found = connection.execute(rows.offset(_WINDOW - 1).limit(1)).one_or_none()
    return None if found is None else tuple(found)
