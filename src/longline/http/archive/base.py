"""Archive: every answer that a source was given, kept so that extraction can be repeated."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from longline.core.errors import FetchError
from longline.http.messages import Page, Request


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job was given for a request, and when: a page, or the error in its place."""

    job: str
    request: Request
    result: Page | FetchError
    at: float


@dataclass(frozen=True, slots=True)
class Totals:
    """How much an archive holds; bytes as they are on disk."""

    files: int
    size_bytes: int
    answers: int
    bodies: int
    failures: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look at a whole archive found, a sentence each; notes are no reason to worry."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Archive(Protocol):
    """Keeps all answers of all jobs of a home."""

    def keep(self, answer: Answer) -> Awaitable[None]:
        """Add an answer; once what this returns is awaited, it survives the end of this process.

        Nobody has to wait: it is written in any case. Whoever does is told by a StoreError that it
        could not be kept.
        """

    async def find(
        self, job: str, request: Request, *, until: float | None = None
    ) -> Answer | None:
        """Return the newest answer to a request in a job; None when there is none.

        Args:
            job: its id.
            request: as the source made it: method, address, headers and body count.
            until: a moment; the newest answer up to then is meant, or, if all came later, the
                newest of all.
        """

    async def count(self, job: str) -> int:
        """Return how many answers of a job there are."""

    async def totals(self) -> Totals:
        """Return how much there is."""

    async def verify(self) -> Findings:
        """Read everything there is; return what is wrong with it, and what is gone."""

    async def close(self) -> None:
        """Let go of the files; what was kept is safe already."""
