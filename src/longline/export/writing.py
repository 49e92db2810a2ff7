"""The formats by name, and how records become one of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO

from longline.config.plugins import load_plugin, plugin_names
from longline.core.errors import BadOption
from longline.export.base import Export, Row, Rows, folder_of
from longline.export.columns import Column
from longline.export.compressed import PACKINGS, packed
from longline.export.formats.arrow import write_parquet
from longline.export.formats.csv import write_csv
from longline.export.formats.duckdb import write_duckdb
from longline.export.formats.excel import write_excel
from longline.export.formats.json import write_json, write_json_lines
from longline.export.formats.sqlite import write_sqlite
from longline.export.schema import schema_of_documents, schema_of_table
from longline.export.tables import Survey, TableExport, tabled

EXPORTERS = "longline.exporters"  # the group of entry points
OUTPUT = "--output"
"""The option that names where records go, unless another does."""
DOCUMENTS: Mapping[str, Export] = {"jsonl": write_json_lines, "json": write_json}
TABLES: Mapping[str, TableExport] = {
    "csv": write_csv,
    "parquet": write_parquet,
    "xlsx": write_excel,
    "sqlite": write_sqlite,
    "duckdb": write_duckdb,
}
FORMATS = (*DOCUMENTS, *TABLES)
_TEXTS = ("jsonl", "json", "csv")  # the others are packed by themselves
_ALIASES = {"ndjson": "jsonl", "db": "sqlite", "sqlite3": "sqlite", "pq": "parquet"}


@dataclass(frozen=True, slots=True)
class Form:
    """A format, and whether its file is packed: `gz`, `zst` or None."""

    name: str
    packing: str | None = None

    @property
    def ending(self) -> str:
        """What the name of such a file ends in, without a dot before it."""
        return f"{self.name}.{self.packing}" if self.packing else self.name


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: how many records, what each is, and what is worth knowing."""

    records: int
    schema: dict[str, Any]
    notes: tuple[str, ...] = ()


def form_of(name: str, said: str | None = None, *, option: str = OUTPUT) -> Form:
    """Return the format that a file's ending stands for, unless it is said.

    `option` is the one that names the file; only beside --output can a format be said.

    Raises:
        BadOption: neither says one that there is.
    """
    path = PurePath(name)
    last = path.suffix.lstrip(".").lower()
    packing = last if last in PACKINGS else None
    word = said or (PurePath(path.stem) if packing else path).suffix.lstrip(".").lower()
    form = Form(_ALIASES.get(word, word), packing)
    if said is None and form.name not in FORMATS:
        remedy = "add --format" if option == OUTPUT else "have its name end in the format"
        raise BadOption(option, f"{path.name} ends in none of {', '.join(FORMATS)}; {remedy}")
    if form.packing and form.name not in _TEXTS:
        raise BadOption(option, f"{form.name} is packed already; leave .{packing} out")
    if form.name not in FORMATS and form.name not in plugin_names(EXPORTERS):
        raise _unknown(form.name)
    return form


def write_rows(form: Form, rows: Rows, target: BinaryIO, chosen: Sequence[Column] = ()) -> Written:
    """Write records, as `outward` shows them, to an open file.

    Raises:
        BadOption: there is no such format, or it cannot hold them.
        MissingExtra: the library of the format is not installed.
        BadSource: the format comes from another package and is broken.
    """
    survey = Survey(chosen)
    with packed(target, form.packing) as file:
        if form.name not in TABLES:
            write = writer_of(form.name)
            count = write(lambda: shaped(survey.watch(rows()), chosen), file)
            return Written(count, schema_of_documents(survey), missing(survey))
        with tabled(rows(), survey, folder=folder_of(target)) as table:
            notes = TABLES[form.name](table, file)
            schema = schema_of_table(table.columns, form.name)
    return Written(survey.records, schema, (*notes, *missing(survey)))


def writer_of(name: str) -> Export:
    """Return what writes objects in a format: one of ours, or of another package.

    Raises:
        BadOption: there is none of this name.
        BadSource: it comes from another package and is broken.
    """
    write: Export | None = DOCUMENTS.get(name) or load_plugin(EXPORTERS, name)
    if write is None:
        raise _unknown(name)
    return write


def shaped(rows: Iterable[Row], chosen: Sequence[Column]) -> Iterator[Row]:
    """Yield rows as they are, or only what was chosen of them."""
    for row in rows:
        yield {column.name: column.raw(row) for column in chosen} if chosen else row


def missing(survey: Survey) -> tuple[str, ...]:
    """Return notes on what is not there: columns that no record has, answers that are outdated."""
    if not survey.records:
        return ()
    empty = (
        f"no record has {one.name}"
        for one in survey.chosen
        if not one.is_ours and not survey.fields[one.name].filled
    )
    outdated = (
        f"{said.outdated} records have changed since {task} was asked about them: no answer is told"
        for task, said in survey.said.items()
        if said.outdated
    )
    return (*empty, *outdated)


def _unknown(name: str) -> BadOption:
    known = ", ".join([*FORMATS, *plugin_names(EXPORTERS)])
    return BadOption("--format", f"{name!r} is none of {known}")
