"""Spool: records on disk, written once and read as often as a format needs."""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import orjson

from longline.export.base import Row

_BUFFER = 1 << 20


class Spooled(Protocol):
    """Records that can be read again and again."""

    def sized(self) -> Iterator[tuple[Row, int]]:
        """Read the records, each with the bytes it takes."""


class Spool(Spooled):
    """A file without a name, gone with the process.

    A format that looks at the records twice must see the same ones: a job may be writing new
    fields in between.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115  # see `close`
        self._end = 0

    def fill(self, rows: Iterable[Row]) -> None:
        """Add records."""
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> tuple[int, int]:
        """Add a record; return where it stands and how long it is."""
        line = _written(row)
        place, self._end = self._end, self._end + len(line)
        self._file.write(line)
        return place, len(line)

    def sized(self) -> Iterator[tuple[Row, int]]:
        """Read the records from the start, each with its bytes; one reader at a time."""
        self._file.seek(0)
        for line in self._file:
            yield _read(line), len(line)

    def read(self, place: int, length: int) -> Row:
        """Read one record, from where `add` said."""
        self._file.flush()
        return _read(os.pread(self._file.fileno(), length, place))

    def close(self) -> None:
        """Give the room on disk back."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Part(Spooled):
    """Some records of a spool, by where they stand: 16 bytes of memory each."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._places = array("q")
        self._lengths = array("q")

    def add(self, row: Row) -> None:
        """Add a record to the spool, and to this part of it."""
        place, length = self._spool.add(row)
        self._places.append(place)
        self._lengths.append(length)

    def sized(self) -> Iterator[tuple[Row, int]]:
        for place, length in zip(self._places, self._lengths, strict=True):
            yield self._spool.read(place, length), length


def _written(row: Row) -> bytes:
    try:
        return orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # numbers of more than 64 bits; the blank tells who can read them
        return b" " + json.dumps(row, default=str).encode() + b"\n"


def _read(line: bytes) -> Row:
    row: Row = json.loads(line) if line.startswith(b" ") else orjson.loads(line)
    return row
