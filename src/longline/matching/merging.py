"""One view of a cluster: for each field a value, whose it is, and what the others say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longline.matching.clusters import Cluster
from longline.matching.values import is_missing, number

_WIDE_GAP = 0.05  # of the smaller value; beyond it, the difference is noted

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A value and the record that has it, as `source/key`."""

    record: str
    value: Any


@dataclass(frozen=True, slots=True)
class MergedField:
    """A field of the merged view; without a `record`, nobody's value could be taken."""

    name: str
    value: Any
    record: str | None
    others: tuple[Said, ...] = ()
    """What other records have there instead."""
    note: str | None = None


def name_of(row: Row) -> str:
    """Return a record's name as lists show it."""
    return f"{row['source']}/{row['key']}"


def merged(cluster: Cluster) -> tuple[MergedField, ...]:
    """Return one view of all records: it says of each value where it comes from.

    Numbers come from the record seen last, texts from the one that says most, and true or false
    only stands when nobody contradicts. What is missing everywhere is left out.
    """
    # Seen last first; among those seen together the order is always the same.
    rows = sorted(cluster.records, key=lambda row: (-row["seen_at"], name_of(row)))
    names = dict.fromkeys(name for row in rows for name in row["data"])
    said = {name: [_said(row, name) for row in rows if _has(row, name)] for name in names}
    return tuple(_merged_field(name, values) for name, values in said.items() if values)


def _has(row: Row, name: str) -> bool:
    return not is_missing(row["data"].get(name))


def _said(row: Row, name: str) -> Said:
    return Said(name_of(row), row["data"][name])


def _merged_field(name: str, said: Sequence[Said]) -> MergedField:
    if all(isinstance(one.value, bool) for one in said) and _differing(said[0], said):
        return MergedField(name, None, None, tuple(said), "the records contradict each other")
    chosen = _chosen(said)
    note = _gap([one.value for one in said])
    return MergedField(name, chosen.value, chosen.record, _differing(chosen, said), note)


def _chosen(said: Sequence[Said]) -> Said:
    if all(isinstance(one.value, str) for one in said):
        return max(said, key=lambda one: len(one.value))
    return said[0]


def _differing(chosen: Said, said: Sequence[Said]) -> tuple[Said, ...]:
    # To Python, true is 1; to a reader it is not.
    return tuple(
        one
        for one in said
        if one.value != chosen.value
        or isinstance(one.value, bool) != isinstance(chosen.value, bool)
    )


def _gap(values: Sequence[Any]) -> str | None:
    """Return a note when amounts lie far apart."""
    amounts = [_amount(value) for value in values]
    numbers = [amount for amount, _ in amounts if amount is not None]
    if len(numbers) < len(values) or len({unit for _, unit in amounts}) > 1:
        return None
    low, high = min(numbers), max(numbers)
    if low <= 0 or high - low <= _WIDE_GAP * low:
        return None
    return f"from {low:g} to {high:g}, a gap of {(high - low) / low:.0%}"


def _amount(value: Any) -> tuple[float | None, Any]:
    """Return a number and its unit; money may be an amount with its currency."""
    if isinstance(value, Mapping):
        return number(value.get("amount")), value.get("currency")
    return number(value), None
