"""Whoever can answer questions about records, and what an answer is before it is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from longline.storage.records.enrichment import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as it was said; `is_cut` when it ended before its end.

    A `note` says why something in it is empty.
    """

    text: str
    tokens: int = 0
    is_cut: bool = False
    note: str | None = None


class Enricher(Protocol):
    """Answers questions; whether an answer fits is judged by others."""

    async def ask(self, question: Question) -> Answer:
        """Ask once, without any retry.

        Raises:
            FetchError: no answer came; its `kind` decides what happens next.
        """

    async def is_up(self) -> bool:
        """Say whether it can be asked at all."""
