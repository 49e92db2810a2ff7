"""Which domains are not worth asking now: their items stay in the queue, untouched."""

from __future__ import annotations

from collections.abc import Mapping

from longline.errors import FailureKind
from longline.model import Outcome, Verdict
from longline.stores.queue import Waiting

_OF_BREAKERS = (FailureKind.NETWORK, FailureKind.BLOCKED)


class Rests:
    """The domains that are known to rest, until when, and which of them have banned us."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._blocks: dict[str, str] = {}
        self._broken: set[str] = set()

    def note(self, domain: str, outcome: Outcome) -> None:
        """Learn from the end of a try."""
        if outcome.verdict is not Verdict.LATER or not outcome.is_for_domain:
            return
        self._until[domain] = max(outcome.due or 0.0, self._until.get(domain, 0.0))
        if outcome.kind in _OF_BREAKERS:
            self._broken.add(domain)
        if outcome.kind is FailureKind.BLOCKED:
            self._blocks[domain] = outcome.reason or f"{domain} blocks us"

    def is_resting(self, domain: str, now: float) -> bool:
        """Say whether a domain is not worth asking now."""
        return self._until.get(domain, 0.0) > now

    def broken(self) -> list[str]:
        """Return the domains that rest because of their breaker, as far as can be told."""
        return sorted(self._broken)

    def forget(self, domain: str) -> None:
        """Let a domain be asked again."""
        self._until.pop(domain, None)
        self._blocks.pop(domain, None)
        self._broken.discard(domain)

    def resting(self, now: float) -> frozenset[str]:
        """Return the domains that rest now; what is over is forgotten."""
        for domain in [name for name, until in self._until.items() if until <= now]:
            self.forget(domain)
        return frozenset(self._until)

    def next_due(self, waiting: Mapping[str, Waiting]) -> float | None:
        """Return when the next queued item can be begun; None when none is queued."""
        dues = (max(one.due, self._until.get(name, 0.0)) for name, one in waiting.items())
        return min(dues, default=None)

    def block(self, waiting: Mapping[str, Waiting], now: float) -> str | None:
        """Return why nothing can be done for long: all that waits, waits for a ban to end.

        None when there is anything else to wait for.
        """
        reasons = [
            self._blocks.get(name) or (one.block if one.due > now else None)
            for name, one in waiting.items()
        ]
        return "; ".join(sorted({str(one) for one in reasons})) if all(reasons) else None
