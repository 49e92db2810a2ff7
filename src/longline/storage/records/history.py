"""The history of records: versions, diffs between them, and one item in two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, and_, select

from longline.core.errors import BadOption, FailureKind
from longline.core.json import FieldDiff, diff_json, is_same_json, value_at
from longline.core.model import ItemState
from longline.storage.database import Repository, Row, plain_rows, reads
from longline.storage.errors import UnknownRecord
from longline.storage.records.fields import path_of
from longline.storage.records.query import RecordQuery, select_records
from longline.storage.schema import items, record_versions, records

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


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two jobs of a source; `older` is empty for its first run.

    `older_end` is when the older job ended, for records of items that it did not have.
    """

    source: str
    older: str
    newer: str
    older_end: float


@dataclass(frozen=True, slots=True)
class ItemResult:
    """How a run left an item."""

    state: ItemState
    at: float | None
    kind: FailureKind | None
    reason: str | None

    @property
    def is_good(self) -> bool:
        """Whether its record was stored or found unchanged."""
        return self.state in (ItemState.STORED, ItemState.UNCHANGED)


@dataclass(frozen=True, slots=True)
class ItemComparison:
    """One item in two runs; None for a run that did not have it.

    `was_known` says that its record existed when the older run was done with the item.
    `differences` are those of the record between the two runs, if both could see it.
    """

    key: str
    older: ItemResult | None
    newer: ItemResult | None
    was_known: bool
    differences: tuple[FieldDiff, ...] = ()


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
        _, versions = _versions_by_key(connection, key, source)
        return versions

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
        name, versions = _versions_by_key(connection, key, source)
        if older is not None or newer is not None:
            last = _numbered(versions, newer) if newer is not None else versions[-1]
            first = _numbered(versions, older if older is not None else max(1, last.version - 1))
            versions = [first, last]
        return [_diff_versions(name, key, first, last) for first, last in pairwise(versions)]

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
            value = value_at(one.data, path)
            if values and is_same_json(values[-1].value, value):
                values[-1] = replace(values[-1], until=one.until)
            else:
                values.append(FieldValue(one.version, one.since, one.until, value))
        return values

    def as_of(self, at: float, query: RecordQuery | None = None) -> Iterator[Row]:
        """Yield each record as it was at a time, in this thread and in bounded memory."""
        wanted = replace(query or RecordQuery(), as_of=at)
        statement = select_records(wanted).execution_options(yield_per=_BATCH)
        with self._database.snapshot() as connection:
            for rows in connection.execute(statement).mappings().partitions():
                yield from plain_rows(rows)

    def since(self, at: float, query: RecordQuery | None = None) -> Iterator[VersionDiff]:
        """Yield the diff of each changed record from a time until now, in this thread."""
        wanted = replace(query or RecordQuery(), since=at)
        statement = select_records(wanted).execution_options(yield_per=_BATCH)
        with self._database.snapshot() as connection:
            for rows in connection.execute(statement).mappings().partitions():
                known = _versions_by_id(connection, [row["id"] for row in rows])
                for row in rows:
                    versions = known[row["id"]]
                    # A version of exactly that time counts as a change since then.
                    before = [one for one in versions if one.since < at]
                    first = before[-1] if before else None
                    yield _diff_versions(row["source"], row["key"], first, versions[-1])

    async def compare_items(
        self, pair: RunPair, consume: Callable[[Iterable[ItemComparison]], T]
    ) -> T:
        """Pass the items of two jobs to `consume`, in bounded memory and on one snapshot.

        The items of the newer job come first, then those that only the older one had.
        """
        return await self._database.read(
            lambda connection: consume(_compare_items(connection, pair))
        )


def _versions_by_key(
    connection: Connection, key: str, source: str | None
) -> tuple[str, list[Version]]:
    query = select_records(RecordQuery(key=key, source=source, limit=1))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRecord(key)
    return row.source, _versions_by_id(connection, [row.id])[row.id]


def _versions_by_id(connection: Connection, ids: Sequence[int]) -> dict[int, list[Version]]:
    """Return the versions of records by record id, oldest first, the present one last."""
    past = select(record_versions).where(record_versions.c.record_id.in_(ids))
    found: dict[int, list[Version]] = {}
    for row in connection.execute(past.order_by(record_versions.c.version)):
        version = Version(
            row.version, row.job_id, row.fingerprint, row.since, row.until, dict(row.data)
        )
        found.setdefault(row.record_id, []).append(version)
    for row in connection.execute(select(records).where(records.c.id.in_(ids))):
        version = Version(
            row.version, row.changed_by, row.fingerprint, row.changed_at, None, dict(row.data)
        )
        found.setdefault(row.id, []).append(version)
    return found


def _numbered(versions: Sequence[Version], number: int) -> Version:
    found = [one for one in versions if one.version == number]
    if not found:
        raise BadOption(
            "version", f"the record has no version {number}, only 1 to {versions[-1].version}"
        )
    return found[0]


def _diff_versions(source: str, key: str, first: Version | None, last: Version) -> VersionDiff:
    diffs = diff_json({} if first is None else first.data, last.data)
    older = None if first is None else first.version
    return VersionDiff(source, key, older, last.version, last.since, last.job, diffs)


# ---------------- The items of two runs


def _compare_items(connection: Connection, pair: RunPair) -> Iterator[ItemComparison]:
    for statement in (_items_of_newer(pair), _items_of_older_only(pair)):
        streamed = connection.execute(statement.execution_options(yield_per=_BATCH))
        for rows in streamed.mappings().partitions():
            yield from _compared(connection, pair, rows)


def _items_of_newer(pair: RunPair) -> Select[Any]:
    newer, older = items.alias("newer"), items.alias("older")
    same = and_(older.c.job_id == pair.older, older.c.key == newer.c.key)
    return (
        _comparison_columns(newer.c.key, older, newer)
        .select_from(newer.outerjoin(older, same).outerjoin(records, _is_record(pair, newer)))
        .where(newer.c.job_id == pair.newer)
        .order_by(newer.c.id)
    )


def _items_of_older_only(pair: RunPair) -> Select[Any]:
    newer, older = items.alias("newer"), items.alias("older")
    same = and_(newer.c.job_id == pair.newer, newer.c.key == older.c.key)
    return (
        _comparison_columns(older.c.key, older, newer)
        .select_from(older.outerjoin(newer, same).outerjoin(records, _is_record(pair, older)))
        .where(older.c.job_id == pair.older, newer.c.id.is_(None))
        .order_by(older.c.id)
    )


def _comparison_columns(key: Any, older: Any, newer: Any) -> Select[Any]:
    return select(
        key.label("key"),
        records.c.id.label("record"),
        records.c.first_seen_at,
        records.c.changed_at,
        *(
            table.c[name].label(f"{side}_{name}")
            for side, table in (("older", older), ("newer", newer))
            for name in ("state", "finished_at", "kind", "reason")
        ),
    )


def _is_record(pair: RunPair, run: Any) -> Any:
    return and_(records.c.source == pair.source, records.c.key == run.c.key)


def _compared(
    connection: Connection, pair: RunPair, rows: Sequence[Any]
) -> Iterator[ItemComparison]:
    def seen_at(row: Any) -> float:
        at: float | None = row["older_finished_at"]
        return pair.older_end if at is None else at

    known = {
        row["key"]
        for row in rows
        if row["record"] is not None and row["first_seen_at"] <= seen_at(row)
    }
    changed = [
        row["record"] for row in rows if row["key"] in known and row["changed_at"] > seen_at(row)
    ]
    versions = _versions_by_id(connection, changed) if changed else {}
    for row in rows:
        newer = _item_result(row, "newer")
        until = None if newer is None else newer.at
        diffs = _diff_between(versions.get(row["record"], []), seen_at(row), until)
        older = _item_result(row, "older")
        yield ItemComparison(row["key"], older, newer, row["key"] in known, diffs)


def _diff_between(
    versions: Sequence[Version], since: float, until: float | None
) -> tuple[FieldDiff, ...]:
    if until is None:
        return ()
    before = [one for one in versions if one.since <= since]
    after = [one for one in versions if one.since <= until]
    if not before or not after or before[-1].fingerprint == after[-1].fingerprint:
        return ()
    return diff_json(before[-1].data, after[-1].data)


def _item_result(row: Any, side: str) -> ItemResult | None:
    state, kind = row[f"{side}_state"], row[f"{side}_kind"]
    if state is None:
        return None
    return ItemResult(
        ItemState(state),
        row[f"{side}_finished_at"],
        FailureKind(kind) if kind else None,
        row[f"{side}_reason"],
    )
