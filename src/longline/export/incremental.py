"""Incremental exports: only what is new or changed since the last one of the same name."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice

from longline.export.base import Row, Rows
from longline.export.rows import mark_of
from longline.storage.records.marks import ExportCursors, Version

_PAIR = struct.Struct("<qq")
_IN_MEMORY = 1_000_000  # bytes


class Fresh:
    """Records that an export has not written yet; remembers which of them it gave away.

    When they are written, hand `given` to the marks. Whoever is killed in between writes the same
    records again: some may be exported twice, none is left out. Of these tasks, another answer
    makes a record new, too.
    """

    def __init__(
        self,
        marks: ExportCursors,
        name: str,
        rows: Rows,
        *,
        limit: int | None = None,
        tasks: Sequence[str] = (),
    ) -> None:
        self._marks = marks
        self._name = name
        self._rows = rows
        self._limit = limit
        self._tasks = tasks
        self._given = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # see `close`

    def __call__(self) -> Iterator[Row]:
        """Read them from the start; `given` tells of the last reading."""
        self._given.seek(0)
        self._given.truncate()
        for row, mark in self._unwritten():
            self._given.write(_PAIR.pack(row["id"], mark))
            yield row

    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return next(self._unwritten(), None) is None

    def given(self) -> Iterator[Version]:
        """Yield the records that were given away, and their marks: the version, or below zero."""
        self._given.seek(0)
        while pair := self._given.read(_PAIR.size):
            yield _PAIR.unpack(pair)

    def close(self) -> None:
        """Give the room on disk back."""
        self._given.close()

    def _unwritten(self) -> Iterator[tuple[Row, int]]:
        marked = (
            {"id": row["id"], "version": mark_of(row, self._tasks), "row": row}
            for row in self._rows()
        )
        fresh = islice(self._marks.unwritten(self._name, marked), self._limit)
        return ((one["row"], one["version"]) for one in fresh)
