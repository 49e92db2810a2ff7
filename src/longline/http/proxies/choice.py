"""Scores of a proxy: what is known about it at one domain, or at all domains together."""

from __future__ import annotations

from dataclasses import dataclass

EVERYWHERE = "*"
"""The domain of the score that a proxy has as a whole."""


@dataclass(frozen=True, slots=True)
class Score:
    """How requests through a proxy ended, at one domain or everywhere. Stored as JSON.

    `successes` and `failures` are decayed to the time `at`; `latency` is the average of recent
    successes in seconds. `requests`, `failed` and `bans` are totals. Until `until`, the proxy is in
    quarantine, for `reason`; `quarantines` counts those since it last worked.
    """

    at: float = 0.0
    successes: float = 0.0
    failures: float = 0.0
    latency: float | None = None
    requests: int = 0
    failed: int = 0
    bans: int = 0
    failures_in_a_row: int = 0
    quarantines: int = 0
    until: float | None = None
    is_ban: bool = False
    reason: str = ""

    def is_quarantined(self, now: float) -> bool:
        """Whether no request may use the proxy now."""
        return self.until is not None and now < self.until
