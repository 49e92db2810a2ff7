"""The records and their history: one row a record, and a row for each version it had before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ARRAY,
    Connection,
    RowMapping,
    Select,
    Text,
    bindparam,
    func,
    insert,
    select,
    true,
    update,
)

from longline.core.errors import BadOption
from longline.core.model import Quality, Record
from longline.storage.bulk import BulkInsert, as_json
from longline.storage.columns import kept_key
from longline.storage.database import Database
from longline.storage.errors import UnknownRecord
from longline.storage.records.enrichment import enrichments_of
from longline.storage.records.history import History
from longline.storage.records.selecting import RecordQuery, matching
from longline.storage.schema import record_versions, records

__all__ = ["RecordQuery", "Records", "store_records"]

Row = dict[str, Any]
Rows = list[Row]  # spelled out here, since `Records.list` hides the builtin below it
ENRICHMENTS = "enrichments"  # where `stream` adds what machines were asked about a record
_Deposit = tuple[Record, str | None, float]


class Records:
    """Creates, reads, updates, lists, searches and counts records."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.history = History(database)

    async def create(self, record: Record, *, at: float, job: str | None = None) -> bool:
        """Store a record; True when it is new or differs from what was stored before."""
        changed: list[bool] = await self._database.write(store_records, [(record, job, at)])
        return changed[0]

    async def get(self, key: str, *, source: str | None = None) -> Row:
        """Return one record as it is now.

        Raises:
            UnknownRecord: there is none of this key.
        """
        rows = await self.list(RecordQuery(key=key, source=source, limit=1))
        if not rows:
            raise UnknownRecord(key)
        return rows[0]

    async def update(
        self, key: str, changes: Mapping[str, Any], *, at: float, source: str | None = None
    ) -> Row:
        """Change fields of a record's data by hand; the old version is kept.

        Raises:
            UnknownRecord: there is none of this key.
            BadOption: a value cannot be stored, such as a number of more than 64 bits.
        """
        query = RecordQuery(key=key, source=source, limit=1)
        _check(changes)
        name: str = await self._database.write(_edit, (query, changes, at))
        return await self.get(key, source=name)

    async def list(self, query: RecordQuery) -> Rows:
        """Return the records that match."""
        statement = matching(query)
        return await self._database.read(
            lambda connection: [_plain(row) for row in connection.execute(statement).mappings()]
        )

    async def search(self, text: str, *, limit: int = 20) -> Rows:
        """Return records that hold this text anywhere in their data or address."""
        return await self.list(RecordQuery(text=text, limit=limit))

    async def count(self, query: RecordQuery | None = None) -> int:
        """Return how many records match."""
        # In no order: sorting what is only counted would be for nothing.
        statement = matching(replace(query or RecordQuery(), order=())).subquery()
        total: int | None = await self._database.read(
            lambda connection: connection.scalar(select(func.count()).select_from(statement))
        )
        return total or 0

    async def versions(self, key: str, *, source: str | None = None) -> Rows:
        """Return what a record was before, oldest first."""
        row = await self.get(key, source=source)
        statement = (
            select(record_versions)
            .where(record_versions.c.record_id == row["id"])
            .order_by(record_versions.c.version)
        )
        return await self._database.read(
            lambda connection: [_plain(found) for found in connection.execute(statement).mappings()]
        )

    async def scores(self, source: str, keys: Sequence[str]) -> dict[str, float | None]:
        """Return the quality scores of these records."""
        statement = select(records.c.key, records.c.score).where(records.c.source == source)
        rows = await self._database.read(lambda connection: connection.execute(statement).all())
        wanted = set(keys)
        return {key: score for key, score in rows if key in wanted}

    async def statistics(self) -> Rows:
        """Return, per source: how many records, their mean score, grades, and when last seen."""
        return await self._database.read(_statistics)

    def stream(
        self, query: RecordQuery, *, size: int = 500, with_enrichments: bool = False
    ) -> Iterator[Row]:
        """Yield the records that match, in this thread, holding only `size` of them at once.

        All are read from one snapshot: what is stored meanwhile is not among them. What machines
        were asked about a record is under `enrichments`, when that is wished for.
        """
        statement = matching(query).execution_options(yield_per=size)
        with self._database.snapshot() as connection:
            for page in connection.execute(statement).mappings().partitions(size):
                said = enrichments_of(connection, _ids(page)) if with_enrichments else None
                for row in page:
                    plain = _plain(row)
                    yield plain if said is None else {**plain, ENRICHMENTS: said.get(row["id"], [])}


def _check(changes: Mapping[str, Any]) -> None:
    try:
        as_json(dict(changes))
    except TypeError as error:
        raise BadOption("changes", f"they cannot be stored: {error}") from error


def store_records(connection: Connection, deposits: Sequence[_Deposit]) -> list[bool]:
    """Store records in the caller's transaction; say of each whether it is new or changed.

    The present version moves to the history before a changed one takes its place. A record that
    is the same but for its volatile fields gets these refreshed and no new version.
    """
    if not deposits:
        return []
    keys = [(record.source, kept_key(record.key)) for record, _, _ in deposits]
    if len(set(keys)) < len(keys):  # the same record twice: the second must see the first
        return [changed for one in deposits for changed in store_records(connection, [one])]
    known = _known(connection, keys)
    fresh, altered, same = [], [], []
    for record, job, at in deposits:
        found = known.get((record.source, kept_key(record.key)))
        row = _row(record, job, at)
        if found is None:
            first = {"version": 1, "first_seen_at": at, "changed_at": at, "changed_by": job}
            fresh.append({**row, **first})
        elif found["fingerprint"] == record.fingerprint:
            same.append(_addressed(row, found["id"], _REFRESHED))
        else:
            version = {"version": found["version"] + 1, "changed_at": at, "changed_by": job}
            changed = {**row, **version}
            altered.append(_addressed(changed, found["id"], _CHANGED))
    if fresh:
        _CREATE.run(connection, [_written(row) for row in fresh])
    if same:
        connection.execute(_REFRESH, same)
    if altered:
        _replace(connection, altered)
    return [
        (found := known.get(key)) is None or found["fingerprint"] != record.fingerprint
        for key, (record, _, _) in zip(keys, deposits, strict=True)
    ]


_IS_OF_SOURCE = records.c.source == bindparam("b_source")
_MARKS = (
    *(records.c.id, records.c.source, records.c.key),
    *(records.c.fingerprint, records.c.version),
)


def _known_by_probes() -> Select[Any]:
    """Return the question that looks up each key by itself.

    PostgreSQL would read all records of a source that it knows nothing about yet, for every commit.
    """
    keys = func.unnest(bindparam("b_keys", type_=ARRAY(Text)))
    wanted = keys.table_valued("key", name="wanted").render_derived()
    found = (
        select(*_MARKS)
        .where(_IS_OF_SOURCE, records.c.key == wanted.c.key)
        .limit(1)
        .with_for_update(key_share=True)  # who stores the same record at this moment comes after us
        .lateral("found")
    )
    return select(found).select_from(wanted.join(found, true()))


_KNOWN = {
    "sqlite": select(*_MARKS).where(
        _IS_OF_SOURCE, records.c.key.in_(bindparam("b_keys", expanding=True))
    ),
    "postgresql": _known_by_probes(),
}


_CREATE = BulkInsert(records, [column.name for column in records.columns if not column.primary_key])


def _written(row: Row) -> Row:
    return {**row, "data": as_json(row["data"]), "about": as_json(row["about"])}


def _known(
    connection: Connection, keys: list[tuple[str, str]]
) -> dict[tuple[str, str], RowMapping]:
    by_source: dict[str, list[str]] = {}
    for source, key in keys:
        by_source.setdefault(source, []).append(key)
    question = _KNOWN[connection.dialect.name]
    return {
        (row["source"], row["key"]): row
        for source, wanted in sorted(by_source.items())  # locked in the same order by all
        for row in connection.execute(
            question, {"b_source": source, "b_keys": sorted(wanted)}
        ).mappings()
    }


def _row(record: Record, job: str | None, at: float) -> Row:
    quality = record.quality
    return {
        "source": record.source,
        "key": kept_key(record.key),
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
            "quality": _explained(quality) if quality else None,
        },
    }


def _explained(quality: Quality) -> Row:
    # What dataclasses.asdict does, without its deep copies: this runs once an item.
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


def _addressed(row: Row, record: int, names: Sequence[str]) -> Row:
    # The parameters of an UPDATE must not share the names of its columns.
    return {"b_id": record, **{f"b_{name}": row[name] for name in names}}


def _set(names: Sequence[str]) -> Any:
    columns = {name: bindparam(f"b_{name}", type_=records.c[name].type) for name in names}
    return update(records).where(records.c.id == bindparam("b_id")).values(**columns)


_REFRESHED = ("url", "job_id", "score", "grade", "seen_at", "data", "about")
_CHANGED = (*_REFRESHED, "fingerprint", "version", "changed_at", "changed_by")
_REFRESH = _set(_REFRESHED)
_CHANGE = _set(_CHANGED)


_KEPT = ("version", "fingerprint", "score", "data", "about")
_KEEP = insert(record_versions).from_select(
    ["record_id", "job_id", "since", "until", *_KEPT],
    select(
        records.c.id,
        records.c.changed_by,
        records.c.changed_at,
        bindparam("b_until", type_=record_versions.c.until.type),
        *(records.c[name] for name in _KEPT),
    ).where(records.c.id == bindparam("b_id")),
)


def _replace(connection: Connection, altered: list[Row]) -> None:
    """Move the present versions to the history and put changed ones in their place."""
    ends = [{"b_id": row["b_id"], "b_until": row["b_changed_at"]} for row in altered]
    connection.execute(_KEEP, ends)
    connection.execute(_CHANGE, altered)


def _edit(connection: Connection, argument: tuple[RecordQuery, Mapping[str, Any], float]) -> str:
    """Change fields of a record; return its source."""
    query, changes, at = argument
    # Of two who edit it at once, the second adds to what the first has made of it.
    alone = matching(query).with_for_update(of=records, key_share=True)
    row = connection.execute(alone).mappings().one_or_none()
    if row is None:
        raise UnknownRecord(query.key or "")
    changed = {
        **row,
        "data": {**row["data"], **changes},
        "version": row["version"] + 1,
        "changed_at": at,
        "changed_by": None,  # a person's hand is no job
        # No extraction yields this fingerprint, so the next run says what the site has by then.
        "fingerprint": f"edited:{row['fingerprint']}",
    }
    _replace(connection, [_addressed(changed, row["id"], _CHANGED)])
    name: str = row["source"]
    return name


def _statistics(connection: Connection) -> list[Row]:
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
        {**_plain(row), "grades": by_source[row["source"]]}
        for row in connection.execute(query).mappings()
    ]


def _ids(rows: Sequence[RowMapping]) -> list[int]:
    return [row["id"] for row in rows]


def _plain(row: RowMapping) -> Row:
    # The names that SQLAlchemy gives are of a class of its own, which orjson refuses as keys.
    return {str(name): value for name, value in row.items()}
