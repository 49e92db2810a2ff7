"""Tables of jobs and records, as a program iterates over them and a notebook shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

from longline.core.clock import utc_datetime
from longline.core.html import html_table
from longline.core.model import Job

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], Any]]
RecordRow = dict[str, Any]

_MOST_COLUMNS = 8
_LONGEST = 80  # characters of a cell
_MOST_ROWS = 50


class Table(Sequence[T], Generic[T]):
    """Rows of one kind; `columns` say what a notebook shows of each."""

    def __init__(self, rows: Iterable[T], columns: Columns[T]) -> None:
        self._rows = list(rows)
        self._columns = columns

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Table[T]: ...
    def __getitem__(self, index: int | slice) -> T | Table[T]:
        if isinstance(index, slice):
            return Table(self._rows[index], self._columns)
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        shown = "\n".join("  ".join(row) for row in self._cells())
        return f"{len(self)} rows\n{'  '.join(self._columns)}\n{shown}"

    def _repr_html_(self) -> str:
        more = len(self) - _MOST_ROWS
        below = f"<p>{more:,} more rows</p>" if more > 0 else ""
        return html_table(list(self._columns), self._cells()) + below

    def _cells(self) -> list[list[str]]:
        return [
            [_cell(read(row)) for read in self._columns.values()] for row in self._rows[:_MOST_ROWS]
        ]


JOB_COLUMNS: Columns[Job] = {
    "job": lambda job: job.id,
    "source": lambda job: job.source,
    "state": lambda job: job.state.value,
    "created": lambda job: f"{utc_datetime(job.created_at):%F %T}",
    "reason": lambda job: job.reason,
}


def record_columns(rows: Iterable[RecordRow]) -> Columns[RecordRow]:
    """Return the columns of these records: their key, and the first fields of their data."""
    names = dict.fromkeys(name for row in rows for name in row["data"])
    shown = list(names)[: _MOST_COLUMNS - 1]
    return {"key": lambda row: row["key"], **{name: _field(name) for name in shown}}


def _field(name: str) -> Callable[[RecordRow], Any]:
    return lambda row: row["data"].get(name)


def _cell(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
