"""Exported records as a table, for formats that need all columns first, and their schemas."""

from __future__ import annotations

import json
import os
import re
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, Self

import orjson

from longline.core.errors import BadOption
from longline.export.columns import (
    OUTDATED,
    Column,
    ColumnType,
    Row,
    answer_column,
    answer_metadata_columns,
    data_columns,
    finite,
    own_columns,
)
from longline.storage.enrichment import answer_origin
from longline.storage.records import ENRICHMENTS

MAX_FIELDS = 10_000  # with more, the names of the fields are data
_BUFFER = 1 << 20
_MAX_INTEGER = 2**63 - 1
_MAX_ORIGINS = 10
_EXACT_INTEGER = 2**53  # integers up to here are exact as floats
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)", re.ASCII)
_BATCH_ROWS = 5_000
_BATCH_BYTES = 8_000_000


# ---------------- Which fields the records have, and of which types


@dataclass(slots=True)
class FieldStatistics:
    """The JSON types of one field, and the number of records with it."""

    types: set[str] = field(default_factory=set)
    filled: int = 0
    present: int = 0
    largest: int = 0
    is_timestamp: bool = True

    def add(self, value: Any) -> None:
        """Count one more value."""
        self.present += 1
        if value is None:
            return
        self.filled += 1
        name = _json_type(value)
        self.types.add(name)
        if name == "integer":
            self.largest = max(self.largest, abs(value))
        elif name == "string" and self.is_timestamp:
            self.is_timestamp = _is_timestamp(value)

    def column_type(self) -> ColumnType:
        """Return the type that holds every value without a loss."""
        types = self.types
        if not types:
            return ColumnType.TEXT
        if types == {"string"}:
            return ColumnType.TIMESTAMP if self.is_timestamp else ColumnType.TEXT
        if types == {"boolean"}:
            return ColumnType.BOOLEAN
        if types == {"integer"} and self.largest <= _MAX_INTEGER:
            return ColumnType.INTEGER
        if types <= {"integer", "number"} and self.largest <= _EXACT_INTEGER:
            return ColumnType.NUMBER
        return ColumnType.JSON


@dataclass(slots=True)
class AnswerStatistics:
    """The fields of the answers of one enrichment task, and the models that gave them."""

    fields: dict[str, FieldStatistics] = field(default_factory=dict)
    outdated: int = 0
    origins: dict[str, None] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The models and prompts, for the schema."""
        known = list(self.origins)
        more = ["and others"] if len(known) > _MAX_ORIGINS else []
        return f"machine-made: {'; '.join([*known[:_MAX_ORIGINS], *more]) or 'no answer yet'}"


class FieldSurvey:
    """Collects the fields of records as they pass, and derives the columns of a table."""

    def __init__(self, chosen: Sequence[Column] = ()) -> None:
        self.chosen = tuple(chosen)
        self.fields: dict[str, FieldStatistics] = {one.name: FieldStatistics() for one in chosen}
        self.answers: dict[str, AnswerStatistics] = {}
        self.records = 0
        self.is_too_wide = False

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows unchanged, and count their fields."""
        for row in rows:
            self.add(row)
            yield row

    def add(self, row: Row) -> None:
        """Count one more record."""
        self.records += 1
        for task, entry in row.get(ENRICHMENTS, {}).items():
            self._add_answer(self.answers.setdefault(task, AnswerStatistics()), entry)
        if self.chosen:
            for column in self.chosen:
                self.fields[column.name].add(column.raw(row))
            return
        self._add_fields(self.fields, row["data"])

    def _add_answer(self, answers: AnswerStatistics, entry: Row | None) -> None:
        if entry is None:
            return
        answers.outdated += entry["state"] == OUTDATED
        if entry["answer"] is None:
            return
        if len(answers.origins) <= _MAX_ORIGINS:
            answers.origins[answer_origin(entry)] = None
        if not self.chosen:
            self._add_fields(answers.fields, entry["answer"])

    def _add_fields(self, fields: dict[str, FieldStatistics], values: Row) -> None:
        for name, value in values.items():
            statistics = fields.get(name)
            if statistics is None:
                if len(fields) >= MAX_FIELDS:
                    self.is_too_wide = True
                    continue
                statistics = fields[name] = FieldStatistics()
            statistics.add(finite(value))

    def columns(self) -> tuple[Column, ...]:
        """Return the chosen columns, or our own and one for every field."""
        if self.chosen:
            return tuple(
                one
                if one.is_own
                else self._typed(replace(one, about=self.about(one)), self.fields[one.name])
                for one in self.chosen
            )
        added = [one for task in self.answers for one in self._answer_columns(task)]
        fields = data_columns(self.fields, (one.name for one in added))
        collected = map(self._typed, fields, self.fields.values())
        return (*own_columns(), *collected, *added)

    def _answer_columns(self, task: str) -> Iterator[Column]:
        answers = self.answers[task]
        for name, statistics in answers.fields.items():
            yield self._typed(answer_column(task, name, answers.about), statistics)
        yield from answer_metadata_columns(task)

    def about(self, column: Column) -> str:
        """Return the models behind a column of answers; empty for collected data."""
        is_answer = column.path[0] == ENRICHMENTS and column.path[1] in self.answers
        return self.answers[column.path[1]].about if is_answer else ""

    def _typed(self, column: Column, statistics: FieldStatistics) -> Column:
        return replace(
            column,
            type=statistics.column_type(),
            is_nullable=statistics.filled < self.records,
            is_nested=statistics.types <= {"array", "object"},
        )


def _json_type(value: Any) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "object" if isinstance(value, dict) else "array"


def _is_timestamp(text: str) -> bool:
    if not _TIMESTAMP.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # the 31st of February
        return False
    return True


# ---------------- Records on disk, written once and read as often as a format needs


class Spooled(Protocol):
    """Records that can be read repeatedly."""

    def sized(self) -> Iterator[tuple[Row, int]]:
        """Read the records, each with its size in bytes."""


class Spool(Spooled):
    """An unnamed temporary file.

    A format with two passes must see the same records in both, while a job may change them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115  # see `__exit__`
        self._end = 0

    def add(self, row: Row) -> tuple[int, int]:
        """Add a record; return its offset and length."""
        line = _encode_row(row)
        offset, self._end = self._end, self._end + len(line)
        self._file.write(line)
        return offset, len(line)

    def sized(self) -> Iterator[tuple[Row, int]]:
        """Read the records from the start; one reader at a time."""
        self._file.seek(0)
        for line in self._file:
            yield _decode_row(line), len(line)

    def read(self, offset: int, length: int) -> Row:
        """Read one record."""
        self._file.flush()
        return _decode_row(os.pread(self._file.fileno(), length, offset))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


class SpoolPart(Spooled):
    """Some records of a spool, by offset: 16 bytes of memory each."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._offsets = array("q")
        self._lengths = array("q")

    def add(self, row: Row) -> None:
        """Add a record to the spool, and to this part of it."""
        offset, length = self._spool.add(row)
        self._offsets.append(offset)
        self._lengths.append(length)

    def sized(self) -> Iterator[tuple[Row, int]]:
        for offset, length in zip(self._offsets, self._lengths, strict=True):
            yield self._spool.read(offset, length), length


def _encode_row(row: Row) -> bytes:
    try:
        return orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer of more than 64 bits; the blank marks what orjson cannot read
        return b" " + json.dumps(row, default=str).encode() + b"\n"


def _decode_row(line: bytes) -> Row:
    row: Row = json.loads(line) if line.startswith(b" ") else orjson.loads(line)
    return row


# ---------------- The table


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and lines that can be read repeatedly."""

    columns: tuple[Column, ...]
    spool: Spooled

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def raw(self) -> Iterator[list[Any]]:
        """Yield the values of each record unchanged."""
        for row, _ in self.spool.sized():
            yield [column.raw(row) for column in self.columns]

    def lines(self) -> Iterator[list[Any]]:
        """Yield the values of each record in the types of the columns."""
        for row, _ in self.spool.sized():
            yield [column.value(row) for column in self.columns]

    def batches(self) -> Iterator[list[list[Any]]]:
        """Yield lines in batches of a few megabytes."""
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


@contextmanager
def open_table(
    rows: Iterable[Row], survey: FieldSurvey, *, folder: Path | None = None
) -> Iterator[Table]:
    """Read all records once into a table; the file of its lines is in `folder`.

    Raises:
        BadOption: the records have too many different fields.
        OSError: no disk space is left.
    """
    with Spool(folder) as spool:
        for row in survey.watch(rows):
            spool.add(row)
        if survey.is_too_wide:
            raise _too_wide(MAX_FIELDS)
        yield Table(survey.columns(), spool)


def check_width(table: Table, limit: int) -> None:
    """Check that a format can hold this many columns.

    Raises:
        BadOption: it cannot.
    """
    if len(table.columns) > limit:
        raise _too_wide(limit)


def _too_wide(limit: int) -> BadOption:
    return BadOption("--columns", f"there are more than {limit:,} fields; choose some of them")


# ---------------- The JSON Schema of exported records

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: dict[ColumnType, dict[str, Any]] = {
    ColumnType.BOOLEAN: {"type": "boolean"},
    ColumnType.INTEGER: {"type": "integer"},
    ColumnType.NUMBER: {"type": "number"},
    ColumnType.TEXT: {"type": "string"},
    ColumnType.TIMESTAMP: {"type": "string", "format": "date-time"},
    ColumnType.JSON: {"type": "string", "contentMediaType": "application/json"},
}
_NOTE = {"type": "object", "properties": {"field": {"type": "string"}, "text": {"type": "string"}}}
_NESTED: dict[str, dict[str, Any]] = {
    "notes": {"type": "array", "items": _NOTE},
    "provenance": {"type": "object", "additionalProperties": {"type": "string"}},
}


def table_schema(columns: Sequence[Column], format_name: str) -> dict[str, Any]:
    """Return the schema of a line of a table."""
    if format_name == "csv":  # it has values of different types plain, as readers of CSV expect
        columns = [
            one
            if one.is_nested or one.type is not ColumnType.JSON
            else replace(one, type=ColumnType.TEXT)
            for one in columns
        ]
    return {
        "$schema": _DIALECT,
        **_object_schema({one.name: _column_schema(one) for one in columns}),
    }


def document_schema(survey: FieldSurvey) -> dict[str, Any]:
    """Return the schema of an object of JSON or JSON Lines."""
    if survey.chosen:
        chosen = {one.name: _chosen_schema(one, survey) for one in survey.chosen}
        return {"$schema": _DIALECT, **_object_schema(chosen)}
    data = {
        "type": "object",
        "properties": {name: _field_schema(one) for name, one in survey.fields.items()},
        "required": sorted(
            name for name, one in survey.fields.items() if one.present == survey.records
        ),
    }
    properties = {one.name: _column_schema(one) for one in own_columns()}
    properties |= {"data": data, **_NESTED}
    if survey.answers:
        tasks = {task: _task_schema(task, answers) for task, answers in survey.answers.items()}
        properties["enrichments"] = _object_schema(tasks)
    return {"$schema": _DIALECT, **_object_schema(properties)}


def _task_schema(task: str, answers: AnswerStatistics) -> dict[str, Any]:
    answer = {
        "type": ["object", "null"],
        "properties": {name: _field_schema(one) for name, one in answers.fields.items()},
    }
    metadata = {one.path[-1]: _column_schema(one) for one in answer_metadata_columns(task)}
    entry = _object_schema({**metadata, "answer": answer, "made_by": {"const": "machine"}})
    return {**entry, "type": ["object", "null"], "description": answers.about}


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _column_schema(column: Column) -> dict[str, Any]:
    schema = _TYPES[column.type]
    if column.is_nullable:
        schema = schema | {"type": [schema["type"], "null"]}
    return schema | {"description": column.about} if column.about else schema


def _chosen_schema(column: Column, survey: FieldSurvey) -> dict[str, Any]:
    if column.is_own:
        return _NESTED.get(column.name) or _column_schema(column)
    schema = _field_schema(survey.fields[column.name], survey.records)
    return schema if column.path[0] == "data" else schema | {"description": survey.about(column)}


def _field_schema(statistics: FieldStatistics, records: int | None = None) -> dict[str, Any]:
    expected = statistics.present if records is None else records
    null = {"null"} if statistics.filled < expected else set()
    types = sorted(statistics.types | null) or ["null"]
    schema: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
    if statistics.column_type() is ColumnType.TIMESTAMP:
        schema["format"] = "date-time"
    return schema
