"""Finding duplicates: each record that is new or changed is compared with those of its blocks."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from pydantic import ValidationError

from longline.analysis.matching.comparing import (
    PLAIN,
    Comparison,
    Profile,
    canonical,
    compare,
    compare_profiles,
    may_match,
    number,
    profile_of,
    value_at,
)
from longline.analysis.matching.rules import BlockField, Rules, Tolerance
from longline.core.clock import Clock
from longline.storage.records.matches import Deposit, Entry, Judge, Matches, Pair

# ---------------- Blocks: records that share one are compared, all others never are

_SLACK = 1 + 1e-6  # a gap of exactly the tolerance may come out larger by the last bit


@dataclass(frozen=True, slots=True)
class Block:
    """A block, and the finer ones that take its place when it is too large."""

    name: str
    finer: tuple[str, ...] = ()


def blocks_of(data: Mapping[str, Any], rules: Rules) -> frozenset[str]:
    """Return the names of all blocks that a record stands in; none when it says too little."""
    return frozenset(name for block in find_blocks(data, rules) for name in names_of(block))


def names_of(block: Block) -> tuple[str, ...]:
    """Return the name of a block and of the finer ones in it."""
    return (block.name, *block.finer)


def find_blocks(data: Mapping[str, Any], rules: Rules) -> list[Block]:
    """Return the blocks of a record, in every way the rules know."""
    found = []
    for number_of_way, way in enumerate(rules.block):
        for parts in _parts(data, way.fields, rules):
            name = f"{number_of_way}:{'/'.join(parts)}"
            finer = (f"{name}+{'/'.join(more)}" for more in _parts(data, way.finer, rules))
            found.append(Block(name, tuple(finer) if way.finer else ()))
    return found


def _parts(
    data: Mapping[str, Any], fields: Sequence[BlockField], rules: Rules
) -> Iterator[tuple[str, ...]]:
    """Yield the ways in which these fields name a block; none when one is missing."""
    return itertools.product(*(_choices(data, field, rules) for field in fields))


def _choices(data: Mapping[str, Any], field: BlockField, rules: Rules) -> Sequence[str]:
    value = value_at(data, field.field)
    if field.within is None:
        text = canonical(value, rules.normalise.get(field.field, PLAIN))
        return () if text is None else (text,)
    found = number(value)
    return () if found is None else _cells(found, field.within)


def _cells(value: float, within: Tolerance) -> Sequence[str]:
    if within.absolute:
        return _neighbours("", value / (within.absolute * _SLACK))
    if value == 0:
        return ("zero",)  # no share of anything is as small
    # Equal ratios are equal steps of the logarithm.
    width = -math.log1p(-within.relative) * _SLACK
    return _neighbours("" if value > 0 else "-", math.log(abs(value)) / width)


def _neighbours(sign: str, place: float) -> Sequence[str]:
    cell = math.floor(place)
    return (f"{sign}{cell}", f"{sign}{cell + 1}")


# ---------------- Two records as rows of the store, judged by the rules: a pair with its evidence

Row = Mapping[str, Any]
_LONGEST = 120  # letters of a text in the evidence


def pair_of(ends: tuple[int, int], versions: tuple[int, int], comparison: Comparison) -> Pair:
    """Return two records, by id and version, with what came of comparing them."""
    evidence = [
        asdict(one) | {"left": _shortened(one.left), "right": _shortened(one.right)}
        for one in comparison.evidence
    ]
    return Pair(*ends, versions, comparison.score, comparison.is_match, evidence)


def judged(left: Row, right: Row, rules: Rules) -> Pair:
    """Return two rows as a pair, whatever comes of it; the smaller id is the left one."""
    comparison = compare(left["data"], right["data"], rules)
    return pair_of((left["id"], right["id"]), (left["version"], right["version"]), comparison)


def judge_by(rules: Rules) -> Judge:
    """Return who says of two rows whether one field alone forbids that they are the same."""

    def judge(left: Row, right: Row) -> Pair | None:
        comparison = compare(left["data"], right["data"], rules)
        if not comparison.is_forbidden:
            return None
        return pair_of((left["id"], right["id"]), (left["version"], right["version"]), comparison)

    return judge


def _shortened(value: Any) -> Any:
    is_long = isinstance(value, str) and len(value) > _LONGEST
    return f"{value[: _LONGEST - 1]}…" if is_long else value


_BATCH = 200
_REMEMBERED = 50_000  # profiles, so that neighbours are not read anew for each other


@dataclass(slots=True)
class Found:
    """What a search did, and what it could not do."""

    records: int = 0
    """New or changed since they were last compared."""
    compared: int = 0
    matched: int = 0
    """Pairs that are the same thing by the rules."""
    too_little: int = 0
    """Records that say too little to be compared with any other."""
    crowded: dict[str, int] = field(default_factory=dict)
    """Blocks that were too large, and the records in each; finer ones were compared instead."""
    oversized: int = 0
    """Groups so large that it was not seen whether each of them fits each."""
    dropped: int = 0
    """Pairs that are gone since the rules no longer name the source of one of them."""
    unknown_sources: tuple[str, ...] = ()
    """Sources of the rules that have no record here; as long as there are, none is left out."""
    unknown_fields: tuple[str, ...] = ()
    """Fields of the rules that no record has."""
    seconds: float = 0.0


async def find_duplicates(
    matches: Matches, rules: Rules, *, clock: Clock, batch: int = _BATCH
) -> Found:
    """Compare what is new or changed, and keep what is found; safe to run twice at once.

    Raises:
        StoreError: the pairs could not be kept; what was kept before stays, and running it again
            goes on from there.
    """
    return await _Search(matches, rules, clock).run(batch)


@dataclass(frozen=True, slots=True)
class _Known:
    version: int
    profile: Profile


class _Search:
    """One search: the rules, what was read lately, and the figures so far."""

    def __init__(self, matches: Matches, rules: Rules, clock: Clock) -> None:
        self._matches = matches
        self._rules = rules
        self._clock = clock
        self._mark = rules.mark
        self._judge = judge_by(rules)
        self._unseen = set(rules.fields)
        self._profiles: dict[int, _Known] = {}
        self._found = Found()

    async def run(self, batch: int) -> Found:
        started = self._clock.now()
        kind, sources = self._rules.match, self._rules.sources
        outside = await self._matches.count_outside(kind, sources)
        await self._prepare(started)
        for source in sources:
            last = None
            while rows := await self._pending(source, last, batch):
                last = rows[-1]["key"]
                await self._compare(rows)
        outside -= await self._matches.count_outside(kind, sources)
        self._found.dropped = max(0, outside)
        self._found.unknown_fields = await self._unknown_fields()
        self._found.seconds = self._clock.now() - started
        return self._found

    async def _prepare(self, now: float) -> None:
        """Keep the rules, and leave out sources that left them, unless a name may be wrong."""
        kind, sources = self._rules.match, self._rules.sources
        text = self._rules.model_dump_json(exclude_unset=True)
        await self._matches.keep_rules(kind, text, at=now)
        self._found.unknown_sources = tuple(await self._matches.without_records(sources))
        if not self._found.unknown_sources:
            await self._matches.leave_out(kind, sources)

    async def _unknown_fields(self) -> tuple[str, ...]:
        sources = self._rules.sources
        if len(self._found.unknown_sources) == len(sources):
            return ()  # no record at all: that is told, and says nothing of fields
        unseen = [name for name in self._rules.fields if name in self._unseen]
        return tuple(await self._matches.without_value(sources, unseen))

    async def _pending(self, source: str, after: str | None, limit: int) -> list[dict[str, Any]]:
        kind, mark = self._rules.match, self._mark
        return await self._matches.pending(kind, mark, source, after=after, limit=limit)

    async def _compare(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._unseen -= {one for one in self._unseen if value_at(row["data"], one) is not None}
        blocks = {row["id"]: self._blocks(row) for row in rows}
        entries = [self._entry(row, blocks[row["id"]]) for row in rows]
        kind = self._rules.match
        taken = await self._matches.put_into_blocks(kind, self._mark, entries)
        pairs = await self._candidates({one: blocks[one] for one in sorted(taken)})
        decided = {*await self._matches.decided(kind, taken)}
        await self._read({one for pair in pairs | decided for one in pair})
        found = await asyncio.to_thread(self._judged, sorted(pairs), decided)
        kept = [entry for entry in entries if entry.record in taken]
        now = self._clock.now()
        written = await self._matches.settle(
            Deposit(kind, self._mark, kept, found, self._judge, now)
        )
        self._count(kept, len(pairs), written.matched, written.oversized)

    def _blocks(self, row: Row) -> list[Block]:
        known = self._remember(row).profile.known
        # Who says too little to match anything need not stand in anyone's way.
        return find_blocks(row["data"], self._rules) if known >= self._rules.least_known else []

    def _entry(self, row: Row, blocks: Iterable[Block]) -> Entry:
        names = frozenset(name for block in blocks for name in names_of(block))
        return Entry(row["id"], row["version"], names, self._profiles[row["id"]].profile.known)

    async def _candidates(self, blocks: Mapping[int, list[Block]]) -> set[tuple[int, int]]:
        """Return the pairs that share a block, or a finer one where it is too large."""
        coarse = [block.name for own in blocks.values() for block in own]
        standing = await self._members(coarse)
        finer = [
            name
            for own in blocks.values()
            for block in own
            if block.name not in standing
            for name in block.finer
        ]
        standing |= await self._members(finer)
        return {
            (min(one, other), max(one, other))
            for one, own in blocks.items()
            for block in own
            for name in names_of(block)
            for other in standing.get(name, ())
            if other != one
        }

    async def _members(self, names: Iterable[str]) -> dict[str, list[int]]:
        """Return who stands in these blocks, without those that are too large."""
        wanted = set(names) - self._found.crowded.keys()
        standing = await self._matches.members(self._rules.match, self._mark, wanted)
        limit = self._rules.largest_block
        self._found.crowded |= {
            name: len(ids) for name, ids in standing.items() if len(ids) > limit
        }
        return {name: ids for name, ids in standing.items() if len(ids) <= limit}

    async def _read(self, ids: Iterable[int]) -> None:
        unknown = [one for one in ids if one not in self._profiles]
        for row in await self._matches.records(unknown):
            self._remember(row)

    def _judged(
        self, pairs: Iterable[tuple[int, int]], decided: set[tuple[int, int]]
    ) -> list[Pair]:
        """Return the pairs that match, and those that a person decided on, whatever they are."""
        found = []
        for pair in {*pairs, *decided}:
            left, right = (self._profiles[one] for one in pair)
            if pair in decided or may_match(left.profile, right.profile, self._rules):
                comparison = compare_profiles(left.profile, right.profile, self._rules)
                if comparison.is_match or pair in decided:
                    found.append(pair_of(pair, (left.version, right.version), comparison))
        return found

    def _remember(self, row: Row) -> _Known:
        known = _Known(row["version"], profile_of(row["data"], self._rules))
        self._profiles[row["id"]] = known
        return known

    def _count(self, entries: Sequence[Entry], compared: int, matched: int, large: int) -> None:
        self._found.records += len(entries)
        self._found.compared += compared
        self._found.matched += matched
        self._found.oversized += large
        self._found.too_little += sum(not entry.blocks for entry in entries)
        excess = max(0, len(self._profiles) - _REMEMBERED)
        for record in list(islice(self._profiles, excess)):
            del self._profiles[record]


# ---------------- A person's word on a pair, and what it brings together, judged by the rules of


async def decide(
    matches: Matches, kind: str, pair: tuple[int, int], decision: str, *, at: float
) -> None:
    """Keep that a pair is confirmed or rejected.

    Raises:
        StoreError: it could not be kept.
    """
    rules = await _last_rules(matches, kind)
    if rules is None:
        await matches.decide(kind, pair, decision, at=at)
        return
    left, right = await matches.records(pair)
    found = [judged(left, right, rules)]
    deposit = Deposit(kind, rules.mark, (), found, judge_by(rules), at)
    await matches.decide(kind, pair, decision, at=at, deposit=deposit)


async def _last_rules(matches: Matches, kind: str) -> Rules | None:
    text = await matches.kept_rules(kind)
    if text is None:
        return None
    try:
        return Rules.model_validate_json(text)
    except ValidationError:  # kept by another version of longline; the next search keeps its own
        return None
