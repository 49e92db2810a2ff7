"""The schema beside the data: what a row is, as JSON Schema says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from longline.export.columns import Column, Kind, own_columns, told_columns
from longline.export.tables import Said, Seen, Survey

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_KINDS: dict[Kind, dict[str, Any]] = {
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.INTEGER: {"type": "integer"},
    Kind.NUMBER: {"type": "number"},
    Kind.TEXT: {"type": "string"},
    Kind.TIMESTAMP: {"type": "string", "format": "date-time"},
    Kind.JSON: {"type": "string", "contentMediaType": "application/json"},
}
_NOTE = {"type": "object", "properties": {"field": {"type": "string"}, "text": {"type": "string"}}}
_INNER: dict[str, dict[str, Any]] = {
    "notes": {"type": "array", "items": _NOTE},
    "provenance": {"type": "object", "additionalProperties": {"type": "string"}},
}


def schema_of_table(columns: Sequence[Column], form: str) -> dict[str, Any]:
    """Return what a line of a table is in a format."""
    if form == "csv":  # where types differ it has each value plain, as readers of CSV expect
        columns = [
            one if one.is_nested or one.kind is not Kind.JSON else replace(one, kind=Kind.TEXT)
            for one in columns
        ]
    return {"$schema": _DIALECT, **_object({one.name: _of_column(one) for one in columns})}


def schema_of_documents(survey: Survey) -> dict[str, Any]:
    """Return what an object of JSON or JSON Lines is, by the records that went by."""
    if survey.chosen:
        names = {one.name: _of_chosen(one, survey) for one in survey.chosen}
        return {"$schema": _DIALECT, **_object(names)}
    data = {
        "type": "object",
        "properties": {name: _of_field(seen) for name, seen in survey.fields.items()},
        "required": sorted(
            name for name, seen in survey.fields.items() if seen.present == survey.records
        ),
    }
    own = {one.name: _of_column(one) for one in own_columns()}
    added = {"enrichments": _of_enrichments(survey.said)} if survey.said else {}
    return {"$schema": _DIALECT, **_object({**own, "data": data, **_INNER, **added})}


def _of_enrichments(tasks: Mapping[str, Said]) -> dict[str, Any]:
    return _object({task: _of_task(task, said) for task, said in tasks.items()})


def _of_task(task: str, said: Said) -> dict[str, Any]:
    answer = {
        "type": ["object", "null"],
        "properties": {name: _of_field(seen) for name, seen in said.fields.items()},
    }
    told = {one.path[-1]: _of_column(one) for one in told_columns(task)}
    entry = _object({**told, "answer": answer, "made_by": {"const": "machine"}})
    return {**entry, "type": ["object", "null"], "description": said.about}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _of_column(column: Column) -> dict[str, Any]:
    said = _KINDS[column.kind]
    if column.is_nullable:
        said = said | {"type": [said["type"], "null"]}
    return said | {"description": column.about} if column.about else said


def _of_chosen(column: Column, survey: Survey) -> dict[str, Any]:
    if column.path[0] == "data":
        return _of_field(survey.fields[column.name], survey.records)
    if not column.is_ours:
        said = _of_field(survey.fields[column.name], survey.records)
        return said | {"description": survey.about(column)}
    return _INNER.get(column.name) or _of_column(column)


def _of_field(seen: Seen, records: int | None = None) -> dict[str, Any]:
    expected = seen.present if records is None else records
    types = sorted(seen.types | ({"null"} if seen.filled < expected else set())) or ["null"]
    said: dict[str, Any] = {"type": types if len(types) > 1 else types[0]}
    if seen.kind() is Kind.TIMESTAMP:
        said["format"] = "date-time"
    return said
