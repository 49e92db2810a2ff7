"""The schema next to the data describes its rows; jsonschema checks each of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.export.export import ExportRequest, export
from tests.export.sample_rows import rows
from tests.export.sample_values import UNLIKE


def schema_of(path: Path) -> Any:
    schema = json.loads(path.with_name(f"{path.name}.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.mark.parametrize("columns", [(), ("key", "mixed", "sizes.0", "price", "at", "notes")])
def test_every_line_is_as_the_schema_says(tmp_path: Path, columns: tuple[str, ...]) -> None:
    path = tmp_path / "a.jsonl"
    export(ExportRequest(str(path), columns=columns), rows(*UNLIKE))

    judge = jsonschema.Draft202012Validator(schema_of(path))
    for line in path.read_bytes().splitlines():
        judge.validate(json.loads(line))


def test_every_row_of_a_table_is_as_the_schema_says(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    export(ExportRequest(str(path)), rows(*UNLIKE))

    judge = jsonschema.Draft202012Validator(schema_of(path))
    for line in pq.read_table(path).to_pylist():
        judge.validate(json.loads(json.dumps(line, default=lambda time: time.isoformat())))


def test_the_schema_has_types_and_required_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    export(ExportRequest(str(path)), rows({"a": 1, "b": "x"}, {"a": None, "b": "y", "c": [1]}))

    data = schema_of(path)["properties"]["data"]
    assert data["properties"] == {
        "a": {"type": ["integer", "null"]},
        "b": {"type": "string"},
        "c": {"type": "array"},
    }
    assert data["required"] == ["a", "b"]


def test_the_schema_of_a_table_has_its_column_types(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    export(ExportRequest(str(path), columns=("title", "at", "mixed")), rows(*UNLIKE[:2]))

    assert schema_of(path)["properties"] == {
        "title": {"type": "string"},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "mixed": {"type": "string", "contentMediaType": "application/json"},
    }


def test_no_records_have_a_schema_too(tmp_path: Path) -> None:
    export(ExportRequest(str(tmp_path / "a.jsonl")), rows())

    assert schema_of(tmp_path / "a.jsonl")["properties"]["data"]["properties"] == {}


def test_it_can_be_left_out(tmp_path: Path) -> None:
    export(ExportRequest(str(tmp_path / "a.jsonl"), has_schema=False), rows())

    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]
