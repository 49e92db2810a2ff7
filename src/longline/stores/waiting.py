"""How long a server that went away is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

from longline.errors import StoreGone
from longline.stores.backend import Backend

_FIRST = 0.05
_LONGEST = 2.0
_LOOK = 0.2  # seconds between looks at whether there is still so much time
_HASTE = 5.0  # seconds for a server to come back once this process is to end

IsHasty = Callable[[], bool]
"""Says whether this process is to end; asked from several threads."""


def never() -> bool:
    """Return False: whoever waits has all the time that there is."""
    return False


class Patience:
    """How long all threads of one database wait for its server.

    Each has its own patience, until the process is to end: from then on a server that is away has
    some seconds to come back, once for all that waits for it.
    """

    def __init__(self, backend: Backend, is_hasty: IsHasty = never) -> None:
        self._backend = backend
        self._is_hasty = is_hasty
        self._away_since: float | None = None
        self._hasty_since: float | None = None

    def answered(self) -> None:
        """Note that the server is there."""
        self._away_since = None

    def until(self, begun: float) -> float:
        """Return until when to wait for a server that has been waited for since `begun`."""
        end = begun + self._backend.patience
        away = self._away_since = self._away_since or begun
        if not self._is_hasty():
            return end
        self._hasty_since = self._hasty_since or time.monotonic()
        return min(end, max(away, self._hasty_since) + _HASTE)

    def gone(self, begun: float, problem: str) -> StoreGone:
        """Return the error of one who has waited in vain since `begun`."""
        waited = round(time.monotonic() - (self._away_since or begun))
        return StoreGone(self._backend.address, problem, min(waited, self._backend.patience))


class Waiting:
    """Pauses that grow, from the first failure of one transaction until the patience is over."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._pause = _FIRST
        self._begun: float | None = None

    def pause(self, error: Exception, problem: str) -> None:
        """Sleep in this thread.

        Raises:
            StoreGone: the patience is over.
        """
        now = time.monotonic()
        begun = self._begun = self._begun or now
        if now >= self._patience.until(begun):
            raise self._patience.gone(begun, problem) from error
        wake = now + self._pause
        while (left := min(wake, self._patience.until(begun)) - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK))
        self._pause = min(self._pause * 2, _LONGEST)
