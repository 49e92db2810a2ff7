"""StateBackend: named values that several tasks or processes share, and the one in memory.

A backend has its own clock, since all processes that share a value must agree on the time; so no
method takes the time. Times in values are seconds since the epoch on that clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from longline.core.clock import Clock

State = TypeVar("State")
Result = TypeVar("Result")
Update = Callable[[State | None, float], tuple[State | None, Result]]
"""Takes the value (None: there is none yet) and the time; returns the new value and a result."""


def returning(make: Callable[[State | None, float], State]) -> Update[State, State]:
    """Return an update whose result is the new value."""

    def update(value: State | None, now: float) -> tuple[State, State]:
        changed = make(value, now)
        return changed, changed

    return update


class StateBackend(Protocol[State]):
    """Named values of one dataclass."""

    async def change(self, name: str, update: Update[State, Result]) -> Result:
        """Replace a value atomically; an unchanged value is not written.

        `update` may run several times, and in another thread.
        """

    async def read(self, name: str) -> tuple[State | None, float]:
        """Return a value, and the time."""

    async def all(self) -> dict[str, State]:
        """Return every value by its name."""

    async def forget(self, name: str) -> bool:
        """Delete a value; return False when there was none."""


class StateBackends(Protocol):
    """All backends of one server or file; what a plugin of `longline.backends` returns."""

    def backend(self, group: str, kind: type[State]) -> StateBackend[State]:
        """Return the values of one group, which are instances of the dataclass `kind`."""

    async def close(self) -> None:
        """Release what was opened."""


# ---------------- Shared state in this process only: for tests, and for limits that need not


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
