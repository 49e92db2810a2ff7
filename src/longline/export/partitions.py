"""Partitions: records of one value of a field together, in folders as Hive names them."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from longline.core.errors import BadOption, DestinationUnwritable
from longline.core.json_text import as_text
from longline.export.base import Row, Rows, beside, check_folder, unwritable, written_whole
from longline.export.columns import Column, Kind
from longline.export.compressed import packed
from longline.export.schema import schema_of_documents, schema_of_table
from longline.export.spool import Part, Spool
from longline.export.tables import Survey, Table
from longline.export.writing import TABLES, Form, Written, missing, shaped, writer_of

ABSENT = "__HIVE_DEFAULT_PARTITION__"  # what readers of such folders take for null
SCHEMA_FILE = "_schema.json"  # they pass over what begins with an underscore
_MOST = 10_000
_LONGEST = 240  # bytes; file systems take 255 in a name
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux
_HERE = -100  # AT_FDCWD


class Partitions:
    """Records on disk, and which of them belong together."""

    def __init__(self, column: Column, spool: Spool) -> None:
        self._column = column
        self._spool = spool
        self.parts: dict[str, Part] = {}

    def fill(self, rows: Iterable[Row]) -> None:
        """Lay each record where it belongs.

        Raises:
            BadOption: the field has too many values, or one that is too long for a folder.
        """
        for row in rows:
            name = folder_name(self._column.name, self._column.raw(row))
            if name not in self.parts:
                self._begin(name)
            self.parts[name].add(row)

    def _begin(self, name: str) -> None:
        if len(self.parts) >= _MOST:
            problem = f"{self._column.name} has more than {_MOST:,} different values"
            raise BadOption("--partition", problem)
        self.parts[name] = Part(self._spool)


def write_parts(
    folder: Path, form: Form, column: Column, rows: Rows, chosen: Sequence[Column]
) -> tuple[Written, int]:
    """Write a file for each value of a column; return what was written, and how many files.

    In tables the folder alone says the value, as readers of such folders expect; only where the
    values differ in type does the column stay, since a folder cannot tell 5 from "5".
    """
    survey = Survey(chosen)
    notes: dict[str, None] = {}
    with Spool(folder) as spool:
        partitions = Partitions(column, spool)
        partitions.fill(survey.watch(rows()))
        columns = [
            one for one in survey.columns() if one.path != column.path or one.kind is Kind.JSON
        ]
        for name, part in partitions.parts.items():
            (folder / name).mkdir()
            with written_whole(folder / name / f"part-0.{form.ending}") as target:
                notes |= dict.fromkeys(_write(form, part, target, columns, survey))
    is_table = form.name in TABLES
    schema = schema_of_table(columns, form.name) if is_table else schema_of_documents(survey)
    written = Written(survey.records, schema, (*notes, *missing(survey)))
    return written, len(partitions.parts)


def _write(
    form: Form, part: Part, target: BinaryIO, columns: Sequence[Column], survey: Survey
) -> list[str]:
    with packed(target, form.packing) as file:
        if form.name in TABLES:
            return TABLES[form.name](Table(tuple(columns), part), file)
        writer_of(form.name)(lambda: shaped((row for row, _ in part.sized()), survey.chosen), file)
        return []


def folder_name(field: str, value: Any) -> str:
    """Return the folder of a value: field=value, with whatever a path must not hold escaped.

    Raises:
        BadOption: it is too long for a folder.
    """
    text = ABSENT if value is None else value if isinstance(value, str) else as_text(value)
    name = f"{quote(field, safe='')}={quote(text, safe=' ')}"
    if len(name) > _LONGEST:
        raise BadOption("--partition", f"{field} has values that are too long for a folder")
    return name


@contextmanager
def folder_written_whole(
    path: Path, field: str, *, may_replace: bool = True, makes_folder: bool = False
) -> Iterator[Path]:
    """Give a folder beside `path`, and put it in place when all of it is on disk.

    Raises:
        DestinationUnwritable: it cannot be written, or what is there is no such folder.
        DestinationFull: there is no room for it.
    """
    place = path.resolve()
    try:
        _check(path, field, may_replace=may_replace)
        check_folder(path, makes_folder=makes_folder)
        with beside(place, is_folder=True) as made:
            yield made
            _put(made, place)
    except OSError as error:
        raise unwritable(str(path), error) from error


def _check(path: Path, field: str, *, may_replace: bool) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise DestinationUnwritable(str(path), "it is there, and not a folder")
    # The whole folder is replaced, so nothing but an earlier export may stand in it.
    beginning = folder_name(field, "")
    strange = [
        one.name
        for one in path.iterdir()
        if one.name != SCHEMA_FILE and not one.name.startswith(beginning)
    ]
    if strange or not may_replace:
        problem = f"{min(strange)} in it is no part of such an export" if strange else "it is there"
        raise DestinationUnwritable(str(path), problem)


def _put(made: Path, place: Path) -> None:
    """Put a folder in place of another, which is then where the first one was."""
    if not place.exists():
        made.rename(place)
    elif not _exchanged(made, place):
        aside = made.with_suffix(".old")
        place.rename(aside)
        made.rename(place)
        shutil.rmtree(aside)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two folders in one step, where the system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return bool(rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0)
