"""Blocks: records that share one are compared, all others never are.

A number with a tolerance lies in a cell as wide as the tolerance, and its record stands in the
block of this cell and of the next. Two numbers that are near enough lie in one cell or in
neighbours, and so share a block: no rounding can part them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from longline.config.matching import BlockField, Rules, Tolerance
from longline.matching.values import PLAIN, canonical, number, value_at

_SLACK = 1 + 1e-6  # a gap of exactly the tolerance may come out larger by the last bit


@dataclass(frozen=True, slots=True)
class Block:
    """A block, and the finer ones that take its place when it is too large."""

    name: str
    finer: tuple[str, ...] = ()


def blocks_of(data: Mapping[str, Any], rules: Rules) -> frozenset[str]:
    """Return the names of all blocks that a record stands in; none when it says too little."""
    return frozenset(name for block in find_blocks(data, rules) for name in names_of(block))


def names_of(block: Block) -> tuple[str, ...]:
    """Return the name of a block and of the finer ones in it."""
    return (block.name, *block.finer)


def find_blocks(data: Mapping[str, Any], rules: Rules) -> list[Block]:
    """Return the blocks of a record, in every way the rules know."""
    found = []
    for number_of_way, way in enumerate(rules.block):
        for parts in _parts(data, way.fields, rules):
            name = f"{number_of_way}:{'/'.join(parts)}"
            finer = (f"{name}+{'/'.join(more)}" for more in _parts(data, way.finer, rules))
            found.append(Block(name, tuple(finer) if way.finer else ()))
    return found


def _parts(
    data: Mapping[str, Any], fields: Sequence[BlockField], rules: Rules
) -> Iterator[tuple[str, ...]]:
    """Yield the ways in which these fields name a block; none when one is missing."""
    return itertools.product(*(_choices(data, field, rules) for field in fields))


def _choices(data: Mapping[str, Any], field: BlockField, rules: Rules) -> Sequence[str]:
    value = value_at(data, field.field)
    if field.within is None:
        text = canonical(value, rules.normalise.get(field.field, PLAIN))
        return () if text is None else (text,)
    found = number(value)
    return () if found is None else _cells(found, field.within)


def _cells(value: float, within: Tolerance) -> Sequence[str]:
    if within.absolute:
        return _neighbours("", value / (within.absolute * _SLACK))
    if value == 0:
        return ("zero",)  # no share of anything is as small
    # Equal ratios are equal steps of the logarithm.
    width = -math.log1p(-within.relative) * _SLACK
    return _neighbours("" if value > 0 else "-", math.log(abs(value)) / width)


def _neighbours(sign: str, place: float) -> Sequence[str]:
    cell = math.floor(place)
    return (f"{sign}{cell}", f"{sign}{cell + 1}")
