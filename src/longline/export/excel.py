"""Excel, with typed cells; text is never a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.atomic_files import working_folder
from longline.export.table import Table

_MAX_COLUMNS = 16_384
_MAX_ROWS = 1_048_576  # of a sheet, with its header
_MAX_LENGTH = 32_767  # UTF-16 units in a cell
_MAX_INTEGER = 10**15  # Excel stores 15 digits of a number


def write_excel(table: Table, target: BinaryIO, *, max_rows: int = _MAX_ROWS) -> list[str]:
    """Write as many sheets as needed; raise MissingExtra if XlsxWriter is not installed."""
    try:
        import xlsxwriter  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
    except ImportError as error:
        raise MissingExtra("excel", "Excel") from error
    table.check_width(_MAX_COLUMNS)
    with working_folder(target) as folder:
        book = xlsxwriter.Workbook(target, {"constant_memory": True, "tmpdir": str(folder)})
        book.use_zip64()
        sheets = _Sheets(book, table.names, max_rows)
        for line in table.lines():
            sheets.add(line)
        try:
            book.close()
        except xlsxwriter.exceptions.FileCreateError as error:
            raise OSError(0, str(error)) from error
    return sheets.notes()


class _Sheets:
    """Fills one sheet after another, and counts cells that were cut."""

    def __init__(self, book: Any, names: Sequence[str], max_rows: int) -> None:
        self._book = book
        self._names = names
        self._max_rows = max_rows
        self._bold = book.add_format({"bold": True})
        self._sheet: Any = None
        self._number = 0
        self._row = 0
        self._cut = 0
        self._add_sheet()

    def add(self, line: Sequence[Any]) -> None:
        if self._row >= self._max_rows:
            self._add_sheet()
        for column, value in enumerate(line):
            self._write_cell(column, value)
        self._row += 1

    def notes(self) -> list[str]:
        notes = []
        if self._cut:
            limit = f"{_MAX_LENGTH:,} characters, the limit of a cell"
            notes.append(f"{self._cut} texts were cut to {limit}")
        if self._number > 1:
            notes.append(
                f"{self._number} sheets were written; each has up to {self._max_rows:,} rows"
            )
        return notes

    def _add_sheet(self) -> None:
        self._number += 1
        name = "records" if self._number == 1 else f"records {self._number}"
        self._sheet = self._book.add_worksheet(name)
        for column, title in enumerate(self._names):
            self._sheet.write_string(0, column, self._cut_text(title), self._bold)
        self._row = 1

    def _write_cell(self, column: int, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool):
            self._sheet.write_boolean(self._row, column, value)
        elif isinstance(value, float) or (isinstance(value, int) and abs(value) < _MAX_INTEGER):
            self._sheet.write_number(self._row, column, value)
        else:
            self._sheet.write_string(self._row, column, self._cut_text(str(value)))

    def _cut_text(self, text: str) -> str:
        if len(text) * 2 <= _MAX_LENGTH:  # even if each takes two units
            return text
        units = text.encode("utf-16-le")
        if len(units) <= 2 * _MAX_LENGTH:
            return text
        self._cut += 1
        return units[: 2 * _MAX_LENGTH].decode("utf-16-le", errors="ignore")
