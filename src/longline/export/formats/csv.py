"""CSV, with nested values as JSON, and protected against formula injection."""

from __future__ import annotations

import csv
from typing import Any, BinaryIO

from longline.core.json_text import as_text
from longline.export.table import Table

# The last four are full-width forms, which East Asian spreadsheets read the same way.
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_csv(table: Table, target: BinaryIO) -> list[str]:
    """Write a header and one line per record, in UTF-8."""
    writer = csv.writer(_Encoded(target))
    writer.writerow([cell(name) for name in table.names])
    changed = 0
    for line in table.raw():
        changed += any(isinstance(value, str) and "\x00" in value for value in line)
        writer.writerow([cell(value) for value in line])
    return [f"NUL characters were removed from {changed} records"] if changed else []


class _Encoded:
    """A text file that, unlike TextIOWrapper, never closes its target."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, text: str) -> int:
        return self._target.write(text.encode())


def cell(value: Any) -> Any:
    """Return a value as a cell; text that looks like a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else as_text(value)
    text = text.replace("\x00", "")
    return f"'{text}" if text.startswith(_DANGEROUS) else text
