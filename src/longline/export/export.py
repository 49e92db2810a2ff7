"""Export records to a file, a folder, an object or a table, atomically."""

from __future__ import annotations

import asyncio
import re
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import orjson

from longline.config.secrets import SecretRef
from longline.config.validation_messages import nearest
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
from longline.export.formats import (
    COMPRESSIONS,
    OUTPUT,
    FileFormat,
    WriteResult,
    parse_format,
    survey_notes,
    write_rows,
)
from longline.export.partitions import SCHEMA_FILE, atomic_folder, write_partitions
from longline.export.postgres import PostgresTable
from longline.export.redaction import Redactor
from longline.export.s3 import S3Object
from longline.export.table import FieldSurvey, open_table
from longline.storage.query import RecordQuery
from longline.storage.records import ENRICHMENTS, ExportCursors, RecordVersion
from longline.storage.store import Store

# ---------------- What an export is to write, and where

TABLE = "longline_export"
STDOUT = "-"
Destination = Path | S3Object | PostgresTable


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The options of an export.

    Args:
        output: a file, a folder (with `partition`), s3://bucket/name.ending or postgresql://….
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


def find_destination(request: ExportRequest) -> Destination:
    """Return the destination of an export, numbered if requested.

    Raises:
        BadOption: the address is malformed, or an option does not apply to it.
        UnknownSecret: the login cannot be read.
        DestinationUnwritable: the existing names cannot be listed.
    """
    scheme = check_request(request)
    secret = request.secret.read().get_secret_value() if request.secret else None
    if scheme in postgres.SCHEMES:
        table = PostgresTable(request.output, request.table or TABLE, secret)
        return table.numbered() if request.is_numbered else table
    if scheme == s3.SCHEME:
        target = S3Object(request.output, login=secret, endpoint=request.endpoint)
        if not request.is_numbered:
            return target
        beginning, _ = _split_ending(target.name)
        return target.renamed(_numbered_name(target.name, target.neighbours(f"{beginning}-")))
    path = Path(request.output)
    if not request.is_numbered:
        return path
    taken = (one.name for one in path.parent.iterdir()) if path.parent.is_dir() else ()
    return path.with_name(_numbered_name(path.name, taken))


def check_request(request: ExportRequest, *, option: str = OUTPUT) -> str:
    """Check that all options apply to the destination; return its scheme, '' for a file.

    `option` is the name of the option with the destination.

    Raises:
        BadOption: an option does not apply, or the destination is malformed.
    """
    scheme = _scheme(request.output, option)
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
            place = "standard output" if is_stdout else scheme or "a file"
            raise BadOption(name, f"does not apply to {place}")
    columns = parse_columns(request.columns, request.tasks or ())
    if request.tasks and columns and all(one.path[0] != ENRICHMENTS for one in columns):
        problem = f"--columns has no enrichment, such as enrichments.{request.tasks[0]}.@model"
        raise BadOption("--with-enrichments", problem)
    return scheme


def _scheme(output: str, option: str) -> str:
    if "://" not in output:
        return ""
    try:
        return urlsplit(output).scheme
    except ValueError:
        shown = output.partition("://")[0]  # the rest may contain a password
        raise BadOption(option, f"{shown}://… is not an address") from None


def _numbered_name(name: str, taken: Iterable[str]) -> str:
    """Return a name with the number after those that are taken: a.csv, a-0001.csv."""
    beginning, ending = _split_ending(name)
    pattern = re.compile(rf"{re.escape(beginning)}-(\d{{4,}}){re.escape(ending)}", re.ASCII)
    numbers = [int(found[1]) for one in taken if (found := pattern.fullmatch(one))]
    return f"{beginning}-{max(numbers, default=0) + 1:04}{ending}"


def _split_ending(name: str) -> tuple[str, str]:
    path = Path(name)
    ending = path.suffix
    if ending.lstrip(".").lower() in COMPRESSIONS:
        ending = Path(path.stem).suffix + ending
    return name.removesuffix(ending) if ending else name, ending


NO_RECORDS = "no records match; the output is empty"
_POSTGRES = "postgresql"


def export(request: ExportRequest, rows: Rows) -> ExportResult:
    """Write records to the destination of a request; on an error it is unchanged.

    Raises:
        BadOption: an option does not fit.
        DestinationUnwritable: the destination refuses.
        DestinationFull: no disk space is left.
        MissingExtra: the library of the format is not installed.
        UnknownSecret: the login cannot be read.
    """
    columns = parse_columns(request.columns, request.tasks or ())
    rows = _prepare_rows(rows, request)
    place = find_destination(request)
    if isinstance(place, PostgresTable):
        result = _to_table(place, rows, columns, may_replace=not request.is_numbered)
    elif isinstance(place, S3Object):
        result = _to_object(place, request, rows, columns)
    elif request.partition is not None:
        result = _to_folder(place, request, rows, columns)
    else:
        result = _to_file(place, request, rows, columns)
    return _finish(result, request)


def _finish(result: ExportResult, request: ExportRequest) -> ExportResult:
    notes = result.notes if result.records else (*result.notes, NO_RECORDS)
    redacted = dict(request.redactor.replaced) if request.redactor else None
    return replace(result, notes=notes, redacted=redacted)


def export_stream(target: BinaryIO, rows: Rows, request: ExportRequest) -> ExportResult:
    """Write records to an open stream, such as standard output.

    Raises:
        BadOption: an option does not fit.
        MissingExtra: the library of the format is not installed.
    """
    check_request(request)
    file_format = parse_format(STDOUT, request.format or "jsonl")
    columns = parse_columns(request.columns, request.tasks or ())
    written = write_rows(file_format, _prepare_rows(rows, request), target, columns)
    return _finish(_result(STDOUT, file_format, written, None), request)


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
    tasks, cursors = request.tasks or (), store.export_cursors
    with closing(
        IncrementalRows(cursors, incremental, read, limit=query.limit, tasks=tasks)
    ) as rows:
        if rows.is_empty():
            return None
        done = write(replace(request, is_numbered=stream is None), rows)
        asyncio.run(cursors.add(incremental, rows.yielded()))
    return done


async def choose_tasks(store: Store, names: Sequence[str]) -> tuple[str, ...] | None:
    """Return these enrichment tasks, or all; None when none has been run yet.

    Raises:
        BadOption: a task was never run.
    """
    known = list(await store.questions.counts())
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise BadOption("--with-enrichments", f"task {name!r} was never run here{hint}")
    return wanted or tuple(known) or None


def _prepare_rows(rows: Rows, request: ExportRequest) -> Rows:
    def read() -> Iterator[Row]:
        for row in rows():
            yield _prepare_row(row, request)

    return read


def _prepare_row(row: Row, request: ExportRequest) -> Row:
    prepared = _redact(export_row(row), request.redactor)
    if request.tasks is not None:
        # Each entry by itself: a task called `phones` is not a field with a telephone number.
        prepared[ENRICHMENTS] = {
            task: entry and _redact(entry, request.redactor)
            for task, entry in export_enrichments(row, request.tasks).items()
        }
    return prepared


def _redact(row: Row, redactor: Redactor | None) -> Row:
    return redactor.clean(row) if redactor else row


def _to_file(
    path: Path, request: ExportRequest, rows: Rows, columns: tuple[Column, ...]
) -> ExportResult:
    file_format = parse_format(path.name, request.format)
    how = {"may_replace": not request.is_numbered, "makes_folder": request.makes_folder}
    with atomic_write(path, **how) as target:
        written = write_rows(file_format, rows, target, columns)
    schema = path.with_name(_schema_name(path.name)) if request.has_schema else None
    if schema:
        with atomic_write(schema) as target:
            target.write(_schema_bytes(written.schema))
    return _result(str(path), file_format, written, str(schema) if schema else None)


def _to_object(
    place: S3Object, request: ExportRequest, rows: Rows, columns: tuple[Column, ...]
) -> ExportResult:
    file_format = parse_format(place.name, request.format)
    schema = place.renamed(_schema_name(place.name)) if request.has_schema else None
    try:
        with tempfile.TemporaryDirectory(prefix="longline-") as folder:
            path = Path(folder) / "records"
            with path.open("wb") as target:
                written = write_rows(file_format, rows, target, columns)
            if schema:  # first, so that it exists before the records do
                schema_path = Path(folder) / "schema"
                schema_path.write_bytes(_schema_bytes(written.schema))
                schema.upload(schema_path)
            place.upload(path)
    except OSError as error:
        raise destination_error(place.shown, error) from error
    return _result(place.shown, file_format, written, schema.shown if schema else None)


def _to_table(
    place: PostgresTable, rows: Rows, columns: tuple[Column, ...], *, may_replace: bool
) -> ExportResult:
    survey = FieldSurvey(columns)
    try:
        with open_table(rows(), survey) as table:
            notes = place.fill(table, may_replace=may_replace)
    except OSError as error:
        raise destination_error(place.shown, error) from error
    notes = [*notes, *survey_notes(survey)]
    return ExportResult(place.shown, _POSTGRES, survey.records, notes=tuple(notes))


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
    return replace(_result(str(path), file_format, written, schema), parts=parts)


def _result(
    path: str, file_format: FileFormat, written: WriteResult, schema: str | None
) -> ExportResult:
    return ExportResult(
        path, file_format.ending, written.records, schema=schema, notes=written.notes
    )


def _schema_name(name: str) -> str:
    return f"{name}.schema.json"


def _schema_bytes(schema: dict[str, Any]) -> bytes:
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


# ---------------- Incremental exports: only records that are new or changed since the last one of

_PAIR = struct.Struct("<qq")
_IN_MEMORY = 1_000_000  # bytes


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
        self._yielded = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  # see `close`

    def __call__(self) -> Iterator[Row]:
        """Read them from the start; `yielded` is about the last reading."""
        self._yielded.seek(0)
        self._yielded.truncate()
        for row, mark in self._unwritten():
            self._yielded.write(_PAIR.pack(row["id"], mark))
            yield row

    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return next(self._unwritten(), None) is None

    def yielded(self) -> Iterator[RecordVersion]:
        """Yield the ids of the records and their `version_mark`."""
        self._yielded.seek(0)
        while pair := self._yielded.read(_PAIR.size):
            yield _PAIR.unpack(pair)

    def close(self) -> None:
        """Remove the temporary file."""
        self._yielded.close()

    def _unwritten(self) -> Iterator[tuple[Row, int]]:
        marked = (
            {"id": row["id"], "version": version_mark(row, self._tasks), "row": row}
            for row in self._rows()
        )
        unwritten = islice(self._cursors.unwritten(self._name, marked), self._limit)
        return ((one["row"], one["version"]) for one in unwritten)
