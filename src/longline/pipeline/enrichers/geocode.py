"""Look up places in a table of the user: coordinates, regions and other columns."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from pydantic_core import PydanticCustomError

from longline.config.documents import read_content
from longline.core.errors import BadFile
from longline.pipeline.enrichers.base import Addition, empty_addition
from longline.pipeline.manifest import Geocode, check_row
from longline.pipeline.stages import checked_step

_NUMBERS = ("lat", "lon")
Name = tuple[str, ...]


class GeocodeEnricher:
    """Looks up a place by name, ignoring case; an ambiguous name gives None."""

    name = "geocode"

    def __init__(self, spec: Geocode) -> None:
        self._spec = spec
        rows = spec.table if spec.table is not None else _read_table(Path(spec.file or ""), spec.by)
        self._places, self._ambiguous = _indexed(rows, spec.by)
        self._origin = f"geocode, by {', '.join(spec.by.values())}"

    @classmethod
    def with_options(cls, **options: Any) -> GeocodeEnricher:
        """Make one from the options of `geocode` in a manifest.

        Raises:
            ConfigError: an option is invalid, or the table cannot be read.
        """
        return cls(checked_step(Geocode, **options))

    @property
    def version(self) -> str:
        """A hash of the table."""
        known = [[name, self._places[name], name in self._ambiguous] for name in self._places]
        written = json.dumps(known, default=str)
        return f"table {sha256(written.encode()).hexdigest()[:12]}"

    def enrich(self, data: Mapping[str, Any]) -> Addition:
        into, fields = self._spec.into, self._spec.by.values()
        missing = [field for field in fields if data.get(field) in (None, "")]
        if missing:
            return empty_addition(into, f"{missing[0]} is empty", self._origin)
        name = _normalize_name(data[field] for field in fields)
        if name in self._ambiguous:
            why = f"the table has several places called {', '.join(name)}"
            return empty_addition(into, why, self._origin)
        if name not in self._places:
            return empty_addition(into, f"the table has no {', '.join(name)}", self._origin)
        return Addition({into: self._places[name]}, (), self._origin)


def _indexed(
    rows: Iterable[Mapping[str, Any]], by: Mapping[str, str]
) -> tuple[dict[Name, Mapping[str, Any]], set[Name]]:
    places: dict[Name, Mapping[str, Any]] = {}
    ambiguous: set[Name] = set()
    for row in rows:
        name = _normalize_name(row[column] for column in by)
        place = {column: value for column, value in row.items() if column not in by}
        if places.setdefault(name, place) != place:
            ambiguous.add(name)
    return places, ambiguous


def _normalize_name(parts: Iterable[Any]) -> Name:
    return tuple(" ".join(str(part).split()).casefold() for part in parts)


def _read_table(path: Path, by: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    content = read_content(path)
    rows = _json_rows(path, content) if path.suffix == ".json" else _csv_rows(path, content)
    for number, row in enumerate(rows, start=1):
        try:
            check_row(row, by)
        except PydanticCustomError as error:
            raise BadFile(str(path), f"row {number}: {error}") from None
        yield row


def _json_rows(path: Path, content: bytes) -> list[Mapping[str, Any]]:
    try:
        rows = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise BadFile(
            str(path), f"it is not JSON: {error.msg}", error.lineno, error.colno
        ) from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadFile(str(path), "a table in JSON is a list of objects")
    return rows


def _csv_rows(path: Path, content: bytes) -> Iterator[Mapping[str, Any]]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadFile(str(path), "it is not UTF-8 text; save it as UTF-8") from None
    for row in csv.DictReader(io.StringIO(text, newline="")):
        # Missing cells of a short line are None; extra cells of a long one are under None.
        yield {name: _parse_cell(name, cell) for name, cell in row.items() if name is not None}


def _parse_cell(name: str, text: str | None) -> Any:
    if not text:
        return None
    if name not in _NUMBERS:
        return text
    try:
        return float(text)
    except ValueError:
        return text  # `check_row` reports it
