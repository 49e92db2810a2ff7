"""Statistics of the fields and the quality of many records, in bounded memory."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from longline.pipeline.quality import is_filled

_SAMPLE = 4_000  # values of a field kept for its median and histogram
_DISTINCT = 5_000  # different values of a field that are counted
_MAX_FIELDS = 200
_MAX_DEPTH = 4
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
class Distribution:
    """The distribution of values: smallest and largest are exact, the rest may be of a sample."""

    smallest: float
    median: float
    largest: float
    histogram: tuple[int, ...]
    is_sampled: bool


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """One field in all records.

    `share` is the share of records in which it is filled. `distinct` counts different values, and
    is a lower bound when `is_distinct_capped`. `lengths` are those of texts and lists.
    """

    field: str
    filled: int
    share: float
    types: Mapping[str, int]
    distinct: int
    is_distinct_capped: bool
    numbers: Distribution | None
    lengths: Distribution | None


@dataclass(frozen=True, slots=True)
class DatasetStatistics:
    """All fields; `is_cut` when there were more fields than are counted."""

    records: int
    fields: tuple[FieldStatistics, ...]
    is_cut: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def dataset_statistics(rows: Iterable[Mapping[str, Any]]) -> DatasetStatistics:
    """Return statistics of the data of records, in bounded memory."""
    count, is_cut = 0, False
    fields: dict[str, _Field] = {}
    for row in rows:
        count += 1
        for name, value in _leaf_fields(row["data"]):
            if name not in fields and len(fields) >= _MAX_FIELDS:
                is_cut = True
                continue
            fields.setdefault(name, _Field()).add(value)
    statistics = tuple(one.statistics(name, count) for name, one in fields.items())
    return DatasetStatistics(count, statistics, is_cut)


def _leaf_fields(
    data: Mapping[str, Any], place: str = "", depth: int = _MAX_DEPTH
) -> Iterator[Any]:
    for name, value in data.items():
        path = f"{place}{name}"
        if isinstance(value, dict) and value and depth > 1:
            yield from _leaf_fields(value, f"{path}.", depth - 1)
        else:
            yield path, value


@dataclass(slots=True)
class _Sample:
    """A uniform sample of the values (reservoir sampling)."""

    count: int = 0
    smallest: float = float("inf")
    largest: float = float("-inf")
    kept: list[float] = field(default_factory=list)
    # Seeded, so that the same records give the same statistics.
    chance: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  # no secret

    def add(self, value: float) -> None:
        self.count += 1
        self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)
        if len(self.kept) < _SAMPLE:
            self.kept.append(value)
        elif (place := self.chance.randrange(self.count)) < _SAMPLE:
            self.kept[place] = value

    def spread(self) -> Distribution | None:
        if not self.count:
            return None
        middle = sorted(self.kept)[len(self.kept) // 2]
        is_sampled = self.count > len(self.kept)
        width = (self.largest - self.smallest) / _BUCKETS
        counts = [0] * (_BUCKETS if width else 1)
        for value in self.kept:
            place = int((value - self.smallest) / width) if width else 0
            counts[min(place, len(counts) - 1)] += 1
        return Distribution(self.smallest, middle, self.largest, tuple(counts), is_sampled)


@dataclass(slots=True)
class _Field:
    filled: int = 0
    types: Counter[str] = field(default_factory=Counter)
    hashes: set[int] = field(default_factory=set)
    is_capped: bool = False
    numbers: _Sample = field(default_factory=_Sample)
    lengths: _Sample = field(default_factory=_Sample)

    def add(self, value: Any) -> None:
        if not is_filled(value):
            return
        self.filled += 1
        kind = _TYPES.get(type(value), "other")
        self.types[kind] += 1
        if not self.is_capped:
            self.hashes.add(hash(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)))
            if len(self.hashes) > _DISTINCT:
                self.is_capped = True
                self.hashes = set()
        if kind == "number":
            self.numbers.add(value)
        elif kind in {"text", "list"}:
            self.lengths.add(len(value))

    def statistics(self, name: str, records: int) -> FieldStatistics:
        return FieldStatistics(
            field=name,
            filled=self.filled,
            share=round(self.filled / records, 4),
            types=dict(self.types.most_common()),
            distinct=_DISTINCT if self.is_capped else len(self.hashes),
            is_distinct_capped=self.is_capped,
            numbers=self.numbers.spread(),
            lengths=self.lengths.spread(),
        )


# ---------------- Quality

_MAX_REASONS = 2_000  # different reasons that are counted; each record may have its own
_SCORE_BUCKETS = 10
_DISAGREE = "do not agree"


@dataclass(frozen=True, slots=True)
class LostPoints:
    """Why points were lost, and in how many records."""

    part: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class QualityStatistics:
    """Scores of all records.

    `histogram` counts scores of 0 to 10, 10 to 20 and so on, 100 in the last; `lost` are the
    points that a record loses on average, by part. `other_reasons` counts reasons beyond the
    limit.
    """

    records: int
    scored: int
    mean: float | None
    histogram: tuple[int, ...]
    grades: Mapping[str, int]
    lost: Mapping[str, float]
    reasons: tuple[LostPoints, ...]
    other_reasons: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


def quality_statistics(
    rows: Iterable[Mapping[str, Any]], *, most: int | None = None
) -> QualityStatistics:
    """Return statistics of the quality of records, with the `most` frequent reasons first."""
    records, total, others = 0, 0.0, 0
    histogram = [0] * _SCORE_BUCKETS
    grades: Counter[str] = Counter()
    lost: defaultdict[str, float] = defaultdict(float)
    reasons: Counter[tuple[str, str]] = Counter()
    for row in rows:
        records += 1
        grades[row["grade"] or "unscored"] += 1
        score = row["score"]
        if score is None:
            continue
        total += score
        place = math.floor(score / 100 * _SCORE_BUCKETS)
        histogram[min(max(place, 0), _SCORE_BUCKETS - 1)] += 1
        for name, points, about in _lost_points(row):
            lost[name] += points
            for reason in about:
                if (name, reason) in reasons or len(reasons) < _MAX_REASONS:
                    reasons[name, reason] += 1
                else:
                    others += 1
    scored = sum(histogram)
    worst = sorted(lost.items(), key=lambda part: -part[1])
    return QualityStatistics(
        records=records,
        scored=scored,
        mean=round(total / scored, 2) if scored else None,
        histogram=tuple(histogram),
        grades=dict(grades.most_common()),
        lost={name: round(points / scored, 2) for name, points in worst},
        reasons=tuple(LostPoints(*what, count) for what, count in reasons.most_common(most)),
        other_reasons=others,
    )


def _lost_points(row: Mapping[str, Any]) -> Iterator[tuple[str, float, Iterable[str]]]:
    """Yield each part of the score with the points it lost, and the distinct reasons."""
    for part in (row["about"].get("quality") or {}).get("parts", ()):
        lost = part["weight"] - part["earned"]
        if lost > 0:
            yield part["name"], lost, dict.fromkeys(map(_general_reason, part["reasons"]))


def _general_reason(reason: str) -> str:
    """Return a reason without the values of one record, so that equal ones are counted together."""
    if not reason.endswith(_DISAGREE):
        return reason
    return f"{reason.partition(': ')[0]}: the fields {_DISAGREE}"
