"""Keepers for one process: for tests, and where nothing has to outlive a run."""

from __future__ import annotations

from longline.core.clock import Clock
from longline.limits.backends.cells import (
    Answer,
    CellBreakerBackend,
    CellConcurrencyBackend,
    CellRateLimitBackend,
    Cells,
    State,
    Step,
)
from longline.limits.breaker import BreakerState
from longline.limits.concurrency import InFlight
from longline.limits.rate_limit import BucketState


class MemoryCells(Cells[State]):
    """Values in a dict; atomic because no step ever waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, State] = {}

    async def change(self, name: str, step: Step[State, Answer]) -> Answer:
        value, answer = step(self._values.get(name), self._clock.now())
        if value is not None:
            self._values[name] = value
        return answer

    async def read(self, name: str) -> tuple[State | None, float]:
        return self._values.get(name), self._clock.now()

    async def all(self) -> dict[str, State]:
        return dict(self._values)

    async def forget(self, name: str) -> bool:
        return self._values.pop(name, None) is not None


class MemoryRateLimitBackend(CellRateLimitBackend):
    """Buckets that end with the process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryCells[BucketState](clock))


class MemoryBreakerBackend(CellBreakerBackend):
    """Breakers that end with the process."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryCells[BreakerState](clock), freshness=0.0)


class MemoryConcurrencyBackend(CellConcurrencyBackend):
    """Who is inside, as far as this process knows."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryCells[InFlight](clock))
