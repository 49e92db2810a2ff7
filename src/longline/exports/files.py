"""Formats by name, and the one call that exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from longline.errors import BadOption
from longline.exports.base import Export, Rows, written_whole
from longline.exports.csv import write_csv
from longline.exports.json import write_json, write_json_lines

FORMATS: Mapping[str, Export] = {
    "jsonl": write_json_lines,
    "json": write_json,
    "csv": write_csv,
}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written where."""

    path: str
    format: str
    records: int


def export_to(path: Path, rows: Rows, *, form: str | None = None) -> Exported:
    """Write records to a file; the format is that of its ending unless said otherwise.

    Raises:
        BadOption: neither says a format that there is.
        DestinationUnwritable: the file cannot be written.
    """
    name = form or format_of(path)
    write = _writer_of(name)
    with written_whole(path) as target:
        count = write(rows, target)
    return Exported(str(path), name, count)


def export_stream(target: BinaryIO, rows: Rows, *, form: str) -> int:
    """Write records to an open stream, such as standard output.

    Raises:
        BadOption: there is no such format.
    """
    return _writer_of(form)(rows, target)


def format_of(path: Path) -> str:
    """Return the format that a file's ending stands for.

    Raises:
        BadOption: there is none for it.
    """
    name = path.suffix.lstrip(".").lower().replace("ndjson", "jsonl")
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise BadOption("--output", f"{path.name} ends in none of {known}; add --format")
    return name


def _writer_of(name: str) -> Export:
    if name not in FORMATS:
        raise BadOption("--format", f"{name!r} is none of {', '.join(FORMATS)}")
    return FORMATS[name]
