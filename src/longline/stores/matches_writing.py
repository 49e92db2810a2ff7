"""The transactions of matching, each as a function of a connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from longline.stores.bulk import BulkInsert, as_json
from longline.stores.keys import kept_key
from longline.stores.locking import lock_name
from longline.stores.matches_links import ends_of, joined, links_around, slices
from longline.stores.matches_words import Decided, Deposit, Entry, Pair, Settled
from longline.stores.schema import match_blocks, match_records, matches, records

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
