"""Backends of limits as tests want them: in memory, or in a file of their own that they close."""

from __future__ import annotations

from pathlib import Path

from longline.core.clock import Clock
from longline.limits.backends.sqlite import SqliteStateBackend, SqliteStateFile
from longline.limits.backends.state import MemoryStateBackend, State
from longline.limits.concurrency import ConcurrencyBackend, InFlight
from longline.limits.rate_limit import BucketState, RateLimitBackend


class MemoryRateLimitBackend(RateLimitBackend):
    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStateBackend(clock))


class MemoryConcurrencyBackend(ConcurrencyBackend):
    def __init__(self, clock: Clock) -> None:
        super().__init__(MemoryStateBackend(clock))


class SqliteRateLimitBackend(RateLimitBackend):
    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SqliteStateFile(path, clock)
        super().__init__(self._file.backend("pace", BucketState))

    async def close(self) -> None:
        await self._file.close()


class SqliteConcurrencyBackend(ConcurrencyBackend):
    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = SqliteStateFile(path, clock)
        super().__init__(self._file.backend("crowd", InFlight))

    async def close(self) -> None:
        await self._file.close()


class SqliteStates(SqliteStateBackend[State]):
    def __init__(self, path: Path, group: str, kind: type[State], clock: Clock) -> None:
        self._owned = SqliteStateFile(path, clock)
        super().__init__(self._owned, group, kind)

    async def close(self) -> None:
        await self._owned.close()
