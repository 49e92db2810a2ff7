"""When a server counts as down, and when a budget as spent: policies that are told the time."""

from __future__ import annotations

from dataclasses import dataclass

from longline.config.enriching import EnrichBudget

_LONGEST_REST = 15.0  # seconds; a server that starts again is found out soon after
_SHORTEST_REST = 1.0


@dataclass(slots=True)
class Patience:
    """How long a server has not given any answer, and how long we put up with it."""

    seconds: float
    _since: float | None = None

    def answered(self) -> None:
        """Note that an answer came, whatever is in it."""
        self._since = None

    def failed(self, now: float) -> None:
        """Note that none came."""
        if self._since is None:
            self._since = now

    def is_over(self, now: float) -> bool:
        """Say whether the server has been silent for too long."""
        return self._since is not None and now - self._since >= self.seconds

    def rest(self, now: float) -> float:
        """Return for how many seconds to leave it alone: twice as long each time."""
        silent = 0.0 if self._since is None else now - self._since
        return min(max(silent, _SHORTEST_REST), _LONGEST_REST)


@dataclass(slots=True)
class Purse:
    """What one run has used up."""

    requests: int = 0
    tokens: int = 0

    def exceeded(self, budget: EnrichBudget, seconds: float) -> str | None:
        """Return which limit another question would break, in words; None when it may go."""
        if budget.requests is not None and self.requests >= budget.requests:
            return f"the budget of {budget.requests:,} requests is spent"
        if budget.tokens is not None and self.tokens >= budget.tokens:
            return f"the budget of {budget.tokens:,} tokens is spent"
        if budget.seconds is not None and seconds >= budget.seconds:
            return f"the budget of {budget.seconds:g} s is spent"
        return None
