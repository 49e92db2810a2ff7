"""JSON and JSON Lines, read back by Python's own reader."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest

from longline.export.columns import Rows
from longline.export.export import ExportRequest, export_stream
from tests.export.sample_rows import rows

DATA: list[dict[str, Any]] = [
    {"title": "Größe 42 — шапка 🎩", "price": 1.5, "sizes": [40, {"eu": None}], "is_new": True},
    {"title": 'a "quoted"\nline\u2028and\x00nul', "nested": {"a": {"b": []}}},
    {},
]


def written(form: str, source: Rows) -> str:
    target = io.BytesIO()
    export_stream(target, source, ExportRequest("-", form))
    return target.getvalue().decode("utf-8")


def test_json_lines_hold_a_record_a_line() -> None:
    lines = written("jsonl", rows(*DATA)).split("\n")

    assert lines.pop() == ""
    assert [json.loads(line)["data"] for line in lines] == DATA


def test_json_is_one_array() -> None:
    assert [one["data"] for one in json.loads(written("json", rows(*DATA)))] == DATA


@pytest.mark.parametrize(("form", "empty"), [("json", "[\n]\n"), ("jsonl", "")])
def test_no_records_are_an_empty_file_of_the_format(form: str, empty: str) -> None:
    assert written(form, rows()) == empty


def test_a_record_says_where_it_comes_from_and_when_it_changed() -> None:
    (found,) = json.loads(written("json", rows({"a": 1})))

    assert found == {
        "source": "shop",
        "key": "0",
        "url": "https://shop.test/0",
        "version": 2,
        "score": 87.5,
        "grade": "Good",
        "first_seen_at": "2027-01-15T08:00:00+00:00",
        "changed_at": "2027-01-15T08:01:00+00:00",
        "data": {"a": 1},
        "notes": [{"field": "price", "text": "sold out"}],
        "provenance": {"a": "page"},
    }


def test_what_is_no_number_is_null_and_never_breaks_the_file() -> None:
    (found,) = json.loads(written("json", rows({"a": math.nan, "b": math.inf})))

    assert found["data"] == {"a": None, "b": None}


def test_a_number_of_any_length_keeps_its_digits() -> None:
    (found,) = json.loads(written("json", rows({"n": 10**30, "deep": [{"m": -(10**25)}]})))

    assert found["data"] == {"n": 10**30, "deep": [{"m": -(10**25)}]}


def test_chosen_columns_make_flat_objects_in_their_order() -> None:
    target = io.BytesIO()
    chosen = ("price.amount", "key", "tags.1", "gone")

    done = export_stream(
        target,
        rows({"price": {"amount": 5}, "tags": ["a", "b"]}),
        ExportRequest("-", columns=chosen),
    )

    assert target.getvalue() == b'{"price.amount":5,"key":"0","tags.1":"b","gone":null}\n'
    (note,) = done.notes
    assert "gone" in note
