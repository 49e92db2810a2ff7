"""Excel: sheets of typed cells; text is only ever text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

from longline.core.errors import MissingExtra
from longline.export.base import working_folder
from longline.export.tables import Table, check_width

_MOST_COLUMNS = 16_384
_MOST_ROWS = 1_048_576  # of a sheet, its header among them
_LONGEST = 32_767  # UTF-16 units in a cell
_EXACT = 10**15  # a spreadsheet keeps 15 digits of a number


def write_excel(table: Table, target: BinaryIO, *, most_rows: int = _MOST_ROWS) -> list[str]:
    """Write a sheet, and a further one whenever it is full.

    Raises:
        MissingExtra: XlsxWriter is not installed.
    """
    try:
        import xlsxwriter  # type: ignore[import-untyped]  # noqa: PLC0415  # ships no types; an extra
    except ImportError as error:
        raise MissingExtra("excel", "Excel") from error
    check_width(table, _MOST_COLUMNS)
    with working_folder(target) as folder:
        book = xlsxwriter.Workbook(target, {"constant_memory": True, "tmpdir": str(folder)})
        book.use_zip64()
        sheets = _Sheets(book, table.names, most_rows)
        for line in table.lines():
            sheets.add(line)
        try:
            book.close()
        except xlsxwriter.exceptions.FileCreateError as error:
            raise OSError(0, str(error)) from error
    return sheets.notes()


class _Sheets:
    """The sheet that is being filled, and what had to be done to fit."""

    def __init__(self, book: Any, names: Sequence[str], most_rows: int) -> None:
        self._book = book
        self._names = names
        self._most_rows = most_rows
        self._bold = book.add_format({"bold": True})
        self._sheet: Any = None
        self._number = 0
        self._row = 0
        self._cut = 0
        self._begin()

    def add(self, line: Sequence[Any]) -> None:
        if self._row >= self._most_rows:
            self._begin()
        for place, value in enumerate(line):
            self._write(place, value)
        self._row += 1

    def notes(self) -> list[str]:
        notes = []
        if self._cut:
            notes.append(f"{self._cut} texts were cut to the {_LONGEST:,} characters of a cell")
        if self._number > 1:
            notes.append(f"{self._number} sheets, since one holds {self._most_rows:,} rows")
        return notes

    def _begin(self) -> None:
        self._number += 1
        name = "records" if self._number == 1 else f"records {self._number}"
        self._sheet = self._book.add_worksheet(name)
        for place, title in enumerate(self._names):
            self._sheet.write_string(0, place, self._fitting(title), self._bold)
        self._row = 1

    def _write(self, place: int, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool):
            self._sheet.write_boolean(self._row, place, value)
        elif isinstance(value, int | float) and (isinstance(value, float) or abs(value) < _EXACT):
            self._sheet.write_number(self._row, place, value)
        else:
            self._sheet.write_string(self._row, place, self._fitting(str(value)))

    def _fitting(self, text: str) -> str:
        if len(text) * 2 <= _LONGEST:  # even if each takes two units
            return text
        units = text.encode("utf-16-le")
        if len(units) <= 2 * _LONGEST:
            return text
        self._cut += 1
        return units[: 2 * _LONGEST].decode("utf-16-le", errors="ignore")
