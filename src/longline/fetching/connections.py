"""Limit concurrent connections: a pool for each host, and one total that file descriptors bound."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, deque

_LARGEST_TOTAL = 4096
_SMALLEST_TOTAL = 64


class ConnectionLimit:
    """Connections in flight, of all jobs of a process.

    A host may have half of them, so hosts that hang hold up only themselves. When three quarters
    are in use, the rest is for hosts without any connection: each of them gets one before a busy
    host gets another.

    Args:
        total: Connections at the same time; by default half of the file descriptors that this
            process may open (the other half is for idle connections, databases and files).
    """

    def __init__(self, total: int | None = None) -> None:
        self._total = _affordable() if total is None else total
        self._per_host = max(1, self._total // 2)
        self._shared = self._total - self._total // 4
        self._in_flight: Counter[str] = Counter()
        self._sum = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def try_acquire(self, host: str) -> bool:
        """Take a connection of a host if one is free and no earlier request waits for it."""
        if host in self._waiting or not self._is_free(host):
            return False
        self._take(host)
        return True

    async def acquire(self, host: str) -> None:
        """Wait for a connection of a host; requests of one host are served in order."""
        if self.try_acquire(host):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(host)  # granted at the same time as the cancellation
            raise

    def release(self, host: str) -> None:
        """Return a connection; the waiting host with the fewest connections is served first."""
        self._in_flight[host] -= 1
        self._sum -= 1
        if not self._in_flight[host]:
            del self._in_flight[host]
        if self._waiting:
            self._serve_next()

    def _is_free(self, host: str) -> bool:
        held = self._in_flight[host]
        return held < self._per_host and self._sum < (self._shared if held else self._total)

    def _take(self, host: str) -> None:
        self._in_flight[host] += 1
        self._sum += 1

    def _serve_next(self) -> None:
        while free := [host for host in self._waiting if self._is_free(host)]:
            host = min(free, key=lambda name: self._in_flight[name])
            queue = self._waiting[host]
            turn = queue.popleft()
            if not queue:
                del self._waiting[host]
            if not turn.done():  # else it was cancelled
                self._take(host)
                turn.set_result(None)
                return


def _affordable() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _LARGEST_TOTAL
    return max(_SMALLEST_TOTAL, min(soft // 2, _LARGEST_TOTAL))
