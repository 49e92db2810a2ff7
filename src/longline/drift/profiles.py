"""Profiles of the fields of a run's records: bounded, mergeable, and plain JSON.

A share or a median of a whole run hides that a site lists its flats first and its garages last.
So a profile also has, for every statistic, the extremes over blocks of consecutive records: what
one block has shown before is normal in the next.
"""

from __future__ import annotations

import marshal
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, lgamma
from statistics import median
from typing import Any, NamedTuple
from zlib import crc32

# ---------------- The shape of one record

SCORE = "@score"
"""The quality score, treated like a field."""
_MAX_DEPTH = 3
_MAX_KINDS = 20  # of records from one site
_MAX_NAME_SETS = 10_000  # in memory
_MAX_NUMBER = 1e300  # JSON has no infinity and no NaN
_MAX_TEXT = 200  # characters of a text
_MAX_NAMES = 30  # of an object; a larger one is a table and is not entered
_NAMED = re.compile(r"\bfield ([\w.-]+) is (?:missing|unreadable|of type)|(?:^|: |; )([\w.-]+): ")


class Cell(NamedTuple):
    """A filled field: its kind, its size (value of a number, length of a text or list), its value.

    `value` of a long text is its beginning and a hash, which is enough to compare it.
    """

    kind: str
    size: float
    value: Any


@dataclass(slots=True)
class Shape:
    """The shape of one item. An item without a record has only the fields it failed on.

    `site` is the host: each site has its own layout.
    """

    key: str
    cells: dict[str, Cell | None] = field(default_factory=dict)
    is_valid: bool = True
    site: str = ""

    def pack(self) -> bytes:
        """Return the shape in a fifth of its memory, with hashes in place of values.

        A process keeps the last shapes of each of its jobs, and may run hundreds of jobs.
        """
        cells = {
            name: cell and (cell.kind, float(cell.size), hash(cell.value))
            for name, cell in self.cells.items()
        }
        return marshal.dumps((self.key, cells, self.is_valid, self.site))

    @classmethod
    def unpack(cls, packed: bytes) -> Shape:
        """Return a shape that this process has packed."""
        key, cells, is_valid, site = marshal.loads(packed)  # noqa: S302  # our own bytes
        return cls(
            key, {name: cell and Cell(*cell) for name, cell in cells.items()}, is_valid, site
        )


class RecordKinds:
    """Distinguishes records of different kinds, such as books and authors of one spider.

    A record is of a new kind when at least a third of its fields are unknown to every kind of its
    site. A record that only lacks fields is of a known kind: that may be drift.
    """

    def __init__(self) -> None:
        self._sites: dict[str, list[set[str]]] = {}
        self._known: dict[tuple[str, frozenset[str]], int] = {}

    def of(self, shape: Shape) -> int:
        """Return the number of a record's kind within its site; failures are of kind 0."""
        if not shape.is_valid:
            return 0
        names = frozenset(name for name in shape.cells if "." not in name and name != SCORE)
        if (shape.site, names) in self._known:
            return self._known[shape.site, names]
        kinds = self._sites.setdefault(shape.site, [])
        unknown = [len(names - known) for known in kinds]
        kind = min(range(len(kinds)), key=unknown.__getitem__, default=0)
        if not kinds or (3 * unknown[kind] >= max(len(names), 1) and len(kinds) < _MAX_KINDS):
            kind = len(kinds)
            kinds.append(set())
        kinds[kind] |= names
        if len(self._known) < _MAX_NAME_SETS:
            self._known[shape.site, names] = kind
        return kind


def shape_of(
    key: str, data: Mapping[str, Any], score: float | None = None, *, site: str = ""
) -> Shape:
    """Return the shape of a record's data; the cell of an empty field is None."""
    shape = Shape(key, site=site)
    _add_cells(shape.cells, "", data, _MAX_DEPTH)
    if score is not None:
        shape.cells[SCORE] = Cell("number", score, score)
    return shape


def shape_of_failure(key: str, reason: str | None, *, site: str = "") -> Shape:
    """Return the shape of an item without a record; its reason may name the fields at fault."""
    names = [found[1] or found[2] for found in _NAMED.finditer(reason or "")]
    return Shape(key, dict.fromkeys(names), is_valid=False, site=site)


def _add_cells(
    cells: dict[str, Cell | None], path: str, data: Mapping[str, Any], depth: int
) -> None:
    for name, value in data.items():
        place = sys.intern(f"{path}{name}")  # the same text in all shapes
        cell = cells[place] = _make_cell(value)
        if cell is not None and cell.kind == "object" and depth > 1 and cell.size <= _MAX_NAMES:
            _add_cells(cells, f"{place}.", value, depth - 1)


def _make_cell(value: Any) -> Cell | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Cell("text", len(value), _shortened(value)) if value else None
    if isinstance(value, int | float):
        kind = "boolean" if isinstance(value, bool) else "number"
        return Cell(kind, float(value), value) if -_MAX_NUMBER < value < _MAX_NUMBER else None
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        kind = "object" if isinstance(value, Mapping) else "list"
        return Cell(kind, len(value), None) if value else None
    text = str(value)  # a date or a decimal, as the store writes it
    return Cell("text", len(text), text)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}… {crc32(text.encode('utf-8', 'surrogatepass')):08x}"


# ---------------- Tallies of blocks, and profiles of runs

BLOCK = 20  # consecutive records whose statistics become extremes
_MAX_FIELDS = 200
_MAX_VALUES = 64  # of a sketch; more are thinned out evenly
_MEASURED = ("number", "text", "list")


@dataclass(slots=True)
class FieldTally:
    """One field over a few records: how many have it, its kinds, sizes and values.

    `mentions` counts items without a record that failed on this field.
    """

    filled: int = 0
    mentions: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, list[float]] = field(default_factory=dict)
    values: set[Any] = field(default_factory=set)

    def merge(self, other: FieldTally) -> None:
        """Add the field over other records."""
        self.filled += other.filled
        self.mentions += other.mentions
        self.kinds.update(other.kinds)
        for kind, sizes in other.sizes.items():
            self.sizes.setdefault(kind, []).extend(sizes)
        self.values |= other.values


@dataclass(slots=True)
class BlockTally:
    """All fields over a few consecutive records."""

    valid: int = 0
    invalid: int = 0
    fields: dict[str, FieldTally] = field(default_factory=dict)

    def merge(self, other: BlockTally) -> None:
        """Add other records."""
        self.valid += other.valid
        self.invalid += other.invalid
        for name, one in other.fields.items():
            self.fields.setdefault(name, FieldTally()).merge(one)

    def pack(self) -> bytes:
        """Return the tally of packed shapes in a fraction of its memory."""
        fields = {
            name: (one.filled, one.mentions, dict(one.kinds), one.sizes, one.values)
            for name, one in self.fields.items()
        }
        return marshal.dumps((self.valid, self.invalid, fields))

    @classmethod
    def unpack(cls, packed: bytes) -> BlockTally:
        """Return a tally that this process has packed."""
        valid, invalid, fields = marshal.loads(packed)  # noqa: S302  # our own bytes
        return cls(
            valid,
            invalid,
            {
                name: FieldTally(filled, mentions, Counter(kinds), sizes, values)
                for name, (filled, mentions, kinds, sizes, values) in fields.items()
            },
        )


def tally_block(shapes: Iterable[Shape]) -> BlockTally:
    """Count the fields of these records."""
    tally = BlockTally()
    fields = tally.fields
    for shape in shapes:
        tally.valid += shape.is_valid
        tally.invalid += not shape.is_valid
        for name, cell in shape.cells.items():
            one = fields.get(name)
            if one is None:
                one = fields[name] = FieldTally()
            if cell is None:
                one.mentions += not shape.is_valid
                continue
            kind, size, value = cell
            one.filled += 1
            one.kinds[kind] += 1
            if kind in _MEASURED:
                one.sizes.setdefault(kind, []).append(size)
                one.values.add(value)
    return tally


@dataclass(slots=True)
class Sketch:
    """An even sample of numbers, their count and their extremes."""

    count: int = 0
    low: float = 0.0
    high: float = 0.0
    stride: int = 1
    values: list[float] = field(default_factory=list)

    def add(self, numbers: Iterable[float]) -> None:
        """Add more numbers."""
        for number in numbers:
            self.low = number if not self.count else min(self.low, number)
            self.high = number if not self.count else max(self.high, number)
            if self.count % self.stride == 0:
                self.values.append(number)
            self.count += 1
            if len(self.values) >= 2 * _MAX_VALUES:
                self._thin()

    def merge(self, other: Sketch) -> None:
        """Add another sketch; each keeps its share of the sample."""
        if not other.count:
            return
        self.low = min(self.low, other.low) if self.count else other.low
        self.high = max(self.high, other.high) if self.count else other.high
        theirs = other.values[:: max(1, self.stride // other.stride)]
        while self.stride < other.stride:
            self._thin()
        self.values += theirs
        self.count += other.count
        while len(self.values) >= 2 * _MAX_VALUES:
            self._thin()

    def quantile(self, share: float) -> float:
        """Return the value below which this share of the sample lies."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def _thin(self) -> None:
        self.values = self.values[::2]
        self.stride *= 2


@dataclass(slots=True)
class FieldProfile:
    """One field of a source over a run, or over several.

    `extremes` has, by statistic, the lowest and the highest value of a block: `filled`,
    `distinct`, `kind KIND` as shares, `size KIND` as medians.
    """

    filled: int = 0
    mentions: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, Sketch] = field(default_factory=dict)
    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, one: FieldTally, seen: int) -> None:
        """Add a block, in which the field could be in `seen` items."""
        self.filled += one.filled
        self.mentions += one.mentions
        self.kinds.update(one.kinds)
        for kind, sizes in one.sizes.items():
            self.sizes.setdefault(kind, Sketch()).add(sizes)
        if seen < BLOCK // 2:  # too few to be representative
            return
        self.extend("filled", one.filled / seen)
        for kind in self.kinds if one.filled >= BLOCK // 4 else ():
            self.extend(f"kind {kind}", one.kinds[kind] / one.filled)
        for kind, sizes in one.sizes.items():
            self.extend(f"size {kind}", median(sizes))
        if one.filled >= BLOCK // 2:
            self.extend("distinct", len(one.values) / one.filled)

    def merge(self, other: FieldProfile) -> None:
        """Add another run."""
        self.filled += other.filled
        self.mentions += other.mentions
        self.kinds.update(other.kinds)
        for kind, sketch in other.sizes.items():
            self.sizes.setdefault(kind, Sketch()).merge(sketch)
        for name, ends in other.extremes.items():
            self.extend(name, *ends)

    def extend(self, statistic: str, *values: float) -> None:
        """Extend the extremes of a statistic."""
        every = (*self.extremes.get(statistic, ()), *values)
        self.extremes[statistic] = (min(every), max(every))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "filled": self.filled,
            "mentions": self.mentions,
            "kinds": dict(self.kinds),
            "sizes": {
                kind: [one.count, one.low, one.high, one.stride, one.values]
                for kind, one in self.sizes.items()
            },
            "extremes": {name: list(ends) for name, ends in self.extremes.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FieldProfile:
        """Return what `as_json` has written."""
        sizes = {kind: Sketch(*one) for kind, one in value["sizes"].items()}
        extremes = {name: (ends[0], ends[1]) for name, ends in value["extremes"].items()}
        return cls(value["filled"], value["mentions"], Counter(value["kinds"]), sizes, extremes)


@dataclass(slots=True)
class Profile:
    """The fields of a source over a run, or over several.

    `quiet` are fields that are always empty, which a person has accepted; nothing is known about
    those in `unknown`.
    """

    records: int = 0
    invalid: int = 0
    fields: dict[str, FieldProfile] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)

    def add(self, block: BlockTally) -> None:
        """Add a block of consecutive records."""
        for name in block.fields:
            if len(self.fields) < _MAX_FIELDS:
                self._add_field(name)
        nothing = FieldTally()
        for name, known in self.fields.items():
            known.add(block.fields.get(name, nothing), self.seen_in(block, name))
        self.records += block.valid
        self.invalid += block.invalid

    def merge(self, other: Profile) -> None:
        """Add another run of the source."""
        for name, one in other.fields.items():
            self._add_field(name).merge(one)
        for name in self.fields.keys() - other.fields.keys() if other.records else ():
            self.fields[name].extend("filled", 0.0)
        self.records += other.records
        self.invalid += other.invalid
        self.quiet |= other.quiet

    def forget(self, names: set[str]) -> None:
        """Remove these fields and those nested in them."""
        self.unknown |= names
        for name in [one for one in self.fields if one.partition(".")[0] in names]:
            del self.fields[name]

    def seen(self, name: str) -> int:
        """Return how many items a field could be in: for a nested one, those with its object."""
        known, parent = self.fields.get(name), self._parent(name)
        having = parent.kinds["object"] if parent else self.records
        return having + (known.mentions if known else 0)

    def seen_in(self, block: BlockTally, name: str) -> int:
        """Return how many items of a block a field could be in, as it is known here."""
        nothing = FieldTally()
        having = block.valid
        if self._parent(name):
            having = block.fields.get(name.rpartition(".")[0], nothing).kinds["object"]
        return having + block.fields.get(name, nothing).mentions

    def share(self, name: str) -> float:
        """Return the share of items that have a field; 0 when there are none."""
        known, seen = self.fields.get(name), self.seen(name)
        return known.filled / seen if known and seen else 0.0

    def steady(self, share: float) -> dict[str, str]:
        """Return the kinds of the fields that at least this share of the records has."""
        return {
            name: one.kinds.most_common(1)[0][0]
            for name, one in self.fields.items()
            if self.share(name) >= share and one.kinds
        }

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "records": self.records,
            "invalid": self.invalid,
            "quiet": sorted(self.quiet),
            "fields": {name: one.as_json() for name, one in self.fields.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Profile:
        """Return the profile that `as_json` has written."""
        fields = {name: FieldProfile.from_json(one) for name, one in value["fields"].items()}
        return cls(value["records"], value["invalid"], fields, set(value["quiet"]))

    def _parent(self, name: str) -> FieldProfile | None:
        """Return the object that a field is in; a name may also contain a dot itself."""
        parent, dot, _ = name.rpartition(".")
        known = self.fields.get(parent) if dot else None
        return known if known and known.kinds["object"] else None

    def _add_field(self, name: str) -> FieldProfile:
        known = self.fields.get(name)
        if known is None:
            known = self.fields[name] = FieldProfile()
            if self.seen(name):
                known.extend("filled", 0.0)  # all records so far lack it
        return known


def profile_run(shapes: Iterable[Shape]) -> tuple[Profile, BlockTally]:
    """Return the profile of records in their order, and the tally of all of them.

    A block is of one site and kind of record.
    """
    profile, whole = Profile(), BlockTally()
    blocks, kinds = dict[tuple[str, int], list[Shape]](), RecordKinds()
    tallies: list[BlockTally] = []
    for shape in shapes:
        block = blocks.setdefault((shape.site, kinds.of(shape)), [])
        block.append(shape)
        if len(block) == BLOCK:
            tallies.append(tally_block(block))
            block.clear()
    tallies += [tally_block(block) for block in blocks.values() if block]
    for tally in tallies:
        profile.add(tally)
        whole.merge(tally)
    return profile, whole


# ---------------- Statistics


def chance_of_fewer(before: int, of_before: int, now: int, of_now: int) -> float:
    """Return the probability of as few now, or fewer, if nothing has changed.

    Fisher's exact test, one-sided: `before` of `of_before` had it, `now` of `of_now` have it.
    Counts are clamped to their range.
    """
    before, now = max(0, min(before, of_before)), max(0, min(now, of_now))
    having, total = before + now, of_before + of_now
    least = max(0, having - of_before)
    whole = _log_choose(total, having)
    return sum(
        exp(_log_choose(of_now, k) + _log_choose(of_before, having - k) - whole)
        for k in range(least, now + 1)
    )


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
