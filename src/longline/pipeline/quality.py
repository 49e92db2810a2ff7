"""The quality score of a record, 0 to 100, in named parts with reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from longline.core.model import Note, Quality, QualityPart

GRADES = ((90.0, "Excellent"), (75.0, "Good"), (60.0, "Fair"), (0.0, "Poor"))
"""The lowest score of each grade, best first."""
_OK = "ok"
_DIGITS = 6  # rounding errors of sums must not cost a grade


def is_filled(value: Any) -> bool:
    """Return whether there is anything in it; 0 and False are something, blank text is not."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and value not in ([], {}, ())


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
    when: Callable[[Mapping[str, Any]], bool] = lambda _data: True


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """Two or more fields that must agree; skipped when one of them is empty.

    Attributes:
        agree: given the fields' values in order, whether they agree; None is unknown.
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
            message = (
                "weights of quality rules must not be negative, and at least one must be positive"
            )
            raise ValueError(message)


def score(
    rules: QualityRules | None,
    names: Sequence[str],
    data: Mapping[str, Any],
    layers: Mapping[str, str],
    notes: Iterable[Note] = (),
) -> Quality:
    """Return the quality of a record by the rules of its source; without rules, by its gaps.

    `names` are the layers of the source; `layers` says how each ended: "ok", or why not. `notes`
    explain the reasons.
    """
    if rules is None:
        return _score_by_gaps(names, data, layers)
    reasons = {note.field: note.text for note in notes}
    whole = math.fsum((*rules.layers.values(), rules.consistency))
    parts = []
    for name, share in rules.layers.items():
        weight, end = 100.0 * share / whole, layers.get(name, "not run")
        if end == _OK:
            expects = [one for one in rules.expects if one.layer == name and one.when(data)]
            parts.append(_layer_part(name, weight, expects, data, reasons))
        else:
            parts.append(QualityPart(name, weight, 0.0, (f"layer {name}: {end}",)))
    disputes = [check for check in rules.checks if _is_dispute(check, data)]
    conflicts = tuple(_conflict(check, data) for check in disputes)
    if rules.consistency:
        weight = 100.0 * rules.consistency / whole
        # All checks count, also those without values: a filled field never costs points unless it
        # contradicts another.
        possible = math.fsum(check.weight for check in rules.checks) or 1.0
        lost = math.fsum(check.weight for check in disputes)
        part = QualityPart("consistency", weight, weight * max(0.0, 1 - lost / possible), conflicts)
        if not any(layers.get(name) == _OK for name in rules.layers):
            part = QualityPart(
                "consistency", weight, 0.0, ("no layer succeeded, so nothing can be compared",)
            )
        parts.append(part)
    return _quality(parts, conflicts)


def grade_of(points: float) -> str:
    """Return the grade of a score."""
    return next(name for least, name in GRADES if points >= least)


def _quality(parts: Sequence[QualityPart], conflicts: tuple[str, ...] = ()) -> Quality:
    total = round(math.fsum(part.earned for part in parts), _DIGITS)
    points = min(100.0, max(0.0, total))
    return Quality(points, grade_of(points), tuple(parts), conflicts)


def _layer_part(
    name: str,
    weight: float,
    expects: Sequence[Expect],
    data: Mapping[str, Any],
    reasons: Mapping[str, str],
) -> QualityPart:
    earned, lacking = [], []
    for expect in expects:
        share = min(1.0, max(0.0, float(expect.share(data.get(expect.field)))))
        earned.append(expect.weight * share)
        if share < 1:
            state = f"only {share:.0%} of the expected amount" if share else "missing"
            why = f" ({reasons[expect.field]})" if expect.field in reasons else ""
            lacking.append(f"{expect.field}: {state}{why}")
    if not (possible := math.fsum(expect.weight for expect in expects)):
        return QualityPart(name, weight, weight)
    return QualityPart(name, weight, weight * math.fsum(earned) / possible, tuple(lacking))


def _is_dispute(check: CrossCheck, data: Mapping[str, Any]) -> bool:
    values = [data.get(field) for field in check.fields]
    return all(map(is_filled, values)) and check.agree(*values) is False


def _conflict(check: CrossCheck, data: Mapping[str, Any]) -> str:
    values = ", ".join(f"{field} {data[field]!r:.60}" for field in check.fields)
    return f"{check.name}: {values} do not agree"


_COMPLETE = _quality([QualityPart("layers", 50.0, 50.0), QualityPart("fields", 50.0, 50.0)])


def _score_by_gaps(
    names: Sequence[str], data: Mapping[str, Any], layers: Mapping[str, str]
) -> Quality:
    """Score two halves: the share of layers that ran, and the share of fields with a value."""
    is_all_ok = len(layers) == len(names) and all(end == _OK for end in layers.values())
    if data and None not in data.values() and is_all_ok:
        return _COMPLETE  # the usual case, once per item
    ends = {name: layers.get(name, "not run") for name in names}
    failed = [f"layer {name}: {end}" for name, end in ends.items() if end != _OK]
    empty = [f"{field}: missing" for field, value in data.items() if value is None]
    parts = []
    for name, count, lacking in (("layers", len(ends), failed), ("fields", len(data), empty)):
        earned = 50.0 * (count - len(lacking)) / count if count else 0.0
        parts.append(QualityPart(name, 50.0, earned, tuple(lacking) if count else (f"no {name}",)))
    return _quality(parts)
