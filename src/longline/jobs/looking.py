"""How often to look at what takes long to look at, so that looking never becomes the work."""

from __future__ import annotations

SHARE = 10
"""Times as long as a look has taken rests one whom nobody watches."""
_SHARE_WATCHED = 3  # times, where a person does; a busy run alone makes looks slow
_LONGEST = 15.0  # seconds: after them a person would take it to be dead


def rest_after(seconds: float, *, every: float = 0.0) -> float:
    """Return how long to wait before the next look, after one that took so many seconds.

    That is `every` so many seconds while a look is quick, and a quarter of a minute at most.
    """
    return max(every, min(_SHARE_WATCHED * seconds, _LONGEST))
