"""Profiles of the fields of a run's records: bounded, mergeable, and plain JSON.

A share or a median of a whole run hides that a site lists its flats first and its garages last.
So a profile also has, for every statistic, the extremes over blocks of consecutive records: what
one block has shown before is normal in the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
_MISSING = re.compile(r"\b(?:missing|required|finds nothing|is empty|not None|not null)\b")


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

    `refused` are those of them with a wrong value instead of none. `site` is the host: each site
    has its own layout.
    """

    key: str
    cells: dict[str, Cell | None] = field(default_factory=dict)
    is_valid: bool = True
    site: str = ""
    refused: frozenset[str] = frozenset()


class ShapeCache:
    """Lets shapes share equal names and equal short cells, which saves two thirds of the memory."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._cells: dict[Cell, Cell] = {}

    def name(self, name: str) -> str:
        """Return the first equal name."""
        return self._names.setdefault(name, name)

    def cell(self, cell: Cell) -> Cell:
        """Return the first equal cell; texts mostly differ and are not shared."""
        return cell if cell.kind == "text" else self._cells.setdefault(cell, cell)


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
        kind = self._known.get((shape.site, names))
        if kind is None:
            kind = self._assign_kind(self._sites.setdefault(shape.site, []), names)
            if len(self._known) < _MAX_NAME_SETS:
                self._known[shape.site, names] = kind
        return kind

    def _assign_kind(self, kinds: list[set[str]], names: frozenset[str]) -> int:
        unknown = [len(names - known) for known in kinds]
        best = min(range(len(kinds)), key=unknown.__getitem__, default=0)
        if not kinds or (3 * unknown[best] >= max(len(names), 1) and len(kinds) < _MAX_KINDS):
            kinds.append(set(names))
            return len(kinds) - 1
        kinds[best] |= names
        return best


def shape_of(
    key: str,
    data: Mapping[str, Any],
    score: float | None = None,
    *,
    site: str = "",
    shared: ShapeCache | None = None,
) -> Shape:
    """Return the shape of a record's data; the cell of an empty field is None.

    Pass the same `shared` for shapes that are in memory together.
    """
    shape = Shape(key, site=site)
    _add_cells(shape.cells, "", data, _MAX_DEPTH)
    if shared is not None:
        shape.cells = {
            shared.name(name): cell and shared.cell(cell) for name, cell in shape.cells.items()
        }
    if score is not None:
        shape.cells[SCORE] = Cell("number", score, score)
    return shape


def shape_of_failure(key: str, reason: str | None, *, site: str = "") -> Shape:
    """Return the shape of an item without a record; its reason may name the fields at fault."""
    text = reason or ""
    found = list(_NAMED.finditer(text))
    ends = [*(one.start() for one in found[1:]), len(text)]
    parts = {
        one[1] or one[2]: text[one.start() : end] for one, end in zip(found, ends, strict=False)
    }
    refused = frozenset(name for name, words in parts.items() if not _MISSING.search(words))
    return Shape(key, dict.fromkeys(parts), is_valid=False, site=site, refused=refused)


def _add_cells(
    cells: dict[str, Cell | None], path: str, data: Mapping[str, Any], depth: int
) -> None:
    for name, value in data.items():
        place = f"{path}{name}"
        cell = cells[place] = _make_cell(value)
        if cell is not None and cell.kind == "object" and depth > 1 and cell.size <= _MAX_NAMES:
            _add_cells(cells, f"{place}.", value, depth - 1)


def _make_cell(value: Any) -> Cell | None:
    if value is None:
        return None
    if isinstance(value, str):
        return Cell("text", len(value), _shortened(value)) if value else None
    if isinstance(value, int | float):
        kind = "flag" if isinstance(value, bool) else "number"
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
MEASURED = ("number", "text", "list")


@dataclass(slots=True)
class FieldTally:
    """One field over a few records: how many have it, its kinds, sizes and values.

    `mentions` counts items without a record that failed on this field, `refused` those of them
    with a wrong value.
    """

    filled: int = 0
    mentions: int = 0
    refused: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, list[float]] = field(default_factory=dict)
    values: set[Any] = field(default_factory=set)

    def merge(self, other: FieldTally) -> None:
        """Add more records."""
        self.filled += other.filled
        self.mentions += other.mentions
        self.refused += other.refused
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for kind, sizes in other.sizes.items():
            self.sizes.setdefault(kind, []).extend(sizes)
        self.values |= other.values


def _is_nested(name: str, fields: Mapping[str, FieldTally | FieldProfile]) -> bool:
    """Return whether a field is inside an object; its name may also contain a dot itself."""
    whole, dot, _ = name.rpartition(".")
    if not dot or whole not in fields:
        return False
    one = fields.get(name)
    # A field that is filled more often than there are objects is next to them, not inside.
    return one is None or one.filled <= _parent_objects(name, fields)


def _parent_objects(name: str, fields: Mapping[str, FieldTally | FieldProfile]) -> int:
    return fields[name.rpartition(".")[0]].kinds.get("object", 0)


@dataclass(slots=True)
class BlockTally:
    """All fields over a few consecutive records."""

    valid: int
    invalid: int
    fields: dict[str, FieldTally]

    def seen(self, name: str, *, may_be_nested: bool = True) -> int:
        """Return how many items a field could be in: for a nested one, those with its object."""
        one = self.fields.get(name)
        is_part = may_be_nested and _is_nested(name, self.fields)
        having = _parent_objects(name, self.fields) if is_part else self.valid
        return having + (one.mentions if one else 0)


def tally_block(shapes: Iterable[Shape]) -> BlockTally:
    """Count the fields of these records."""
    fields: dict[str, FieldTally] = {}
    valid = invalid = 0
    for shape in shapes:
        if shape.is_valid:
            valid += 1
        else:
            invalid += 1
        for name, cell in shape.cells.items():
            one = fields.get(name)
            if one is None:
                one = fields[name] = FieldTally()
            if cell is None:
                one.mentions += not shape.is_valid
                one.refused += name in shape.refused
                continue
            kind = cell.kind
            one.filled += 1
            one.kinds[kind] = one.kinds.get(kind, 0) + 1
            if kind in MEASURED:
                one.sizes.setdefault(kind, []).append(cell.size)
                one.values.add(cell.value)
    return BlockTally(valid, invalid, fields)


def merge_tallies(several: Iterable[BlockTally]) -> BlockTally:
    """Return the sum of several tallies."""
    whole = BlockTally(0, 0, {})
    for part in several:
        whole.valid += part.valid
        whole.invalid += part.invalid
        for name, one in part.fields.items():
            whole.fields.setdefault(name, FieldTally()).merge(one)
    return whole


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
    kinds: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, Sketch] = field(default_factory=dict)
    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, one: FieldTally, seen: int) -> None:
        """Add a block, in which the field could be in `seen` items."""
        self.filled += one.filled
        self.mentions += one.mentions
        for kind, count in one.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for kind, sizes in one.sizes.items():
            self.sizes.setdefault(kind, Sketch()).add(sizes)
        if seen >= BLOCK // 2:  # fewer are not representative
            self._widen(one, seen)

    def merge(self, other: FieldProfile) -> None:
        """Add another run."""
        self.filled += other.filled
        self.mentions += other.mentions
        for kind, count in other.kinds.items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for kind, sketch in other.sizes.items():
            self.sizes.setdefault(kind, Sketch()).merge(sketch)
        for name, (low, high) in other.extremes.items():
            self.extend(name, low, high)

    def extend(self, statistic: str, low: float, high: float) -> None:
        """Extend the extremes of a statistic."""
        before = self.extremes.get(statistic, (low, high))
        self.extremes[statistic] = (min(before[0], low), max(before[1], high))

    def _widen(self, one: FieldTally, seen: int) -> None:
        share = one.filled / seen
        self.extend("filled", share, share)
        for kind in {*self.kinds, *one.kinds} if one.filled >= BLOCK // 4 else ():
            share = one.kinds.get(kind, 0) / one.filled
            self.extend(f"kind {kind}", share, share)
        for kind, sizes in one.sizes.items():
            middle = median(sizes)
            self.extend(f"size {kind}", middle, middle)
        if one.filled >= BLOCK // 2:
            share = len(one.values) / one.filled
            self.extend("distinct", share, share)


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
        for name, one in block.fields.items():
            if name in self.fields or len(self.fields) < _MAX_FIELDS:
                self._field(name).add(one, self.seen_in(block, name))
        nothing = FieldTally()
        for name, known in self.fields.items():
            if name not in block.fields:
                known.add(nothing, self.seen_in(block, name))
        self.records += block.valid
        self.invalid += block.invalid

    def merge(self, other: Profile) -> None:
        """Add another run of the source."""
        for name, one in other.fields.items():
            self._field(name).merge(one)
        for name in self.fields.keys() - other.fields.keys() if other.records else ():
            self.fields[name].extend("filled", 0.0, 0.0)
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
        known = self.fields.get(name)
        is_part = not self._is_top_level(name) and _is_nested(name, self.fields)
        having = _parent_objects(name, self.fields) if is_part else self.records
        return having + (known.mentions if known else 0)

    def seen_in(self, block: BlockTally, name: str) -> int:
        """Return how many items of a block a field could be in, as it is known here."""
        return block.seen(name, may_be_nested=not self._is_top_level(name))

    def _is_top_level(self, name: str) -> bool:
        """Return whether a name with a dot is not nested: its parent was never an object."""
        whole = self.fields.get(name.rpartition(".")[0])
        if whole is None:
            return False
        is_plain = whole.filled > 0 and "object" not in whole.kinds
        return is_plain or not _is_nested(name, self.fields)

    def share(self, name: str) -> float:
        """Return the share of items that have a field; 0 when there are none."""
        known, seen = self.fields.get(name), self.seen(name)
        return known.filled / seen if known and seen else 0.0

    def _field(self, name: str) -> FieldProfile:
        known = self.fields.get(name)
        if known is None:
            known = self.fields[name] = FieldProfile()
            if self.seen(name):
                known.extend("filled", 0.0, 0.0)  # all records so far lack it
        return known

    def steady(self, share: float) -> dict[str, str]:
        """Return the kinds of the fields that at least this share of the records has."""
        return {
            name: max(one.kinds, key=lambda kind: one.kinds[kind])
            for name, one in self.fields.items()
            if self.share(name) >= share and one.kinds
        }

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "records": self.records,
            "invalid": self.invalid,
            "quiet": sorted(self.quiet),
            "fields": {name: _field_json(one) for name, one in self.fields.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Profile:
        """Return the profile that `as_json` has written."""
        fields = {name: _field_from_json(one) for name, one in value["fields"].items()}
        return cls(value["records"], value["invalid"], fields, set(value["quiet"]))


def profile_of(shapes: Iterable[Shape]) -> Profile:
    """Return the profile of records in their order; a block is of one site and kind of record."""
    profile, blocks, kinds = Profile(), dict[tuple[str, int], list[Shape]](), RecordKinds()
    for shape in shapes:
        block = blocks.setdefault((shape.site, kinds.of(shape)), [])
        block.append(shape)
        if len(block) == BLOCK:
            profile.add(tally_block(block))
            block.clear()
    for block in blocks.values():
        if block:
            profile.add(tally_block(block))
    return profile


def _field_json(one: FieldProfile) -> dict[str, Any]:
    return {
        "filled": one.filled,
        "mentions": one.mentions,
        "kinds": one.kinds,
        "sizes": {
            kind: [sketch.count, sketch.low, sketch.high, sketch.stride, sketch.values]
            for kind, sketch in one.sizes.items()
        },
        "extremes": {name: list(ends) for name, ends in one.extremes.items()},
    }


def _field_from_json(value: Mapping[str, Any]) -> FieldProfile:
    return FieldProfile(
        value["filled"],
        value["mentions"],
        dict(value["kinds"]),
        {
            kind: Sketch(one[0], one[1], one[2], one[3], list(one[4]))
            for kind, one in value["sizes"].items()
        },
        {name: (ends[0], ends[1]) for name, ends in value["extremes"].items()},
    )


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


def chance_of_more(before: int, of_before: int, now: int, of_now: int) -> float:
    """Return the probability of as many now, or more, if nothing has changed."""
    return chance_of_fewer(of_before - before, of_before, of_now - now, of_now)


def share_below(values: Sequence[float], limit: float) -> float:
    """Return the share of values below a limit."""
    return sum(value < limit for value in values) / len(values)


def share_above(values: Sequence[float], limit: float) -> float:
    """Return the share of values above a limit."""
    return sum(value > limit for value in values) / len(values)


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
