"""The result of a proof: measured values, their targets, and whether it passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the proofs; the defaults are those of the documented results."""

    requests: int = 200
    learning: int = 150
    kills: int = 100
    kill_items: int = 2000
    writers: int = 10
    writer_items: int = 200
    catalogue: int = 6022
    queued: int = 100_000
    corpus: Path | None = None
    seed: int = 1
    cluster_kills: int = 120
    cluster_requests: int = 120
    poison_items: int = 300
    poison_rounds: int = 3
    cluster_writers: int = 10
    cluster_items: int = 5000
    cluster_jobs: int = 10_000
    throughput_items: int = 2000
    throughput_rounds: int = 5
    lives: int = 10
    stall: float = 30.0
    invocations: int = 1200
    recovery_sources: int = 50
    recovery_minutes: float = 10.0
    schedules: int = 500
    schedule_days: int = 30
    schedule_parts: int = 2
    flow_trials: int = 340
    proxied_pages: int = 2000
    files: int = 10_000
    file_kills: int = 40
    file_bytes: int = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; without a target (`holds` is None) it is only reported."""

    name: str
    value: str
    bar: str = ""
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """One proof that was run; `about` describes what was done."""

    name: str
    about: str
    figures: Sequence[Figure]

    @property
    def is_passed(self) -> bool:
        """Whether no target was missed."""
        return all(figure.holds is not False for figure in self.figures)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A proof that could not be run here, and why."""

    name: str
    reason: str


def unjudged(name: str, value: object) -> Figure:
    """Return a value without a target."""
    return Figure(name, str(value))


def none(name: str, count: int) -> Figure:
    """Return a count that must be zero."""
    return Figure(name, f"{count:,}", "0", count == 0)


def exactly(name: str, value: int, wanted: int) -> Figure:
    """Return a count that must be met."""
    return Figure(name, f"{value:,}", f"{wanted:,}", value == wanted)


def at_least(name: str, value: float, bar: float) -> Figure:
    """Return a value with a minimum."""
    return Figure(name, f"{value:,g}", f"≥ {bar:,g}", value >= bar)


def at_most(name: str, value: float, bar: float, unit: str = "") -> Figure:
    """Return a value with a maximum."""
    ending = f" {unit}" if unit else ""
    return Figure(name, f"{value:,.4g}{ending}", f"≤ {bar:,g}{ending}", value <= bar)


def nothing_wrong(name: str, problems: Sequence[str]) -> Figure:
    """Return a list of problems, which must be empty."""
    shown = "; ".join(problems[:5]) + ("; …" if len(problems) > 5 else "")  # noqa: PLR2004  # enough to begin with
    return Figure(name, shown or "yes", "yes", not problems)
