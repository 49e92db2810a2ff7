"""Counters of the requests that the practice web received."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tally:
    """Counts since the start.

    `requests` leaves out the video stand-in, which `youtube` counts. A dropped connection has a
    fault but no status, so `requests` is the sum of both once every answer is out.
    """

    requests: int = 0
    rate_limited: int = 0
    youtube: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)

    def arrived(self, path: str) -> None:
        """Count a request."""
        self.requests += 1
        self.hits[path] += 1

    def arrived_at_youtube(self, path: str) -> None:
        """Count a request to the video stand-in."""
        self.youtube += 1
        self.hits[path] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the counters for JSON."""
        return {
            "requests": self.requests,
            "rate_limited": self.rate_limited,
            "youtube": self.youtube,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "faults": dict(sorted(self.faults.items())),
            "hits": dict(sorted(self.hits.items())),
        }
