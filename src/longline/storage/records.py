"""Records, their versions and history, and which versions exports have written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    Connection,
    RowMapping,
    Text,
    bindparam,
    func,
    insert,
    select,
    true,
    update,
)

from longline.core.errors import BadOption, UnknownRecord
from longline.core.json import FieldDiff, diff_json, is_same_json, json_value_at
from longline.core.model import Quality, Record
from longline.storage.backends import BulkInsert, BulkUpsert, as_json, sanitize_key, sanitize_text
from longline.storage.database import Repository, Row, plain_rows, reads, writes
from longline.storage.enrichment import enrichments_of
from longline.storage.events.events import EventRow, append_events, event_row
from longline.storage.query import RecordQuery, path_of, select_records
from longline.storage.scanning import Scan, scan_page
from longline.storage.schema import events, export_marks, jobs, record_versions, records

Rows = list[Row]  # spelled out here: `Records.list` hides the builtin below it
ENRICHMENTS = "enrichments"  # where `stream` adds the answers of models about a record
RecordWrite = tuple[Record, str | None, float]
"""A record, the job that collected it, and when."""
RecordCursor = int | str
"""Where a page of records starts: after this key within a source, else before this id."""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some of the records that match.

    `cursor` is where the next page starts; None: there is none. Without `is_full`, the time was up
    before the page had all its rows: records after the cursor may match, too.
    """

    rows: Rows
    cursor: RecordCursor | None
    is_full: bool = True


class Records(Repository):
    """All records as they are now."""

    @writes
    def create(
        self,
        connection: Connection,
        record: Record,
        *,
        at: float,
        job: str | None = None,
        is_seen: bool = True,
    ) -> bool:
        """Store a record; True when it is new or differs from the stored one.

        Without `is_seen`, it was not seen at its site now, and stays gone if it was gone.
        """
        return store_records(connection, [(record, job, at)], are_seen=is_seen)[0]

    @reads
    def get(self, connection: Connection, key: str, *, source: str | None = None) -> Row:
        """Return one record as it is now.

        Raises:
            UnknownRecord: no record has this key.
        """
        return _record_by_key(connection, key, source)

    @reads
    def by_id(self, connection: Connection, record: int) -> Row:
        """Return one record as it is now.

        Raises:
            UnknownRecord: no record has this number.
        """
        return _record_by_id(connection, record)

    @writes
    def update(
        self,
        connection: Connection,
        key: str,
        changes: Mapping[str, Any],
        *,
        at: float,
        source: str | None = None,
    ) -> Row:
        """Change fields of a record's data manually; the old version is kept.

        Raises:
            UnknownRecord: no record has this key.
            BadOption: a value cannot be stored, such as an integer of more than 64 bits.
        """
        try:
            as_json(dict(changes))
        except TypeError as error:
            raise BadOption("changes", f"they cannot be stored: {error}") from error
        # Of two concurrent edits, the second adds to the result of the first.
        row = _record_by_key(connection, key, source, is_locked=True)
        changed = {
            **row,
            "data": {**row["data"], **changes},
            "version": row["version"] + 1,
            "changed_at": at,
            "changed_by": None,  # a manual edit belongs to no job
            # No extraction yields this fingerprint, so the next run stores what the site has.
            "fingerprint": f"edited:{row['fingerprint']}",
        }
        _replace(connection, [_update_parameters(changed, row["id"], _CHANGED)])
        named = (row["source"], row["key"])
        event = _record_event("record.changed", None, at, named, version=changed["version"])
        append_events(connection, [event])
        return _record_by_key(connection, key, row["source"])

    @reads
    def list(self, connection: Connection, query: RecordQuery) -> Rows:
        """Return the records that match."""
        return plain_rows(connection.execute(select_records(query)).mappings())

    @reads
    def page(
        self,
        connection: Connection,
        query: RecordQuery,
        *,
        after: RecordCursor | None = None,
        size: int = 50,
        seconds: float = 0.2,
    ) -> RecordPage:
        """Return a page of the records that match; of present ones only, `as_of` does not apply.

        Those of a source are sorted by key, others by id, the newest first. A condition that few
        records meet has no index, so the search ends after about `seconds`.

        Raises:
            BadOption: the cursor is of another query.
        """
        scan = _scan_of(query)
        if after is not None and isinstance(after, str) != (scan.columns[0] is records.c.key):
            raise BadOption("after", f"{after!r:.60} is not a place in these records")
        wanted = select_records(replace(query, order=(), limit=None, offset=0, as_of=None))
        start = sanitize_key(after) if isinstance(after, str) else after
        found = scan_page(
            connection,
            scan,
            wanted,
            after=None if start is None else (start,),
            size=size,
            seconds=seconds,
        )
        cursor = None if found.position is None else found.position[0]
        return RecordPage(found.rows, cursor, is_full=found.is_full)

    @reads
    def count(self, connection: Connection, query: RecordQuery | None = None) -> int:
        """Return how many records match."""
        unsorted = replace(query or RecordQuery(), order=())
        matching = select_records(unsorted).subquery()
        return connection.scalar(select(func.count()).select_from(matching)) or 0

    @reads
    def versions(self, connection: Connection, key: str, *, source: str | None = None) -> Rows:
        """Return the earlier versions of a record, oldest first."""
        record = _record_by_key(connection, key, source)["id"]
        query = select(record_versions).where(record_versions.c.record_id == record)
        ordered = query.order_by(record_versions.c.version)
        return plain_rows(connection.execute(ordered).mappings())

    async def restore(self, job: str, at: float) -> RestoredRecords:
        """Give the records that a job has written the content that they had before it.

        The restored content is a new version; nothing of the history is deleted. Records that were
        changed again since, manually or by another job, are not touched. After a kill in between,
        the next call continues.
        """
        total = await self._database.write(_restore_presence, job, at)
        after: int | None = 0
        while after is not None:
            some, after = await self._database.write(_restore_batch, job, at, after)
            total += some
        return total

    @reads
    def scores(
        self, connection: Connection, source: str, keys: Sequence[str]
    ) -> dict[str, float | None]:
        """Return the quality scores of these records."""
        wanted = set(keys)
        query = select(records.c.key, records.c.score).where(records.c.source == source)
        return {key: score for key, score in connection.execute(query) if key in wanted}

    @reads
    def statistics(self, connection: Connection) -> Rows:
        """Return, by source, the number of records, mean score, grades, and when last seen."""
        query = (
            select(
                records.c.source,
                func.count().label("records"),
                func.avg(records.c.score).label("mean_score"),
                func.max(records.c.seen_at).label("last_seen_at"),
            )
            .group_by(records.c.source)
            .order_by(records.c.source)
        )
        grades = select(records.c.source, records.c.grade, func.count()).group_by(
            records.c.source, records.c.grade
        )
        by_source: dict[str, dict[str, int]] = {}
        for source, grade, count in connection.execute(grades):
            by_source.setdefault(source, {})[grade or "unscored"] = count
        return [
            {**row, "grades": by_source[row["source"]]}
            for row in plain_rows(connection.execute(query).mappings())
        ]

    def stream(
        self, query: RecordQuery, *, size: int = 500, with_enrichments: bool = False
    ) -> Iterator[Row]:
        """Yield the records that match, in this thread, holding only `size` of them in memory.

        All are read from one snapshot. `with_enrichments` adds what models answered about each
        record under `enrichments`.
        """
        statement = select_records(query).execution_options(yield_per=size)
        with self._database.snapshot() as connection, connection.execute(statement) as result:
            for page in result.mappings().partitions(size):
                rows = plain_rows(page)
                if with_enrichments:
                    found = enrichments_of(connection, [row["id"] for row in rows])
                    rows = [{**row, ENRICHMENTS: found.get(row["id"], [])} for row in rows]
                yield from rows


def _scan_of(query: RecordQuery) -> Scan:
    """Return the order of the pages of a query, which an index has."""
    if query.source is not None and query.job is None:
        return Scan((records.c.key,), (records.c.source == sanitize_text(query.source),))
    scope = () if query.job is None else (records.c.job_id == sanitize_text(query.job),)
    return Scan((records.c.id,), scope, is_descending=True)


def _record_by_key(
    connection: Connection, key: str, source: str | None, *, is_locked: bool = False
) -> Row:
    query = select_records(RecordQuery(key=key, source=source, limit=1))
    if is_locked:
        query = query.with_for_update(of=records, key_share=True)
    rows = plain_rows(connection.execute(query).mappings())
    if not rows:
        raise UnknownRecord(key)
    return rows[0]


def _record_by_id(connection: Connection, record: int) -> Row:
    rows = connection.execute(select(records).where(records.c.id == record)).mappings()
    for row in plain_rows(rows):
        return row
    raise UnknownRecord(str(record))


def store_records(
    connection: Connection, batch: Sequence[RecordWrite], *, are_seen: bool = True
) -> list[bool]:
    """Store records in the caller's transaction; return of each whether it is new or changed.

    The present version moves to the history before a changed one replaces it. A record that
    differs only in volatile fields gets these refreshed and no new version. A record that was gone
    and is seen is there again.
    """
    if not batch:
        return []
    keys = [(record.source, sanitize_key(record.key)) for record, _, _ in batch]
    if len(set(keys)) < len(keys):  # the same record twice: the second must see the first
        several = (store_records(connection, [one], are_seen=are_seen) for one in batch)
        return [changed for one in several for changed in one]
    known = _stored_records(connection, keys)
    new, altered, same, is_changed, happened = [], [], [], [], []
    for key, (record, job, at) in zip(keys, batch, strict=True):
        found = known.get(key)
        row = _record_row(record, job, at)
        is_changed.append(found is None or found["fingerprint"] != record.fingerprint)
        if found is None:
            first = {"version": 1, "first_seen_at": at, "changed_at": at, "changed_by": job}
            new.append({**row, **first, "gone_at": None})
            happened.append(_record_event("record.created", job, at, key, version=1))
        elif found["fingerprint"] == record.fingerprint:
            same.append(_update_parameters(row, found["id"], _REFRESHED))
        else:
            version = found["version"] + 1
            changes = {"version": version, "changed_at": at, "changed_by": job}
            altered.append(_update_parameters({**row, **changes}, found["id"], _CHANGED))
            happened.append(_record_event("record.changed", job, at, key, version=version))
    if new:
        texts = ({name: as_json(row[name]) for name in ("data", "about")} for row in new)
        _CREATE.run(connection, [row | text for row, text in zip(new, texts, strict=True)])
    if same:
        connection.execute(_REFRESH, same)
    if altered:
        _replace(connection, altered)
    append_events(connection, happened)
    if are_seen and any(row["gone_at"] is not None for row in known.values()):
        found_again = zip(keys, batch, is_changed, strict=True)
        _return_records(connection, [(*one, known.get(one[0])) for one in found_again])
    return is_changed


def _return_records(
    connection: Connection,
    written: Iterable[tuple[tuple[str, str], RecordWrite, bool, RowMapping | None]],
) -> None:
    """Note that records are there again, of those that were written."""
    for key, (_, job, at), is_changed, found in written:
        if found is None or found["gone_at"] is None:
            continue
        connection.execute(_RETURN, {"b_id": found["id"]})
        version = found["version"] + is_changed
        event = _record_event("record.returned", job, at, key, version=version)
        append_events(connection, [event])


def _record_event(
    name: str, job: str | None, at: float, record: tuple[str, str], *, version: int
) -> EventRow:
    source, key = record
    return event_row(job, at, name, key=key, source=source, version=version)


_IS_OF_SOURCE = records.c.source == bindparam("b_source")
_KNOWN_COLUMNS = (
    *(records.c.id, records.c.source, records.c.key),
    *(records.c.fingerprint, records.c.version, records.c.gone_at, records.c.job_id),
)
_WANTED = (
    func.unnest(bindparam("b_keys", type_=ARRAY(Text)))
    .table_valued("key", name="wanted")
    .render_derived()
)
# PostgreSQL would scan all records of a source that it has no statistics for, at every commit. So
# it looks up each key separately.
_PROBE = (
    select(*_KNOWN_COLUMNS)
    .where(_IS_OF_SOURCE, records.c.key == _WANTED.c.key)
    .limit(1)
    .with_for_update(key_share=True)  # a concurrent write of the same record waits for us
    .lateral("found")
)
_KNOWN = {
    "sqlite": select(*_KNOWN_COLUMNS).where(
        _IS_OF_SOURCE, records.c.key.in_(bindparam("b_keys", expanding=True))
    ),
    "postgresql": select(_PROBE).select_from(_WANTED.join(_PROBE, true())),
}
_CREATE = BulkInsert(records, [column.name for column in records.columns if not column.primary_key])


def _stored_records(
    connection: Connection, keys: list[tuple[str, str]]
) -> dict[tuple[str, str], RowMapping]:
    by_source: dict[str, list[str]] = {}
    for source, key in keys:
        by_source.setdefault(source, []).append(key)
    query = _KNOWN[connection.dialect.name]
    return {
        (row["source"], row["key"]): row
        for source, wanted in sorted(by_source.items())  # all lock in the same order
        for row in connection.execute(
            query, {"b_source": source, "b_keys": sorted(wanted)}
        ).mappings()
    }


def _record_row(record: Record, job: str | None, at: float) -> Row:
    quality = record.quality
    return {
        "source": record.source,
        "key": sanitize_key(record.key),
        "url": record.url,
        "job_id": job,
        "fingerprint": record.fingerprint,
        "score": quality.score if quality else None,
        "grade": quality.grade if quality else None,
        "seen_at": at,
        "data": dict(record.data),
        "about": {
            "provenance": dict(record.provenance),
            "notes": [{"field": note.field, "text": note.text} for note in record.notes],
            "layers": dict(record.layers),
            "quality": _quality_row(quality) if quality else None,
        },
    }


def _quality_row(quality: Quality) -> Row:
    # Like dataclasses.asdict without its deep copies: this runs for every item.
    return {
        "score": quality.score,
        "grade": quality.grade,
        "parts": [
            {
                "name": part.name,
                "weight": part.weight,
                "earned": part.earned,
                "reasons": list(part.reasons),
            }
            for part in quality.parts
        ],
        "conflicts": list(quality.conflicts),
    }


def _update_parameters(row: Row, record: int, names: Sequence[str]) -> Row:
    # The parameters of an UPDATE must not have the names of its columns.
    return {"b_id": record, **{f"b_{name}": row[name] for name in names}}


def _update_record(names: Sequence[str]) -> Any:
    columns = {name: bindparam(f"b_{name}", type_=records.c[name].type) for name in names}
    return update(records).where(records.c.id == bindparam("b_id")).values(**columns)


_REFRESHED = ("url", "job_id", "score", "grade", "seen_at", "data", "about")
_CHANGED = (*_REFRESHED, "fingerprint", "version", "changed_at", "changed_by")
_REFRESH = _update_record(_REFRESHED)
_CHANGE = _update_record(_CHANGED)
_RETURN = update(records).where(records.c.id == bindparam("b_id")).values(gone_at=None)


_ARCHIVED = ("version", "fingerprint", "score", "data", "about")
_ARCHIVE = insert(record_versions).from_select(
    ["record_id", "job_id", "since", "until", *_ARCHIVED],
    select(
        records.c.id,
        records.c.changed_by,
        records.c.changed_at,
        bindparam("b_until", type_=record_versions.c.until.type),
        *(records.c[name] for name in _ARCHIVED),
    ).where(records.c.id == bindparam("b_id")),
)


def _replace(connection: Connection, altered: list[Row]) -> None:
    """Move the present versions to the history and store the changed ones."""
    ends = [{"b_id": row["b_id"], "b_until": row["b_changed_at"]} for row in altered]
    connection.execute(_ARCHIVE, ends)
    connection.execute(_CHANGE, altered)


# ---------------- The history of records: versions, diffs between them, and one item in two runs

T = TypeVar("T")
_BATCH = 500


@dataclass(frozen=True, slots=True)
class Version:
    """A record from `since` on; `until` is None for the present version.

    `job` wrote it; None after a manual edit, or when the job is unknown.
    """

    version: int
    job: str | None
    fingerprint: str
    since: float
    until: float | None
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """The difference between two versions of a record; `older` is None for a new record."""

    source: str
    key: str
    older: int | None
    newer: int
    at: float
    job: str | None
    differences: tuple[FieldDiff, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "source": self.source,
            "key": self.key,
            "from": self.older,
            "to": self.newer,
            "at": self.at,
            **({} if self.job is None else {"job": self.job}),
            "differences": [one.as_dict() for one in self.differences],
        }


@dataclass(frozen=True, slots=True)
class FieldValue:
    """The value of a field from `since` on, first stored in this version."""

    version: int
    since: float
    until: float | None
    value: Any


class History(Repository):
    """Reads what the records of a database were."""

    @reads
    def versions(
        self, connection: Connection, key: str, *, source: str | None = None
    ) -> list[Version]:
        """Return all versions of a record, oldest first, the present one included.

        Raises:
            UnknownRecord: no record has this key.
        """
        record = _record_by_key(connection, key, source)["id"]
        return versions_by_id(connection, [record])[record]

    @reads
    def recent(
        self, connection: Connection, key: str, *, source: str | None = None, limit: int
    ) -> list[VersionDiff]:
        """Return the newest changes of a record from version to version, the newest first.

        Raises:
            UnknownRecord: no record has this key.
        """
        row = _record_by_key(connection, key, source)
        versions = _newest_versions(connection, row, limit=limit + 1)
        source = row["source"]
        return [_diff_versions(source, key, first, last) for last, first in pairwise(versions)]

    @reads
    def page(
        self, connection: Connection, record: int, *, before: int | None = None, limit: int
    ) -> list[Version]:
        """Return the versions of the record with a number, the newest first.

        Args:
            connection: the transaction.
            record: the number of the record.
            before: only versions with a lower number.
            limit: how many.

        Raises:
            UnknownRecord: no record has this number.
        """
        row = _record_by_id(connection, record)
        return _newest_versions(connection, row, before=before, limit=limit)

    @reads
    def diff(
        self,
        connection: Connection,
        key: str,
        *,
        source: str | None = None,
        older: int | None = None,
        newer: int | None = None,
    ) -> list[VersionDiff]:
        """Return what changed from version to version.

        With `older` or `newer`, return one diff between these two version numbers; by default
        `newer` is the present version and `older` the one before `newer`.

        Raises:
            UnknownRecord: no record has this key.
            BadOption: it has no such version.
        """
        row = _record_by_key(connection, key, source)
        versions = versions_by_id(connection, [row["id"]])[row["id"]]
        if older is not None or newer is not None:
            newer = versions[-1].version if newer is None else newer
            wanted = (max(1, newer - 1) if older is None else older, newer)
            by_number = {one.version: one for one in versions}
            if missing := [number for number in wanted if number not in by_number]:
                known = f"only 1 to {versions[-1].version}"
                raise BadOption("version", f"the record has no version {missing[-1]}, {known}")
            versions = [by_number[number] for number in wanted]
        source = row["source"]
        return [_diff_versions(source, key, first, last) for first, last in pairwise(versions)]

    async def timeline(
        self, key: str, field: str, *, source: str | None = None
    ) -> list[FieldValue]:
        """Return the values that a field has had, oldest first; a dotted path reaches into it.

        Raises:
            UnknownRecord: no record has this key.
            BadOption: `field` is not a path.
        """
        path = path_of(field)
        values: list[FieldValue] = []
        for one in await self.versions(key, source=source):
            value = json_value_at(one.data, path)
            if values and is_same_json(values[-1].value, value):
                values[-1] = replace(values[-1], until=one.until)
            else:
                values.append(FieldValue(one.version, one.since, one.until, value))
        return values

    def since(self, at: float, query: RecordQuery | None = None) -> Iterator[VersionDiff]:
        """Yield the diff of each changed record from a time until now, in this thread."""
        wanted = replace(query or RecordQuery(), since=at)
        statement = select_records(wanted).execution_options(yield_per=_BATCH)
        with self._database.snapshot() as connection, connection.execute(statement) as result:
            for rows in result.mappings().partitions():
                known = versions_by_id(connection, [row["id"] for row in rows])
                for row in rows:
                    versions = known[row["id"]]
                    # A version of exactly that time counts as a change since then.
                    before = [one for one in versions if one.since < at]
                    first = before[-1] if before else None
                    yield _diff_versions(row["source"], row["key"], first, versions[-1])


def _newest_versions(
    connection: Connection, row: Row, *, before: int | None = None, limit: int
) -> list[Version]:
    """Return versions of a record, the newest first; those below the number `before`."""
    present = _present_version(row)
    is_wanted = before is None or present.version < before
    past = select(record_versions).where(record_versions.c.record_id == row["id"])
    if before is not None:
        past = past.where(record_versions.c.version < before)
    ordered = past.order_by(record_versions.c.version.desc()).limit(limit - is_wanted)
    found = [_past_version(one) for one in connection.execute(ordered)]
    return [present, *found] if is_wanted else found


def versions_by_id(connection: Connection, ids: Sequence[int]) -> dict[int, list[Version]]:
    """Return the versions of records by record id, oldest first, the present one last."""
    past = select(record_versions).where(record_versions.c.record_id.in_(ids))
    found: dict[int, list[Version]] = {}
    for row in connection.execute(past.order_by(record_versions.c.version)):
        found.setdefault(row.record_id, []).append(_past_version(row))
    present = select(records).where(records.c.id.in_(ids))
    for one in connection.execute(present).mappings():
        found.setdefault(one["id"], []).append(_present_version(one))
    return found


def _past_version(row: Any) -> Version:
    return Version(row.version, row.job_id, row.fingerprint, row.since, row.until, dict(row.data))


def _present_version(row: Mapping[str, Any] | RowMapping) -> Version:
    written = (row["changed_by"], row["fingerprint"], row["changed_at"])
    return Version(row["version"], *written, None, dict(row["data"]))


def _diff_versions(source: str, key: str, first: Version | None, last: Version) -> VersionDiff:
    diffs = diff_json({} if first is None else first.data, last.data)
    older = None if first is None else first.version
    return VersionDiff(source, key, older, last.version, last.since, last.job, diffs)


# ---------------- Restoring what a job has changed


@dataclass(frozen=True, slots=True)
class RestoredRecords:
    """How many records have the content again that they had before a job.

    `removed` did not exist before and are marked as gone; `returned` were marked as gone by it.
    """

    changed: int = 0
    removed: int = 0
    returned: int = 0

    def __add__(self, other: RestoredRecords) -> RestoredRecords:
        return RestoredRecords(
            self.changed + other.changed,
            self.removed + other.removed,
            self.returned + other.returned,
        )


def _restore_batch(
    connection: Connection, job: str, at: float, after: int
) -> tuple[RestoredRecords, int | None]:
    """Restore the next records after an id; return the last id, None when none is left."""
    source = select(jobs.c.source).where(jobs.c.id == job).scalar_subquery()
    query = (
        select(records)
        .where(records.c.source == source, records.c.changed_by == job, records.c.id > after)
        .order_by(records.c.id)
        .limit(_BATCH)
        .with_for_update(key_share=True)
    )
    rows = plain_rows(connection.execute(query).mappings())
    if not rows:
        return RestoredRecords(), None
    earlier = _versions_before(connection, job, [row["id"] for row in rows])
    altered, happened, removed = [], [], []
    for row in rows:
        named, version = (row["source"], row["key"]), row["version"]
        found = earlier.get(row["id"])
        if found is None:
            if row["gone_at"] is None:
                removed.append(row["id"])
                happened.append(_record_event("record.gone", None, at, named, version=version))
            continue
        quality = found["about"].get("quality") or {}
        same = {name: found[name] for name in ("fingerprint", "score", "data", "about")}
        changed = {**row, **same, "grade": quality.get("grade"), "version": version + 1}
        # Without a job: it is what was there before, and no job has collected it again.
        changed |= {"changed_at": at, "changed_by": None}
        altered.append(_update_parameters(changed, row["id"], _CHANGED))
        happened.append(_record_event("record.changed", None, at, named, version=version + 1))
    if altered:
        _replace(connection, altered)
    connection.execute(update(records).where(records.c.id.in_(removed)).values(gone_at=at))
    append_events(connection, happened)
    return RestoredRecords(len(altered), len(removed)), rows[-1]["id"]


def _versions_before(connection: Connection, job: str, ids: Sequence[int]) -> dict[int, RowMapping]:
    """Return of each record the newest version that is not of a job."""
    query = select(record_versions).where(
        record_versions.c.record_id.in_(ids), record_versions.c.job_id.is_distinct_from(job)
    )
    rows = connection.execute(query.order_by(record_versions.c.version)).mappings()
    return {row["record_id"]: row for row in rows}


def _restore_presence(connection: Connection, job: str, at: float) -> RestoredRecords:
    """Restore which records were gone before a job, as far as no other job has changed it."""
    query = (
        select(events.c.type, events.c.key, events.c.data, events.c.at)
        .where(events.c.job_id == job, events.c.type.in_(("record.gone", "record.returned")))
        .order_by(events.c.id)
    )
    first: dict[tuple[str, str], Any] = {}
    last: dict[tuple[str, str], float] = {}
    for row in connection.execute(query):
        named = (row.data["source"], row.key)
        first.setdefault(named, row.type)
        last[named] = row.at
    known = _stored_records(connection, sorted(first))
    removed, returned, happened = [], [], []
    for named, found in known.items():
        was_there = first[named] == "record.gone"
        if was_there and found["gone_at"] == last[named]:
            returned.append(found["id"])
        elif not was_there and found["gone_at"] is None and found["job_id"] == job:
            removed.append(found["id"])
        else:
            continue
        name = "record.returned" if was_there else "record.gone"
        happened.append(_record_event(name, None, at, named, version=found["version"]))
    connection.execute(update(records).where(records.c.id.in_(returned)).values(gone_at=None))
    connection.execute(update(records).where(records.c.id.in_(removed)).values(gone_at=at))
    append_events(connection, happened)
    return RestoredRecords(removed=len(removed), returned=len(returned))


# ---------------- Export cursors: which version of each record an incremental export has written

RecordVersion = tuple[int, int]
"""The id of a record, and its version."""
_CURSOR_PAGE = 500
_SAVE_CURSORS = BulkUpsert(
    export_marks, ("name", "record_id", "version"), key=("name", "record_id")
)


class ExportCursors(Repository):
    """What each export has written, by the name of the export."""

    def unwritten(self, name: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the records, in their order, whose version this export has not written yet.

        It runs in this thread and holds one page of rows in memory.
        """
        left = iter(rows)
        while page := list(islice(left, _CURSOR_PAGE)):
            query = select(export_marks.c.record_id, export_marks.c.version).where(
                export_marks.c.name == name,
                export_marks.c.record_id.in_([row["id"] for row in page]),
            )
            with self._database.snapshot() as connection:
                written = {row.record_id: row.version for row in connection.execute(query)}
            yield from (row for row in page if written.get(row["id"]) != row["version"])

    @writes
    def add(self, connection: Connection, name: str, versions: Iterable[RecordVersion]) -> None:
        """Save what was written, all of it or nothing."""
        left = iter(versions)
        while page := dict(islice(left, _CURSOR_PAGE)):
            rows = [
                {"name": name, "record_id": record, "version": version}
                for record, version in page.items()
            ]
            _SAVE_CURSORS.run(connection, rows)
