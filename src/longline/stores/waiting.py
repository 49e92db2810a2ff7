"""How long a server that went away is waited for."""

from __future__ import annotations

import time

from longline.errors import StoreGone
from longline.stores.backend import Backend

_FIRST = 0.05
_LONGEST = 2.0


class Waiting:
    """Pauses that grow, from the first failure until the patience is over."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._pause = _FIRST
        self._until: float | None = None

    def pause(self, error: Exception, problem: str) -> None:
        """Sleep in this thread.

        Raises:
            StoreGone: the patience is over.
        """
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._backend.patience
        if now >= self._until:
            raise StoreGone(self._backend.address, problem, self._backend.patience) from error
        time.sleep(min(self._pause, self._until - now))
        self._pause = min(self._pause * 2, _LONGEST)
