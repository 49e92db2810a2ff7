"""The one call that exports: records in, a whole file, folder, object or table out."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from longline.export.base import Row, Rows, unwritable, written_whole
from longline.export.columns import Column, chosen_columns
from longline.export.destinations.base import STDOUT, Exported, Wish, check, place_of
from longline.export.destinations.postgres import PostgresTable
from longline.export.destinations.s3 import S3Object
from longline.export.partitions import SCHEMA_FILE, folder_written_whole, write_parts
from longline.export.redaction import Redactor
from longline.export.rows import outward, outward_enrichments
from longline.export.tables import Survey, tabled
from longline.export.writing import Form, Written, form_of, missing, write_rows
from longline.storage.records.records import ENRICHMENTS

NONE_FITS = "no record fits what was asked for, so it holds none"
_POSTGRES = "postgresql"


def export(wish: Wish, rows: Rows) -> Exported:
    """Write records where and as they are wished for, whole or not at all.

    Raises:
        BadOption: something that was asked for does not fit.
        DestinationUnwritable: the place says no; what was there before is untouched.
        DestinationFull: there is no room; what was there before is untouched.
        MissingExtra: the library for it is not installed.
        UnknownSecret: the login cannot be read.
    """
    chosen = chosen_columns(wish.columns, wish.tasks or ())
    shown = _shown(rows, wish)
    place = place_of(wish)
    if isinstance(place, PostgresTable):
        done = _to_table(place, shown, chosen, may_replace=not wish.is_numbered)
    elif isinstance(place, S3Object):
        done = _to_object(place, wish, shown, chosen)
    elif wish.partition is not None:
        done = _to_folder(place, wish, shown, chosen)
    else:
        done = _to_file(place, wish, shown, chosen)
    if not done.records:
        done = replace(done, notes=(*done.notes, NONE_FITS))
    return replace(done, redacted=dict(wish.redactor.replaced) if wish.redactor else None)


def export_to(path: Path, rows: Rows, *, form: str | None = None) -> Exported:
    """Write records to a file alone; the format is that of its ending unless said otherwise.

    Raises:
        BadOption: neither says a format that there is.
        DestinationUnwritable: the file cannot be written.
        DestinationFull: there is no room for it.
        MissingExtra: the library for it is not installed.
    """
    wish = Wish(str(path), form, has_schema=False)
    return _to_file(path, wish, _shown(rows, wish), ())


def export_stream(target: BinaryIO, rows: Rows, wish: Wish) -> Written:
    """Write records to an open stream, such as standard output.

    Raises:
        BadOption: something that was asked for does not fit.
        MissingExtra: the library for it is not installed.
    """
    check(wish)
    form = form_of(STDOUT, wish.form or "jsonl")
    chosen = chosen_columns(wish.columns, wish.tasks or ())
    return write_rows(form, _shown(rows, wish), target, chosen)


def _shown(rows: Rows, wish: Wish) -> Rows:
    def read() -> Iterator[Row]:
        for row in rows():
            yield _cleaned(row, wish)

    return read


def _cleaned(row: Row, wish: Wish) -> Row:
    shown = _redacted(outward(row), wish.redactor)
    if wish.tasks is not None:
        # Each apart: a task that is called `phones` must not take its whole answer for a number.
        said = outward_enrichments(row, wish.tasks)
        shown[ENRICHMENTS] = {
            task: entry and _redacted(entry, wish.redactor) for task, entry in said.items()
        }
    return shown


def _redacted(row: Row, redactor: Redactor | None) -> Row:
    return redactor.clean(row) if redactor else row


def _to_file(path: Path, wish: Wish, rows: Rows, chosen: tuple[Column, ...]) -> Exported:
    form = form_of(path.name, wish.form)
    how = {"may_replace": not wish.is_numbered, "makes_folder": wish.makes_folder}
    with written_whole(path, **how) as target:
        written = write_rows(form, rows, target, chosen)
    schema = _schema_beside(path) if wish.has_schema else None
    if schema:
        with written_whole(schema) as target:
            target.write(_as_bytes(written.schema))
    return _told(str(path), form, written, str(schema) if schema else None)


def _to_object(there: S3Object, wish: Wish, rows: Rows, chosen: tuple[Column, ...]) -> Exported:
    form = form_of(there.name, wish.form)
    schema = there.renamed(_schema_beside(Path(there.name)).name) if wish.has_schema else None
    try:
        with tempfile.TemporaryDirectory(prefix="longline-") as folder:
            path = Path(folder) / "records"
            with path.open("wb") as target:
                written = write_rows(form, rows, target, chosen)
            if schema:  # first, so that whoever sees the records finds it
                beside = Path(folder) / "schema"
                beside.write_bytes(_as_bytes(written.schema))
                schema.upload(beside)
            there.upload(path)
    except OSError as error:
        raise unwritable(there.shown, error) from error
    return _told(there.shown, form, written, schema.shown if schema else None)


def _to_table(
    place: PostgresTable, rows: Rows, chosen: tuple[Column, ...], *, may_replace: bool
) -> Exported:
    survey = Survey(chosen)
    try:
        with tabled(rows(), survey) as table:
            notes = place.fill(table, may_replace=may_replace)
    except OSError as error:
        raise unwritable(place.shown, error) from error
    told = (*notes, *missing(survey))
    return Exported(place.shown, _POSTGRES, survey.records, notes=told)


def _to_folder(path: Path, wish: Wish, rows: Rows, chosen: tuple[Column, ...]) -> Exported:
    (column,) = chosen_columns([wish.partition or ""], wish.tasks or ())
    form = form_of(path.name, wish.form)
    how = {"may_replace": not wish.is_numbered, "makes_folder": wish.makes_folder}
    with folder_written_whole(path, column.name, **how) as folder:
        written, parts = write_parts(folder, form, column, rows, chosen)
        if wish.has_schema:
            (folder / SCHEMA_FILE).write_bytes(_as_bytes(written.schema))
    schema = str(path / SCHEMA_FILE) if wish.has_schema else None
    return replace(_told(str(path), form, written, schema), parts=parts)


def _told(path: str, form: Form, written: Written, schema: str | None) -> Exported:
    return Exported(path, form.ending, written.records, schema=schema, notes=written.notes)


def _schema_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.schema.json")


def _as_bytes(schema: dict[str, Any]) -> bytes:
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
