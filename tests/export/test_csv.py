"""CSV, read back by Python's own reader; nothing in it becomes a formula."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from longline.export.columns import Rows
from longline.export.export import ExportRequest, export, export_stream
from tests.export.sample_rows import row, rows


def cells(source: Rows) -> list[dict[str, str]]:
    target = io.BytesIO()
    export_stream(target, source, ExportRequest("-", "csv"))
    text = io.StringIO(target.getvalue().decode("utf-8"), newline="")
    return list(csv.DictReader(text, strict=True))


def only(data: dict[str, Any]) -> dict[str, str]:
    (found,) = cells(rows(data))
    return found


def test_a_line_holds_our_columns_and_those_of_the_data() -> None:
    assert only({"title": "Hat", "price": 1.5}) == {
        "source": "shop",
        "key": "0",
        "url": "https://shop.test/0",
        "version": "2",
        "score": "87.5",
        "grade": "Good",
        "first_seen_at": "2027-01-15T08:00:00+00:00",
        "changed_at": "2027-01-15T08:01:00+00:00",
        "title": "Hat",
        "price": "1.5",
    }


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff20"])
def test_text_that_looks_like_a_formula_is_written_as_text(sign: str) -> None:
    text = f"{sign}HYPERLINK(A1)"

    assert only({"title": text})["title"] == f"'{text}"


def test_a_formula_behind_a_nul_is_none_either() -> None:
    assert only({"title": "\x00=1+1"})["title"] == "'=1+1"


def test_our_own_columns_cannot_become_formulas() -> None:
    (found,) = cells(lambda: [row("=1+1", {}, url="@evil", grade="-x")])

    assert (found["key"], found["url"], found["grade"]) == ("'=1+1", "'@evil", "'-x")


def test_a_name_of_a_field_cannot_become_a_formula() -> None:
    assert only({"=cmd|' /C calc'!A0": 1})["'=cmd|' /C calc'!A0"] == "1"


@pytest.mark.parametrize("number", [-5, -0.25, 1e-7, 10**15, 0])
def test_a_number_stays_a_number(number: float) -> None:
    assert only({"n": number})["n"] == str(number)


def test_such_characters_inside_a_text_are_unchanged() -> None:
    assert only({"title": "a=b + c@d"})["title"] == "a=b + c@d"


def test_nested_values_are_json() -> None:
    nested = {"a": [1, None, "ü"], "b": {"c": '"'}}

    assert json.loads(only({"deep": nested})["deep"]) == nested


def test_what_is_absent_is_empty_and_false_is_not() -> None:
    found = only({"none": None, "no": False, "zero": 0, "empty": ""})

    assert (found["none"], found["no"], found["zero"], found["empty"]) == ("", "False", "0", "")


def test_columns_are_all_fields_that_occur_in_the_order_they_do() -> None:
    first, second, third = cells(rows({"a": 1}, {"c": 2, "a": 3}, {}))

    assert list(first)[-2:] == ["a", "c"]
    assert (first["c"], second["c"], third["a"]) == ("", "2", "")


def test_a_field_named_like_a_column_of_ours_gets_a_name_of_its_own() -> None:
    found = only({"key": "inner", "url": "there", "data.key": "third"})

    assert (found["key"], found["url"]) == ("0", "https://shop.test/0")
    assert (found["data.data.key"], found["data.url"]) == ("inner", "there")
    assert found["data.key"] == "third"


def test_text_of_any_sort_comes_back_as_it_was() -> None:
    text = 'Größe, "шапка"; 🎩\r\nsecond line\u2028'

    assert only({"title": text})["title"] == text


def test_no_records_are_a_header() -> None:
    target = io.BytesIO()

    assert export_stream(target, rows(), ExportRequest("-", "csv")).records == 0
    assert target.getvalue().startswith(b"source,key,url,")


def test_values_of_several_types_are_plain_and_the_schema_promises_no_more(
    tmp_path: Path,
) -> None:
    source = rows({"mixed": 5, "deep": [1]}, {"mixed": "5", "deep": {}}, {"mixed": [5], "deep": []})

    written = export(ExportRequest(str(tmp_path / "mixed.csv")), source)

    schema = json.loads(Path(written.schema or "").read_text("utf-8"))
    assert [one["mixed"] for one in cells(source)] == ["5", "5", "[5]"]
    assert schema["properties"]["mixed"] == {"type": "string"}


def test_a_note_counts_the_records_whose_nul_was_removed() -> None:
    written = export_stream(
        io.BytesIO(), rows({"a": "x\x00y"}, {"a": "x"}), ExportRequest("-", "csv")
    )

    (note,) = written.notes
    assert "NUL" in note
    assert "1" in note.split()
