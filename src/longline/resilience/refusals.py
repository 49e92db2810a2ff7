"""Decide whether a refusal (429) is about the whole domain or about one address of it.

A refusal stops its domain, until there is evidence that it is only the address: the same address
is refused again and again while requests for others succeed. One address is not worth a domain
that rests for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

_PROOF = 3
"""Requests for other addresses that succeed, for each address that was refused in the meantime."""
_MEMORY = 3600.0  # seconds for which an address is remembered after its last refusal
_MOST = 200  # addresses of one domain that are remembered


@dataclass(frozen=True, slots=True)
class Refusals:
    """The addresses of one domain that were refused: when first, when last, and how often."""

    addresses: Mapping[str, Sequence[float]] = field(default_factory=dict)


def note(state: Refusals | None, url: str, now: float) -> Refusals:
    """Note that a request for an address was refused."""
    known = state.addresses if state else {}
    recent = {mark: one for mark, one in known.items() if now - one[1] <= _MEMORY}
    first, _, count = recent.get(_mark(url), (now, now, 0))
    recent[_mark(url)] = (first, now, count + 1)
    latest = sorted(recent, key=lambda mark: recent[mark][1])[-_MOST:]
    return Refusals({mark: recent[mark] for mark in latest})


def forget(state: Refusals | None, url: str) -> Refusals | None:
    """Forget that an address was refused: a request for it succeeded."""
    if state is None:
        return None
    mark = _mark(url)
    return Refusals({other: one for other, one in state.addresses.items() if other != mark})


def is_about_address(state: Refusals, url: str, successes: Iterable[float]) -> bool:
    """Say whether only this address is refused, and not its domain.

    Args:
        state: what is known, this refusal included.
        url: the address that was refused.
        successes: when requests for other addresses of the domain were sent that succeeded.
    """
    first, _, count = state.addresses[_mark(url)]
    others = sum(one[1] >= first for one in state.addresses.values()) - 1
    # Of a domain that refuses many, the same address may be hit twice by chance.
    if count < (3 if others else 2):
        return False
    return sum(at > first for at in successes) >= _PROOF * (1 + others)


def times(state: Refusals, url: str) -> int:
    """Return how often an address was refused."""
    return int(state.addresses[_mark(url)][2])


def _mark(url: str) -> str:
    return blake2b(url.encode(errors="replace"), digest_size=8).hexdigest()
