"""JSON (one array) and JSON Lines (one object per line)."""

from __future__ import annotations

from typing import BinaryIO

import orjson

from longline.core.json_text import as_bytes
from longline.export.rows import Rows


def write_json_lines(rows: Rows, target: BinaryIO) -> int:
    """Write one object per line."""
    count = 0
    for row in rows():
        target.write(as_bytes(row, option=orjson.OPT_APPEND_NEWLINE))
        count += 1
    return count


def write_json(rows: Rows, target: BinaryIO) -> int:
    """Write one array, with one element per line."""
    count = 0
    target.write(b"[")
    for row in rows():
        target.write(b",\n" if count else b"\n")
        target.write(as_bytes(row))
        count += 1
    target.write(b"\n]\n")
    return count
