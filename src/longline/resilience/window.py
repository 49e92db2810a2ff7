"""How many of the last requests failed: counts by slots of time, so that old ones drop out."""

from __future__ import annotations

from dataclasses import dataclass

SLOTS = 6
"""A window is counted in so many pieces; the oldest drops out whole."""

Successes = tuple[tuple[float, int], ...]
"""Successes as one process hands them over: how many seconds ago, and how many."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that ended within one slot, which begins at `since`, seconds since the epoch."""

    since: float
    succeeded: int = 0
    failed: int = 0


Window = tuple[Counts, ...]


def add(window: Window, at: float, length: float, *, succeeded: int = 0, failed: int = 0) -> Window:
    """Return the window with so many more requests that ended at a moment."""
    since = _slot(at, length)
    slots = {counts.since: counts for counts in window}
    counts = slots.get(since, Counts(since))
    slots[since] = Counts(since, counts.succeeded + succeeded, counts.failed + failed)
    return tuple(slots[moment] for moment in sorted(slots))


def recent(window: Window, now: float, length: float) -> Window:
    """Return what lies within the last `length` seconds, to the slot."""
    return tuple(counts for counts in window if counts.since > now - length)


def totals(window: Window) -> tuple[int, int]:
    """Return how many requests there were, and how many of them failed."""
    failed = sum(counts.failed for counts in window)
    return failed + sum(counts.succeeded for counts in window), failed


class Tally:
    """The successes of one domain in this process that nobody was told of yet."""

    def __init__(self, length: float) -> None:
        self._length = length
        self._slots: dict[float, int] = {}

    def count(self, now: float) -> None:
        """Count one success."""
        since = _slot(now, self._length)
        if since not in self._slots:
            self._forget(now)
        self._slots[since] = self._slots.get(since, 0) + 1

    def take(self, now: float) -> Successes:
        """Return what was counted within the window, and begin anew."""
        self._forget(now)
        taken = tuple((now - since, count) for since, count in self._slots.items())
        self._slots = {}
        return taken

    def _forget(self, now: float) -> None:
        oldest = now - self._length
        self._slots = {since: count for since, count in self._slots.items() if since > oldest}


def _slot(at: float, length: float) -> float:
    return at - at % (length / SLOTS)
