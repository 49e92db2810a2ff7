"""The rules file of a search for duplicates: blocks, comparisons and the threshold."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from longline.config.documents import check, read_document
from longline.config.strict_model import StrictModel, invalid

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
    parts = [_gap(one) for one in (value if isinstance(value, list) else [value])]
    if not parts or len({name for name, _ in parts}) < len(parts):
        raise invalid(f"{_TOLERANCE}; a list has one of each")
    return dict(parts)


def _gap(value: Any) -> tuple[str, float]:
    if isinstance(value, str) and (found := _PERCENT.fullmatch(value.strip())):
        return "relative", float(found[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return "absolute", float(value)
    raise invalid(_TOLERANCE)


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
    def _each_once(self) -> Self:
        counts = Counter(one.casefold() for others in self.same.values() for one in others)
        for name, count in counts.items():
            if count > 1:
                raise invalid(f"{name!r} is a spelling of two names; it can be one of only one")
        return self


class BlockField(StrictModel):
    """A field of a block; with `within`, numbers within the tolerance share a block."""

    field: str = Field(min_length=1)
    within: Within | None = None

    @field_validator("within")
    @classmethod
    def _one_scale(cls, within: Tolerance | None) -> Tolerance | None:
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
    def _few_enough(self) -> Self:
        tolerant = sum(one.within is not None for one in (*self.fields, *self.finer))
        if tolerant > _MAX_TOLERANCES:
            raise invalid(f"at most {_MAX_TOLERANCES} fields of a block can have a tolerance")
        return self


def _blocking(value: Any) -> Any:
    return {"fields": value} if isinstance(value, list) else value


BlockingLike = Annotated[Blocking, BeforeValidator(_blocking)]


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
    def _fitting(self) -> Self:
        if "within" in self.model_fields_set and self.how != "number":
            raise invalid("within is for numbers; use how: number")
        if "alike" in self.model_fields_set and self.how not in ("text", "set"):
            raise invalid("alike is for texts and sets; use how: text or how: set")
        return self


def _comparator(value: Any) -> Any:
    return {"how": value} if isinstance(value, str) else value


ComparatorLike = Annotated[Comparator, BeforeValidator(_comparator)]


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
    def _can_match(self) -> Self:
        if len(self.compare) < self.least_known:
            raise invalid(
                f"compare has {len(self.compare)} fields, and least_known requires "
                f"{self.least_known}: nothing would match"
            )
        most = sum(one.weight for one in self.compare.values())
        if most < self.threshold:
            raise invalid(f"threshold is never reached: the sum of all weights is {most:g}")
        return self

    @model_validator(mode="after")
    def _know_fields(self) -> Self:
        for name in self.normalise:
            if name not in self.fields:
                raise invalid(f"normalise has {name!r}, which is neither in compare nor in block")
        return self

    def _block_fields(self) -> Iterable[BlockField]:
        return (one for way in self.block for one in (*way.fields, *way.finer))

    @property
    def fields(self) -> tuple[str, ...]:
        """The distinct fields in compare and block."""
        return tuple(dict.fromkeys((*self.compare, *(one.field for one in self._block_fields()))))

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
