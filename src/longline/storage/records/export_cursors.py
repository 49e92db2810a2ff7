"""Export cursors: which version of each record an incremental export has written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from longline.storage.database import Repository, Row, reads, writes
from longline.storage.schema import export_marks

Version = tuple[int, int]
"""The id of a record, and its version."""
_PAGE = 500
_OF_RECORDS = (
    export_marks.c.name == bindparam("b_name"),
    export_marks.c.record_id.in_(bindparam("b_ids", expanding=True)),
)
_WRITTEN = select(export_marks.c.record_id, export_marks.c.version).where(*_OF_RECORDS)
_REMOVE = delete(export_marks).where(*_OF_RECORDS)


class ExportCursors(Repository):
    """What each export has written, by the name of the export."""

    def unwritten(self, name: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the records, in their order, whose version this export has not written yet.

        It runs in this thread and holds one page of rows in memory.
        """
        left = iter(rows)
        while page := list(islice(left, _PAGE)):
            parameters = {"b_name": name, "b_ids": [row["id"] for row in page]}
            with self._database.snapshot() as connection:
                written = {
                    row.record_id: row.version for row in connection.execute(_WRITTEN, parameters)
                }
            yield from (row for row in page if written.get(row["id"]) != row["version"])

    @writes
    def add(self, connection: Connection, name: str, versions: Iterable[Version]) -> None:
        """Save what was written, all of it or nothing."""
        left = iter(versions)
        while page := dict(islice(left, _PAGE)):
            connection.execute(_REMOVE, {"b_name": name, "b_ids": list(page)})
            rows = [
                {"name": name, "record_id": record, "version": version}
                for record, version in page.items()
            ]
            connection.execute(insert(export_marks), rows)

    @writes
    def forget(self, connection: Connection, name: str) -> int:
        """Forget an export, so that its next run writes everything; return how many records."""
        return connection.execute(delete(export_marks).where(export_marks.c.name == name)).rowcount

    @reads
    def count(self, connection: Connection, name: str) -> int:
        """Return how many records this export has written."""
        return connection.scalar(select(func.count()).where(export_marks.c.name == name)) or 0
