"""The JSON Schema of exported records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from longline.export.columns import Column, ColumnType, answer_metadata_columns, own_columns
from longline.export.table import AnswerStatistics, FieldStatistics, FieldSurvey

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
