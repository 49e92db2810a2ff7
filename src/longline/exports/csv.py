"""CSV: a column a field; nested values as JSON; no cell that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from typing import Any, BinaryIO

import orjson

from longline.exports.base import Row, Rows
from longline.exports.rows import OWN_COLUMNS, outward

# The last four are the wide forms, which spreadsheets in East Asian languages read the same way.
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_csv(rows: Rows, target: BinaryIO) -> int:
    """Write a header and a line a record, in UTF-8.

    The columns are all fields that occur, found in a first pass over the records. A field of the
    data that has the name of one of our own columns gets `data.` before it.
    """
    fields = list(dict.fromkeys(field for row in rows() for field in row["data"]))
    names = _column_names(fields)
    text = io.TextIOWrapper(target, "utf-8", newline="", write_through=True)
    writer = csv.writer(text)
    writer.writerow([*OWN_COLUMNS, *names])
    count = 0
    for row in rows():
        writer.writerow(_line(row, fields))
        count += 1
    text.detach()  # the caller closes the file
    return count


def _column_names(fields: list[str]) -> list[str]:
    taken = {*OWN_COLUMNS, *fields}
    names = []
    for field in fields:
        name = f"data.{field}" if field in OWN_COLUMNS else field
        while name != field and name in taken:
            name = f"data.{name}"
        taken.add(name)
        names.append(cell(name))
    return names


def _line(row: Row, fields: list[str]) -> list[Any]:
    shown = outward(row)
    own = [cell(shown[name]) for name in OWN_COLUMNS]
    return own + [cell(row["data"].get(field)) for field in fields]


def cell(value: Any) -> Any:
    """Return a value as a cell: text that looks like a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    text = text.replace("\x00", "")
    return f"'{text}" if text.startswith(_DANGEROUS) else text
