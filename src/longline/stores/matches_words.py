"""The words of matching: records on their way into blocks, pairs of them, and what joins them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

CONFIRMED, REJECTED = "confirmed", "rejected"


@dataclass(frozen=True, slots=True)
class Entry:
    """A record, the version of it that is compared, its blocks, and how many fields it has."""

    record: int
    version: int
    blocks: Collection[str]
    known: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records by id, the smaller first, and by the versions that were compared."""

    left: int
    right: int
    versions: tuple[int, int]
    score: float
    is_match: bool
    evidence: Sequence[dict[str, Any]]


Judge = Callable[[dict[str, Any], dict[str, Any]], Pair | None]
"""Takes the rows of two records; answers with a pair when they cannot be the same."""


@dataclass(frozen=True, slots=True)
class Deposit:
    """The records of a batch and the pairs that were found of them.

    `judge` is asked of records that others join: a third must not glue what contradicts.
    """

    kind: str
    mark: str
    entries: Sequence[Entry]
    pairs: Sequence[Pair]
    judge: Judge
    at: float


@dataclass(frozen=True, slots=True)
class Settled:
    """What a deposit left behind: pairs that match, and groups too large to be looked through."""

    matched: int
    oversized: int


@dataclass(frozen=True, slots=True)
class Decided:
    """A person's word on a pair, and what the rules say of it."""

    kind: str
    left: int
    right: int
    decision: str
    at: float
    deposit: Deposit | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A pair without its evidence."""

    left: int
    right: int
    score: float
    is_match: bool
    decision: str | None

    @property
    def joins(self) -> bool:
        """Whether the two count as the same thing; a person's word is the last one."""
        return self.is_match if self.decision is None else self.decision == CONFIRMED
