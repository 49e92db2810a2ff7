"""How a run of an enrichment task stands and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from longline.model import QuestionState
from longline.stores.asking import OPEN_QUESTIONS


class PhaseState(StrEnum):
    """How a run ended; what is paused, limited or interrupted goes on when it is run again."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    PAUSED = "paused"
    LIMITED = "limited"
    INTERRUPTED = "interrupted"


_EXIT_CODES = {
    PhaseState.COMPLETE: 0,
    PhaseState.PARTIAL: 3,
    PhaseState.PAUSED: 4,
    PhaseState.LIMITED: 0,  # somebody wanted no more than this
    PhaseState.INTERRUPTED: 130,
}


@dataclass(frozen=True, slots=True)
class PhaseProgress:
    """How far a task is: its records by state, and what this run took until now."""

    task: str
    records: Mapping[str, int]
    requests: int
    tokens: int
    seconds: float

    @property
    def total(self) -> int:
        """How many records ask something."""
        return sum(self.records.values())

    @property
    def open(self) -> int:
        """How many records have neither an answer nor a reason why not."""
        return sum(self.records.get(state, 0) for state in OPEN_QUESTIONS)


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """How a run ended; a `reason` says why it did not go on."""

    state: PhaseState
    progress: PhaseProgress
    reason: str | None = None

    @property
    def exit_code(self) -> int:
        """What a command says at its end."""
        return _EXIT_CODES[self.state]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values, ready for JSON."""
        figures = asdict(self.progress)
        by_state = {state.value: figures["records"].get(state, 0) for state in QuestionState}
        return {**figures, "state": self.state.value, "reason": self.reason, "records": by_state}
