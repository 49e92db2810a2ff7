"""Comparing two records field by field: points, a verdict, and the evidence for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from longline.config.matching import Comparator, Rules
from longline.matching.values import PLAIN, canonical, members, number, pieces, value_at


class Verdict(StrEnum):
    """What two values of a field say about their records."""

    AGREES = "agrees"
    DIFFERS = "differs"
    FORBIDS = "forbids"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One field: what both records have there, and what follows from it."""

    field: str
    left: Any
    right: Any
    verdict: Verdict
    points: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two records compared; the score is the sum of the points of its evidence."""

    score: float
    is_match: bool
    evidence: tuple[Evidence, ...]
    known: int
    """How many fields both have."""

    @property
    def is_forbidden(self) -> bool:
        """Whether one field alone says that they are not the same."""
        return any(one.verdict is Verdict.FORBIDS for one in self.evidence)


@dataclass(frozen=True, slots=True)
class Profile:
    """What is compared of a record: its values as they are, and as they are compared."""

    shown: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def known(self) -> int:
        """How many of the compared fields it has."""
        return sum(value is not None for value in self.values)


def compare(left: Mapping[str, Any], right: Mapping[str, Any], rules: Rules) -> Comparison:
    """Compare two records by the rules; the order of the two makes no difference."""
    return compare_profiles(profile_of(left, rules), profile_of(right, rules), rules)


def profile_of(data: Mapping[str, Any], rules: Rules) -> Profile:
    """Return what is compared of a record."""
    shown = tuple(value_at(data, field) for field in rules.compare)
    values = tuple(
        _comparable(value, field, how, rules)
        for value, (field, how) in zip(shown, rules.compare.items(), strict=True)
    )
    return Profile(shown, values)


def compare_profiles(left: Profile, right: Profile, rules: Rules) -> Comparison:
    """Compare what is known of two records."""
    evidence = tuple(
        Evidence(field, left.shown[at], right.shown[at], *_rounded(_judge(left, right, at, how)))
        for at, (field, how) in enumerate(rules.compare.items())
    )
    score = round(sum(one.points for one in evidence), 4)
    known = sum(one.verdict is not Verdict.UNKNOWN for one in evidence)
    is_forbidden = any(one.verdict is Verdict.FORBIDS for one in evidence)
    is_enough = known >= rules.least_known and score >= rules.threshold
    return Comparison(score, is_enough and not is_forbidden, evidence, known)


def may_match(left: Profile, right: Profile, rules: Rules) -> bool:
    """Say whether two records may match, which most do not, without writing down why."""
    score, known = 0.0, 0
    for at, how in enumerate(rules.compare.values()):
        verdict, points = _judge(left, right, at, how)
        if verdict is Verdict.FORBIDS:
            return False
        score += points
        known += verdict is not Verdict.UNKNOWN
    # The last bit of the sum is left to the comparison itself.
    return known >= rules.least_known and score >= rules.threshold - 1e-3


def _judge(left: Profile, right: Profile, at: int, how: Comparator) -> tuple[Verdict, float]:
    one, other = left.values[at], right.values[at]
    if one is None or other is None:  # nothing is as unlike as two that are both unknown
        return Verdict.UNKNOWN, 0.0
    share = _agreement(one, other, how)
    if share is not None:
        return Verdict.AGREES, how.weight * share
    return (Verdict.FORBIDS if how.veto else Verdict.DIFFERS), -how.against


def _rounded(judged: tuple[Verdict, float]) -> tuple[Verdict, float]:
    return judged[0], round(judged[1], 4)


def _comparable(value: Any, field: str, how: Comparator, rules: Rules) -> Any:
    words = rules.normalise.get(field, PLAIN)
    if how.how == "number":
        return number(value)
    if how.how == "text":
        return pieces(value, words)
    return members(value, words) if how.how == "set" else canonical(value, words)


def _agreement(left: Any, right: Any, how: Comparator) -> float | None:
    """Return which share of the points two known values earn; None when they differ."""
    if how.how == "exact":
        return 1.0 if left == right else None
    if how.how == "number":
        return _nearness(left, right, how)
    share = 2 * len(left & right) / (len(left) + len(right))
    return share if share >= how.alike else None


def _nearness(left: float, right: float, how: Comparator) -> float | None:
    gap, limit = abs(left - right), how.within.between(left, right)
    if gap == 0:
        return 1.0
    if gap > limit * (1 + 1e-9):  # 0.3 - 0.2 is more than 0.1
        return None
    return 1 - gap / limit / 2
