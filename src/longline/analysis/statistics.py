"""Figures of the fields of many records, read one by one and never held."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from longline.pipeline.quality import is_filled

_SAMPLE = 4_000  # values of a field kept for its median and histogram
_DISTINCT = 5_000  # different values of a field told apart
_FIELDS = 200
_DEEPEST = 4
_BUCKETS = 12
_TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "text",
    list: "list",
    dict: "object",
}


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie: smallest and largest are exact, the rest is of a sample when it says so."""

    smallest: float
    median: float
    largest: float
    histogram: tuple[int, ...]
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class FieldFigures:
    """One field in all records.

    `share` is of the records in which it is filled. `distinct` counts different values, or is
    only the least number of them when `is_distinct_capped`. `lengths` are of texts and lists.
    """

    field: str
    filled: int
    share: float
    types: Mapping[str, int]
    distinct: int
    is_distinct_capped: bool
    numbers: Spread | None
    lengths: Spread | None


@dataclass(frozen=True, slots=True)
class Figures:
    """All fields; `is_cut` when there were more fields than are told."""

    records: int
    fields: tuple[FieldFigures, ...]
    is_cut: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def figures_of(rows: Iterable[Mapping[str, Any]]) -> Figures:
    """Return the figures of the data of records, in memory that does not grow with them."""
    count, is_cut = 0, False
    fields: dict[str, _Field] = {}
    for row in rows:
        count += 1
        for name, value in _flat(row["data"]):
            if name not in fields and len(fields) >= _FIELDS:
                is_cut = True
                continue
            fields.setdefault(name, _Field()).add(value)
    told = tuple(one.figures(name, count) for name, one in fields.items())
    return Figures(count, told, is_cut)


def _flat(data: Mapping[str, Any], place: str = "", depth: int = _DEEPEST) -> Iterator[Any]:
    for name, value in data.items():
        path = f"{place}{name}"
        if isinstance(value, dict) and value and depth > 1:
            yield from _flat(value, f"{path}.", depth - 1)
        else:
            yield path, value


@dataclass(slots=True)
class _Sample:
    """Some of the values, each with the same chance to be among them."""

    count: int = 0
    smallest: float = float("inf")
    largest: float = float("-inf")
    kept: list[float] = field(default_factory=list)
    # The same records give the same figures each time.
    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  # no secret

    def add(self, value: float) -> None:
        self.count += 1
        self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)
        if len(self.kept) < _SAMPLE:
            self.kept.append(value)
        elif (place := self.chance.randrange(self.count)) < _SAMPLE:
            self.kept[place] = value

    def spread(self) -> Spread | None:
        if not self.count:
            return None
        middle = sorted(self.kept)[len(self.kept) // 2]
        is_sampled = self.count > len(self.kept)
        return Spread(self.smallest, middle, self.largest, self._histogram(), is_sampled)

    def _histogram(self) -> tuple[int, ...]:
        width = (self.largest - self.smallest) / _BUCKETS
        counts = [0] * (_BUCKETS if width else 1)
        for value in self.kept:
            place = int((value - self.smallest) / width) if width else 0
            counts[min(place, len(counts) - 1)] += 1
        return tuple(counts)


@dataclass(slots=True)
class _Field:
    filled: int = 0
    types: Counter[str] = field(default_factory=Counter)
    marks: set[int] = field(default_factory=set)
    is_capped: bool = False
    numbers: _Sample = field(default_factory=_Sample)
    lengths: _Sample = field(default_factory=_Sample)

    def add(self, value: Any) -> None:
        if not is_filled(value):
            return
        self.filled += 1
        kind = _TYPES.get(type(value), "other")
        self.types[kind] += 1
        self._tell_apart(value)
        if kind == "number":
            self.numbers.add(value)
        elif kind in {"text", "list"}:
            self.lengths.add(len(value))

    def _tell_apart(self, value: Any) -> None:
        if self.is_capped:
            return
        self.marks.add(hash(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)))
        if len(self.marks) > _DISTINCT:
            self.is_capped = True
            self.marks = set()

    def figures(self, name: str, records: int) -> FieldFigures:
        return FieldFigures(
            field=name,
            filled=self.filled,
            share=round(self.filled / records, 4),
            types=dict(self.types.most_common()),
            distinct=_DISTINCT if self.is_capped else len(self.marks),
            is_distinct_capped=self.is_capped,
            numbers=self.numbers.spread(),
            lengths=self.lengths.spread(),
        )


# ---------------- How good many records are, and what they lose points for; read one by one and

_REASONS = 2_000  # different reasons told apart; a site may give each record one of its own
_SCORE_BUCKETS = 10
_DISAGREE = "do not agree"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why points were lost, and in how many records."""

    part: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class QualityFigures:
    """Scores of all records.

    `histogram` counts those from 0 to 10, 10 to 20 and so on, 100 in the last; `lost` are the
    points that a record loses on average, by part. `other_reasons` were too many to tell apart.
    """

    records: int
    scored: int
    mean: float | None
    histogram: tuple[int, ...]
    grades: Mapping[str, int]
    lost: Mapping[str, float]
    reasons: tuple[Reason, ...]
    other_reasons: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def quality_of(rows: Iterable[Mapping[str, Any]], *, most: int | None = None) -> QualityFigures:
    """Return the figures of records' quality, with at most so many reasons, the frequent first."""
    tally = _Tally()
    for row in rows:
        tally.add(row)
    reasons = tuple(Reason(*what, count) for what, count in tally.reasons.most_common(most))
    scored = sum(tally.histogram)
    worst = sorted(tally.lost.items(), key=lambda part: -part[1])
    return QualityFigures(
        records=tally.records,
        scored=scored,
        mean=round(tally.total / scored, 2) if scored else None,
        histogram=tuple(tally.histogram),
        grades=dict(tally.grades.most_common()),
        lost={name: round(points / scored, 2) for name, points in worst},
        reasons=reasons,
        other_reasons=tally.others,
    )


class _Tally:
    def __init__(self) -> None:
        self.records = 0
        self.total = 0.0
        self.others = 0
        self.histogram = [0] * _SCORE_BUCKETS
        self.grades: Counter[str] = Counter()
        self.lost: dict[str, float] = {}
        self.reasons: Counter[tuple[str, str]] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        self.records += 1
        self.grades[row["grade"] or "unscored"] += 1
        score = row["score"]
        if score is None:
            return
        self.total += score
        place = math.floor(score / 100 * _SCORE_BUCKETS)
        self.histogram[min(max(place, 0), _SCORE_BUCKETS - 1)] += 1
        for part in (row["about"].get("quality") or {}).get("parts", ()):
            self._add_part(part)

    def _add_part(self, part: Mapping[str, Any]) -> None:
        name, lost = part["name"], part["weight"] - part["earned"]
        if lost <= 0:
            return
        self.lost[name] = self.lost.get(name, 0.0) + lost
        for reason in dict.fromkeys(map(_plain, part["reasons"])):
            if (name, reason) in self.reasons or len(self.reasons) < _REASONS:
                self.reasons[name, reason] += 1
            else:
                self.others += 1


def _plain(reason: str) -> str:
    """Return a reason without the values of one record, so that it can be counted."""
    if not reason.endswith(_DISAGREE):
        return reason
    return f"{reason.partition(': ')[0]}: the fields {_DISAGREE}"
