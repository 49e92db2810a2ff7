"""Marks: which version of each record an incremental export has written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from longline.storage.database import Database
from longline.storage.schema import export_marks

Row = dict[str, Any]
Version = tuple[int, int]
"""The id of a record, and the version of it."""
_PAGE = 500


class ExportCursors:
    """Remembers what each export has written, by the name of the export."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def unwritten(self, name: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the records, in their order, whose version this export has not written yet.

        It works in this thread and holds a page of the rows at once.
        """
        left = iter(rows)
        while page := list(islice(left, _PAGE)):
            ids = [row["id"] for row in page]
            marked = self._database.stream(
                lambda connection, ids=ids: _marked(connection, name, ids)  # type: ignore[misc]  # bound now, not later
            )
            yield from (row for row in page if marked.get(row["id"]) != row["version"])

    async def add(self, name: str, versions: Iterable[Version]) -> None:
        """Note what was written, all of it or nothing."""
        await self._database.write(_add, (name, versions))

    async def forget(self, name: str) -> int:
        """Forget an export, so that the next of this name writes everything; return how much."""
        forgotten: int = await self._database.write(_forget, name)
        return forgotten

    async def count(self, name: str) -> int:
        """Return how many records this export has written."""
        query = select(func.count()).where(export_marks.c.name == name)
        return await self._database.read(lambda connection: connection.scalar(query) or 0)


_MARKED = select(export_marks.c.record_id, export_marks.c.version).where(
    export_marks.c.name == bindparam("b_name"),
    export_marks.c.record_id.in_(bindparam("b_ids", expanding=True)),
)
_UNMARK = delete(export_marks).where(
    export_marks.c.name == bindparam("b_name"),
    export_marks.c.record_id.in_(bindparam("b_ids", expanding=True)),
)


def _marked(connection: Connection, name: str, ids: list[int]) -> dict[int, int]:
    rows = connection.execute(_MARKED, {"b_name": name, "b_ids": ids})
    return {record: version for record, version in rows}  # noqa: C416  # rows are no pairs to dict()


def _add(connection: Connection, argument: tuple[str, Iterable[Version]]) -> None:
    name, versions = argument
    left = iter(versions)
    while page := dict(islice(left, _PAGE)):
        connection.execute(_UNMARK, {"b_name": name, "b_ids": list(page)})
        marks = [
            {"name": name, "record_id": record, "version": version}
            for record, version in page.items()
        ]
        connection.execute(insert(export_marks), marks)


def _forget(connection: Connection, name: str) -> int:
    return connection.execute(delete(export_marks).where(export_marks.c.name == name)).rowcount
