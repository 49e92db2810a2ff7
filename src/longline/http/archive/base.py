"""Archive: the responses that sources received, kept so that extraction can be repeated."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from longline.core.errors import FetchError
from longline.http.messages import Page, Request


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job received for a request, and when: a page, or the error in its place."""

    job: str
    request: Request
    result: Page | FetchError
    at: float


@dataclass(frozen=True, slots=True)
class Totals:
    """The size of an archive; bytes are those on disk."""

    files: int
    size_bytes: int
    answers: int
    bodies: int
    failures: int
    jobs: int


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """The result of a verification, a sentence each; notes are harmless."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Archive(Protocol):
    """Keeps all answers of all jobs of a home."""

    def keep(self, answer: Answer) -> Awaitable[None]:
        """Add an answer; awaiting the result waits until it survives the end of this process.

        It is written in any case. Awaiting raises StoreError when it could not be written.
        """

    async def find(
        self, job: str, request: Request, *, until: float | None = None
    ) -> Answer | None:
        """Return the newest answer to a request in a job; None without one.

        Args:
            job: its id.
            request: as the source made it: method, URL, headers and body count.
            until: a time; the newest answer up to then, or, if all are later, the newest of all.
        """

    async def count(self, job: str) -> int:
        """Return the number of answers of a job."""

    async def totals(self) -> Totals:
        """Return the size of the archive."""

    async def verify(self) -> ArchiveCheck:
        """Read all files; return what is damaged or missing."""

    async def close(self) -> None:
        """Close the files; what was kept is already written."""
