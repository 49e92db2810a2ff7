"""What a cache keeps of an answer, and what every place for answers can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from multidict import CIMultiDictProxy

LIMIT_BYTES = 1_000_000_000
LARGEST_PART = 10  # one answer takes at most a tenth of the cache
_OVERHEAD_BYTES = 200  # a row beside its texts


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored answer without its body.

    `owner` is a digest of the secrets the request carried, so that nobody is given the answer of
    another. `vary` pairs the request headers that the answer depends on with digests of their
    values, None for a header that was not sent. `saved_at` names the version of the body.
    """

    url: str
    owner: str
    vary: tuple[tuple[str, str | None], ...]
    status: int
    headers: CIMultiDictProxy[str]
    requested_at: float
    responded_at: float
    saved_at: float
    used_at: float

    @property
    def place(self) -> tuple[str, tuple[tuple[str, str | None], ...]]:
        """What tells it from the other answers of its address."""
        return self.owner, self.vary


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How full a cache is; `oldest` and `newest` say when the answers were stored."""

    entries: int
    size_bytes: int
    limit_bytes: int
    oldest: float | None = None
    newest: float | None = None


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed from a cache."""

    entries: int
    size_bytes: int


class HttpCache(Protocol):
    """Keeps answers up to a size and gives up those that were not used for the longest time.

    Nothing waits: what is stored is found at once, and on disk a moment later.

    Raises:
        StoreError: from any method; the cache is of no use any more, requests go on without.
    """

    def find(self, url: str) -> Sequence[Entry]:
        """Return all that is stored of an address."""

    def read(self, entry: Entry, now: float) -> bytes | None:
        """Return the body, and note that it was used; None when it has gone or was replaced."""

    def put(self, entry: Entry, body: bytes | None) -> None:
        """Store an answer in its place; without a body, only refresh the entry that is there."""

    def drop(self, url: str, entry: Entry | None = None) -> None:
        """Forget one answer of an address, or all."""

    def stats(self) -> CacheStats:
        """Count what is stored."""

    def clear(self, domain: str | None = None) -> Cleared:
        """Forget all answers of a host (with any port, unless one is named), or of every host."""


def size_of(entry: Entry, body: bytes) -> int:
    """Return the bytes that an answer counts for."""
    headers = len("".join(entry.headers)) + len("".join(entry.headers.values()))
    return len(body) + headers + len(entry.url) + _OVERHEAD_BYTES


def is_of(domain: str, wanted: str) -> bool:
    """Say whether a host with port is the wanted host."""
    return wanted.lower() in (domain, domain.rpartition(":")[0])
