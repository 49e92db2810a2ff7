"""How often to look at what takes long to look at, so that looking never becomes the work."""

from __future__ import annotations

SHARE = 10  # times as long as a look has taken is the rest after it
_LONGEST = 60.0


def rest_after(seconds: float, *, every: float = 0.0) -> float:
    """Return how long to wait before the next look, after one that took so many seconds.

    That is `every` so many seconds while a look is quick, and a minute at most.
    """
    return max(every, min(SHARE * seconds, _LONGEST))
