"""CSV: a column a field; values plain, nested ones as JSON; no cell that becomes a formula."""

from __future__ import annotations

import csv
from typing import Any, BinaryIO

from longline.core.json_text import as_text
from longline.export.tables import Table

# The last four are the wide forms, which spreadsheets in East Asian languages read the same way.
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_csv(table: Table, target: BinaryIO) -> list[str]:
    """Write a header and a line a record, in UTF-8."""
    writer = csv.writer(_Encoded(target))
    writer.writerow([cell(name) for name in table.names])
    mended = 0
    for line in table.raw():
        mended += any(isinstance(value, str) and "\x00" in value for value in line)
        writer.writerow([cell(value) for value in line])
    return [f"{mended} records had NUL characters, which are left out"] if mended else []


class _Encoded:
    """A file for text; unlike Python's own it never closes the one below, even after an error."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, text: str) -> int:
        return self._target.write(text.encode())


def cell(value: Any) -> Any:
    """Return a value as a cell: text that looks like a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else as_text(value)
    text = text.replace("\x00", "")
    return f"'{text}" if text.startswith(_DANGEROUS) else text
