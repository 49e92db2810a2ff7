"""CSV: a column a field; nested values as JSON; no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from typing import Any, BinaryIO

from longline.exports.jsons import as_text
from longline.exports.tables import Table

# The last four are the wide forms, which spreadsheets in East Asian languages read the same way.
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_csv(table: Table, target: BinaryIO) -> list[str]:
    """Write a header and a line a record, in UTF-8."""
    text = io.TextIOWrapper(target, "utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([cell(name) for name in table.names])
    for line in table.raw():
        writer.writerow([cell(value) for value in line])
    text.detach()  # the caller closes the file
    return []


def cell(value: Any) -> Any:
    """Return a value as a cell: text that looks like a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else as_text(value)
    text = text.replace("\x00", "")
    return f"'{text}" if text.startswith(_DANGEROUS) else text
