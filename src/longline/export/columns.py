"""Columns: what a table has of a record, and what can stand in each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from longline.core.errors import BadOption
from longline.core.json_text import as_text
from longline.export.base import Row
from longline.export.rows import OWN_COLUMNS
from longline.storage.records.records import ENRICHMENTS

_INNER = ("notes", "provenance")  # of ours too, but only in a table when asked for
_ANSWER = "answer"
_TOLD = ("state", "model", "prompt_version", "answered_at")  # beside each answer


class Kind(StrEnum):
    """What all values of a column are; where they differ, each is written as JSON."""

    BOOLEAN = "boolean"
    INTEGER = "integer"  # of 64 bits
    NUMBER = "number"
    TEXT = "text"
    TIMESTAMP = "timestamp"  # ISO 8601 in UTC, to the microsecond
    JSON = "json"


_OWN_KINDS = {
    "version": Kind.INTEGER,
    "score": Kind.NUMBER,
    "first_seen_at": Kind.TIMESTAMP,
    "changed_at": Kind.TIMESTAMP,
    "notes": Kind.JSON,
    "provenance": Kind.JSON,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `path` leads through the record as JSON Lines shows it.

    `is_nested` says that all its values are lists and objects; `about` what a reader should know.
    """

    name: str
    path: tuple[str, ...]
    kind: Kind = Kind.TEXT
    is_nullable: bool = True
    is_nested: bool = False
    about: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is known without a look at the records what stands in it."""
        return self.path[0] != "data" and self.path[2:3] != (_ANSWER,)

    def raw(self, row: Row) -> Any:
        """Return what the record has here; None when it has nothing."""
        found: Any = row
        for step in self.path:
            found = _inside(found, step)
        return finite(found)

    def value(self, row: Row) -> Any:
        """Return what is written: None, or what `kind` promises."""
        found = self.raw(row)
        if found is None:
            return None
        if self.kind is Kind.JSON:
            return as_text(found)
        return float(found) if self.kind is Kind.NUMBER else found


def own_columns(names: Iterable[str] = OWN_COLUMNS) -> tuple[Column, ...]:
    """Return columns of ours."""
    optional = {"score", "grade"}
    return tuple(
        Column(name, (name,), _OWN_KINDS.get(name, Kind.TEXT), name in optional, name in _INNER)
        for name in names
    )


def answer_column(task: str, field: str, about: str = "") -> Column:
    """Return the column of what machines said in a field of their answers."""
    return Column(f"{ENRICHMENTS}.{task}.{field}", (ENRICHMENTS, task, _ANSWER, field), about=about)


def told_columns(task: str) -> tuple[Column, ...]:
    """Return the columns of who said that, when, and whether it is there."""
    return tuple(_told(task, name) for name in _TOLD)


def chosen_columns(names: Sequence[str], tasks: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return the columns that a user asked for, in that order.

    One of ours goes by its name, with or without an `@` before it; anything else is a field of
    the data, with dots between the steps of a nested one (`photos.0`). `data.` before a name means
    a field of the data in any case. Of these tasks, `enrichments.TASK.FIELD` is what machines said,
    and `enrichments.TASK.@model` (or another of those) who said it.

    Raises:
        BadOption: a name is empty, not one of ours, or there twice.
    """
    columns = tuple(_chosen(name.strip(), tasks) for name in names)
    twice = {one.name for one in columns if [other.name for other in columns].count(one.name) > 1}
    if twice:
        raise BadOption("--columns", f"{min(twice)!r} is there twice")
    return columns


def data_columns(fields: Iterable[str], others: Iterable[str] = ()) -> list[Column]:
    """Return a column for each field of the data.

    A field that has the name of one of our own columns, or of the others, gets `data.` before it.
    """
    found = list(fields)
    reserved = {*OWN_COLUMNS, *others}
    taken = {*reserved, *found}
    columns = []
    for field in found:
        name = f"data.{field}" if field in reserved else field
        while name != field and name in taken:
            name = f"data.{name}"
        taken.add(name)
        columns.append(Column(name, ("data", field)))
    return columns


def distinct(names: Iterable[str], *, longest: int | None = None) -> list[str]:
    """Return names that differ by more than their case, of at most `longest` bytes each.

    Databases take Title and title for one, and cut what is too long without a word.
    """
    taken: set[str] = set()
    made = []
    for name in names:
        number, unique = 1, _cut(name or "_", longest)
        while unique.lower() in taken:
            number += 1
            ending = f"_{number}"
            unique = _cut(name, longest - len(ending) if longest else None) + ending
        taken.add(unique.lower())
        made.append(unique)
    return made


def finite(value: Any) -> Any:
    """Return a value, or None for a number that is none."""
    # JSON knows no other number either, so that every format holds the same.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cut(name: str, longest: int | None) -> str:
    name = name.replace("\x00", "")
    return name if longest is None else name.encode()[:longest].decode(errors="ignore")


def _told(task: str, name: str) -> Column:
    kind = Kind.TIMESTAMP if name == "answered_at" else Kind.TEXT
    return Column(f"{ENRICHMENTS}.{task}.@{name}", (ENRICHMENTS, task, name), kind)


def _chosen(name: str, tasks: Sequence[str]) -> Column:
    ours = (*OWN_COLUMNS, *_INNER)
    if name.removeprefix("@") in ours:
        return own_columns([name.removeprefix("@")])[0]
    if name.startswith("@"):
        raise BadOption("--columns", f"{name!r} is none of @{', @'.join(ours)}")
    steps = tuple(name.removeprefix("data.").split("."))
    if not all(steps):
        raise BadOption("--columns", f"{name!r} is no field, such as title or price.amount")
    if tasks and steps[0] == ENRICHMENTS and not name.startswith("data."):
        return _chosen_enrichment(name, steps[1:], tasks)
    return Column(name, ("data", *steps))


def _chosen_enrichment(name: str, steps: Sequence[str], tasks: Sequence[str]) -> Column:
    known = ", ".join(f"{ENRICHMENTS}.{task}.FIELD" for task in tasks)
    if len(steps) <= 1 or steps[0] not in tasks:
        raise BadOption("--columns", f"{name!r} is none of {known}")
    task, *fields = steps
    if not fields[0].startswith("@"):
        return Column(name, (ENRICHMENTS, task, _ANSWER, *fields))
    if len(fields) > 1 or fields[0][1:] not in _TOLD:
        raise BadOption("--columns", f"{name!r} ends in none of @{', @'.join(_TOLD)}")
    return _told(task, fields[0][1:])


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isascii() and step.isdigit():
        return value[int(step)] if int(step) < len(value) else None
    return None
