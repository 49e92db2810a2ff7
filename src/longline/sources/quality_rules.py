"""The words in which a source says what a good record is; `pipeline/quality.py` does the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


def is_filled(value: Any) -> bool:
    """Return whether there is anything in it; 0 and False are something, blank text is not."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and value not in ([], {}, ())


def always(_data: Mapping[str, Any]) -> bool:
    """Expect a field of every record."""
    return True


@dataclass(frozen=True, slots=True)
class Expect:
    """A field that a layer should fill.

    Attributes:
        weight: how much it counts among the fields of its layer.
        share: from its value, how well it is filled, 0 to 1; False and True will do.
        when: from the whole data, whether this record can have it at all. What a record lacks
            by nature is not declared, or not expected here, and costs nothing.
    """

    layer: str
    field: str
    weight: float = 1.0
    share: Callable[[Any], float] = is_filled
    when: Callable[[Mapping[str, Any]], bool] = always


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """Two or more fields that must agree; not asked when one of them is empty.

    Attributes:
        agree: given the fields' values in order, whether they agree; None is "cannot be told".
    """

    name: str
    fields: tuple[str, ...]
    agree: Callable[..., bool | None]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class QualityRules:
    """What the layers of a source weigh, what each should fill, and what must agree.

    The weights of layers and `consistency` are shares of their own sum, whatever it is.
    """

    layers: Mapping[str, float]
    expects: tuple[Expect, ...] = ()
    checks: tuple[CrossCheck, ...] = field(default=())
    consistency: float = 0.0

    def __post_init__(self) -> None:
        weights = (*self.layers.values(), self.consistency)
        if min(weights) < 0 or sum(weights) <= 0:
            message = "weights of quality rules are not negative, and one of them is positive"
            raise ValueError(message)
