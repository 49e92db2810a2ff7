"""Compare two records field by field: a score, a verdict and the evidence."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import orjson

from longline.analysis.matching.rules import Comparator, Normaliser, Rules

# ---------------- Values in a comparable form

PLAIN = Normaliser()
_PIECE = 3  # characters of the n-grams by which texts are compared
# The romanization of Bulgarian law, as on road signs and maps, extended by the letters of other
# languages.
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъьюяёыэіїєґјљњћђџ"
_AS_LATIN = (
    "a b v g d e zh z i y k l m n o p r s t u f h ts ch sh sht a y yu ya "
    "e y e i yi ye g j lj nj c dj dz"
)
_LATIN = str.maketrans(dict(zip(_CYRILLIC, _AS_LATIN.split(), strict=True)))


def value_at(data: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field or at a dotted path; None when there is none."""
    value: Any = data
    if path in data:
        value = data[path]
    else:
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """Return whether a value is empty; false and 0 are not."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, list | dict | tuple | set) and not value


def canonical(value: Any, rules: Normaliser = PLAIN) -> str | None:
    """Return a text that is the same for equal values; None for an empty value."""
    if is_missing(value):
        return None
    if isinstance(value, str):
        return normal_text(value, rules) or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    return orjson.dumps(value, default=str, option=orjson.OPT_SORT_KEYS).decode()


def number(value: Any) -> float | None:
    """Return a finite number; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def members(value: Any, rules: Normaliser = PLAIN) -> frozenset[str] | None:
    """Return the members of a list, or the single value; None when there is none."""
    several = value if isinstance(value, list | tuple | set) else [value]
    found = frozenset(text for one in several if (text := canonical(one, rules)) is not None)
    return found or None


def pieces(value: Any, rules: Normaliser = PLAIN) -> frozenset[str] | None:
    """Return the n-grams of a text; None when it is not a text or is empty."""
    if not isinstance(value, str):
        return None
    words = f" {normal_text(value, rules)} "
    return frozenset(words[at : at + _PIECE] for at in range(len(words) - _PIECE + 1)) or None


def normal_text(text: str, rules: Normaliser = PLAIN) -> str:
    """Return a text in lower case with single spaces, normalized by the rules."""
    plain = _without(_folded(text), tuple(rules.cut))
    plain = _spelling(plain, rules)
    return _in_latin(plain) if rules.latin else plain


def _spelling(text: str, rules: Normaliser) -> str:
    for name, others in rules.same.items():
        if text in (_folded(name), *(_folded(one) for one in others)):
            return _folded(name)
    return text


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


@lru_cache(maxsize=256)
def _prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted((_folded(word) for word in words), key=len, reverse=True))


def _without(text: str, words: tuple[str, ...]) -> str:
    """Remove the first of these words that the text begins with, unless it is the whole text."""
    for prefix in _prefixes(words):
        rest = text[len(prefix) :]
        if text.startswith(prefix) and _is_whole_word(prefix, rest):
            return rest.strip()
    return text


def _is_whole_word(prefix: str, rest: str) -> bool:
    """Return whether a word begins after a prefix; a dot ends one, with or without a space."""
    if not rest.strip():
        return False
    return rest[0].isspace() or (not prefix[-1].isalnum() and rest[0].isalnum())


@lru_cache(maxsize=4096)
def _in_latin(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.translate(_LATIN))
    return "".join(part for part in parts if not unicodedata.combining(part))


class Verdict(StrEnum):
    """What two values of a field mean for their records."""

    AGREES = "agrees"
    DIFFERS = "differs"
    FORBIDS = "forbids"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One field: the values of both records, the verdict and its points."""

    field: str
    left: Any
    right: Any
    verdict: Verdict
    points: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two records; the score is the sum of the points."""

    score: float
    is_match: bool
    evidence: tuple[Evidence, ...]
    known: int
    """How many fields both have."""

    @property
    def is_forbidden(self) -> bool:
        """Whether one field alone excludes a match."""
        return any(one.verdict is Verdict.FORBIDS for one in self.evidence)


@dataclass(frozen=True, slots=True)
class PreparedRecord:
    """The compared fields of a record: their values, and these in comparable form."""

    shown: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def known(self) -> int:
        """How many of the compared fields have a value."""
        return sum(value is not None for value in self.values)


def compare(left: Mapping[str, Any], right: Mapping[str, Any], rules: Rules) -> Comparison:
    """Compare two records by the rules; their order makes no difference."""
    return compare_prepared(prepare(left, rules), prepare(right, rules), rules)


def prepare(data: Mapping[str, Any], rules: Rules) -> PreparedRecord:
    """Return the compared fields of a record in comparable form."""
    shown = tuple(value_at(data, field) for field in rules.compare)
    values = tuple(
        _comparable(value, field, how, rules)
        for value, (field, how) in zip(shown, rules.compare.items(), strict=True)
    )
    return PreparedRecord(shown, values)


def compare_prepared(left: PreparedRecord, right: PreparedRecord, rules: Rules) -> Comparison:
    """Compare two prepared records."""
    evidence = tuple(
        Evidence(field, left.shown[at], right.shown[at], verdict, round(points, 4))
        for at, (field, how) in enumerate(rules.compare.items())
        for verdict, points in [_compare_field(left, right, at, how)]
    )
    score = round(sum(one.points for one in evidence), 4)
    known = sum(one.verdict is not Verdict.UNKNOWN for one in evidence)
    is_forbidden = any(one.verdict is Verdict.FORBIDS for one in evidence)
    is_enough = known >= rules.least_known and score >= rules.threshold
    return Comparison(score, is_enough and not is_forbidden, evidence, known)


def may_match(left: PreparedRecord, right: PreparedRecord, rules: Rules) -> bool:
    """Return whether two records may match, without evidence: most do not."""
    score, known = 0.0, 0
    for at, how in enumerate(rules.compare.values()):
        verdict, points = _compare_field(left, right, at, how)
        if verdict is Verdict.FORBIDS:
            return False
        score += points
        known += verdict is not Verdict.UNKNOWN
    # The comparison itself decides about rounding errors of the sum.
    return known >= rules.least_known and score >= rules.threshold - 1e-3


def _compare_field(
    left: PreparedRecord, right: PreparedRecord, at: int, how: Comparator
) -> tuple[Verdict, float]:
    one, other = left.values[at], right.values[at]
    if one is None or other is None:  # two unknown values do not agree
        return Verdict.UNKNOWN, 0.0
    share = _agreement(one, other, how)
    if share is not None:
        return Verdict.AGREES, how.weight * share
    return (Verdict.FORBIDS if how.veto else Verdict.DIFFERS), -how.against


def _comparable(value: Any, field: str, how: Comparator, rules: Rules) -> Any:
    words = rules.normalise.get(field, PLAIN)
    if how.how == "number":
        return number(value)
    if how.how == "text":
        return pieces(value, words)
    return members(value, words) if how.how == "set" else canonical(value, words)


def _agreement(left: Any, right: Any, how: Comparator) -> float | None:
    """Return the share of the points that two known values earn; None when they differ."""
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
