"""Exported records as a table, for formats that need all columns first, and their schemas."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

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
    quote_identifier,
)
from longline.storage.records import ENRICHMENTS

MAX_FIELDS = 10_000  # with more, the names of the fields are data
_MAX_INTEGER = 2**63 - 1
_EXACT_INTEGER = 2**53  # integers up to here are exact as floats
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|\+00:00)", re.ASCII)
_JSON_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
}  # all others are arrays
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
        name = _JSON_TYPES.get(type(value), "array")
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
    """The fields of the answers of one enrichment task, and the number of outdated ones."""

    fields: dict[str, FieldStatistics] = field(default_factory=dict)
    outdated: int = 0


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
            answers = self.answers.setdefault(task, AnswerStatistics())
            if entry is None:
                continue
            answers.outdated += entry["state"] == OUTDATED
            if entry["answer"] is not None and not self.chosen:
                self._add_fields(answers.fields, entry["answer"])
        for column in self.chosen:
            self.fields[column.name].add(column.raw(row))
        if not self.chosen:
            self._add_fields(self.fields, row["data"])

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
                one if one.is_own else self._typed(one, self.fields[one.name])
                for one in self.chosen
            )
        added: list[Column] = []
        for task, answers in self.answers.items():
            for name, statistics in answers.fields.items():
                added.append(self._typed(answer_column(task, name), statistics))
            added += answer_metadata_columns(task)
        fields = data_columns(self.fields, (one.name for one in added))
        collected = map(self._typed, fields, self.fields.values())
        return (*own_columns(), *collected, *added)

    def _typed(self, column: Column, statistics: FieldStatistics) -> Column:
        return replace(
            column,
            type=statistics.column_type(),
            is_nullable=statistics.filled < self.records,
        )


def _is_timestamp(text: str) -> bool:
    if not _TIMESTAMP.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # the 31st of February
        return False
    return True


# ---------------- Records on disk, written once and read as often as a format needs


class Spool:
    """An unnamed temporary file.

    A format with two passes must see the same records in both, while a job may change them.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # see `__exit__`
        self._end = 0

    def add(self, row: Row) -> int:
        """Add a record; return its offset."""
        line = _encode_line(row)
        offset, self._end = self._end, self._end + len(line)
        self._file.write(line)
        return offset

    def read(self, offsets: Iterable[int] | None = None) -> Iterator[tuple[Row, int]]:
        """Read the records, all or those at the offsets, each with its size in bytes.

        There can be one reader at a time.
        """
        self._file.seek(0)
        if offsets is None:
            yield from ((_decode_line(line), len(line)) for line in self._file)
            return
        for offset in offsets:
            self._file.seek(offset)
            line = self._file.readline()
            yield _decode_line(line), len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def _encode_line(row: Row) -> bytes:
    try:
        return orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # an integer of more than 64 bits; the blank marks what orjson cannot read
        return b" " + json.dumps(row, default=str).encode() + b"\n"


def _decode_line(line: bytes) -> Row:
    row: Row = json.loads(line) if line.startswith(b" ") else orjson.loads(line)
    return row


# ---------------- The table


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and a function that reads the records from the start, each with its size."""

    columns: tuple[Column, ...]
    read: Callable[[], Iterator[tuple[Row, int]]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def rows(self) -> Iterator[Row]:
        """Yield the records."""
        for row, _ in self.read():
            yield row

    def raw(self) -> Iterator[list[Any]]:
        """Yield the values of each record unchanged."""
        for row in self.rows():
            yield [column.raw(row) for column in self.columns]

    def lines(self) -> Iterator[list[Any]]:
        """Yield the values of each record in the types of the columns."""
        for row in self.rows():
            yield [column.value(row) for column in self.columns]

    def batches(self) -> Iterator[list[list[Any]]]:
        """Yield lines in batches of a few megabytes."""
        batch: list[list[Any]] = []
        size = 0
        for row, length in self.read():
            batch.append([column.value(row) for column in self.columns])
            size += length
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def check_width(self, limit: int) -> None:
        """Raise BadOption if a format cannot hold this many columns."""
        if len(self.columns) > limit:
            raise _too_wide(limit)

    def definitions(self, names: Sequence[str], types: Mapping[ColumnType, str]) -> str:
        """Return the columns for CREATE TABLE, under these names."""
        columns = zip(names, self.columns, strict=True)
        return ", ".join(f"{quote_identifier(name)} {types[one.type]}" for name, one in columns)


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
        yield Table(survey.columns(), spool.read)


def _too_wide(limit: int) -> BadOption:
    return BadOption("--columns", f"there are more than {limit:,} fields; select some of them")


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
    schema = _object_schema({one.name: _column_schema(one) for one in columns})
    if format_name == "csv":  # it has values of different types plain, as readers of CSV expect
        for one in schema["properties"].values():
            one.pop("contentMediaType", None)
    return {"$schema": _DIALECT, **schema}


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
    tasks: dict[str, Any] = {}
    for task, answers in survey.answers.items():
        fields = {name: _field_schema(one) for name, one in answers.fields.items()}
        entry = {one.path[-1]: _column_schema(one) for one in answer_metadata_columns(task)}
        entry["answer"] = {"type": ["object", "null"], "properties": fields}
        entry["made_by"] = {"const": "machine"}
        about = answer_column(task, "").about
        tasks[task] = {**_object_schema(entry), "type": ["object", "null"], "description": about}
    if tasks:
        properties["enrichments"] = _object_schema(tasks)
    return {"$schema": _DIALECT, **_object_schema(properties)}


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _column_schema(column: Column) -> dict[str, Any]:
    schema = dict(_TYPES[column.type])
    if column.is_nullable:
        schema["type"] = [schema["type"], "null"]
    if column.about:
        schema["description"] = column.about
    return schema


def _chosen_schema(column: Column, survey: FieldSurvey) -> dict[str, Any]:
    if column.is_own:
        return _NESTED.get(column.name) or _column_schema(column)
    schema = _field_schema(survey.fields[column.name], survey.records)
    return schema | {"description": column.about} if column.about else schema


def _field_schema(statistics: FieldStatistics, records: int | None = None) -> dict[str, Any]:
    expected = statistics.present if records is None else records
    null = {"null"} if statistics.filled < expected else set()
    types = sorted(statistics.types | null) or ["null"]
    schema: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
    if statistics.column_type() is ColumnType.TIMESTAMP:
        schema["format"] = "date-time"
    return schema
