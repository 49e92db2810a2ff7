"""Which stored answer fits a request: the headers that Vary names, compared by digest.

Values are kept as digests only: a cookie or a key that an answer varies by is not ours to store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from longline.fetching.cache.base import Entry

Variant = tuple[tuple[str, str | None], ...]
_PREFERENCES = frozenset({"accept", "accept-charset", "accept-encoding", "accept-language"})


def variant_of(vary: str, headers: Mapping[str, str]) -> Variant | None:
    """Return what an answer depends on; None when it depends on more than headers (`*`).

    Args:
        vary: the Vary header, all its lines.
        headers: those of the request, by name in lower case.
    """
    names = sorted({name.strip().lower() for name in vary.split(",")} - {""})
    if "*" in names:
        return None
    return tuple((name, _digest(name, headers.get(name))) for name in names)


def select(entries: Iterable[Entry], owner: str, headers: Mapping[str, str]) -> Entry | None:
    """Return the newest stored answer that fits; None when there is none."""
    fitting = [one for one in entries if one.owner == owner and _fits(one.vary, headers)]
    return max(fitting, key=lambda one: one.responded_at, default=None)


def digest(*parts: str) -> str:
    """Return a digest of texts that cannot be turned back."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _fits(vary: Variant, headers: Mapping[str, str]) -> bool:
    return all(value == _digest(name, headers.get(name)) for name, value in vary)


def _digest(name: str, value: str | None) -> str | None:
    return None if value is None else digest(name, _normalised(name, value))


def _normalised(name: str, value: str) -> str:
    """Return the value without differences that cannot matter: white space, order of equals."""
    members = [" ".join(part.split()) for part in value.split(",")]
    if name in _PREFERENCES:  # their weights count, not their order
        members = sorted(member.lower().replace(" ", "") for member in members)
    return ",".join(members)
