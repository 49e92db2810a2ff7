"""Incremental exports: only records that are new or changed since the last one of the same name."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice

from longline.export.rows import Row, Rows, version_mark
from longline.storage.records.export_cursors import ExportCursors, Version

_PAIR = struct.Struct("<qq")
_IN_MEMORY = 1_000_000  # bytes


class IncrementalRows:
    """Records that an export has not written yet; remembers which of them it yielded.

    Once they are written, pass `yielded` to the cursors. An export that is killed in between writes
    the same records again: some may be exported twice, none is left out. A new answer of one of
    `tasks` makes a record new, too.
    """

    def __init__(
        self,
        cursors: ExportCursors,
        name: str,
        rows: Rows,
        *,
        limit: int | None = None,
        tasks: Sequence[str] = (),
    ) -> None:
        self._cursors = cursors
        self._name = name
        self._rows = rows
        self._limit = limit
        self._tasks = tasks
        self._yielded = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # see `close`

    def __call__(self) -> Iterator[Row]:
        """Read them from the start; `yielded` is about the last reading."""
        self._yielded.seek(0)
        self._yielded.truncate()
        for row, mark in self._unwritten():
            self._yielded.write(_PAIR.pack(row["id"], mark))
            yield row

    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return next(self._unwritten(), None) is None

    def yielded(self) -> Iterator[Version]:
        """Yield the ids of the records and their `version_mark`."""
        self._yielded.seek(0)
        while pair := self._yielded.read(_PAIR.size):
            yield _PAIR.unpack(pair)

    def close(self) -> None:
        """Remove the temporary file."""
        self._yielded.close()

    def _unwritten(self) -> Iterator[tuple[Row, int]]:
        marked = (
            {"id": row["id"], "version": version_mark(row, self._tasks), "row": row}
            for row in self._rows()
        )
        unwritten = islice(self._cursors.unwritten(self._name, marked), self._limit)
        return ((one["row"], one["version"]) for one in unwritten)
