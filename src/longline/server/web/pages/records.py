"""Records: search and filter them, look at one with its origin and history, download them."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response, StreamingResponse

from longline.core.errors import BadOption
from longline.core.json import json_value_at
from longline.core.output import count_text
from longline.core.redaction import redact_url
from longline.export.export import STDOUT, ExportRequest, export_records
from longline.http.files.store import FolderStore, is_place, picture_type
from longline.pipeline.quality import GRADES
from longline.server.web.context import Home, Web
from longline.server.web.forms import naming_fields
from longline.server.web.record_filters import RecordFilters, record_query
from longline.server.web.rendering import json_text, render, web_link
from longline.storage.query import OWN_FIELDS, RecordQuery, path_of
from longline.storage.records import RecordCursor

router = APIRouter(include_in_schema=False)

_PAGE = 50  # records
_SECONDS = 0.05  # of a search, before it offers to continue
_LONG_SECONDS = 2.0  # of a search that someone has continued
_MOST_COLUMNS = 5  # that are chosen from the records
_MOST_CHOSEN = 20  # that a person may choose
_MOST_CONDITIONS = 10
_MOST_LISTED = 20  # values of a list, in a table
_MOST_VERSIONS = 20
_MOST_TEXT = 50_000  # characters of a value
_LONG = 300  # characters, from which a value is folded
_CHUNK = 256 * 1024  # bytes
_MEDIA_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "json": "application/json",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
}
_NEEDS = {"xlsx": "xlsxwriter", "parquet": "pyarrow"}
_FIRST = ("title", "name", "headline", "text")
_PICTURE = re.compile(r"https?://\S+\.(?:jpe?g|png|gif|webp|avif)(?:\?\S*)?", re.IGNORECASE)
_MOST_PICTURES = 24
_LABELS = {
    "where": "Condition",
    "minimum score": "Minimum score",
    "since": "Changed since",
    **dict.fromkeys(("columns", "field"), "Columns"),
}
_FILTERS = ("q", "source", "job", "where", "min_score", "grade", "since", "state", "columns")


def record_url(source: str, key: str) -> str:
    """Return the page of a record; keys are in the query, since they may contain anything."""
    return f"/records/one?{urlencode({'source': source, 'key': key})}"


# ---------------- The list


@router.get("/records")
async def show_records(request: Request, web: Home) -> Response:
    """List records that match, a page at a time."""
    given = request.query_params
    sources = sorted(
        (row["source"], row["records"])
        for row in await web.store.projections.rows("sources")
        if row["source"]
    )
    values: dict[str, Any] = {"rows": [], "columns": [], "numeric": (), "next_url": None}
    values["is_full"] = True
    problem = ""
    try:
        with naming_fields(_LABELS):
            query = await _query(web, given)
            chosen = _columns(given.get("columns", ""))
        seconds = _LONG_SECONDS if given.get("deep") else _SECONDS
        page = await web.store.records.page(
            query, after=_cursor(given.get("after", "")), size=_PAGE, seconds=seconds
        )
    except BadOption as error:
        problem = str(error)
    else:
        columns = chosen or _likely_columns(page.rows)
        rows = [_row(one, columns) for one in page.rows]
        values = {
            "rows": rows,
            "columns": columns,
            "numeric": _numeric_columns(rows, len(columns)),
            "next_url": _next_url(given, page.cursor, is_full=page.is_full),
            "is_full": page.is_full,
        }
    is_filtered = any(given.get(name) for name in _FILTERS if name not in ("columns", "source"))
    counts = dict(sources)
    return render(
        request,
        "records.html",
        status=422 if problem else 200,
        problem=problem,
        sources=[name for name, _ in sources],
        total=None if is_filtered else counts.get(given.get("source", ""), sum(counts.values())),
        given={name: given.get(name, "") for name in _FILTERS if name != "where"},
        where=[*_conditions(given), ""][:_MOST_CONDITIONS],
        grades=[name for _, name in GRADES],
        formats=_formats(),
        export_fields=[
            (name, value) for name, value in given.multi_items() if name in _FILTERS and value
        ],
        is_later=bool(given.get("after")),
        **values,
    )


async def _query(web: Web, given: QueryParams) -> RecordQuery:
    """Return the query of the filters in an address.

    Raises:
        BadOption: a filter is malformed.
        UnknownJob: no job, or several, match.
    """
    texts = {name: given.get(name, "").strip() for name in ("job", "q", "min_score", "since")}
    filters = RecordFilters(
        source=given.get("source"),
        job=texts["job"],
        search=texts["q"],
        min_score=_score(texts["min_score"]),
        grade=given.get("grade"),
        since=texts["since"],
        state=given.get("state", "present"),
        where=_conditions(given),
    )
    return await record_query(web, filters)


def _conditions(given: QueryParams) -> list[str]:
    return [one for one in given.getlist("where") if one.strip()][:_MOST_CONDITIONS]


def _score(text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise BadOption("minimum score", f"{text!r:.40} is not a number") from None


def _columns(text: str) -> list[str]:
    """Return the fields of a list such as `title,address.city,@score`; raise BadOption if wrong."""
    names = [one.strip() for one in text.split(",") if one.strip()]
    for name in names:
        if name.startswith("@") and name[1:] not in OWN_FIELDS:
            known = ", ".join(f"@{own}" for own in OWN_FIELDS)
            raise BadOption("columns", f"there is no column {name!r:.60}; known columns: {known}")
        path_of(name)
    return list(dict.fromkeys(names))[:_MOST_CHOSEN]


def _likely_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields that say most: titles first, then those with short values."""
    names: dict[str, int] = {}
    for row in rows:
        for name, value in row["data"].items():
            is_path = name.strip() and not set(name) & set('."@')
            if is_path and value not in (None, "") and not isinstance(value, dict | list):
                names[name] = names.get(name, 0) + 1
    most = max(names.values(), default=0)
    common = [name for name, count in names.items() if count >= most / 2]
    first = [name for name in _FIRST if name in common][:1]
    rest = [name for name in common if name not in first and name not in ("url", "key", "id")]
    return [*first, *rest][:_MOST_COLUMNS]


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    return {
        "url": record_url(row["source"], row["key"]),
        "source": row["source"],
        "key": row["key"],
        "cells": [_value(row, name) for name in columns],
        "score": row["score"],
        "grade": row["grade"],
        "version": row["version"],
        "changed_at": row["changed_at"],
        "gone_at": row["gone_at"],
    }


def _numeric_columns(rows: Sequence[Mapping[str, Any]], count: int) -> set[int]:
    """Return the columns that have only numbers."""

    def is_numeric(column: int) -> bool:
        values = [row["cells"][column] for row in rows if row["cells"][column] is not None]
        return bool(values) and all(type(one) in (int, float) for one in values)

    return {column for column in range(count) if is_numeric(column)}


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name.startswith("@"):
        return row[name[1:]]
    return cell(json_value_at(row["data"], path_of(name)))


def cell(value: Any) -> Any:
    """Return a value as a table shows it: a list of words and numbers without its brackets."""
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        return ", ".join(map(str, value[:_MOST_LISTED]))
    return value


def _cursor(text: str) -> RecordCursor | None:
    kind, _, place = text.partition(":")
    if not text:
        return None
    if kind == "k":
        return place
    if kind == "i" and place.isascii() and place.isdigit() and len(place) < 19:  # noqa: PLR2004  # of 64 bits
        return int(place)
    raise BadOption("after", f"{text!r:.60} is not a place in these records")


def _next_url(given: QueryParams, cursor: RecordCursor | None, *, is_full: bool) -> str | None:
    if cursor is None:
        return None
    kept = [(name, value) for name, value in given.multi_items() if name in _FILTERS and value]
    kept.append(("after", f"k:{cursor}" if isinstance(cursor, str) else f"i:{cursor}"))
    if not is_full:
        kept.append(("deep", "1"))
    return f"/records?{urlencode(kept)}"


# ---------------- One record


@router.get("/records/one")
async def show_record_of(request: Request, web: Home) -> Response:
    """Show the record whose source and key are in the query."""
    given = request.query_params
    return await _show_record(request, web, given.get("source", ""), given.get("key", ""))


async def _show_record(request: Request, web: Web, source: str, key: str) -> Response:
    row = await web.store.records.get(key, source=source or None)
    given = request.query_params
    steps = await web.store.history.recent(row["key"], source=row["source"], limit=_MOST_VERSIONS)
    older, newer = _version(given.get("from")), _version(given.get("to"))
    compared = None
    if older is not None or newer is not None:
        found = await web.store.history.diff(
            row["key"], source=row["source"], older=older, newer=newer
        )
        compared = found[0] if found else None
    about = row["about"]
    notes: dict[str, list[str]] = {}
    for note in about.get("notes") or []:
        notes.setdefault(note["field"], []).append(note["text"])
    enrichments = (await web.store.questions.of_records([row["id"]])).get(row["id"], [])
    return render(
        request,
        "record.html",
        row=row,
        title=_title(row),
        fields=[
            {
                "name": name,
                "value": _shown(value),
                "origin": (about.get("provenance") or {}).get(name),
                "notes": notes.get(name, []),
            }
            for name, value in row["data"].items()
        ],
        quality=about.get("quality"),
        layers=about.get("layers") or {},
        steps=[{"step": one, "changes": _sides(one.differences)} for one in steps],
        compared=compared and {"step": compared, "changes": _sides(compared.differences)},
        enrichments=[{**one, "text": _shown(one["answer"])} for one in enrichments],
        pictures=_pictures(row["data"]),
        files=_files(row["data"]),
        self_url=record_url(row["source"], row["key"]),
    )


@router.get("/records/{source}/{key:path}")
async def show_record(request: Request, source: str, key: str, web: Home) -> Response:
    """Show a record."""
    return await _show_record(request, web, source, key)


def _version(text: str | None) -> int | None:
    is_number = text and text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004
    return int(text) if text and is_number else None


def _title(row: Mapping[str, Any]) -> str:
    found = (row["data"].get(name) for name in _FIRST)
    return next((one for one in found if isinstance(one, str) and one.strip()), row["key"])


def _shown(value: Any) -> dict[str, Any]:
    """Return a value as a page shows it: a link, a text, or indented JSON."""
    if isinstance(value, str):
        text = value
    else:
        text = "" if value is None else json_text(value, is_indented=isinstance(value, dict | list))
    summary = _file_summary(value)
    return {
        "link": web_link(value),
        "summary": summary,
        "text": text[:_MOST_TEXT],
        "is_cut": len(text) > _MOST_TEXT,
        "is_long": summary is not None or len(text) > _LONG or text.count("\n") > 6,  # noqa: PLR2004  # lines
        "is_empty": value is None or value in ("", [], {}),
        "is_json": isinstance(value, dict | list),
        "length": len(text),
    }


def _sides(differences: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "field": one.field,
            "old": one.values.get("old"),
            "new": one.values.get("new"),
            "change": one.change,
        }
        for one in differences
    ]


def _pictures(data: Mapping[str, Any]) -> list[str]:
    """Return the addresses of pictures in a record; pages link to them, and never load them."""
    texts: list[Any] = list(data.values())
    found: dict[str, None] = {}
    while texts and len(found) < _MOST_PICTURES:
        one = texts.pop(0)
        if isinstance(one, list):
            texts[:0] = one[:_MOST_PICTURES]
        elif isinstance(one, str) and _PICTURE.fullmatch(one):
            found[one] = None
    return list(found)


# ---------------- Files of records


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and "sha256" in value


def _file_summary(value: Any) -> str | None:
    """Return what the stored files of a field are in a few words; None: it has other values."""
    several = value if isinstance(value, list) else [value]
    files = [one for one in several if _is_file(one)]
    if not files or any(one is not None and not _is_file(one) for one in several):
        return None
    return _file_name(files[0]) if value is files[0] else count_text(len(files), "file")


def _file_name(file: Mapping[str, Any]) -> str:
    place = file.get("path") or file.get("url") or file["sha256"]
    return str(file.get("name") or str(place).rpartition("/")[2])


def _files(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the stored files that a record refers to; those in the home have a `url`."""
    values: list[Any] = list(data.values())
    found: dict[str, dict[str, Any]] = {}
    while values and len(found) < _MOST_PICTURES:
        one = values.pop(0)
        if isinstance(one, list):
            values[:0] = one[:_MOST_PICTURES]
        elif _is_file(one):
            place, address, kind = one.get("path"), one.get("url"), one.get("type")
            is_here = isinstance(place, str) and is_place(place)
            if is_here or isinstance(address, str):
                found[str(place if is_here else address)] = {
                    "url": f"/stored/{place}" if is_here else None,
                    "address": None if is_here else redact_url(str(address)),
                    "name": _file_name(one),
                    "is_picture": isinstance(kind, str) and kind.startswith("image/"),
                    "bytes": one.get("bytes"),
                }
        elif isinstance(one, dict):
            values[:0] = list(one.values())[:_MOST_PICTURES]
    return list(found.values())


@router.get("/stored/{place:path}")
async def send_file(place: str, web: Home) -> Response:
    """Send a stored file; only what is a picture by its own bytes is shown by a browser."""
    path = FolderStore(web.settings.files_folder).path_of(place)
    start = await asyncio.to_thread(_first_bytes, path) if path is not None else None
    if path is None or start is None:
        raise HTTPException(404, "There is no such file in this home.")
    kind = picture_type(start)
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox"}
    if kind is None:
        headers["Content-Disposition"] = f'attachment; filename="{path.name}"'
    return FileResponse(path, media_type=kind or "application/octet-stream", headers=headers)


def _first_bytes(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(64)
    except OSError:
        return None


# ---------------- Download


def _formats() -> list[str]:
    return [
        name for name in _MEDIA_TYPES if name not in _NEEDS or find_spec(_NEEDS[name]) is not None
    ]


@router.get("/records/export")
async def export(request: Request, web: Home) -> Response:
    """Send the records that match as a file."""
    given = request.query_params
    form = given.get("format", "csv")
    if form not in _formats():
        raise BadOption("format", f"{form!r:.40} is not one of {', '.join(_formats())}")
    with naming_fields(_LABELS):
        query = await _query(web, given)
        columns = tuple(one.removeprefix("@") for one in _columns(given.get("columns", "")))
    wanted = ExportRequest(STDOUT, format=form, columns=columns)
    # Without a name in the file system, so that it is gone with the response, however that ends.
    file = tempfile.TemporaryFile(prefix="longline-")  # noqa: SIM115  # the response closes it
    try:
        await asyncio.to_thread(export_records, web.store, wanted, query, stream=file)
        size = await asyncio.to_thread(_rewind, file)
    except BaseException:
        file.close()
        raise
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", given.get("source") or "records").strip("-") or "records"
    headers = {
        "Content-Disposition": f'attachment; filename="{quote(name[:80])}.{form}"',
        "Content-Length": str(size),
    }
    return StreamingResponse(_chunks(file), media_type=_MEDIA_TYPES[form], headers=headers)


def _rewind(file: IO[bytes]) -> int:
    file.flush()
    size = file.tell()
    file.seek(0)
    return size


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
    finally:
        file.close()
