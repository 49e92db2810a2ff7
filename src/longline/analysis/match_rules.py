"""Rules for finding duplicates, and the comparison of two records by them."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BeforeValidator, Field, field_validator, model_validator

from longline.config.documents import check, read_document
from longline.config.expressions import look_up
from longline.config.validation import StrictModel, invalid, short_for
from longline.pipeline.quality import is_filled

How = Literal["exact", "text", "number", "set"]

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_MAX_TOLERANCES = 4  # each doubles the blocks of a record
_TOLERANCE = "use a percentage (3%) or a number in the unit of the field (0.5)"


class Tolerance(StrictModel):
    """The maximum difference of two numbers; of relative and absolute the larger counts."""

    relative: float = Field(default=0.0, ge=0, lt=1)
    """A share of the larger number."""
    absolute: float = Field(default=0.0, ge=0)

    def between(self, left: float, right: float) -> float:
        """Return the largest difference at which these two still agree."""
        return max(self.absolute, self.relative * max(abs(left), abs(right)))


def _tolerance(value: Any) -> Any:
    """Parse 3% as relative, a number as absolute, and a list as both."""
    if isinstance(value, Mapping | Tolerance):
        return value
    found: dict[str, float] = {}
    for one in value if isinstance(value, list) else [value]:
        percent = _PERCENT.fullmatch(one.strip()) if isinstance(one, str) else None
        amount = float(percent[1]) / 100 if percent else number(one)
        name = "relative" if percent else "absolute"
        if amount is None or name in found:
            raise invalid(f"{_TOLERANCE}; a list has one of each")
        found[name] = amount
    if not found:
        raise invalid(_TOLERANCE)
    return found


Within = Annotated[Tolerance, BeforeValidator(_tolerance)]


class Normaliser(StrictModel):
    """How the text of a field is normalized before it is compared; case is always ignored."""

    cut: tuple[str, ...] = ()
    """Prefixes to remove, such as `кв.`; only whole words."""
    latin: bool = False
    """Whether to transliterate Cyrillic and remove diacritics."""
    same: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Other spellings of a name: `Sofia: [София, Sofija]`."""

    @model_validator(mode="after")
    def _check_spellings(self) -> Self:
        counts = Counter(one.casefold() for others in self.same.values() for one in others)
        for name, count in counts.items():
            if count > 1:
                raise invalid(f"{name!r} is a synonym of two names; list it under one of them")
        return self


class BlockField(StrictModel):
    """A field of a block; with `within`, numbers within the tolerance share a block."""

    field: str = Field(min_length=1)
    within: Within | None = None

    @field_validator("within")
    @classmethod
    def _check_within(cls, within: Tolerance | None) -> Tolerance | None:
        # Cells have one scale: equal steps or equal ratios.
        if within is not None and (within.relative > 0) == (within.absolute > 0):
            raise invalid("a block needs one tolerance above 0: a percentage or a number")
        return within


def _block_field(value: Any) -> Any:
    """Parse `name` as a field, and `name: 3%` as one with a tolerance."""
    if isinstance(value, str):
        return {"field": value}
    if isinstance(value, Mapping) and "field" not in value and len(value) == 1:
        ((name, within),) = value.items()
        return {"field": name, "within": within}
    return value


BlockFieldLike = Annotated[BlockField, BeforeValidator(_block_field)]


class Blocking(StrictModel):
    """Fields that two records must share to be compared; a record without one has no block."""

    fields: tuple[BlockFieldLike, ...] = Field(min_length=1)
    finer: tuple[BlockFieldLike, ...] = ()
    """Additional fields for blocks that are too large."""

    @model_validator(mode="after")
    def _check_tolerances(self) -> Self:
        tolerant = sum(one.within is not None for one in (*self.fields, *self.finer))
        if tolerant > _MAX_TOLERANCES:
            raise invalid(f"at most {_MAX_TOLERANCES} fields of a block can have a tolerance")
        return self


BlockingLike = Annotated[
    Blocking,
    BeforeValidator(lambda value: {"fields": value} if isinstance(value, list) else value),
]


class Comparator(StrictModel):
    """How two known values of a field are compared, and the points for it."""

    how: How = "exact"
    weight: float = Field(default=1.0, gt=0)
    """Points when they agree; numbers at the tolerance get half of them."""
    against: float = Field(default=0.0, ge=0)
    """Points subtracted when they differ."""
    veto: bool = False
    """Whether a difference excludes a match."""
    within: Within = Tolerance()
    """For numbers: the tolerance."""
    alike: float = Field(default=0.5, gt=0, le=1)
    """For texts and sets: the share that must be equal."""

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if "within" in self.model_fields_set and self.how != "number":
            raise invalid("`within` is for numbers; use `how: number`")
        if "alike" in self.model_fields_set and self.how not in ("text", "set"):
            raise invalid("`alike` is for texts and sets; use `how: text` or `how: set`")
        return self


ComparatorLike = Annotated[Comparator, short_for("how")]


class Rules(StrictModel):
    """When records are the same thing: sources, blocks, comparisons and threshold."""

    match: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)
    """The kind of the records, such as `property`; pairs are stored under it."""
    about: str = ""
    sources: tuple[str, ...] = Field(min_length=1)
    """Sources whose records are compared."""
    normalise: dict[str, Normaliser] = Field(default_factory=dict)
    block: tuple[BlockingLike, ...] = Field(min_length=1)
    """Alternatives: records that share a block of one of them are compared."""
    compare: dict[str, ComparatorLike]
    """By field; a dotted path reaches into a field: `price.amount`."""
    least_known: int = Field(default=3, ge=3)
    """How many compared fields both records must have."""
    threshold: float = Field(gt=0)
    """Minimum score of a match."""
    largest_block: int = Field(default=200, ge=2)
    """Maximum records of a block; of a larger one, only its finer blocks are compared."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if len(self.compare) < self.least_known:
            raise invalid(
                f"compare has {len(self.compare)} fields, and least_known requires "
                f"{self.least_known}: nothing would match"
            )
        most = sum(one.weight for one in self.compare.values())
        if most < self.threshold:
            raise invalid(f"threshold is never reached: the sum of all weights is {most:g}")
        for name in self.normalise:
            if name not in self.fields:
                raise invalid(f"normalise has {name!r}, which is neither in compare nor in block")
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """The distinct fields in compare and block."""
        in_blocks = (one.field for way in self.block for one in (*way.fields, *way.finer))
        return tuple(dict.fromkeys((*self.compare, *in_blocks)))

    @property
    def mark(self) -> str:
        """A hash of the rules; records compared by other rules are compared again."""
        text = self.model_dump_json(exclude={"match", "about", "sources"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_rules(path: Path) -> Rules:
    """Read rules from a file.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    return check(read_document(path), Rules)


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
    value = look_up(path, data)
    return None if is_missing(value) else value


def is_missing(value: Any) -> bool:
    """Return whether a value is empty; false and 0 are not."""
    return not is_filled(value) or (isinstance(value, float) and math.isnan(value))


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
    plain = _without_prefix(_folded(text), tuple(rules.cut))
    for name, others in rules.same.items():
        if plain in (_folded(name), *map(_folded, others)):
            plain = _folded(name)
            break
    return _in_latin(plain) if rules.latin else plain


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _without_prefix(text: str, words: tuple[str, ...]) -> str:
    """Remove the longest of these words that the text begins with, unless it is the whole text.

    The word ends before a space, or with a dot before a letter or digit.
    """
    for prefix in sorted(map(_folded, words), key=len, reverse=True):
        rest = text[len(prefix) :]
        is_word = rest[:1].isspace() or (not prefix[-1].isalnum() and rest[:1].isalnum())
        if text.startswith(prefix) and rest.strip() and is_word:
            return rest.strip()
    return text


@lru_cache(maxsize=4096)
def _in_latin(text: str) -> str:
    parts = unicodedata.normalize("NFKD", text.translate(_LATIN))
    return "".join(part for part in parts if not unicodedata.combining(part))


# ---------------- Compare two records field by field: a score, a verdict and the evidence


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
    """Two records compared: `score` is the sum of the points, `known` counts the common fields."""

    score: float
    is_match: bool
    evidence: tuple[Evidence, ...]
    known: int

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
        for verdict, points in [_compare_values(left, right, at, how)]
    )
    score = round(sum(one.points for one in evidence), 4)
    verdicts = [one.verdict for one in evidence]
    known = len(verdicts) - verdicts.count(Verdict.UNKNOWN)
    is_enough = known >= rules.least_known and score >= rules.threshold
    return Comparison(score, is_enough and Verdict.FORBIDS not in verdicts, evidence, known)


def may_match(left: PreparedRecord, right: PreparedRecord, rules: Rules) -> bool:
    """Return whether two records may match, without evidence: most do not."""
    score, known = 0.0, 0
    for at, how in enumerate(rules.compare.values()):
        verdict, points = _compare_values(left, right, at, how)
        if verdict is Verdict.FORBIDS:
            return False
        score += points
        known += verdict is not Verdict.UNKNOWN
    # The comparison itself decides about rounding errors of the sum.
    return known >= rules.least_known and score >= rules.threshold - 1e-3


def _compare_values(
    left: PreparedRecord, right: PreparedRecord, at: int, how: Comparator
) -> tuple[Verdict, float]:
    """Return what two values mean, and the points for it."""
    one, other = left.values[at], right.values[at]
    if one is None or other is None:  # two unknown values do not agree
        return Verdict.UNKNOWN, 0.0
    if how.how == "exact":
        share = float(one == other)
    elif how.how == "number":
        gap, limit = abs(one - other), how.within.between(one, other)
        is_near = gap <= limit * (1 + 1e-9)  # 0.3 - 0.2 is more than 0.1
        share = (1 - gap / limit / 2 if gap else 1.0) if is_near else 0.0
    else:
        share = 2 * len(one & other) / (len(one) + len(other))
        share = share if share >= how.alike else 0.0
    if share > 0:
        return Verdict.AGREES, how.weight * share
    return (Verdict.FORBIDS if how.veto else Verdict.DIFFERS), -how.against


def _comparable(value: Any, field: str, how: Comparator, rules: Rules) -> Any:
    words = rules.normalise.get(field, PLAIN)
    if how.how == "number":
        return number(value)
    if how.how == "text":
        return pieces(value, words)
    return members(value, words) if how.how == "set" else canonical(value, words)
