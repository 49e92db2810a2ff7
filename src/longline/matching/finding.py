"""Finding duplicates: each record that is new or changed is compared with those of its blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from longline.clock import Clock
from longline.config.matching import Rules
from longline.matching.blocking import Block, find_blocks, names_of
from longline.matching.comparing import (
    Profile,
    compare_profiles,
    may_match,
    profile_of,
)
from longline.matching.judging import judge_by, pair_of
from longline.matching.values import value_at
from longline.stores.matches import Matches
from longline.stores.matches_words import Deposit, Entry, Pair

Row = Mapping[str, Any]
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
