"""Times at which the URLs of a practice web were requested."""

from __future__ import annotations

import asyncio
import bisect
import re
import time
from collections import Counter

_ITEM = re.compile(r"/api/templates/workflows/(\d+)")


class Arrivals(Counter[str]):
    """The hits of a practice web's tally, with their times.

    `first` is set when the next request arrives, whatever it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = asyncio.Event()
        self._moments: list[float] = []
        self._paths: list[str] = []

    def __setitem__(self, path: str, count: int) -> None:
        super().__setitem__(path, count)
        self._moments.append(time.monotonic())
        self._paths.append(path)
        self.first.set()

    def items_asked(self) -> Counter[str]:
        """Return how often each item was requested."""
        return Counter(key for path in self._paths if (key := _key(path)))

    def items_between(self, start: float, end: float) -> Counter[str]:
        """Return how often each item was requested between two times."""
        return Counter(key for _, path in self._between(start, end) if (key := _key(path)))

    def first_between(self, start: float, end: float) -> float | None:
        """Return the time of the first request between two times."""
        return next((moment for moment, _ in self._between(start, end)), None)

    def first_item_between(self, start: float, end: float) -> float | None:
        """Return the time at which the first item was requested between two times."""
        return next((at for at, path in self._between(start, end) if _key(path)), None)

    def _between(self, start: float, end: float) -> list[tuple[float, str]]:
        low = bisect.bisect_left(self._moments, start)
        high = bisect.bisect_right(self._moments, end)
        return list(zip(self._moments[low:high], self._paths[low:high], strict=True))


def _key(path: str) -> str | None:
    found = _ITEM.fullmatch(path)
    return found[1] if found else None
