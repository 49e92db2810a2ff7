"""Records with their versions, and exports of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from fastapi import Path, Query

from longline.core.errors import BadOption, NotFoundError
from longline.export.tasks import (
    FileExport,
    enqueue_file_export,
    exports_folder,
    file_exports,
)
from longline.server.models import (
    Export,
    ExportCreate,
    Page,
    Record,
    RecordDiff,
    RecordVersion,
)
from longline.server.web.api.requests import (
    CursorText,
    Limit,
    api_router,
    page_in_memory,
    page_of,
    read_cursor,
    write_cursor,
)
from longline.server.web.context import Home, Web
from longline.server.web.record_filters import RecordFilters, record_query
from longline.storage.records import RecordCursor

router = api_router("records")

_LARGEST = 2**63 - 1
_RecordId = Annotated[int, Path(ge=1, le=_LARGEST, description="The number of a record.")]
_Version = Annotated[int | None, Query(ge=1, le=_LARGEST)]


class UnknownExport(NotFoundError):
    """The job has no export to this file."""

    job: str
    export: str
    message = "job {job} has no export to the file {export!r}"


# ---------------- Records


@router.get("/records")
async def list_records(
    web: Home,
    *,
    source: Annotated[str | None, Query(description="Only records of this source.")] = None,
    key: Annotated[
        str | None, Query(description="Only the record with this key; needs `source`.")
    ] = None,
    job: Annotated[str | None, Query(description="Only records last seen by this job.")] = None,
    search: Annotated[
        str | None, Query(description="Only records with this text in data, key or address.")
    ] = None,
    min_score: Annotated[
        float | None, Query(ge=0, le=100, description="Minimum quality, from 0 to 100.")
    ] = None,
    grade: Annotated[str | None, Query(description="Only records of this quality grade.")] = None,
    since: Annotated[
        str | None,
        Query(description="Only records changed since a time (2026-11-01T08:30) or an age (3h)."),
    ] = None,
    state: Annotated[
        Literal["present", "gone", "any"],
        Query(description="Whether records that are gone from the site are wanted."),
    ] = "present",
    where: Annotated[
        list[str] | None,
        Query(max_length=10, description="Conditions such as price>100; all have to be met."),
    ] = None,
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Record]:
    """List records: those of a source by key, others newest first.

    A filtered page may be short, or empty, before the last.
    """
    query = await record_query(
        web,
        RecordFilters(source, job, search, min_score, grade, since, state, where or ()),
    )
    after = _place_of(cursor)
    if key is not None:
        if not source:
            raise BadOption("key", "it needs `source`")
        rows = await web.store.records.list(replace(query, key=key, limit=1))
        return Page(items=[Record.model_validate(row) for row in rows], next=None)
    page = await web.store.records.page(query, after=after, size=limit)
    return Page(
        items=[Record.model_validate(row) for row in page.rows],
        next=None if page.cursor is None else write_cursor([page.cursor]),
    )


def _place_of(cursor: str | None) -> RecordCursor | None:
    """Return the key or number in a cursor; raise BadOption if it has none."""
    found = read_cursor(cursor, object)
    if found is None:
        return None
    place: Any = found[0]
    if not isinstance(place, int | str):
        raise BadOption("cursor", "it is not a cursor of this list")
    return place


@router.get("/records/{record}")
async def get_record(web: Home, record: _RecordId) -> Record:
    """Return a record as it is now."""
    return Record.model_validate(await web.store.records.by_id(record))


@router.get("/records/{record}/history")
async def list_record_versions(
    web: Home, record: _RecordId, limit: Limit = 100, cursor: CursorText = None
) -> Page[RecordVersion]:
    """List the versions of a record, the newest first."""
    place = read_cursor(cursor, int)
    before = None if place is None else place[0]
    found = await web.store.history.page(record, before=before, limit=limit + 1)
    some, following = page_of(found, limit, lambda one: (one.version,))
    return Page(items=[RecordVersion.model_validate(one) for one in some], next=following)


@router.get("/records/{record}/diff")
async def get_record_diff(
    web: Home,
    record: _RecordId,
    older: Annotated[_Version, Query(description="By default the version before `newer`.")] = None,
    newer: Annotated[_Version, Query(description="By default the present version.")] = None,
) -> RecordDiff:
    """Return the difference between two versions of a record."""
    row = await web.store.records.by_id(record)
    [found] = await web.store.history.diff(
        row["key"], source=row["source"], older=older, newer=newer or row["version"]
    )
    values = {name: getattr(found, name) for name in RecordDiff.model_fields}
    return RecordDiff(**{**values, "differences": [one.as_dict() for one in found.differences]})


# ---------------- Exports


@router.post("/exports", status_code=202)
async def create_export(web: Home, body: ExportCreate) -> Export:
    """Write the records of a job to a file in the folder `exports` of the home."""
    job = await web.store.jobs.get(body.job)
    folder = exports_folder(web.settings.home)
    return _export(await enqueue_file_export(web.store, job, folder, body.file, body.columns))


@router.get("/exports")
async def list_exports(
    web: Home,
    job: Annotated[str, Query(min_length=1, description="The id of a job, or a prefix of it.")],
    limit: Limit = 100,
    cursor: CursorText = None,
) -> Page[Export]:
    """List the exports of a job by file."""
    found = [_export(one) for one in await _exports_of(web, job)]
    return page_in_memory(found, limit, cursor, lambda one: (one.id,))


@router.get("/exports/{job}/{export}")
async def get_export(web: Home, job: str, export: str) -> Export:
    """Return an export of a job."""
    for one in await _exports_of(web, job):
        if one.file == export:
            return _export(one)
    raise UnknownExport(job[:100], export[:100])


async def _exports_of(web: Web, job: str) -> list[FileExport]:
    found = await web.store.jobs.get(job)
    return await file_exports(web.store, found.id, exports_folder(web.settings.home))


def _export(export: FileExport) -> Export:
    return Export.model_validate({"id": export.file, **asdict(export)})
