"""Export records to a file, a folder, an object or a table, atomically."""

from __future__ import annotations

import asyncio
import re
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import orjson

from longline.config.secrets import SecretRef
from longline.config.validation import nearest
from longline.core.errors import BadOption
from longline.export import postgres, s3
from longline.export.atomic_files import atomic_write, destination_error
from longline.export.columns import (
    Column,
    Row,
    Rows,
    export_enrichments,
    export_row,
    parse_columns,
    version_mark,
)
from longline.export.formats import COMPRESSIONS, OUTPUT, parse_format, survey_notes, write_rows
from longline.export.partitions import SCHEMA_FILE, atomic_folder, write_partitions
from longline.export.postgres import PostgresTable
from longline.export.redaction import Redactor
from longline.export.s3 import S3Object
from longline.export.table import FieldSurvey, open_table
from longline.storage.query import RecordQuery
from longline.storage.records import ENRICHMENTS, ExportCursors, RecordVersion
from longline.storage.store import Store

# ---------------- What an export is to write, and where

STDOUT = "-"
_TABLE = "longline_export"
NO_RECORDS = "no records match; the output is empty"


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The options of an export.

    Args:
        output: a file, a folder (with `partition`), s3://bucket/name.suffix or postgresql://….
        format: the name of a format; None: by the ending of the file.
        columns: the columns to write; empty: all.
        partition: the field whose values become folders.
        table: the table in PostgreSQL.
        secret: the login of a storage, or the password of a server.
        endpoint: the address of an S3-compatible storage.
        redactor: replaces personal data.
        has_schema: write a JSON Schema next to the records.
        is_numbered: add the next free number to the name, and replace nothing.
        tasks: the enrichment tasks to include; None: none, and no column for them.
        makes_folder: create missing folders above a file.
        previous_table: the name that the replaced table gets; None: it is dropped.
    """

    output: str
    format: str | None = None
    columns: tuple[str, ...] = ()
    partition: str | None = None
    table: str | None = None
    secret: SecretRef | None = None
    endpoint: str | None = None
    redactor: Redactor | None = None
    has_schema: bool = True
    is_numbered: bool = False
    tasks: tuple[str, ...] | None = None
    makes_folder: bool = False
    previous_table: str | None = None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written. `redacted` counts replacements; None without a redactor."""

    path: str
    format: str
    records: int
    parts: int = 1
    schema: str | None = None
    notes: tuple[str, ...] = ()
    redacted: dict[str, int] | None = None


def check_request(request: ExportRequest, *, option: str = OUTPUT) -> str:
    """Check that all options apply to the destination; return its scheme, '' for a file.

    `option` is the name of the option with the destination.

    Raises:
        BadOption: an option does not apply, or the destination is malformed.
    """
    scheme = ""
    if "://" in request.output:
        try:
            scheme = urlsplit(request.output).scheme
        except ValueError:
            shown = request.output.partition("://")[0]  # the rest may contain a password
            raise BadOption(option, f"{shown}://… is not a valid URL") from None
    if scheme not in ("", s3.SCHEME, *postgres.SCHEMES):
        raise BadOption(option, f"{scheme}://… is neither a file nor s3:// nor postgresql://")
    is_stdout = request.output == STDOUT
    refused: tuple[tuple[str, Any, bool], ...] = (
        ("--table", request.table, scheme not in postgres.SCHEMES),
        ("--format", request.format, scheme in postgres.SCHEMES),
        ("--endpoint", request.endpoint, scheme != s3.SCHEME),
        ("--secret", request.secret, scheme == ""),
        # Several objects or tables cannot be replaced atomically.
        ("--partition", request.partition, scheme != "" or is_stdout),
    )
    for name, value, is_refused in refused:
        if value is not None and is_refused:
            destination = "standard output" if is_stdout else scheme or "a file"
            raise BadOption(name, f"does not apply to {destination}")
    columns = parse_columns(request.columns, request.tasks or ())
    if request.tasks and columns and all(one.path[0] != ENRICHMENTS for one in columns):
        problem = f"--columns has no enrichment, such as enrichments.{request.tasks[0]}.@model"
        raise BadOption("--with-enrichments", problem)
    return scheme


def _numbered_name(name: str, used: Iterable[str]) -> str:
    """Return a name with the next free number: a-0001.csv for a.csv."""
    prefix, suffix = _split_suffix(name)
    pattern = re.compile(rf"{re.escape(prefix)}-(\d{{4,}}){re.escape(suffix)}", re.ASCII)
    numbers = [int(found[1]) for one in used if (found := pattern.fullmatch(one))]
    return f"{prefix}-{max(numbers, default=0) + 1:04}{suffix}"


def _split_suffix(name: str) -> tuple[str, str]:
    path = Path(name)
    suffix = path.suffix
    if suffix.lstrip(".").lower() in COMPRESSIONS:
        suffix = Path(path.stem).suffix + suffix
    return name.removesuffix(suffix) if suffix else name, suffix


def export(request: ExportRequest, rows: Rows) -> ExportResult:
    """Write records to the destination of a request; on an error it is unchanged.

    Raises:
        BadOption: an option does not fit.
        DestinationUnwritable: the destination refuses.
        DestinationFull: no disk space is left.
        MissingExtra: the library of the format is not installed.
        UnknownSecret: the login cannot be read.
    """
    scheme = check_request(request)
    columns = parse_columns(request.columns, request.tasks or ())
    rows = _prepare_rows(rows, request)
    if scheme in postgres.SCHEMES:
        result = _to_table(request, rows, columns)
    elif scheme == s3.SCHEME:
        result = _to_object(request, rows, columns)
    else:
        path = Path(request.output)
        if request.is_numbered:
            used = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
            path = path.with_name(_numbered_name(path.name, used))
        write = _to_file if request.partition is None else _to_folder
        result = write(path, request, rows, columns)
    return _with_notes(result, request)


def export_stream(target: BinaryIO, rows: Rows, request: ExportRequest) -> ExportResult:
    """Write records to an open stream; raise BadOption if an option does not fit."""
    check_request(request)
    file_format = parse_format(STDOUT, request.format or "jsonl")
    columns = parse_columns(request.columns, request.tasks or ())
    written = write_rows(file_format, _prepare_rows(rows, request), target, columns)
    result = ExportResult(STDOUT, file_format.suffix, written.records, notes=written.notes)
    return _with_notes(result, request)


def _with_notes(result: ExportResult, request: ExportRequest) -> ExportResult:
    notes = result.notes if result.records else (*result.notes, NO_RECORDS)
    redacted = dict(request.redactor.replaced) if request.redactor else None
    return replace(result, notes=notes, redacted=redacted)


def export_records(
    store: Store,
    request: ExportRequest,
    query: RecordQuery,
    *,
    incremental: str | None = None,
    stream: BinaryIO | None = None,
) -> ExportResult | None:
    """Export the records of a query, to `stream` if the request is for standard output.

    With `incremental`, only records are written that no earlier export of this name has written;
    None when there are none. Code with an event loop calls it in a thread.

    Raises:
        BadOption: an option does not fit.
        LonglineError: as for `export`.
    """
    # Records that were exported before must not use up the limit.
    wanted = replace(query, limit=None) if incremental else query

    def read() -> Iterable[Row]:
        return store.records.stream(wanted, with_enrichments=request.tasks is not None)

    def write(request: ExportRequest, rows: Rows) -> ExportResult:
        return export_stream(stream, rows, request) if stream else export(request, rows)

    if incremental is None:
        return write(request, read)
    if query.as_of is not None:
        raise BadOption("--incremental", "it cannot be combined with --as-of")
    unwritten = IncrementalRows(
        store.export_cursors, incremental, read, limit=query.limit, tasks=request.tasks or ()
    )
    if unwritten.is_empty():
        return None
    done = write(replace(request, is_numbered=stream is None), unwritten)
    asyncio.run(store.export_cursors.add(incremental, unwritten.yielded()))
    return done


async def choose_tasks(store: Store, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return these enrichment tasks, or all that were run, or None; raise BadOption for others."""
    known = list(await store.questions.counts())
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadOption("--with-enrichments", f"task {name!r} was never run here{hint}")
    return wanted or tuple(known) or None


def _prepare_rows(rows: Rows, request: ExportRequest) -> Rows:
    def redact(row: Row) -> Row:
        return request.redactor.clean(row) if request.redactor else row

    def read() -> Iterator[Row]:
        for row in rows():
            prepared = redact(export_row(row))
            if request.tasks is not None:
                # Each entry by itself: a task called `phones` is not a field with a telephone
                # number.
                prepared[ENRICHMENTS] = {
                    task: entry and redact(entry)
                    for task, entry in export_enrichments(row, request.tasks).items()
                }
            yield prepared

    return read


def _to_file(
    path: Path, request: ExportRequest, rows: Rows, columns: tuple[Column, ...]
) -> ExportResult:
    file_format = parse_format(path.name, request.format)
    how = {"may_replace": not request.is_numbered, "makes_folder": request.makes_folder}
    with atomic_write(path, **how) as target:
        written = write_rows(file_format, rows, target, columns)
    result = ExportResult(str(path), file_format.suffix, written.records, notes=written.notes)
    if not request.has_schema:
        return result
    schema = path.with_name(f"{path.name}.schema.json")
    with atomic_write(schema) as target:
        target.write(_schema_bytes(written.schema))
    return replace(result, schema=str(schema))


def _to_folder(
    path: Path, request: ExportRequest, rows: Rows, columns: tuple[Column, ...]
) -> ExportResult:
    (column,) = parse_columns([request.partition or ""], request.tasks or ())
    file_format = parse_format(path.name, request.format)
    how = {"may_replace": not request.is_numbered, "makes_folder": request.makes_folder}
    with atomic_folder(path, column.name, **how) as folder:
        written, parts = write_partitions(folder, file_format, column, rows, columns)
        if request.has_schema:
            (folder / SCHEMA_FILE).write_bytes(_schema_bytes(written.schema))
    schema = str(path / SCHEMA_FILE) if request.has_schema else None
    return ExportResult(
        str(path), file_format.suffix, written.records, parts, schema, written.notes
    )


def _to_object(request: ExportRequest, rows: Rows, columns: tuple[Column, ...]) -> ExportResult:
    destination = object_of(request)
    if request.is_numbered:
        prefix, _ = _split_suffix(destination.name)
        destination = destination.renamed(
            _numbered_name(destination.name, destination.neighbours(f"{prefix}-"))
        )
    file_format = parse_format(destination.name, request.format)
    schema = destination.renamed(f"{destination.name}.schema.json") if request.has_schema else None
    try:
        with tempfile.TemporaryDirectory(prefix="longline-") as folder:
            path = Path(folder) / "records"
            with path.open("wb") as target:
                written = write_rows(file_format, rows, target, columns)
            if schema:  # first, so that it exists before the records do
                schema_path = Path(folder) / "schema"
                schema_path.write_bytes(_schema_bytes(written.schema))
                schema.upload(schema_path)
            destination.upload(path)
    except OSError as error:
        raise destination_error(destination.shown, error) from error
    shown = schema.shown if schema else None
    return ExportResult(
        destination.shown, file_format.suffix, written.records, schema=shown, notes=written.notes
    )


def _to_table(request: ExportRequest, rows: Rows, columns: tuple[Column, ...]) -> ExportResult:
    destination = table_of(request)
    if request.is_numbered:
        destination = destination.numbered()
    survey = FieldSurvey(columns)
    try:
        with open_table(rows(), survey) as table:
            notes = destination.fill(
                table, may_replace=not request.is_numbered, previous=request.previous_table
            )
    except OSError as error:
        raise destination_error(destination.shown, error) from error
    notes = [*notes, *survey_notes(survey)]
    return ExportResult(destination.shown, "postgresql", survey.records, notes=tuple(notes))


def table_of(request: ExportRequest) -> PostgresTable:
    """Return the table of a request to PostgreSQL."""
    return PostgresTable(request.output, request.table or _TABLE, _read_secret(request))


def object_of(request: ExportRequest) -> S3Object:
    """Return the object of a request to S3."""
    return S3Object(request.output, login=_read_secret(request), endpoint=request.endpoint)


def _read_secret(request: ExportRequest) -> str | None:
    return request.secret.read().get_secret_value() if request.secret else None


def _schema_bytes(schema: dict[str, Any]) -> bytes:
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


class IncrementalRows:
    """Records that an export has not written yet; remembers which of them it yielded.

    Once they are written, pass `yielded` to the cursors. An export that is killed in between writes
    the same records again: some may be exported twice, none is left out. A new answer of one of
    `tasks` makes a record new, too.
    """

    def __init__(
        self,
        cursors: ExportCursors,
        name: str,
        rows: Rows,
        *,
        limit: int | None = None,
        tasks: Sequence[str] = (),
    ) -> None:
        self._cursors = cursors
        self._name = name
        self._rows = rows
        self._limit = limit
        self._tasks = tasks
        self._ids = array("q")
        self._marks = array("q")

    def __call__(self) -> Iterator[Row]:
        """Read them from the start; `yielded` is about the last reading."""
        self._ids, self._marks = array("q"), array("q")
        for row, mark in self._unwritten():
            self._ids.append(row["id"])
            self._marks.append(mark)
            yield row

    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return next(self._unwritten(), None) is None

    def yielded(self) -> Iterator[RecordVersion]:
        """Yield the ids of the records and their `version_mark`."""
        return zip(self._ids, self._marks, strict=True)

    def _unwritten(self) -> Iterator[tuple[Row, int]]:
        marked = (
            {"id": row["id"], "version": version_mark(row, self._tasks), "row": row}
            for row in self._rows()
        )
        unwritten = islice(self._cursors.unwritten(self._name, marked), self._limit)
        return ((one["row"], one["version"]) for one in unwritten)
