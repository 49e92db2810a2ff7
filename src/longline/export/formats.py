"""The export formats: JSON, CSV and SQLite, and the others by name."""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO, Protocol, cast

import orjson

from longline.config.plugins import EXPORTERS, load_plugin, plugin_names
from longline.core.errors import BadOption
from longline.core.json import as_bytes, as_text
from longline.export.arrow import load_pyarrow, write_duckdb, write_parquet
from longline.export.atomic_files import folder_of, working_folder
from longline.export.columns import Column, ColumnType, Rows, distinct_names
from longline.export.excel import write_excel
from longline.export.table import FieldSurvey, Table, document_schema, open_table, table_schema

# ---------------- CSV, with nested values as JSON, and protected against formula injection

# The last four are full-width forms, which East Asian spreadsheets read the same way.
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write_csv(table: Table, target: BinaryIO) -> list[str]:
    """Write a header and one line per record, in UTF-8."""
    # Unlike TextIOWrapper, it never closes its target.
    writer = csv.writer(codecs.getwriter("utf-8")(target))
    writer.writerow([cell(name) for name in table.names])
    changed = 0
    for line in table.raw():
        changed += any(isinstance(value, str) and "\x00" in value for value in line)
        writer.writerow([cell(value) for value in line])
    return [f"NUL characters were removed from {changed} records"] if changed else []


def cell(value: Any) -> Any:
    """Return a value as a cell; text that looks like a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else as_text(value)
    text = text.replace("\x00", "")
    return f"'{text}" if text.startswith(_DANGEROUS) else text


# ---------------- JSON (one array) and JSON Lines (one object per line)


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


# ---------------- SQLite: a database file with one table, `records`

_MAX_COLUMNS = 2_000
_TYPES = {
    ColumnType.BOOLEAN: "BOOLEAN",  # SQLite stores 0 and 1
    ColumnType.INTEGER: "INTEGER",
    ColumnType.NUMBER: "REAL",
    ColumnType.TEXT: "TEXT",
    ColumnType.TIMESTAMP: "TEXT",  # the date functions of SQLite read ISO 8601
    ColumnType.JSON: "TEXT",
}


def write_sqlite(table: Table, target: BinaryIO) -> list[str]:
    """Write a temporary file, since SQLite needs a path, and copy it."""
    table.check_width(_MAX_COLUMNS)
    places = ", ".join("?" for _ in table.columns)
    with working_folder(target) as folder:
        path = folder / "records.sqlite"
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")  # a file that fails is discarded
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("BEGIN")
                definitions = table.definitions(distinct_names(table.names), _TYPES)
                connection.execute(f"CREATE TABLE records ({definitions})")
                insert = f"INSERT INTO records VALUES ({places})"  # noqa: S608  # only question marks
                connection.executemany(insert, table.lines())
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            raise OSError(errno.ENOSPC if is_full else 0, str(error)) from error
        with path.open("rb") as made:
            shutil.copyfileobj(made, target)
    return []


class DocumentExporter(Protocol):
    """Writes records as objects, in bounded memory; packages add some by entry points."""

    def __call__(self, rows: Rows, target: BinaryIO) -> int:
        """Write all rows, as `export_row` returns them; return their number."""


class TableExporter(Protocol):
    """Writes a table in one format, in bounded memory."""

    def __call__(self, table: Table, target: BinaryIO) -> list[str]:
        """Write all lines; return notes for the user."""


OUTPUT = "--output"
"""The usual option for the destination."""
DOCUMENTS: Mapping[str, DocumentExporter] = {"jsonl": write_json_lines, "json": write_json}
TABLES: Mapping[str, TableExporter] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "xlsx": write_excel,
    "sqlite": write_sqlite,
    "duckdb": write_duckdb,
}
FORMATS = (*DOCUMENTS, *TABLES)
COMPRESSIONS = ("gz", "zst")
_COMPRESSIBLE = ("jsonl", "json", "csv")
_ALIASES = {"ndjson": "jsonl", "db": "sqlite", "sqlite3": "sqlite", "pq": "parquet"}


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format and the compression of its file: `gz`, `zst` or None."""

    name: str
    compression: str | None = None

    @property
    def suffix(self) -> str:
        """The ending of a file name, without its dot."""
        return f"{self.name}.{self.compression}" if self.compression else self.name


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The number of records written, their JSON Schema, and notes for the user."""

    records: int
    schema: dict[str, Any]
    notes: tuple[str, ...] = ()


def parse_format(name: str, format_name: str | None = None, *, option: str = OUTPUT) -> FileFormat:
    """Return the format of a file by its suffix, or by its name if that is given.

    `option` is the one with the file; only --output can be combined with --format.

    Raises:
        BadOption: there is no such format.
    """
    path = PurePath(name)
    last = path.suffix.lstrip(".").lower()
    compression = last if last in COMPRESSIONS else None
    suffix = (PurePath(path.stem) if compression else path).suffix.lstrip(".").lower()
    word = format_name or suffix
    found = FileFormat(_ALIASES.get(word, word), compression)
    if format_name is None and found.name not in FORMATS:
        remedy = "add --format" if option == OUTPUT else "add one of these suffixes"
        raise BadOption(
            option, f"{path.name} does not end in one of {', '.join(FORMATS)}; {remedy}"
        )
    if compression and found.name not in _COMPRESSIBLE:
        raise BadOption(option, f"{found.name} cannot be compressed; omit .{compression}")
    if found.name not in FORMATS and found.name not in plugin_names(EXPORTERS):
        raise _unknown_format(found.name)
    return found


def write_rows(
    file_format: FileFormat, rows: Rows, target: BinaryIO, columns: Sequence[Column] = ()
) -> WriteResult:
    """Write rows, as `export_row` returns them, to an open file; empty `columns` are all.

    Raises:
        BadOption: the format does not exist, or cannot hold the records.
        MissingExtra: the library of the format is not installed.
        BadSource: the format is that of a plugin, and is broken.
    """
    survey = FieldSurvey(columns)
    with compressed(target, file_format.compression) as file:
        if file_format.name not in TABLES:
            count = write_document(file_format.name, lambda: survey.watch(rows()), file, columns)
            return WriteResult(count, document_schema(survey), survey_notes(survey))
        with open_table(rows(), survey, folder=folder_of(target)) as table:
            notes = TABLES[file_format.name](table, file)
            schema = table_schema(table.columns, file_format.name)
    return WriteResult(survey.records, schema, (*notes, *survey_notes(survey)))


def write_document(name: str, rows: Rows, file: BinaryIO, columns: Sequence[Column]) -> int:
    """Write rows as objects, with these columns if there are any; return their number."""
    write: DocumentExporter | None = DOCUMENTS.get(name) or load_plugin(EXPORTERS, name)
    if write is None:
        raise _unknown_format(name)
    if not columns:
        return write(rows, file)
    return write(lambda: ({one.name: one.raw(row) for one in columns} for row in rows()), file)


def survey_notes(survey: FieldSurvey) -> tuple[str, ...]:
    """Return notes on columns that no record has, and on outdated answers."""
    if not survey.records:
        return ()
    empty = (
        f"no record has {one.name}"
        for one in survey.chosen
        if not one.is_own and not survey.fields[one.name].filled
    )
    outdated = (
        f"{answers.outdated} records changed after {task} answered; their answers are left out"
        for task, answers in survey.answers.items()
        if answers.outdated
    )
    return (*empty, *outdated)


def _unknown_format(name: str) -> BadOption:
    known = ", ".join([*FORMATS, *plugin_names(EXPORTERS)])
    return BadOption("--format", f"{name!r} is not one of {known}")


@contextmanager
def compressed(target: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Open a file that writes compressed to `target`; raise MissingExtra if zst lacks pyarrow."""
    if compression is None:
        yield target
    elif compression == "gz":
        # Without a name and a time, the same records give the same file.
        with gzip.GzipFile("", "wb", 6, target, mtime=0) as file:
            yield cast("BinaryIO", file)
    else:
        pa = load_pyarrow("parquet", "zstd")
        # Closing it closes its file, and the caller still has to sync the target to disk.
        with (
            os.fdopen(os.dup(target.fileno()), "wb") as copy,
            pa.CompressedOutputStream(copy, "zstd") as file,
        ):
            yield file
