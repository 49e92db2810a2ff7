"""Table: records in rows and columns, for the formats that must know their columns first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from longline.core.errors import BadOption
from longline.export.base import Row
from longline.export.columns import (
    Column,
    Kind,
    answer_column,
    data_columns,
    finite,
    own_columns,
    told_columns,
)
from longline.export.rows import OUTDATED
from longline.export.spool import Spool, Spooled
from longline.storage.records.enrichment import maker_of
from longline.storage.records.records import ENRICHMENTS

# ---------------- Survey: which fields records have and what stands in them, learned record by

MOST_FIELDS = 10_000  # whoever has more keeps data in the names of fields
_LARGEST = 2**63 - 1
_MOST_ORIGINS = 10
_EXACT = 2**53  # whole numbers up to here are exact as floating ones
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)", re.ASCII)


@dataclass(slots=True)
class Seen:
    """What stood in one field so far: the types of JSON, in how many records, how large."""

    types: set[str] = field(default_factory=set)
    filled: int = 0
    present: int = 0
    largest: int = 0
    is_moment: bool = True

    def note(self, value: Any) -> None:
        """Take one more value into account."""
        self.present += 1
        if value is None:
            return
        self.filled += 1
        name = type_of(value)
        self.types.add(name)
        if name == "integer":
            self.largest = max(self.largest, abs(value))
        elif name == "string" and self.is_moment:
            self.is_moment = _is_moment(value)

    def kind(self) -> Kind:
        """Return what can hold every value without a loss."""
        types = self.types
        if not types:
            return Kind.TEXT
        if types == {"string"}:
            return Kind.TIMESTAMP if self.is_moment else Kind.TEXT
        if types == {"boolean"}:
            return Kind.BOOLEAN
        if types == {"integer"} and self.largest <= _LARGEST:
            return Kind.INTEGER
        if types <= {"integer", "number"} and self.largest <= _EXACT:
            return Kind.NUMBER
        return Kind.JSON


@dataclass(slots=True)
class Said:
    """What machines said so far for one task, and which models with which prompts they were."""

    fields: dict[str, Seen] = field(default_factory=dict)
    outdated: int = 0
    origins: dict[str, None] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """Who said it, for readers of the schema."""
        known = list(self.origins)
        more = ["and others"] if len(known) > _MOST_ORIGINS else []
        return f"machine-made: {'; '.join([*known[:_MOST_ORIGINS], *more]) or 'no answer yet'}"

    def note_origin(self, entry: Row) -> None:
        """Remember who answered; of very many, that there are more."""
        if len(self.origins) <= _MOST_ORIGINS:
            self.origins[maker_of(entry)] = None


class Survey:
    """Watches records go by; afterwards it knows the columns of a table that holds them all."""

    def __init__(self, chosen: Sequence[Column] = ()) -> None:
        self.chosen = tuple(chosen)
        self.fields: dict[str, Seen] = {column.name: Seen() for column in chosen}
        self.said: dict[str, Said] = {}
        self.records = 0
        self.is_overfull = False

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows as they are, and remember what they hold."""
        for row in rows:
            self.see(row)
            yield row

    def see(self, row: Row) -> None:
        """Take one more record into account."""
        self.records += 1
        for task, entry in row.get(ENRICHMENTS, {}).items():
            self._hear(self.said.setdefault(task, Said()), entry)
        if self.chosen:
            for column in self.chosen:
                self.fields[column.name].note(column.raw(row))
            return
        self._note(self.fields, row["data"])

    def _hear(self, said: Said, entry: Row | None) -> None:
        if entry is None:
            return
        said.outdated += entry["state"] == OUTDATED
        if entry["answer"] is None:
            return
        said.note_origin(entry)
        if not self.chosen:
            self._note(said.fields, entry["answer"])

    def _note(self, fields: dict[str, Seen], values: Row) -> None:
        for name, value in values.items():
            seen = fields.get(name)
            if seen is None:
                if len(fields) >= MOST_FIELDS:
                    self.is_overfull = True
                    continue
                seen = fields[name] = Seen()
            seen.note(finite(value))

    def columns(self) -> tuple[Column, ...]:
        """Return the columns: those chosen, or ours and every field that occurred."""
        if self.chosen:
            return tuple(
                one
                if one.is_ours
                else self._filled(replace(one, about=self.about(one)), self.fields[one.name])
                for one in self.chosen
            )
        added = [one for task, said in self.said.items() for one in self._added(task, said)]
        fields = data_columns(self.fields, (one.name for one in added))
        collected = map(self._filled, fields, self.fields.values())
        return (*own_columns(), *collected, *added)

    def _added(self, task: str, said: Said) -> Iterator[Column]:
        for name, seen in said.fields.items():
            yield self._filled(answer_column(task, name, said.about), seen)
        yield from told_columns(task)

    def about(self, column: Column) -> str:
        """Return who made what stands in a column; nothing when it was collected."""
        is_said = column.path[0] == ENRICHMENTS and column.path[1] in self.said
        return self.said[column.path[1]].about if is_said else ""

    def _filled(self, column: Column, seen: Seen) -> Column:
        return replace(
            column,
            kind=seen.kind(),
            is_nullable=seen.filled < self.records,
            is_nested=seen.types <= {"array", "object"},
        )


def type_of(value: Any) -> str:
    """Return the type that JSON has for a value."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if value is None:
        return "null"
    return "object" if isinstance(value, dict) else "array"


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # the 31st of February
        return False
    return True


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
