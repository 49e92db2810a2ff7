"""Export records to a file, a folder, an object or a table, atomically."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from longline.export.atomic_files import atomic_write, destination_error
from longline.export.columns import Column, parse_columns
from longline.export.destinations.postgres import PostgresTable
from longline.export.destinations.s3 import S3Object
from longline.export.formats.registry import (
    FileFormat,
    WriteResult,
    parse_format,
    survey_notes,
    write_rows,
)
from longline.export.partitions import SCHEMA_FILE, atomic_folder, write_partitions
from longline.export.redaction import Redactor
from longline.export.request import (
    STDOUT,
    ExportRequest,
    ExportResult,
    check_request,
    find_destination,
)
from longline.export.rows import Row, Rows, export_enrichments, export_row
from longline.export.table import FieldSurvey, open_table
from longline.storage.records.records import ENRICHMENTS

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
    if not result.records:
        result = replace(result, notes=(*result.notes, NO_RECORDS))
    redacted = dict(request.redactor.replaced) if request.redactor else None
    return replace(result, redacted=redacted)


def export_stream(target: BinaryIO, rows: Rows, request: ExportRequest) -> WriteResult:
    """Write records to an open stream, such as standard output.

    Raises:
        BadOption: an option does not fit.
        MissingExtra: the library of the format is not installed.
    """
    check_request(request)
    file_format = parse_format(STDOUT, request.format or "jsonl")
    columns = parse_columns(request.columns, request.tasks or ())
    return write_rows(file_format, _prepare_rows(rows, request), target, columns)


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
