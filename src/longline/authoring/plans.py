"""Plan: what a run would take, as far as that can be known before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Certainty(StrEnum):
    """How well the number of items is known."""

    KNOWN = "known"
    AT_MOST = "at most"
    """A limit was given, and the list goes on."""
    AT_LEAST = "at least"
    """The list goes on, or items lead to more items."""


@dataclass(frozen=True, slots=True)
class DomainPlan:
    """What one domain will be asked; a `rate` of None is unlimited, `pace` says where it is from.

    `seconds` is how long its pace makes the run at least.
    """

    domain: str
    requests: float
    rate: float | None
    burst: int | None
    pace: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How many items and requests, and for how long; what is estimated says so in `notes`.

    `looking` requests find the items; `spent` ones were made to make the plan. `bound` is what the
    run waits for most. `error` is the share by which the duration may be off because items differ.
    """

    source: str
    items: int
    certainty: Certainty
    requests: int
    requests_per_item: float
    fewest_per_item: int
    most_per_item: int
    looking: int
    seconds: float
    error: float
    bound: str
    domains: Sequence[DomainPlan]
    concurrency: int
    spent: int
    samples: int
    notes: Sequence[str] = ()

    @property
    def is_open(self) -> bool:
        """Whether it may take more than is said here, and nobody knows how much."""
        return self.certainty is Certainty.AT_LEAST

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints; what cannot be known is null."""
        told = asdict(self)
        for name in ("items", "requests", "seconds"):
            told[name] = None if self.is_open else getattr(self, name)
            told[f"{name}_at_least"] = getattr(self, name) if self.is_open else None
        return told
