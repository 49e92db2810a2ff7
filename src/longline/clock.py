"""Time as a dependency: whoever waits or dates something is given a clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now(self) -> float:
        """Return the seconds since 1970-01-01 UTC; the same scale in every process."""

    async def sleep(self, seconds: float) -> None:
        """Come back after this many seconds, or at once when they are not positive."""


class SystemClock(Clock):
    """The clock of this machine."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def moment(seconds: float) -> datetime:
    """Return seconds since the epoch as an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, UTC)
