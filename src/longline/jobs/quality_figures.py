"""How good many records are, and what they lose points for; read one by one and never held."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

_REASONS = 2_000  # different reasons told apart; a site may give each record one of its own
_BUCKETS = 10
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
        self.histogram = [0] * _BUCKETS
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
        place = math.floor(score / 100 * _BUCKETS)
        self.histogram[min(max(place, 0), _BUCKETS - 1)] += 1
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
