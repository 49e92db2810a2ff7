"""Pairs of records that are the same thing, by rules or by a person's decision.

Several processes may search for pairs concurrently. A record is first assigned to its blocks, then
compared with the other records of these blocks, then its pairs are saved, each step in its own
transaction: of two concurrent records, the one whose blocks are committed last sees the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    func,
    or_,
    select,
    tuple_,
    update,
)

from longline.core.errors import BadOption, UnknownRecord
from longline.storage.backends import BulkInsert, BulkUpsert, as_json, sanitize_key, upsert
from longline.storage.database import Repository, Row, lock_name, plain_rows, reads, writes
from longline.storage.query import Field, path_of
from longline.storage.schema import match_blocks, match_records, match_rules, matches, records

CONFIRMED, REJECTED = "confirmed", "rejected"
LARGEST_GROUP = 100
"""Joined records beyond which not every pair of a group is checked for a contradiction."""
_MAX_VALUES = 5000  # in one statement; SQLite takes 32,766 by default
_LINK_COLUMNS = (
    matches.c.left_id,
    matches.c.right_id,
    matches.c.score,
    matches.c.is_match,
    matches.c.decision,
)
_JOINS = or_(
    matches.c.decision == CONFIRMED, and_(matches.c.decision.is_(None), matches.c.is_match)
)


@dataclass(frozen=True, slots=True)
class BlockedRecord:
    """A version of a record, its blocks, and how many of the compared fields it has."""

    record: int
    version: int
    blocks: Collection[str]
    known: int


@dataclass(frozen=True, slots=True)
class RecordPair:
    """Two records by id, the smaller first, and by the versions that were compared."""

    left: int
    right: int
    versions: tuple[int, int]
    score: float
    is_match: bool
    evidence: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class MatchBatch:
    """Compared records and the pairs found, by the rules `kind` of hash `mark`.

    `contradict` takes the rows of two records that others would join, and returns a pair if they
    cannot be the same thing.
    """

    kind: str
    mark: str
    entries: Sequence[BlockedRecord]
    pairs: Sequence[RecordPair]
    contradict: Callable[[Row, Row], RecordPair | None]
    at: float


@dataclass(frozen=True, slots=True)
class Link:
    """A pair without its evidence."""

    left: int
    right: int
    score: float
    is_match: bool
    decision: str | None

    @property
    def ends(self) -> tuple[int, int]:
        """The ids of both records."""
        return self.left, self.right

    @property
    def joins(self) -> bool:
        """Whether the two count as the same thing; a person's decision overrides the rules."""
        return self.is_match if self.decision is None else self.decision == CONFIRMED


class Matches(Repository):
    """Compared records, their pairs, and people's decisions."""

    @reads
    def kinds(self, connection: Connection) -> list[str]:
        """Return the names of all rules with compared records or decisions."""
        query = select(match_records.c.kind).union(select(matches.c.kind))
        return list(connection.scalars(query.order_by("kind")))

    @reads
    def last_rules(self, connection: Connection, kind: str) -> str | None:
        """Return the rules of the last search; None when there was none."""
        query = select(match_rules.c.rules).where(match_rules.c.kind == kind)
        rules: str | None = connection.scalar(query)
        return rules

    @writes
    def save_rules(self, connection: Connection, kind: str, text: str, *, at: float) -> None:
        """Save the rules of a search, for decisions until the next one."""
        connection.execute(
            upsert(connection, match_rules)
            .values(kind=kind, rules=text, at=at)
            .on_conflict_do_update(
                index_elements=["kind"],
                set_={"rules": text, "at": at},
                where=match_rules.c.rules != text,
            )
        )

    @reads
    def pending(
        self,
        connection: Connection,
        kind: str,
        mark: str,
        source: str,
        *,
        after: str | None = None,
        limit: int = 200,
    ) -> list[Row]:
        """Return records of a source that the rules of this hash have not compared as they are.

        They are sorted by key, and come after the key `after`.
        """
        same = and_(match_records.c.kind == kind, match_records.c.record_id == records.c.id)
        query = (
            select(records.c.id, records.c.source, records.c.key, records.c.version, records.c.data)
            .select_from(records.outerjoin(match_records, same))
            .where(
                records.c.source == source,
                or_(
                    match_records.c.record_id.is_(None),
                    match_records.c.version != records.c.version,
                    match_records.c.rules != mark,
                ),
            )
            .order_by(records.c.key)  # in the order of the index
            .limit(limit)
        )
        if after is not None:
            query = query.where(records.c.key > after)
        return plain_rows(connection.execute(query).mappings())

    @writes
    def assign_blocks(
        self, connection: Connection, kind: str, mark: str, entries: Sequence[BlockedRecord]
    ) -> set[int]:
        """Assign records to blocks and drop their pairs; return those still to be compared.

        Pairs that a person decided stay.
        """
        _lock_kind(connection, kind)
        known = _compared_versions(connection, kind, [entry.record for entry in entries])
        waiting = [one for one in entries if known.get(one.record) != (one.version, mark)]
        ids = [entry.record for entry in waiting]
        _drop_undecided(connection, kind, ids)
        _ASSIGN.run(
            connection,
            [
                {"kind": kind, "block": sanitize_key(block), "record_id": entry.record}
                for entry in waiting
                for block in sorted(entry.blocks)
            ],
        )
        # A negative version: in its blocks, but not compared yet. After a crash it is pending.
        _MARK_COMPARED.run(
            connection,
            [
                {
                    "kind": kind,
                    "record_id": entry.record,
                    "version": -entry.version,
                    "rules": mark,
                    "known": entry.known,
                }
                for entry in waiting
            ],
        )
        return set(ids)

    @reads
    def block_members(
        self, connection: Connection, kind: str, mark: str, blocks: Iterable[str]
    ) -> dict[str, list[int]]:
        """Return the ids of the records in each of these blocks, by the rules of this hash."""
        same = and_(
            match_records.c.kind == match_blocks.c.kind,
            match_records.c.record_id == match_blocks.c.record_id,
        )
        query = (
            select(match_blocks.c.block, match_blocks.c.record_id)
            .select_from(match_blocks.join(match_records, same))
            .where(match_blocks.c.kind == kind, match_records.c.rules == mark)
        )
        names = {sanitize_key(block): block for block in blocks}
        members: dict[str, list[int]] = {}
        for some in _slices(sorted(names)):
            for block, record in connection.execute(query.where(match_blocks.c.block.in_(some))):
                members.setdefault(names[block], []).append(record)
        return members

    @reads
    def records(self, connection: Connection, ids: Iterable[int]) -> list[Row]:
        """Return these records, sorted by id."""
        return _records_by_id(connection, ids)

    @writes
    def save_pairs(self, connection: Connection, batch: MatchBatch) -> tuple[int, int]:
        """Save the pairs of a batch, and the contradictions in the groups that they join.

        Return how many pairs match, and how many groups are too large to check. Pairs of records
        that were assigned to other blocks meanwhile are left out.
        """
        _lock_kind(connection, batch.kind)
        pairs = _write_pairs(connection, batch, batch.pairs)
        compared = (
            update(match_records)
            .where(
                match_records.c.kind == batch.kind,
                match_records.c.record_id == bindparam("b_record"),
                match_records.c.version
                == -bindparam("b_version", type_=match_records.c.version.type),
                match_records.c.rules == batch.mark,
            )
            .values(version=bindparam("b_version"))
        )
        if batch.entries:
            rows = [{"b_record": one.record, "b_version": one.version} for one in batch.entries]
            connection.execute(compared, rows)
        # Also from pairs that were not saved: a person may have joined records no rule compares.
        oversized = _write_contradictions(connection, batch, _ends(batch.pairs))
        return sum(pair.is_match for pair in pairs), oversized

    @writes
    def forget_other_sources(
        self, connection: Connection, kind: str, sources: Sequence[str]
    ) -> None:
        """Forget the pairs of records of other sources, but for a person's decisions."""
        _lock_kind(connection, kind)
        others = select(records.c.id).where(records.c.source.not_in(sources))
        compared = (match_records.c.kind == kind, match_records.c.record_id.in_(others))
        _drop_undecided(connection, kind, select(match_records.c.record_id).where(*compared))
        connection.execute(delete(match_records).where(*compared))

    @reads
    def count_foreign_pairs(self, connection: Connection, kind: str, sources: Sequence[str]) -> int:
        """Return how many pairs the rules joined with a record of another source."""
        others = select(records.c.id).where(records.c.source.not_in(sources))
        query = select(func.count()).where(
            matches.c.kind == kind,
            matches.c.is_match,
            matches.c.decision.is_(None),
            or_(matches.c.left_id.in_(others), matches.c.right_id.in_(others)),
        )
        return connection.scalar(query) or 0

    @reads
    def sources_without_records(self, connection: Connection, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that have no record."""
        query = select(records.c.id).limit(1)
        return [
            source
            for source in sources
            if connection.scalar(query.where(records.c.source == source)) is None
        ]

    @reads
    def fields_without_value(
        self, connection: Connection, sources: Sequence[str], fields: Sequence[str]
    ) -> list[str]:
        """Return those of the fields that no record of these sources has."""
        query = select(records.c.id).where(records.c.source.in_(sources)).limit(1)
        return [
            field for field in fields if connection.scalar(query.where(_is_filled(field))) is None
        ]

    @writes
    def decide(
        self,
        connection: Connection,
        kind: str,
        pair: tuple[int, int],
        decision: str,
        *,
        at: float,
        batch: MatchBatch | None = None,
    ) -> None:
        """Save a person's decision on a pair, whether or not the pair is known.

        `batch` has the pair as the rules judge it; None leaves that to the next search.
        """
        _lock_kind(connection, kind)
        left, right = sorted(pair)
        row = {"kind": kind, "left_id": left, "right_id": right, "score": 0.0, "at": at}
        decided = {"decision": decision, "decided_at": at}
        connection.execute(
            upsert(connection, matches)
            .values(**row, **decided, is_match=False, evidence=[])
            .on_conflict_do_update(index_elements=["kind", "left_id", "right_id"], set_=decided)
        )
        if batch is not None:
            _write_pairs(connection, batch, batch.pairs)
            _write_contradictions(connection, batch, {left, right})

    @reads
    def find(self, connection: Connection, source: str, key: str) -> int:
        """Return the id of a record.

        Raises:
            UnknownRecord: there is none.
        """
        same = (records.c.source == source, records.c.key == sanitize_key(key))
        found: int | None = connection.scalar(select(records.c.id).where(*same))
        if found is None:
            raise UnknownRecord(f"{source}/{key}")
        return found

    @reads
    def links(self, connection: Connection, kind: str) -> list[Link]:
        """Return all pairs without their evidence."""
        query = select(*_LINK_COLUMNS).where(matches.c.kind == kind)
        rows = connection.execute(query.order_by(matches.c.left_id, matches.c.right_id))
        return [Link(*row) for row in rows]

    @reads
    def links_around(self, connection: Connection, kind: str, record: int) -> list[Link]:
        """Return the pairs that a record is joined with, directly or through others."""
        return _links_around(connection, kind, {record})

    @reads
    def decided_pairs(
        self, connection: Connection, kind: str, ids: Iterable[int]
    ) -> list[tuple[int, int]]:
        """Return the pairs of these records that a person decided on."""
        is_decided = matches.c.decision.is_not(None)
        return [link.ends for link in _links_of(connection, kind, ids, is_decided)]

    @reads
    def page(
        self,
        connection: Connection,
        kind: str,
        decision: str | None,
        *,
        after: tuple[int, int] = (0, 0),
        limit: int = 20,
        most: int = 20_000,
    ) -> tuple[list[Row], tuple[int, int] | None]:
        """Return pairs with their evidence, in the order of their ids, and the next cursor.

        Args:
            connection: the transaction.
            kind: the name of the rules.
            decision: confirmed or rejected; None: pairs that match, and are not decided.
            after: the ids of the last known pair.
            limit: how many pairs.
            most: how many pairs of all decisions are read for it. The page may have fewer than
                `limit` then, and the cursor leads on.
        """
        ends = (matches.c.left_id, matches.c.right_id)
        window = (
            select(*ends, matches.c.decision, matches.c.is_match)
            .where(matches.c.kind == kind, matches.c.left_id >= after[0], tuple_(*ends) > after)
            .order_by(*ends)
            .limit(most)
        )
        read = connection.execute(window).all()
        chosen = [
            (row.left_id, row.right_id)
            for row in read
            if row.decision == decision and (decision is not None or row.is_match)
        ]
        if len(chosen) > limit:
            cursor: tuple[int, int] | None = chosen[limit - 1]
        else:
            last = read[-1] if len(read) == most else None
            cursor = None if last is None else (last.left_id, last.right_id)
        shown = chosen[:limit]
        query = select(matches).where(matches.c.kind == kind, tuple_(*ends).in_(shown))
        rows = plain_rows(connection.execute(query.order_by(*ends)).mappings()) if shown else []
        return rows, cursor

    @reads
    def evidence(self, connection: Connection, kind: str, ids: Iterable[int]) -> list[Row]:
        """Return the pairs among these records with their evidence, best first."""
        wanted = sorted(set(ids))
        query = (
            select(matches)
            .where(
                matches.c.kind == kind,
                matches.c.left_id.in_(wanted),
                matches.c.right_id.in_(wanted),
            )
            .order_by(matches.c.score.desc(), matches.c.left_id, matches.c.right_id)
        )
        return plain_rows(connection.execute(query).mappings())


_ASSIGN = BulkInsert(match_blocks, ("kind", "block", "record_id"))
_MARK_COMPARED = BulkUpsert(
    match_records,
    ("kind", "record_id", "version", "rules", "known"),
    key=("kind", "record_id"),
)
_WRITE_PAIRS = BulkUpsert(  # without the decision, which stays whatever the rules say
    matches,
    ("kind", "left_id", "right_id", "score", "is_match", "evidence", "at"),
    key=("kind", "left_id", "right_id"),
)


def _slices(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Yield values in portions that one statement takes."""
    return (values[at : at + _MAX_VALUES] for at in range(0, len(values), _MAX_VALUES))


def _ends(pairs: Iterable[RecordPair]) -> set[int]:
    return {one for pair in pairs for one in (pair.left, pair.right)}


def _lock_kind(connection: Connection, kind: str) -> None:
    """Wait for other writers of this kind.

    Two transactions that join a record with one other each would not see a contradiction.
    """
    lock_name(connection, f"matches {kind}")


def _records_by_id(connection: Connection, ids: Iterable[int]) -> list[Row]:
    found: list[Row] = []
    for some in _slices(sorted(set(ids))):
        query = select(records).where(records.c.id.in_(some)).order_by(records.c.id)
        found += plain_rows(connection.execute(query).mappings())
    return found


def _is_filled(field: str) -> ColumnElement[bool]:
    """Return whether a field has a value; its name may contain a dot itself."""
    whole = Field(records.c.data, (field,)).is_filled
    try:
        return or_(whole, Field(records.c.data, path_of(field)).is_filled)
    except BadOption:  # not a path, so it can only be a name
        return whole


def _links_of(
    connection: Connection, kind: str, ids: Iterable[int], *conditions: ColumnElement[bool]
) -> list[Link]:
    """Return the pairs of which at least one record is among these."""
    found: dict[tuple[int, int], Link] = {}
    for some in _slices(sorted(ids)):
        # Two statements: each has its own index, and OR would use neither.
        for column in (matches.c.left_id, matches.c.right_id):
            query = select(*_LINK_COLUMNS).where(
                matches.c.kind == kind, column.in_(some), *conditions
            )
            found |= {(row[0], row[1]): Link(*row) for row in connection.execute(query)}
    return [found[ends] for ends in sorted(found)]


def _links_around(
    connection: Connection, kind: str, ids: Iterable[int], *, most: int | None = None
) -> list[Link]:
    """Return the pairs among these records and all that they are joined with, step by step."""
    seen, edge = set(ids), set(ids)
    while edge and (most is None or len(seen) <= most):
        near = {one for link in _links_of(connection, kind, edge, _JOINS) for one in link.ends}
        edge = near - seen
        seen |= edge
    return [link for link in _links_of(connection, kind, seen) if seen.issuperset(link.ends)]


def _joined_groups(links: Iterable[Link]) -> list[set[int]]:
    """Return the groups of records that links join, directly or through others."""
    groups: dict[int, set[int]] = {}
    for link in links:
        if link.joins:
            join_groups(groups, link, {})
    return list({id(group): group for group in groups.values()}.values())


def join_groups(groups: dict[int, set[int]], link: Link, apart: Mapping[int, set[int]]) -> None:
    """Join the groups of two records, unless a record of one must stay outside the other."""
    both = (groups.setdefault(one, {one}) for one in link.ends)
    small, large = sorted(both, key=len)
    if small is large or any(apart.get(one, set()) & large for one in small):
        return
    large |= small
    groups.update(dict.fromkeys(small, large))


def _drop_undecided(
    connection: Connection, kind: str, ids: Sequence[int] | Select[tuple[int]]
) -> None:
    """Delete the blocks of records and their pairs, but for a person's decisions."""
    blocks = (match_blocks.c.kind == kind, match_blocks.c.record_id.in_(ids))
    connection.execute(delete(match_blocks).where(*blocks))
    for column in (matches.c.left_id, matches.c.right_id):
        undecided = (matches.c.kind == kind, matches.c.decision.is_(None), column.in_(ids))
        connection.execute(delete(matches).where(*undecided))


def _compared_versions(
    connection: Connection, kind: str, ids: Iterable[int]
) -> dict[int, tuple[int, str]]:
    """Return by record the version that was compared and the hash of the rules, locked."""
    columns = (match_records.c.record_id, match_records.c.version, match_records.c.rules)
    found: dict[int, tuple[int, str]] = {}
    for some in _slices(sorted(set(ids))):
        query = select(*columns).where(
            match_records.c.kind == kind, match_records.c.record_id.in_(some)
        )
        rows = connection.execute(query.with_for_update())
        found |= {record: (version, rules) for record, version, rules in rows}
    return found


def _write_pairs(
    connection: Connection, batch: MatchBatch, pairs: Sequence[RecordPair]
) -> list[RecordPair]:
    """Save the pairs whose records are still in their blocks as they were compared; return them.

    A record that was assigned again is compared again, and finds the other in its blocks.
    """
    known = _compared_versions(connection, batch.kind, _ends(pairs))

    def is_current(record: int, version: int) -> bool:
        compared, rules = known.get(record, (0, ""))
        return abs(compared) == version and rules == batch.mark

    valid = [
        pair
        for pair in pairs
        if is_current(pair.left, pair.versions[0]) and is_current(pair.right, pair.versions[1])
    ]
    rows = [
        {
            "kind": batch.kind,
            "left_id": pair.left,
            "right_id": pair.right,
            "score": pair.score,
            "is_match": pair.is_match,
            "evidence": as_json(pair.evidence),
            "at": batch.at,
        }
        for pair in valid
    ]
    _WRITE_PAIRS.run(connection, rows)
    return valid


def _write_contradictions(connection: Connection, batch: MatchBatch, starts: set[int]) -> int:
    """Save which records of a group cannot be the same; return how many groups are too large."""
    links = _links_around(connection, batch.kind, starts, most=LARGEST_GROUP * len(starts))
    groups = _joined_groups(links)
    known = {link.ends for link in links}
    unknown = [
        ends
        for group in groups
        if len(group) <= LARGEST_GROUP
        for ends in combinations(sorted(group), 2)
        if ends not in known
    ]
    ids = {one for ends in unknown for one in ends}
    rows = {row["id"]: row for row in _records_by_id(connection, ids)}
    found = [batch.contradict(rows[left], rows[right]) for left, right in unknown]
    _write_pairs(connection, batch, [pair for pair in found if pair is not None])
    return sum(len(group) > LARGEST_GROUP for group in groups)
