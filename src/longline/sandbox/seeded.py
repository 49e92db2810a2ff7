"""Seeded choices: the same seed and subject always give the same result, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import TypeVar

T = TypeVar("T")

_BITS = 64


def draw(seed: int, subject: str, key: object) -> int:
    """Return 64 bits that depend on these three and on nothing else."""
    # Python's own hash() of a text differs from process to process.
    text = f"{seed}:{subject}:{key}"
    return int.from_bytes(blake2b(text.encode(), digest_size=_BITS // 8).digest(), "big")


def chance(seed: int, subject: str, key: object) -> float:
    """Return a number from 0 to just under 1."""
    return draw(seed, subject, key) / 2.0**_BITS


def stream(seed: int, subject: str, key: object) -> Random:
    """Return a source of many draws."""
    return Random(draw(seed, subject, key))


class Picks:
    """A few choices out of one draw: much cheaper to make than a stream."""

    def __init__(self, number: int) -> None:
        self._left = number

    def below(self, limit: int) -> int:
        """Return a number from 0 to just under `limit`."""
        self._left, number = divmod(self._left, limit)
        return number

    def of(self, things: Sequence[T]) -> T:
        """Return one of these."""
        return things[self.below(len(things))]
