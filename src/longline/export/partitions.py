"""Partitioned exports: a folder for each value of a field, named as Hive does."""

from __future__ import annotations

import ctypes
import os
import shutil
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from longline.core.errors import BadOption, DestinationUnwritable
from longline.core.json import as_text
from longline.export.atomic_files import (
    atomic_write,
    check_parent_folder,
    destination_error,
    temporary_sibling,
)
from longline.export.columns import Column, ColumnType, Rows
from longline.export.formats import (
    TABLES,
    FileFormat,
    WriteResult,
    compressed,
    survey_notes,
    write_document,
)
from longline.export.table import FieldSurvey, Spool, Table, document_schema, table_schema

ABSENT = "__HIVE_DEFAULT_PARTITION__"  # null, for readers of such folders
SCHEMA_FILE = "_schema.json"  # such readers ignore names that begin with an underscore
_MAX_PARTS = 10_000
_MAX_NAME = 240  # bytes; file systems allow 255
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux
_HERE = -100  # AT_FDCWD


def write_partitions(
    folder: Path, file_format: FileFormat, column: Column, rows: Rows, chosen: Sequence[Column]
) -> tuple[WriteResult, int]:
    """Write a file for each value of a column; return the result and the number of files.

    In tables only the folder has the value, as readers of such folders expect; the column stays
    where its values differ in type, since a folder cannot distinguish 5 from "5".

    Raises:
        BadOption: the field has too many values, or one that is too long for a folder.
    """
    survey = FieldSurvey(chosen)
    is_table = file_format.name in TABLES
    notes: dict[str, None] = {}
    parts: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
    with Spool(folder) as spool:
        for row in survey.watch(rows()):
            parts[folder_name(column.name, column.raw(row))].append(spool.add(row))
            if len(parts) > _MAX_PARTS:
                problem = f"{column.name} has more than {_MAX_PARTS:,} different values"
                raise BadOption("--partition", problem)
        columns = [
            one
            for one in survey.columns()
            if one.path != column.path or one.type is ColumnType.JSON
        ]
        for name, offsets in parts.items():
            (folder / name).mkdir()
            table = Table(tuple(columns), partial(spool.read, offsets))
            with (
                atomic_write(folder / name / f"part-0.{file_format.suffix}") as target,
                compressed(target, file_format.compression) as file,
            ):
                if is_table:
                    notes |= dict.fromkeys(TABLES[file_format.name](table, file))
                else:
                    write_document(file_format.name, table.rows, file, chosen)
    schema = table_schema(columns, file_format.name) if is_table else document_schema(survey)
    return WriteResult(survey.records, schema, (*notes, *survey_notes(survey))), len(parts)


def folder_name(field: str, value: Any) -> str:
    """Return the folder of a value, escaped; raise BadOption if its name is too long."""
    text = ABSENT if value is None else value if isinstance(value, str) else as_text(value)
    name = f"{quote(field, safe='')}={quote(text, safe=' ')}"
    if len(name) > _MAX_NAME:
        raise BadOption("--partition", f"{field} has values that are too long for a folder")
    return name


@contextmanager
def atomic_folder(
    path: Path, field: str, *, may_replace: bool = True, makes_folder: bool = False
) -> Iterator[Path]:
    """Create a temporary folder next to `path`, and rename it to `path` at the end.

    Raises:
        DestinationUnwritable: it cannot be written, or `path` is not an earlier export.
        DestinationFull: no disk space is left.
    """
    place = path.resolve()
    try:
        _check_replaceable(path, field, may_replace=may_replace)
        check_parent_folder(path, makes_folder=makes_folder)
        with temporary_sibling(place, is_folder=True) as temporary:
            yield temporary
            _replace_folder(temporary, place)
    except OSError as error:
        raise destination_error(str(path), error) from error


def _check_replaceable(path: Path, field: str, *, may_replace: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise DestinationUnwritable(str(path), "it exists but is not a folder")
    # The whole folder is replaced, so it may contain only an earlier export.
    prefix = folder_name(field, "")
    foreign = [
        one.name
        for one in path.iterdir()
        if one.name != SCHEMA_FILE and not one.name.startswith(prefix)
    ]
    if foreign:
        problem = f"it contains {min(foreign)}, which is not part of an export"
        raise DestinationUnwritable(str(path), problem)
    if not may_replace:
        raise DestinationUnwritable(str(path), "it already exists")


def _replace_folder(new: Path, place: Path) -> None:
    if not place.exists():
        new.rename(place)
        return
    # Python has no function that swaps two folders atomically.
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(new), os.fsencode(place)
    if (
        hasattr(libc, "renameat2")
        and libc.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0
    ):
        return
    old = new.with_suffix(".old")
    place.rename(old)
    new.rename(place)
    shutil.rmtree(old)
