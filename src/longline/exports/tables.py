"""Table: records in rows and columns, for the formats that must know their columns first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from longline.errors import BadOption
from longline.exports.base import Row
from longline.exports.columns import Column
from longline.exports.spool import Spool, Spooled
from longline.exports.survey import MOST_FIELDS, Survey

_BATCH_ROWS = 5_000
_BATCH_BYTES = 8_000_000


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and lines that can be read again and again."""

    columns: tuple[Column, ...]
    spool: Spooled

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.columns]

    def raw(self) -> Iterator[list[Any]]:
        """Yield each record's values as they are."""
        for row, _ in self.spool.sized():
            yield [column.raw(row) for column in self.columns]

    def lines(self) -> Iterator[list[Any]]:
        """Yield each record's values as the kinds of the columns promise."""
        for row, _ in self.spool.sized():
            yield [column.value(row) for column in self.columns]

    def batches(self) -> Iterator[list[list[Any]]]:
        """Yield lines, as many at once as a few megabytes hold."""
        batch: list[list[Any]] = []
        size = 0
        for row, length in self.spool.sized():
            batch.append([column.value(row) for column in self.columns])
            size += length
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


class TableExport(Protocol):
    """Writes a table in one format, in bounded memory."""

    def __call__(self, table: Table, target: BinaryIO) -> list[str]:
        """Write all lines; return what a user should know about how they were written."""


@contextmanager
def tabled(rows: Iterable[Row], survey: Survey, *, folder: Path | None = None) -> Iterator[Table]:
    """Read all records once, and give them as a table.

    Raises:
        BadOption: they have too many different fields.
        OSError: there is no room for them.
    """
    with Spool(folder) as spool:
        spool.fill(survey.watch(rows))
        if survey.is_overfull:
            raise _too_wide(MOST_FIELDS)
        yield Table(survey.columns(), spool)


def check_width(table: Table, most: int) -> None:
    """See that a format takes this many columns.

    Raises:
        BadOption: it does not.
    """
    if len(table.columns) > most:
        raise _too_wide(most)


def _too_wide(most: int) -> BadOption:
    return BadOption("--columns", f"there are more than {most:,} fields; choose some of them")
