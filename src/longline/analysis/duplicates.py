"""Find duplicates by comparing each new or changed record with the records of its blocks."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import ValidationError

from longline.analysis.clusters import check_kind, find_record_id
from longline.analysis.match_rules import (
    PLAIN,
    BlockField,
    Comparison,
    PreparedRecord,
    Rules,
    Tolerance,
    canonical,
    compare,
    compare_prepared,
    may_match,
    number,
    prepare,
    value_at,
)
from longline.core.clock import Clock
from longline.core.errors import BadOption
from longline.storage.matches import BlockedRecord, MatchBatch, Matches, RecordPair

Row = Mapping[str, Any]
_BATCH = 200
_CACHED = 50_000  # records kept in memory, so that they are not read again for each other
_MAX_TEXT = 120  # characters of a text in the evidence
_SLACK = 1 + 1e-6  # a gap of exactly the tolerance may come out larger by the last bit


@dataclass(slots=True)
class SearchResult:
    """What a search did, and what it could not do."""

    records: int = 0
    """New or changed since they were last compared."""
    compared: int = 0
    matched: int = 0
    """Pairs that are the same thing by the rules."""
    too_little: int = 0
    """Records with too few known fields to be compared."""
    crowded: dict[str, int] = field(default_factory=dict)
    """Blocks that were too large, and the records in each; finer ones were compared instead."""
    oversized: int = 0
    """Groups too large to check every pair for a contradiction."""
    dropped: int = 0
    """Pairs dropped because the rules no longer name the source of one record."""
    unknown_sources: tuple[str, ...] = ()
    """Sources of the rules without a record; while there are any, no pair is dropped."""
    unknown_fields: tuple[str, ...] = ()
    """Fields of the rules that no record has."""
    seconds: float = 0.0


async def find_duplicates(
    matches: Matches, rules: Rules, *, clock: Clock, batch: int = _BATCH
) -> SearchResult:
    """Compare what is new or changed and save the pairs; several searches may run concurrently.

    Raises:
        StoreError: the pairs could not be saved; the next search continues from there.
    """
    return await _Search(matches, rules, clock).run(batch)


async def decide(
    matches: Matches, kind: str, pair: tuple[int, int], decision: str, *, at: float
) -> None:
    """Save that a person confirmed or rejected a pair, judged by the rules of the last search.

    Raises:
        StoreError: it could not be saved.
    """
    try:
        rules = Rules.model_validate_json(await matches.last_rules(kind) or "")
    except ValidationError:  # none yet, or of another version of longline
        await matches.decide(kind, pair, decision, at=at)
        return
    left, right = await matches.records(pair)
    found = [_compared_pair(left, right, rules)[0]]
    batch = MatchBatch(kind, rules.mark, (), found, _contradict_by(rules), at)
    await matches.decide(kind, pair, decision, at=at, batch=batch)


async def decide_names(
    matches: Matches, kind: str, names: tuple[str, str], decision: str, *, at: float
) -> None:
    """Save a decision on two records by their names, `source/key`.

    Raises:
        BadOption: nothing was matched as this kind, a name is malformed, or both are one record.
        UnknownRecord: there is no such record.
    """
    await check_kind(matches, kind)
    left, right = [await find_record_id(matches, name) for name in names]
    if left == right:
        raise BadOption("OTHER", "it is the same record as KEY")
    await decide(matches, kind, (left, right), decision, at=at)


# ---------------- Blocks: only records that share a block are compared


@dataclass(frozen=True, slots=True)
class Block:
    """A block, and the finer ones that replace it when it is too large."""

    name: str
    finer: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and those of the finer ones."""
        return (self.name, *self.finer)


def find_blocks(data: Mapping[str, Any], rules: Rules) -> list[Block]:
    """Return the blocks of a record; none for blocking fields that it lacks."""
    found = []
    for place, way in enumerate(rules.block):
        inner = _block_names(data, way.finer, rules) if way.finer else []
        for outer in _block_names(data, way.fields, rules):
            name = f"{place}:{outer}"
            found.append(Block(name, tuple(f"{name}+{one}" for one in inner)))
    return found


def _block_names(data: Mapping[str, Any], fields: Sequence[BlockField], rules: Rules) -> list[str]:
    """Return the combinations of values of these fields; none when a field is missing."""
    cells: list[Sequence[str]] = []
    for field_of_block in fields:
        name, within = field_of_block.field, field_of_block.within
        value = value_at(data, name)
        if within is None:
            text = canonical(value, rules.normalise.get(name, PLAIN))
            cells.append(() if text is None else (text,))
        else:
            amount = number(value)
            cells.append(() if amount is None else _number_cells(amount, within))
    return ["/".join(parts) for parts in itertools.product(*cells)]


def _number_cells(value: float, within: Tolerance) -> Sequence[str]:
    """Return two neighbouring cells, so that numbers within the tolerance share one."""
    if within.absolute:
        sign, place = "", value / (within.absolute * _SLACK)
    elif value == 0:
        return ("zero",)  # no relative tolerance reaches it
    else:
        # Equal ratios are equal steps of the logarithm.
        width = -math.log1p(-within.relative) * _SLACK
        sign, place = "" if value > 0 else "-", math.log(abs(value)) / width
    cell = math.floor(place)
    return (f"{sign}{cell}", f"{sign}{cell + 1}")


# ---------------- Pairs of rows


def _record_pair(
    ends: tuple[int, int], versions: tuple[int, int], comparison: Comparison
) -> RecordPair:
    evidence = [
        asdict(one) | {"left": _shorten_value(one.left), "right": _shorten_value(one.right)}
        for one in comparison.evidence
    ]
    return RecordPair(*ends, versions, comparison.score, comparison.is_match, evidence)


def _compared_pair(left: Row, right: Row, rules: Rules) -> tuple[RecordPair, bool]:
    """Return two rows as a pair, the smaller id first, and whether one field forbids it."""
    comparison = compare(left["data"], right["data"], rules)
    versions = left["version"], right["version"]
    return _record_pair((left["id"], right["id"]), versions, comparison), comparison.is_forbidden


def _contradict_by(rules: Rules) -> Callable[[Row, Row], RecordPair | None]:
    def contradict(left: Row, right: Row) -> RecordPair | None:
        pair, is_forbidden = _compared_pair(left, right, rules)
        return pair if is_forbidden else None

    return contradict


def _shorten_value(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > _MAX_TEXT
    return f"{value[: _MAX_TEXT - 1]}…" if is_long else value


# ---------------- One search


class _Search:
    """One search: the rules, a cache of records, and the result so far."""

    def __init__(self, matches: Matches, rules: Rules, clock: Clock) -> None:
        self._matches = matches
        self._rules = rules
        self._clock = clock
        self._mark = rules.mark
        self._contradict = _contradict_by(rules)
        self._unseen = set(rules.fields)
        self._cache: dict[int, tuple[int, PreparedRecord]] = {}
        self._result = SearchResult()

    async def run(self, batch: int) -> SearchResult:
        started = self._clock.now()
        kind, sources = self._rules.match, self._rules.sources
        foreign = await self._matches.count_foreign_pairs(kind, sources)
        text = self._rules.model_dump_json(exclude_unset=True)
        await self._matches.save_rules(kind, text, at=started)
        unknown = await self._matches.sources_without_records(sources)
        self._result.unknown_sources = tuple(unknown)
        if not unknown:  # otherwise a name may be misspelled
            await self._matches.forget_other_sources(kind, sources)
        for source in sources:
            last = None
            while rows := await self._matches.pending(
                kind, self._mark, source, after=last, limit=batch
            ):
                last = rows[-1]["key"]
                await self._compare_rows(rows)
        foreign -= await self._matches.count_foreign_pairs(kind, sources)
        self._result.dropped = max(0, foreign)
        if len(unknown) < len(sources):  # without any record nothing is known of fields
            unseen = [name for name in self._rules.fields if name in self._unseen]
            fields = await self._matches.fields_without_value(sources, unseen)
            self._result.unknown_fields = tuple(fields)
        self._result.seconds = self._clock.now() - started
        return self._result

    async def _compare_rows(self, rows: Sequence[Row]) -> None:
        kind, mark = self._rules.match, self._mark
        for row in rows:
            self._unseen -= {one for one in self._unseen if value_at(row["data"], one) is not None}
        blocks: dict[int, list[Block]] = {}
        entries = []
        for row in rows:
            record, known = row["id"], self._cache_record(row).known
            # A record with too few fields to match anything is in no block.
            is_enough = known >= self._rules.least_known
            blocks[record] = find_blocks(row["data"], self._rules) if is_enough else []
            names = frozenset(name for block in blocks[record] for name in block.names)
            entries.append(BlockedRecord(record, row["version"], names, known))
        waiting = await self._matches.assign_blocks(kind, mark, entries)
        pairs = await self._candidates({one: blocks[one] for one in sorted(waiting)})
        decided = {*await self._matches.decided_pairs(kind, waiting)}
        unread = {one for pair in pairs | decided for one in pair} - self._cache.keys()
        for row in await self._matches.records(unread):
            self._cache_record(row)
        found = await asyncio.to_thread(self._matching, sorted(pairs), decided)
        compared = [entry for entry in entries if entry.record in waiting]
        matched, oversized = await self._matches.save_pairs(
            MatchBatch(kind, mark, compared, found, self._contradict, self._clock.now())
        )
        self._result.records += len(compared)
        self._result.compared += len(pairs)
        self._result.matched += matched
        self._result.oversized += oversized
        self._result.too_little += sum(not entry.blocks for entry in compared)
        excess = max(0, len(self._cache) - _CACHED)
        for record in list(itertools.islice(self._cache, excess)):
            del self._cache[record]

    async def _candidates(self, blocks: Mapping[int, list[Block]]) -> set[tuple[int, int]]:
        """Return the pairs that share a block, or a finer one where it is too large."""
        members = await self._members(block.name for own in blocks.values() for block in own)
        members |= await self._members(
            name
            for own in blocks.values()
            for block in own
            if block.name not in members
            for name in block.finer
        )
        return {
            (min(one, other), max(one, other))
            for one, own in blocks.items()
            for block in own
            for name in block.names
            for other in members.get(name, ())
            if other != one
        }

    async def _members(self, names: Iterable[str]) -> dict[str, list[int]]:
        """Return the records of these blocks, without the blocks that are too large."""
        wanted = set(names) - self._result.crowded.keys()
        members = await self._matches.block_members(self._rules.match, self._mark, wanted)
        limit = self._rules.largest_block
        self._result.crowded |= {
            name: len(ids) for name, ids in members.items() if len(ids) > limit
        }
        return {name: ids for name, ids in members.items() if len(ids) <= limit}

    def _matching(
        self, pairs: Iterable[tuple[int, int]], decided: set[tuple[int, int]]
    ) -> list[RecordPair]:
        """Return the pairs that match, and all that a person decided on."""
        found = []
        for pair in {*pairs, *decided}:
            (version, left), (other_version, right) = (self._cache[one] for one in pair)
            if pair in decided or may_match(left, right, self._rules):
                comparison = compare_prepared(left, right, self._rules)
                if comparison.is_match or pair in decided:
                    found.append(_record_pair(pair, (version, other_version), comparison))
        return found

    def _cache_record(self, row: Row) -> PreparedRecord:
        record = prepare(row["data"], self._rules)
        self._cache[row["id"]] = row["version"], record
        return record
