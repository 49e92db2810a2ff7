"""Shared state in this process only: for tests, and for limits that need not outlive a run."""

from __future__ import annotations

from longline.core.clock import Clock
from longline.limits.backends.base import Result, State, StateBackend, Update


class MemoryStateBackend(StateBackend[State]):
    """Values in a dict; atomic because no update awaits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, State] = {}

    async def change(self, name: str, update: Update[State, Result]) -> Result:
        value, result = update(self._values.get(name), self._clock.now())
        if value is not None:
            self._values[name] = value
        return result

    async def read(self, name: str) -> tuple[State | None, float]:
        return self._values.get(name), self._clock.now()

    async def all(self) -> dict[str, State]:
        return dict(self._values)

    async def forget(self, name: str) -> bool:
        return self._values.pop(name, None) is not None
