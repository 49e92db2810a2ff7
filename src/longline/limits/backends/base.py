"""StateBackend: named values that several tasks or processes share.

A backend has its own clock, since all processes that share a value must agree on the time; so no
method takes the time. Times in values are seconds since the epoch on that clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

State = TypeVar("State")
Result = TypeVar("Result")
Update = Callable[[State | None, float], tuple[State | None, Result]]
"""Takes the value (None: there is none yet) and the time; returns the new value and a result."""


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
