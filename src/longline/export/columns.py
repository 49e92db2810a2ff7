"""Exported records, and the columns of a table of them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from longline.core.clock import utc_datetime
from longline.core.errors import BadOption
from longline.core.json import as_text
from longline.storage.records import ENRICHMENTS

# ---------------- Records as every export format writes them

Row = dict[str, Any]
Rows = Callable[[], Iterable[Row]]
"""Reads the records from the start on each call; a format may need two passes."""

OWN_COLUMNS = ("source", "key", "url", "version", "score", "grade", "first_seen_at", "changed_at")
OUTDATED = "outdated"
"""The state of an answer about an earlier version of the record."""
_BITS = 2**31 - 1  # negative marks fit the integer column of every database


def export_row(row: Mapping[str, Any]) -> Row:
    """Return a stored record as users get it, with times in ISO 8601."""
    about = row["about"]
    return {
        "source": row["source"],
        "key": row["key"],
        "url": row["url"],
        "version": row["version"],
        "score": row["score"],
        "grade": row["grade"],
        "first_seen_at": utc_datetime(row["first_seen_at"]).isoformat(),
        "changed_at": utc_datetime(row["changed_at"]).isoformat(),
        "data": row["data"],
        "notes": about.get("notes", []),
        "provenance": about.get("provenance", {}),
    }


def export_enrichments(row: Mapping[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Return the enrichment of a record by task; None for a task without a question.

    The answer is null unless it is about this version of the record.
    """
    enrichments: dict[str, Any] = dict.fromkeys(tasks)
    for one in row[ENRICHMENTS]:
        if one["task"] not in enrichments:
            continue
        has_answer = _has_answer(one, row["version"])
        answer = one["answer"]
        enrichments[one["task"]] = {
            "state": one["state"] if one["record_version"] == row["version"] else OUTDATED,
            "answer": None,
            "made_by": one["made_by"],
            "model": one["model"],
            "prompt_version": one["prompt_version"],
            "answered_at": utc_datetime(one["answered_at"]).isoformat() if has_answer else None,
        }
        if has_answer:
            fields = answer if isinstance(answer, dict) else {"answer": answer}
            enrichments[one["task"]]["answer"] = fields
    return enrichments


def version_mark(row: Mapping[str, Any], tasks: Sequence[str]) -> int:
    """Return a number that changes with the version of a record and with any answer about it.

    It is the version itself without an answer, and negative with one.
    """
    # An answer never changes; another one has another question.
    answers = [
        f"{one['task']} {one['question']}"
        for one in row.get(ENRICHMENTS, ())
        if one["task"] in tasks and _has_answer(one, row["version"])
    ]
    version: int = row["version"]
    if not answers:
        return version
    identity = "\n".join([str(version), *sorted(answers)])
    return -1 - (zlib.crc32(identity.encode()) & _BITS)


def _has_answer(enrichment: Mapping[str, Any], version: int) -> bool:
    """Return whether there is an answer about this version of the record."""
    return enrichment["answered_at"] is not None and enrichment["record_version"] == version


_NESTED = ("notes", "provenance")  # own columns that are only in a table when chosen
_ANSWER = "answer"


class ColumnType(StrEnum):
    """The type of all values of a column; values of different types are written as JSON."""

    BOOLEAN = "boolean"
    INTEGER = "integer"  # of 64 bits
    NUMBER = "number"
    TEXT = "text"
    TIMESTAMP = "timestamp"  # ISO 8601 in UTC, to the microsecond
    JSON = "json"


_ANSWER_METADATA = {
    "state": ColumnType.TEXT,
    "model": ColumnType.TEXT,
    "prompt_version": ColumnType.TEXT,
    "answered_at": ColumnType.TIMESTAMP,
}
_OWN_TYPES = {
    "version": ColumnType.INTEGER,
    "score": ColumnType.NUMBER,
    "first_seen_at": ColumnType.TIMESTAMP,
    "changed_at": ColumnType.TIMESTAMP,
    "notes": ColumnType.JSON,
    "provenance": ColumnType.JSON,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `path` leads through the record as JSON Lines shows it."""

    name: str
    path: tuple[str, ...]
    type: ColumnType = ColumnType.TEXT
    is_nullable: bool = True

    @property
    def about(self) -> str:
        """Who made the values, for the schema; '' for collected data."""
        is_answer = self.path[2:3] == (_ANSWER,)
        return f"machine-made by the enrichment task {self.path[1]}" if is_answer else ""

    @property
    def is_own(self) -> bool:
        """Whether longline defines its type, and not the records."""
        return self.path[0] != "data" and self.path[2:3] != (_ANSWER,)

    def raw(self, row: Row) -> Any:
        """Return the value of a record unchanged; None when it has none."""
        found: Any = row
        for step in self.path:
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isascii() and step.isdigit():
                found = found[int(step)] if int(step) < len(found) else None
            else:
                return None
        return finite(found)

    def value(self, row: Row) -> Any:
        """Return the value of a record in the type of the column, or None."""
        found = self.raw(row)
        if found is None:
            return None
        if self.type is ColumnType.JSON:
            return as_text(found)
        return float(found) if self.type is ColumnType.NUMBER else found


def own_columns(names: Iterable[str] = OWN_COLUMNS) -> tuple[Column, ...]:
    """Return columns that longline adds to the data."""
    nullable = {"score", "grade"}
    return tuple(
        Column(name, (name,), _OWN_TYPES.get(name, ColumnType.TEXT), name in nullable)
        for name in names
    )


def answer_column(task: str, field: str) -> Column:
    """Return the column of a field of the answers of a task."""
    return Column(f"{ENRICHMENTS}.{task}.{field}", (ENRICHMENTS, task, _ANSWER, field))


def answer_metadata_columns(task: str) -> tuple[Column, ...]:
    """Return the columns of the state, the model, the prompt and the time of an answer."""
    return tuple(
        Column(f"{ENRICHMENTS}.{task}.@{name}", (ENRICHMENTS, task, name), kind)
        for name, kind in _ANSWER_METADATA.items()
    )


def parse_columns(names: Sequence[str], tasks: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return the columns that a user chose, in that order.

    An own column is named with or without a leading `@`; any other name is a field of the data,
    with dots between the steps of a nested one (`photos.0`). `data.` before a name always means a
    field of the data. `enrichments.TASK.FIELD` is a field of the answers of one of these tasks, and
    `enrichments.TASK.@model` (and the like) the metadata.

    Raises:
        BadOption: a name is empty, unknown or given twice.
    """
    columns = tuple(_parse_column(name.strip(), tasks) for name in names)
    twice = {one.name for one in columns if [other.name for other in columns].count(one.name) > 1}
    if twice:
        raise BadOption("--columns", f"{min(twice)!r} is given twice")
    return columns


def data_columns(fields: Iterable[str], others: Iterable[str] = ()) -> list[Column]:
    """Return a column for each field of the data.

    A field with the name of an own column, or of one of the others, gets the prefix `data.`.
    """
    found = list(fields)
    used = {*OWN_COLUMNS, *others}
    columns = []
    for field in found:
        name = field
        while name in used or (name != field and name in found):
            name = f"data.{name}"
        used.add(name)
        columns.append(Column(name, ("data", field)))
    return columns


def distinct_names(names: Iterable[str], *, max_bytes: int | None = None) -> list[str]:
    """Return names that differ by more than case, each of at most `max_bytes`.

    Databases treat Title and title as one name, and cut long names silently.
    """
    used: set[str] = set()
    distinct = []
    for name in names:
        number, unique = 1, _cut_name(name or "_", max_bytes)
        while unique.lower() in used:
            number += 1
            suffix = f"_{number}"
            unique = _cut_name(name, max_bytes - len(suffix) if max_bytes else None) + suffix
        used.add(unique.lower())
        distinct.append(unique)
    return distinct


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def finite(value: Any) -> Any:
    """Return a value; None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cut_name(name: str, max_bytes: int | None) -> str:
    name = name.replace("\x00", "")
    return name if max_bytes is None else name.encode()[:max_bytes].decode(errors="ignore")


def _parse_column(name: str, tasks: Sequence[str]) -> Column:
    own = (*OWN_COLUMNS, *_NESTED)
    if name.removeprefix("@") in own:
        return own_columns([name.removeprefix("@")])[0]
    if name.startswith("@"):
        raise BadOption("--columns", f"{name!r} is not one of @{', @'.join(own)}")
    steps = tuple(name.removeprefix("data.").split("."))
    if not all(steps):
        raise BadOption("--columns", f"{name!r} is not a field, such as title or price.amount")
    if tasks and steps[0] == ENRICHMENTS and not name.startswith("data."):
        return _parse_enrichment(name, steps[1:], tasks)
    return Column(name, ("data", *steps))


def _parse_enrichment(name: str, steps: Sequence[str], tasks: Sequence[str]) -> Column:
    if len(steps) <= 1 or steps[0] not in tasks:
        known = ", ".join(f"{ENRICHMENTS}.{task}.FIELD" for task in tasks)
        raise BadOption("--columns", f"{name!r} is not one of {known}")
    task, *fields = steps
    if not fields[0].startswith("@"):
        return Column(name, (ENRICHMENTS, task, _ANSWER, *fields))
    for column in answer_metadata_columns(task):
        if column.name == name:
            return column
    raise BadOption("--columns", f"{name!r} does not end in one of @{', @'.join(_ANSWER_METADATA)}")
