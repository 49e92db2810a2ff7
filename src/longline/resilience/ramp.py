"""Coming back gradually: after a rest, requests return at 1, 2, 4, 8 … a second."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ramp:
    """How far a domain has come back.

    It begins with the first request (`began`; None is not yet), not with the end of the rest:
    those who wait look again some seconds later, and all at once. `free_at` is when the next
    request may go, `turned_away` counts who came too early since the last one went.
    """

    seconds: float
    began: float | None = None
    free_at: float = 0.0
    turned_away: int = 0

    def is_over(self, now: float) -> bool:
        """Whether requests go freely again."""
        return self.began is not None and now >= self.began + self.seconds

    def ask(self, now: float) -> tuple[Ramp, float]:
        """Return the ramp after one request asked, and when that may go: now, or later."""
        began = now if self.began is None else self.began
        if now >= self.free_at:
            return Ramp(self.seconds, began, now + 2.0 ** (began - now)), now
        # Each is sent away for as long as those before it need at the doubling speed, so that
        # they come back one by one.
        before = self.turned_away * math.log(2) * 2.0 ** (began - self.free_at)
        due = self.free_at + math.log2(1 + before)
        return Ramp(self.seconds, began, self.free_at, self.turned_away + 1), due
