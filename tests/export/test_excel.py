"""Excel, read back by openpyxl."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import openpyxl  # type: ignore[import-untyped]  # ships no types
import pytest

from longline.export.columns import export_row
from longline.export.excel import write_excel
from longline.export.export import ExportRequest, export
from longline.export.table import FieldSurvey, open_table
from tests.export.sample_rows import Tap, export_to, rows
from tests.export.sample_values import UNLIKE, column


def sheet(path: Path, number: int = 0) -> list[dict[str, Any]]:
    book = openpyxl.load_workbook(path)
    header, *lines = book.worksheets[number].iter_rows(values_only=True)
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_cells_have_the_types_of_what_they_hold(tmp_path: Path) -> None:
    export_to(tmp_path / "a.xlsx", rows(*UNLIKE))

    found = sheet(tmp_path / "a.xlsx")

    assert column("is_new", found) == [True, False, None]
    assert column("price", found) == [1.5, 2, None]
    assert column("mixed", found) == ['"5"', "5", None]
    assert column("at", found) == ["2026-11-15T17:00:00.123456Z", None, None]
    assert column("version", found) == [2, 2, 2]


def test_digits_that_a_spreadsheet_would_drop_are_text(tmp_path: Path) -> None:
    export_to(tmp_path / "a.xlsx", rows({"n": 999_999_999_999_999}, {"n": 10**15}, {"n": 2**62}))

    assert column("n", sheet(tmp_path / "a.xlsx")) == [10**15 - 1, str(10**15), str(2**62)]


@pytest.mark.parametrize("text", ["=1+1", "{=1+1}", "+1", "@x", "https://a.test/", "-2"])
def test_text_is_only_ever_text(tmp_path: Path, text: str) -> None:
    export_to(tmp_path / "a.xlsx", rows({text: text}))

    book = openpyxl.load_workbook(tmp_path / "a.xlsx")
    name, value = (line[-1] for line in book.active.iter_rows())
    assert (name.value, name.data_type, name.hyperlink) == (text, "s", None)
    assert (value.value, value.data_type, value.hyperlink) == (text, "s", None)


def test_text_of_any_script_comes_back(tmp_path: Path) -> None:
    export_to(tmp_path / "a.xlsx", rows({"t": 'Größe "шапка" 🎩 <b>&amp;</b>  two blanks '}))

    assert sheet(tmp_path / "a.xlsx")[0]["t"] == 'Größe "шапка" 🎩 <b>&amp;</b>  two blanks '


def test_text_that_is_too_long_for_a_cell_is_cut_with_a_note(tmp_path: Path) -> None:
    long, wide = "x" * 32_768, "🎩" * 16_384

    done = export(
        ExportRequest(str(tmp_path / "a.xlsx"), has_schema=False),
        rows({"long": long, "wide": wide}),
    )

    (found,) = sheet(tmp_path / "a.xlsx")
    assert (found["long"], found["wide"]) == (long[:-1], wide[:-1])
    (note,) = done.notes
    assert "2" in note.split()
    assert "32,767" in note


def test_what_is_too_much_for_a_sheet_goes_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"

    with path.open("wb") as target, open_table(map(export_row, Tap(7)()), FieldSurvey()) as table:
        notes = write_excel(table, target, max_rows=4)

    assert [column("key", sheet(path, number)) for number in range(3)] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6"],
    ]
    (note,) = notes
    assert {"3", "4"} <= set(note.split())


def test_no_records_are_a_header(tmp_path: Path) -> None:
    export_to(tmp_path / "a.xlsx", rows())

    book = openpyxl.load_workbook(io.BytesIO((tmp_path / "a.xlsx").read_bytes()))
    (header,) = book.active.iter_rows(values_only=True)
    assert header[:2] == ("source", "key")
