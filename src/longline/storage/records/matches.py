"""Pairs of records that are the same thing, by rules or by a person's word; nothing is deleted.

Several processes may look for pairs at once. A record is first put into its blocks, then compared
with those it finds there, then its pairs are written, each step a transaction: of two records that
arrive together, the one whose blocks are committed last sees the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
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
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from longline.core.errors import BadOption
from longline.storage.bulk import BulkInsert, as_json
from longline.storage.columns import kept_key
from longline.storage.database import Database
from longline.storage.errors import UnknownRecord
from longline.storage.records.fields import Field, path_of
from longline.storage.schema import match_blocks, match_records, match_rules, matches, records
from longline.storage.shared import lock_name

# ---------------- The words of matching: records on their way into blocks, pairs of them, and

CONFIRMED, REJECTED = "confirmed", "rejected"


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, the version of it that is compared, its blocks, and how many fields it has."""

    record: int
    version: int
    blocks: Collection[str]
    known: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records by id, the smaller first, and by the versions that were compared."""

    left: int
    right: int
    versions: tuple[int, int]
    score: float
    is_match: bool
    evidence: Sequence[dict[str, Any]]


Judge = Callable[[dict[str, Any], dict[str, Any]], Pair | None]
"""Takes the rows of two records; answers with a pair when they cannot be the same."""


@dataclass(frozen=True, slots=True)
class Deposit:
    """The records of a batch and the pairs that were found of them.

    `judge` is asked of records that others join: a third must not glue what contradicts.
    """

    kind: str
    mark: str
    entries: Sequence[Entry]
    pairs: Sequence[Pair]
    judge: Judge
    at: float


@dataclass(frozen=True, slots=True)
class Settled:
    """What a deposit left behind: pairs that match, and groups too large to be looked through."""

    matched: int
    oversized: int


@dataclass(frozen=True, slots=True)
class Decided:
    """A person's word on a pair, and what the rules say of it."""

    kind: str
    left: int
    right: int
    decision: str
    at: float
    deposit: Deposit | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A pair without its evidence."""

    left: int
    right: int
    score: float
    is_match: bool
    decision: str | None

    @property
    def joins(self) -> bool:
        """Whether the two count as the same thing; a person's word is the last one."""
        return self.is_match if self.decision is None else self.decision == CONFIRMED


# ---------------- Reading pairs: all of them, or what some records are joined with, over however

_IN_ONE_STATEMENT = 5000  # values; a stock SQLite takes 32,766
_LINK = (
    matches.c.left_id,
    matches.c.right_id,
    matches.c.score,
    matches.c.is_match,
    matches.c.decision,
)
_JOINING = or_(
    matches.c.decision == CONFIRMED, and_(matches.c.decision.is_(None), matches.c.is_match)
)


def decided(connection: Connection, kind: str, ids: Iterable[int]) -> list[tuple[int, int]]:
    """Return the pairs of these records that a person decided on."""
    return [
        ends_of(link) for link in _touching(connection, kind, ids, matches.c.decision.is_not(None))
    ]


def links_in(connection: Connection, kind: str) -> list[Link]:
    """Return all pairs, by the ids of their records."""
    query = select(*_LINK).where(matches.c.kind == kind)
    rows = connection.execute(query.order_by(matches.c.left_id, matches.c.right_id))
    return [Link(*row) for row in rows]


def links_around(
    connection: Connection, kind: str, ids: Iterable[int], *, most: int | None = None
) -> list[Link]:
    """Return the pairs among these records and all that they are joined with, step by step."""
    seen, edge = set(ids), set(ids)
    while edge and (most is None or len(seen) <= most):
        near = {
            one for link in _touching(connection, kind, edge, _JOINING) for one in ends_of(link)
        }
        edge = near - seen
        seen |= edge
    links = _touching(connection, kind, seen)
    return [link for link in links if link.left in seen and link.right in seen]


def joined(links: Iterable[Link]) -> list[set[int]]:
    """Return the records that links join, directly or over others."""
    groups: dict[int, set[int]] = {}
    for link in links:
        if link.joins:
            one, other = (groups.setdefault(end, {end}) for end in ends_of(link))
            small, large = sorted((one, other), key=len)
            large |= small
            groups |= dict.fromkeys(small, large)
    return list({id(group): group for group in groups.values()}.values())


def slices(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    """Yield ids in portions that one statement takes."""
    return (ids[at : at + _IN_ONE_STATEMENT] for at in range(0, len(ids), _IN_ONE_STATEMENT))


def ends_of(link: Link) -> tuple[int, int]:
    """Return the ids of both records."""
    return link.left, link.right


def _touching(
    connection: Connection, kind: str, ids: Iterable[int], *more: ColumnElement[bool]
) -> list[Link]:
    found: dict[tuple[int, int], Link] = {}
    for some in slices(sorted(ids)):
        # Two statements, since each has an index of its own and OR would use neither.
        for column in (matches.c.left_id, matches.c.right_id):
            query = select(*_LINK).where(matches.c.kind == kind, column.in_(some), *more)
            found |= {(row[0], row[1]): Link(*row) for row in connection.execute(query)}
    return [found[ends] for ends in sorted(found)]


# ---------------- The rules of the last search for pairs, and what in this home they speak of


def kept_rules(connection: Connection, kind: str) -> str | None:
    """Return the rules that were kept last; None when there are none."""
    found: str | None = connection.scalar(
        select(match_rules.c.rules).where(match_rules.c.kind == kind)
    )
    return found


def keep_rules(connection: Connection, argument: tuple[str, str, float]) -> None:
    """Keep rules in the place of others."""
    kind, text, at = argument
    connection.execute(delete(match_rules).where(match_rules.c.kind == kind))
    connection.execute(insert(match_rules).values(kind=kind, rules=text, at=at))


def without_records(connection: Connection, sources: Iterable[str]) -> list[str]:
    """Return the sources that have no record at all."""
    return [
        source
        for source in sources
        if connection.scalar(select(records.c.id).where(records.c.source == source).limit(1))
        is None
    ]


def without_value(
    connection: Connection, sources: Sequence[str], fields: Iterable[str]
) -> list[str]:
    """Return the fields that no record of these sources has."""
    own = select(records.c.id).where(records.c.source.in_(sources)).limit(1)
    return [field for field in fields if connection.scalar(_having(own, field)) is None]


def outsiders(kind: str, sources: Collection[str]) -> Select[tuple[int]]:
    """Select the records of other sources than these that were compared."""
    return (
        select(match_records.c.record_id)
        .join(records, records.c.id == match_records.c.record_id)
        .where(match_records.c.kind == kind, records.c.source.not_in(sources))
        .order_by(match_records.c.record_id)
    )


def count_outside(connection: Connection, kind: str, sources: Collection[str]) -> int:
    """Return how many pairs the rules joined of which one record is of another source."""
    if connection.scalar(outsiders(kind, sources).limit(1)) is None:
        return 0  # nearly always, and without a look at every pair
    left, right = records.alias(), records.alias()
    query = (
        select(func.count())
        .select_from(
            matches.join(left, left.c.id == matches.c.left_id).join(
                right, right.c.id == matches.c.right_id
            )
        )
        .where(
            matches.c.kind == kind,
            matches.c.is_match,
            matches.c.decision.is_(None),
            or_(left.c.source.not_in(sources), right.c.source.not_in(sources)),
        )
    )
    return connection.scalar(query) or 0


def _having(query: Select[tuple[int]], field: str) -> Select[tuple[int]]:
    ways = [Field(records.c.data, (field,)).is_filled]  # a name may have a dot in it
    try:
        ways.append(Field(records.c.data, path_of(field)).is_filled)
    except BadOption:  # such as a dot at its end: then it can only be the whole name
        return query.where(ways[0])
    return query.where(or_(*ways))


# ---------------- The transactions of matching, each as a function of a connection

LARGEST_GROUP = 100
"""Records that are joined, beyond which it is no longer seen whether each fits each."""


def _upsert(table: Any, names: Sequence[str], keys: Sequence[str]) -> dict[str, BulkInsert]:
    def finish(row: Any) -> Any:
        fresh = {name: row.excluded[name] for name in names if name not in keys}
        return row.on_conflict_do_update(index_elements=list(keys), set_=fresh)

    return {
        name: BulkInsert(table, names, start=module.insert, finish=finish)
        for name, module in (("sqlite", sqlite), ("postgresql", postgresql))
    }


_REMEMBER = _upsert(
    match_records, ("kind", "record_id", "version", "rules", "known"), ("kind", "record_id")
)
# A decision is not among the names: whatever the rules say now, it stays.
_PAIR = _upsert(
    matches,
    ("kind", "left_id", "right_id", "score", "is_match", "evidence", "at"),
    ("kind", "left_id", "right_id"),
)
_STAND = BulkInsert(match_blocks, ("kind", "block", "record_id"))


def put_into_blocks(connection: Connection, argument: tuple[str, str, Sequence[Entry]]) -> set[int]:
    """Move records to their new blocks and drop their pairs; return those that wait for it."""
    kind, mark, entries = argument
    _lock(connection, kind)
    done = {
        record
        for record, (version, rules) in _remembered(connection, kind, entries).items()
        if rules == mark and version == _versions(entries)[record]
    }
    waiting = [entry for entry in entries if entry.record not in done]
    ids = [entry.record for entry in waiting]
    _forget(connection, kind, ids)
    rows = [
        {"kind": kind, "block": kept_key(block), "record_id": entry.record}
        for entry in waiting
        for block in sorted(entry.blocks)
    ]
    _STAND.run(connection, rows)
    # A version below zero: in its blocks, but not compared yet. Who dies here is found again.
    _REMEMBER[connection.dialect.name].run(
        connection, [_memory(kind, mark, entry, -entry.version) for entry in waiting]
    )
    return set(ids)


def settle(connection: Connection, deposit: Deposit) -> Settled:
    """Write the pairs of a batch, unless a record has been taken up anew since it was read."""
    _lock(connection, deposit.kind)
    pairs = _valid(connection, deposit, deposit.pairs)
    _write(connection, deposit, pairs)
    done = (
        update(match_records)
        .where(
            match_records.c.kind == deposit.kind,
            match_records.c.record_id == bindparam("b_record"),
            match_records.c.version == -bindparam("b_version", type_=match_records.c.version.type),
            match_records.c.rules == deposit.mark,
        )
        .values(version=bindparam("b_version"))
    )
    if deposit.entries:
        asked = [{"b_record": one.record, "b_version": one.version} for one in deposit.entries]
        connection.execute(done, asked)
    # Also from what was not written: a person may have joined records that no rule compares.
    oversized = _look_through(connection, deposit, _ends(deposit.pairs))
    return Settled(sum(pair.is_match for pair in pairs), oversized)


def leave_out(connection: Connection, argument: tuple[str, Sequence[int]]) -> None:
    """Forget that records were compared, and what came of it."""
    kind, ids = argument
    _lock(connection, kind)
    _forget(connection, kind, ids)
    for some in slices(ids):
        gone = (match_records.c.kind == kind, match_records.c.record_id.in_(some))
        connection.execute(delete(match_records).where(*gone))


def decide(connection: Connection, decided: Decided) -> None:
    """Keep a person's word, be the pair known or not."""
    _lock(connection, decided.kind)
    same = (
        matches.c.kind == decided.kind,
        matches.c.left_id == decided.left,
        matches.c.right_id == decided.right,
    )
    if connection.scalar(select(matches.c.at).where(*same)) is None:
        row = _row(decided.kind, decided.left, decided.right, decided.at)
        _PAIR[connection.dialect.name].run(connection, [row])
    word = {"decision": decided.decision, "decided_at": decided.at}
    connection.execute(update(matches).where(*same).values(**word))
    if decided.deposit is not None:
        _write(
            connection, decided.deposit, _valid(connection, decided.deposit, decided.deposit.pairs)
        )
        _look_through(connection, decided.deposit, {decided.left, decided.right})


def _lock(connection: Connection, kind: str) -> None:
    """Have others wait who write pairs of this kind.

    Two that joined a record with another each, at once, would not see that these contradict.
    """
    lock_name(connection, f"matches {kind}")


def _forget(connection: Connection, kind: str, ids: Sequence[int]) -> None:
    """Drop blocks and pairs of records, but for what a person decided."""
    for some in slices(ids):
        standing = (match_blocks.c.kind == kind, match_blocks.c.record_id.in_(some))
        connection.execute(delete(match_blocks).where(*standing))
        for column in (matches.c.left_id, matches.c.right_id):
            undecided = (matches.c.kind == kind, matches.c.decision.is_(None), column.in_(some))
            connection.execute(delete(matches).where(*undecided))


def _remembered(
    connection: Connection, kind: str, entries: Sequence[Entry]
) -> dict[int, tuple[int, str]]:
    return _state(connection, kind, [entry.record for entry in entries])


def _state(connection: Connection, kind: str, ids: Iterable[int]) -> dict[int, tuple[int, str]]:
    columns = (match_records.c.record_id, match_records.c.version, match_records.c.rules)
    found: dict[int, tuple[int, str]] = {}
    for some in slices(sorted(set(ids))):
        query = select(*columns).where(
            match_records.c.kind == kind, match_records.c.record_id.in_(some)
        )
        # Ignored by SQLite, whose one writer holds the lock already.
        rows = connection.execute(query.with_for_update())
        found |= {record: (version, rules) for record, version, rules in rows}
    return found


def _versions(entries: Sequence[Entry]) -> dict[int, int]:
    return {entry.record: entry.version for entry in entries}


def _valid(connection: Connection, deposit: Deposit, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs whose records still stand in their blocks as they were compared.

    Who has been taken up anew compares itself with the other, whose blocks are there to be seen.
    """
    state = _state(connection, deposit.kind, _ends(pairs))

    def stands(record: int, version: int) -> bool:
        found, rules = state.get(record, (0, ""))
        return abs(found) == version and rules == deposit.mark

    return [
        pair
        for pair in pairs
        if stands(pair.left, pair.versions[0]) and stands(pair.right, pair.versions[1])
    ]


def _write(connection: Connection, deposit: Deposit, pairs: Sequence[Pair]) -> None:
    rows = [
        _row(deposit.kind, pair.left, pair.right, deposit.at)
        | {
            "score": pair.score,
            "is_match": pair.is_match,
            "evidence": as_json(pair.evidence),
        }
        for pair in pairs
    ]
    _PAIR[connection.dialect.name].run(connection, rows)


def _ends(pairs: Iterable[Pair]) -> set[int]:
    return {one for pair in pairs for one in (pair.left, pair.right)}


def _look_through(connection: Connection, deposit: Deposit, starts: set[int]) -> int:
    """Write down which records of a group cannot be the same; return how many are too large."""
    links = links_around(connection, deposit.kind, starts, most=LARGEST_GROUP * len(starts))
    groups = joined(links)
    known = {ends_of(link) for link in links}
    missing = [
        ends
        for group in groups
        if len(group) <= LARGEST_GROUP
        for ends in combinations(sorted(group), 2)
        if ends not in known
    ]
    _write(connection, deposit, _contradictions(connection, deposit, missing))
    return sum(len(group) > LARGEST_GROUP for group in groups)


def _contradictions(
    connection: Connection, deposit: Deposit, missing: Sequence[tuple[int, int]]
) -> list[Pair]:
    rows: dict[int, dict[str, Any]] = {}
    columns = (records.c.id, records.c.version, records.c.data)
    for some in slices(sorted({one for ends in missing for one in ends})):
        query = select(*columns).where(records.c.id.in_(some))
        rows |= {row["id"]: dict(row) for row in connection.execute(query).mappings()}
    found = [deposit.judge(rows[left], rows[right]) for left, right in missing]
    return _valid(connection, deposit, [pair for pair in found if pair is not None])


def _memory(kind: str, mark: str, entry: Entry, version: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "record_id": entry.record,
        "version": version,
        "rules": mark,
        "known": entry.known,
    }


def _row(kind: str, left: int, right: int, at: float) -> dict[str, Any]:
    ends = {"kind": kind, "left_id": left, "right_id": right}
    return {**ends, "score": 0.0, "is_match": False, "evidence": "[]", "at": at}


Row = dict[str, Any]
_LOOKUP = 5000  # values in one statement; a stock SQLite takes 32,766


class Matches:
    """What was compared by which rules, what came of it, and what people decided."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def kinds(self) -> list[str]:
        """Return the names of the rules that records were compared by, or people decided on."""
        query = select(match_records.c.kind).union(select(matches.c.kind))
        return await self._database.read(
            lambda connection: list(connection.scalars(query.order_by("kind")))
        )

    async def pending(
        self, kind: str, mark: str, source: str, *, after: str | None = None, limit: int = 200
    ) -> list[Row]:
        """Return records of a source, by key, that the present rules have not compared as they are.

        Args:
            kind: of the rules.
            mark: the hash of the rules.
            source: whose records.
            after: the key of the last one that was returned before.
            limit: at most this many.
        """
        query = _pending(kind, mark, source).limit(limit)
        return await self._rows(query if after is None else query.where(records.c.key > after))

    async def put_into_blocks(self, kind: str, mark: str, entries: Sequence[Entry]) -> set[int]:
        """Move records to their blocks and drop their pairs; return those that wait for it still.

        What a person decided of a pair stays.
        """
        taken: set[int] = await self._database.write(put_into_blocks, (kind, mark, entries))
        return taken

    async def members(self, kind: str, mark: str, blocks: Iterable[str]) -> dict[str, list[int]]:
        """Return the ids of the records that stand in each of these blocks."""
        query = _standing(kind, mark, match_blocks.c.block, match_blocks.c.record_id)
        names = {kept_key(block): block for block in blocks}
        standing: dict[str, list[int]] = {}
        for block, record in await self._looked_up(query, names):
            standing.setdefault(names[block], []).append(record)
        return standing

    async def records(self, ids: Iterable[int]) -> list[Row]:
        """Return these records, by id."""
        wanted = sorted(set(ids))
        rows: list[Row] = []
        for start in range(0, len(wanted), _LOOKUP):
            some = wanted[start : start + _LOOKUP]
            rows += await self._rows(select(records).where(records.c.id.in_(some)))
        return sorted(rows, key=lambda row: row["id"])

    async def settle(self, deposit: Deposit) -> Settled:
        """Write the pairs that were found, and what speaks against joining them, all at once."""
        written: Settled = await self._database.write(settle, deposit)
        return written

    async def leave_out(self, kind: str, sources: Sequence[str]) -> None:
        """Forget the pairs of other sources than these, but for what a person decided."""
        query = outsiders(kind, sources)
        ids = await self._database.read(lambda connection: list(connection.scalars(query)))
        if ids:  # rarely: looking must not keep others from writing
            await self._database.write(leave_out, (kind, ids))

    async def count_outside(self, kind: str, sources: Sequence[str]) -> int:
        """Return how many pairs the rules joined of which one record is of another source."""
        return await self._database.read(
            lambda connection: count_outside(connection, kind, sources)
        )

    async def without_records(self, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that have no record here."""
        return await self._database.read(lambda connection: without_records(connection, sources))

    async def without_value(self, sources: Sequence[str], fields: Sequence[str]) -> list[str]:
        """Return those of the fields that no record of these sources has."""
        return await self._database.read(
            lambda connection: without_value(connection, sources, fields)
        )

    async def keep_rules(self, kind: str, text: str, *, at: float) -> None:
        """Keep the rules that records are compared by, for decisions between two searches."""
        if await self.kept_rules(kind) != text:
            await self._database.write(keep_rules, (kind, text, at))

    async def kept_rules(self, kind: str) -> str | None:
        """Return the rules of the last search; None when there was none."""
        return await self._database.read(lambda connection: kept_rules(connection, kind))

    async def decide(
        self,
        kind: str,
        pair: tuple[int, int],
        decision: str,
        *,
        at: float,
        deposit: Deposit | None = None,
    ) -> None:
        """Keep a person's word on a pair: confirmed or rejected.

        Args:
            kind: of the rules.
            pair: the ids of both records, in any order.
            decision: the word.
            at: when it was said.
            deposit: the pair as rules see it, and who judges what it brings together; None
                leaves that to the next search.
        """
        said = Decided(kind, min(pair), max(pair), decision, at, deposit)
        await self._database.write(decide, said)

    async def find(self, source: str, key: str) -> int:
        """Return the id of a record.

        Raises:
            UnknownRecord: there is none.
        """
        same = (records.c.source == source, records.c.key == kept_key(key))
        query = select(records.c.id).where(*same)
        found: int | None = await self._database.read(lambda connection: connection.scalar(query))
        if found is None:
            raise UnknownRecord(f"{source}/{key}")
        return found

    async def links(self, kind: str) -> list[Link]:
        """Return all pairs without their evidence."""
        return await self._database.read(lambda connection: links_in(connection, kind))

    async def links_around(self, kind: str, record: int) -> list[Link]:
        """Return the pairs that a record is joined with, over however many others."""
        return await self._database.read(
            lambda connection: links_around(connection, kind, [record])
        )

    async def decided(self, kind: str, ids: Iterable[int]) -> list[tuple[int, int]]:
        """Return the pairs of these records that a person decided on."""
        return await self._database.read(lambda connection: decided(connection, kind, ids))

    async def evidence(self, kind: str, ids: Iterable[int]) -> list[Row]:
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
        return await self._rows(query)

    async def _rows(self, query: Select[Any]) -> list[Row]:
        return await self._database.read(lambda connection: _plain(connection, query))

    async def _looked_up(self, query: Select[Any], blocks: Iterable[str]) -> list[Any]:
        wanted = sorted(set(blocks))
        found: list[Any] = []
        for start in range(0, len(wanted), _LOOKUP):
            some = query.where(match_blocks.c.block.in_(wanted[start : start + _LOOKUP]))
            found += await self._database.read(
                lambda connection, asked=some: connection.execute(asked).all()  # type: ignore[misc]  # bound now, not later
            )
        return found


def _pending(kind: str, mark: str, source: str) -> Select[Any]:
    same = and_(match_records.c.kind == kind, match_records.c.record_id == records.c.id)
    columns = (records.c.id, records.c.source, records.c.key, records.c.version, records.c.data)
    return (
        select(*columns)
        .select_from(records.outerjoin(match_records, same))
        .where(
            records.c.source == source,
            or_(
                match_records.c.record_id.is_(None),
                match_records.c.version != records.c.version,
                match_records.c.rules != mark,
            ),
        )
        .order_by(records.c.key)  # as the index of source and key has them
    )


def _standing(kind: str, mark: str, *columns: Any) -> Select[Any]:
    """Select from the blocks of records that stand in them by the present rules."""
    same = and_(
        match_records.c.kind == match_blocks.c.kind,
        match_records.c.record_id == match_blocks.c.record_id,
    )
    return (
        select(*columns)
        .select_from(match_blocks.join(match_records, same))
        .where(match_blocks.c.kind == kind, match_records.c.rules == mark)
    )


def _plain(connection: Connection, query: Select[Any]) -> list[Row]:
    # The names that SQLAlchemy gives are of a class of its own, which orjson refuses as keys.
    return [
        {str(name): value for name, value in row.items()}
        for row in connection.execute(query).mappings()
    ]
