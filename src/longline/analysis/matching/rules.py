"""A file of rules that say when records of several sites are the same thing."""

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
_MOST_TOLERANCES = 4  # each doubles the blocks that a record stands in
_TOLERANCE = "write how far apart two numbers may be: 3%, or 0.5 in their own unit"


class Tolerance(StrictModel):
    """How far apart two numbers may be; of two ways to say it the larger counts."""

    relative: float = Field(default=0.0, ge=0, lt=1)
    """A share of the larger one."""
    absolute: float = Field(default=0.0, ge=0)

    def between(self, left: float, right: float) -> float:
        """Return the largest gap between these two that is still none."""
        return max(self.absolute, self.relative * max(abs(left), abs(right)))


def _tolerance(value: Any) -> Any:
    """Take 3% for a share, a number for a gap, and a list of both for the larger of them."""
    if isinstance(value, Mapping | Tolerance):
        return value
    parts = [_gap(one) for one in (value if isinstance(value, list) else [value])]
    if not parts or len({name for name, _ in parts}) < len(parts):
        raise invalid(f"{_TOLERANCE}; a list holds one of each")
    return dict(parts)


def _gap(value: Any) -> tuple[str, float]:
    if isinstance(value, str) and (found := _PERCENT.fullmatch(value.strip())):
        return "relative", float(found[1]) / 100
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return "absolute", float(value)
    raise invalid(_TOLERANCE)


Within = Annotated[Tolerance, BeforeValidator(_tolerance)]


class Normaliser(StrictModel):
    """How the text of a field is made comparable; letters are always taken as small ones."""

    cut: tuple[str, ...] = ()
    """Words that may stand before a name, such as `кв.`; cut only as whole words."""
    latin: bool = False
    """Whether Cyrillic letters are written in Latin ones, and letters lose their marks."""
    same: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Other ways to write a name: `Sofia: [София, Sofija]`."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        counts = Counter(one.casefold() for others in self.same.values() for one in others)
        for name, count in counts.items():
            if count > 1:
                raise invalid(f"{name!r} is another way to write two names; it can be only one")
        return self


class BlockField(StrictModel):
    """A field of a blocking; with `within`, numbers that are near each other share a block."""

    field: str = Field(min_length=1)
    within: Within | None = None

    @field_validator("within")
    @classmethod
    def _one_scale(cls, within: Tolerance | None) -> Tolerance | None:
        # The cells of a block lie on one scale: either even steps, or even ratios.
        if within is not None and (within.relative > 0) == (within.absolute > 0):
            raise invalid("a block needs one tolerance, and more than 0: a share or a number")
        return within


def _block_field(value: Any) -> Any:
    """Take a name for a field, and `name: 3%` for one with a tolerance."""
    if isinstance(value, str):
        return {"field": value}
    if isinstance(value, Mapping) and "field" not in value and len(value) == 1:
        ((name, within),) = value.items()
        return {"field": name, "within": within}
    return value


BlockFieldLike = Annotated[BlockField, BeforeValidator(_block_field)]


class Blocking(StrictModel):
    """Fields that two records must share to be compared at all; who lacks one has no block."""

    fields: tuple[BlockFieldLike, ...] = Field(min_length=1)
    finer: tuple[BlockFieldLike, ...] = ()
    """Fields that are added where a block has grown too large."""

    @model_validator(mode="after")
    def _few_enough(self) -> Self:
        tolerant = sum(one.within is not None for one in (*self.fields, *self.finer))
        if tolerant > _MOST_TOLERANCES:
            raise invalid(f"at most {_MOST_TOLERANCES} fields of a block can have a tolerance")
        return self


def _blocking(value: Any) -> Any:
    return {"fields": value} if isinstance(value, list) else value


BlockingLike = Annotated[Blocking, BeforeValidator(_blocking)]


class Comparator(StrictModel):
    """How two values of a field are compared, and what comes of it when both are known."""

    how: How = "exact"
    weight: float = Field(default=1.0, gt=0)
    """Points when they agree; numbers that are apart get less, down to half of it."""
    against: float = Field(default=0.0, ge=0)
    """Points that are taken off when they differ."""
    veto: bool = False
    """Whether a difference means that it is not the same thing, whatever else agrees."""
    within: Within = Tolerance()
    """Of a number: how far apart two of them may be and still agree."""
    alike: float = Field(default=0.5, gt=0, le=1)
    """Of a text or a set: which share must be the same."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if "within" in self.model_fields_set and self.how != "number":
            raise invalid("within is for numbers; write how: number")
        if "alike" in self.model_fields_set and self.how not in ("text", "set"):
            raise invalid("alike is for texts and sets; write how: text or how: set")
        return self


def _comparator(value: Any) -> Any:
    return {"how": value} if isinstance(value, str) else value


ComparatorLike = Annotated[Comparator, BeforeValidator(_comparator)]


class Rules(StrictModel):
    """When records are the same thing: what is compared with what, how, and what it takes."""

    match: str = Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)
    """What the records are, such as `property`; the pairs are kept under it."""
    about: str = ""
    sources: tuple[str, ...] = Field(min_length=1)
    """Whose records are compared."""
    normalise: dict[str, Normaliser] = Field(default_factory=dict)
    block: tuple[BlockingLike, ...] = Field(min_length=1)
    """Alternatives: who shares a block of one of them is compared."""
    compare: dict[str, ComparatorLike]
    """By field; a dot leads into what a field holds: `price.amount`."""
    least_known: int = Field(default=3, ge=3)
    """How many of the compared fields both must have."""
    threshold: float = Field(gt=0)
    """How many points make a match."""
    largest_block: int = Field(default=200, ge=2)
    """Records in a block beyond which only its finer blocks are compared."""

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        if len(self.compare) < self.least_known:
            raise invalid(
                f"compare names {len(self.compare)} fields, and least_known asks for "
                f"{self.least_known}: nothing would ever match"
            )
        most = sum(one.weight for one in self.compare.values())
        if most < self.threshold:
            raise invalid(f"threshold is never reached: all weights together are {most:g}")
        return self

    @model_validator(mode="after")
    def _know_fields(self) -> Self:
        for name in self.normalise:
            if name not in self.fields:
                raise invalid(
                    f"normalise speaks of {name!r}, which is neither compared nor a block"
                )
        return self

    def _block_fields(self) -> Iterable[BlockField]:
        return (one for way in self.block for one in (*way.fields, *way.finer))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that are compared or make a block, each once."""
        return tuple(dict.fromkeys((*self.compare, *(one.field for one in self._block_fields()))))

    @property
    def mark(self) -> str:
        """A short hash of all that decides; records compared by other rules are compared anew."""
        text = self.model_dump_json(exclude={"match", "about", "sources"})
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_rules(path: Path) -> Rules:
    """Read rules from a file.

    Raises:
        BadFile: it is broken; with line, column, and what would be right.
    """
    return check(read_document(path), Rules)
