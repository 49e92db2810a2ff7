"""How many items a piece of work holds ahead of those that it has begun."""

from __future__ import annotations

_MOST = 128


class Ahead:
    """Learns it: as many as are begun while more are being taken, twice over.

    Whenever all were begun before more had come, it is twice as many as before: how many would have
    been, nobody knows. So a quick site has several small chunks taken at a time, and a slow one
    never more than it needs.
    """

    def __init__(self, width: int) -> None:
        """Start with as many as can be begun at one moment."""
        self._width = width
        self._count = width
        self._begun = 0
        self._is_dry = False

    def wanted(self, waiting: int) -> int:
        """Return how many more to take when so many wait; 0 when those are enough."""
        return 2 * self._count - waiting if waiting <= self._count else 0

    def item_begun(self) -> None:
        """Note that one more does not wait."""
        self._begun += 1

    def ran_dry(self) -> None:
        """Note that one could have been begun, and none waited."""
        self._is_dry = True

    def start(self) -> None:
        """Note that more are being taken from now on."""
        self._begun, self._is_dry = 0, False

    def learn(self) -> None:
        """Note that they have come."""
        needed = self._width + 2 * self._begun
        if self._is_dry:
            needed = max(needed, 2 * self._count)
        self._count = min(needed, max(self._width, _MOST))
