"""What records were: their versions, the differences between them, and how a field went on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from sqlalchemy import Connection, Select

from longline.core.errors import BadOption
from longline.storage.database import Database
from longline.storage.errors import UnknownRecord
from longline.storage.records.differences import (
    Difference,
    Version,
    differences,
    is_same,
    value_at,
    versions_of,
)
from longline.storage.records.fields import path_of
from longline.storage.records.runs import Meeting, Pair, meetings
from longline.storage.records.selecting import RecordQuery, matching

T = TypeVar("T")
Row = dict[str, Any]
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a record between two versions; `older` is None when it was new."""

    source: str
    key: str
    older: int | None
    newer: int
    at: float
    job: str | None
    differences: tuple[Difference, ...]

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
class Point:
    """The value of a field from `since` on, first seen in this version."""

    version: int
    since: float
    until: float | None
    value: Any


class History:
    """What the records of a database were; asks, and changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self, key: str, *, source: str | None = None) -> list[Version]:
        """Return all versions of a record, oldest first, the present one included.

        Raises:
            UnknownRecord: there is none of this key.
        """
        _, found = await self._versions(key, source)
        return found

    async def diff(
        self,
        key: str,
        *,
        source: str | None = None,
        older: int | None = None,
        newer: int | None = None,
    ) -> list[Step]:
        """Return what changed from version to version, or between two of them at once.

        Args:
            key: of the record.
            source: when several have such a key.
            older: compare from this version on; with or without `newer`, one step is returned.
            newer: compare up to this version; the present one unless said.

        Raises:
            UnknownRecord: there is none of this key.
            BadOption: it has no such version.
        """
        name, found = await self._versions(key, source)
        if older is not None or newer is not None:
            last = _numbered(found, newer) if newer is not None else found[-1]
            first = _numbered(found, older) if older is not None else _before(found, last)
            found = [first, last]
        return [_step(name, key, first, last) for first, last in pairwise(found)]

    async def timeline(self, key: str, field: str, *, source: str | None = None) -> list[Point]:
        """Return the values that a field has had, oldest first; a dotted path reaches into it.

        Raises:
            UnknownRecord: there is none of this key.
            BadOption: that is no path of fields.
        """
        path = path_of(field)
        points: list[Point] = []
        for one in await self.versions(key, source=source):
            value = value_at(one.data, path)
            if points and is_same(points[-1].value, value):
                points[-1] = replace(points[-1], until=one.until)
            else:
                points.append(Point(one.version, one.since, one.until, value))
        return points

    def as_of(self, moment: float, query: RecordQuery | None = None) -> Iterator[Row]:
        """Yield each record as it was at a moment, in this thread and in bounded memory."""
        wanted = replace(query or RecordQuery(), as_of=moment)
        statement = matching(wanted).execution_options(yield_per=_BATCH)
        with self._database.snapshot() as connection:
            for row in connection.execute(statement).mappings():
                yield {str(name): value for name, value in row.items()}

    def since(self, moment: float, query: RecordQuery | None = None) -> Iterator[Step]:
        """Yield what has become of each record since a moment: one step from then to now."""
        wanted = replace(query or RecordQuery(), since=moment)
        with self._database.snapshot() as connection:
            statement = matching(wanted).execution_options(yield_per=_BATCH)
            for rows in connection.execute(statement).mappings().partitions():
                known = versions_of(connection, [row["id"] for row in rows])
                for row in rows:
                    yield _since(row, known[row["id"]], moment)

    async def meet(self, pair: Pair, use: Callable[[Iterable[Meeting]], T]) -> T:
        """Give `use` the items of two jobs side by side, in bounded memory and on one snapshot."""
        return await self._database.read(lambda connection: use(meetings(connection, pair)))

    async def _versions(self, key: str, source: str | None) -> tuple[str, list[Version]]:
        query = matching(RecordQuery(key=key, source=source, limit=1))
        return await self._database.read(lambda connection: _all_of(connection, query, key))


def _all_of(connection: Connection, query: Select[Any], key: str) -> tuple[str, list[Version]]:
    row = connection.execute(query).one_or_none()
    if row is None:
        raise UnknownRecord(key)
    return row.source, versions_of(connection, [row.id])[row.id]


def _numbered(versions: Sequence[Version], number: int) -> Version:
    found = [one for one in versions if one.version == number]
    if not found:
        raise BadOption("version", f"there is no {number}; there are 1 to {versions[-1].version}")
    return found[0]


def _before(versions: Sequence[Version], last: Version) -> Version:
    earlier = [one for one in versions if one.version < last.version]
    return earlier[-1] if earlier else last


def _step(source: str, key: str, first: Version, last: Version) -> Step:
    changes = differences(first.data, last.data)
    return Step(source, key, first.version, last.version, last.since, last.job, changes)


def _since(row: Any, versions: Sequence[Version], moment: float) -> Step:
    last = versions[-1]
    # What came exactly then is part of what has come since.
    before = [one for one in versions if one.since < moment]
    if before:
        return _step(row["source"], row["key"], before[-1], last)
    changes = differences({}, last.data)
    return Step(row["source"], row["key"], None, last.version, last.since, last.job, changes)
