"""Two runs of a source side by side: what each of them saw of an item, and what that became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, select

from longline.core.errors import FailureKind
from longline.core.model import ItemState
from longline.storage.records.differences import (
    Difference,
    Version,
    differences,
    version_at,
    versions_of,
)
from longline.storage.schema import items, records

_BATCH = 500
_GOOD = (ItemState.STORED, ItemState.UNCHANGED)


@dataclass(frozen=True, slots=True)
class Sighting:
    """How a run left an item."""

    state: ItemState
    at: float | None
    kind: FailureKind | None
    reason: str | None

    @property
    def is_good(self) -> bool:
        """Whether it made a record, or found it unchanged."""
        return self.state in _GOOD


@dataclass(frozen=True, slots=True)
class Meeting:
    """One item in two runs; None where a run did not have it.

    `was_known` says that the record was there when the older run ended with it. `differences` are
    those of the record between the two runs, when both could see it.
    """

    key: str
    older: Sighting | None
    newer: Sighting | None
    was_known: bool
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs of a source; `older` is empty when there was none.

    `older_end` is the moment when that one ended, for what it did not have.
    """

    source: str
    older: str
    newer: str
    older_end: float


def meetings(connection: Connection, pair: Pair) -> Iterator[Meeting]:
    """Yield the items of the newer job as it found them, then those that only the older one had."""
    query = _Query(pair)
    for statement in (query.newer_ones(), query.older_only()):
        streamed = connection.execute(statement.execution_options(yield_per=_BATCH))
        for rows in streamed.partitions():
            yield from _met(connection, pair, rows)


@dataclass(frozen=True, slots=True)
class _Query:
    pair: Pair

    def newer_ones(self) -> Select[Any]:
        newer, older = items.alias("newer"), items.alias("older")
        same = and_(older.c.job_id == self.pair.older, older.c.key == newer.c.key)
        return (
            self._columns(newer.c.key, older, newer)
            .select_from(newer.outerjoin(older, same).outerjoin(records, self._record(newer)))
            .where(newer.c.job_id == self.pair.newer)
            .order_by(newer.c.id)
        )

    def older_only(self) -> Select[Any]:
        newer, older = items.alias("newer"), items.alias("older")
        same = and_(newer.c.job_id == self.pair.newer, newer.c.key == older.c.key)
        return (
            self._columns(older.c.key, older, newer)
            .select_from(older.outerjoin(newer, same).outerjoin(records, self._record(older)))
            .where(older.c.job_id == self.pair.older, newer.c.id.is_(None))
            .order_by(older.c.id)
        )

    def _columns(self, key: Any, older: Any, newer: Any) -> Select[Any]:
        names = ("state", "finished_at", "kind", "reason")
        sides = (("older", older), ("newer", newer))
        return select(
            key.label("key"),
            records.c.id.label("record"),
            records.c.first_seen_at,
            records.c.changed_at,
            *(side.c[name].label(f"{word}_{name}") for word, side in sides for name in names),
        )

    def _record(self, side: Any) -> Any:
        return and_(records.c.source == self.pair.source, records.c.key == side.c.key)


def _met(connection: Connection, pair: Pair, rows: Sequence[Any]) -> Iterator[Meeting]:
    seen = [_Seen(row, pair.older_end) for row in rows]
    changed = [one.row.record for one in seen if one.may_have_changed]
    versions = versions_of(connection, changed) if changed else {}
    for one in seen:
        older, newer = _sighting(one.row, "older"), _sighting(one.row, "newer")
        found = one.between(newer, versions.get(one.row.record, []))
        yield Meeting(one.row.key, older, newer, one.was_known, found)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A row of both jobs, and what is known of its record."""

    row: Any
    older_end: float

    @property
    def then(self) -> float:
        at: float | None = self.row.older_finished_at
        return self.older_end if at is None else at

    @property
    def was_known(self) -> bool:
        return self.row.record is not None and self.row.first_seen_at <= self.then

    @property
    def may_have_changed(self) -> bool:
        return self.was_known and self.row.changed_at > self.then

    def between(self, newer: Sighting | None, found: Sequence[Version]) -> tuple[Difference, ...]:
        if not found or newer is None or newer.at is None:
            return ()
        before, after = version_at(found, self.then), version_at(found, newer.at)
        if before is None or after is None or before.fingerprint == after.fingerprint:
            return ()
        return differences(before.data, after.data)


def _sighting(row: Any, word: str) -> Sighting | None:
    values = row._mapping  # noqa: SLF001  # SQLAlchemy's public name for it
    state = values[f"{word}_state"]
    if state is None:
        return None
    kind = values[f"{word}_kind"]
    return Sighting(
        ItemState(state),
        values[f"{word}_finished_at"],
        FailureKind(kind) if kind else None,
        values[f"{word}_reason"],
    )
