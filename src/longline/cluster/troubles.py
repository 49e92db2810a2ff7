"""Troubles that pass: told at once, again every ten seconds, and once more when they are over."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis.exceptions import RedisError

from longline.errors import BrokerUnreachable, StoreTooNew, StoreUnreachable
from longline.resilience.keepers.redis_causes import lasting_cause

_EVERY = 10.0  # seconds
_REFUSALS = ("password", "authentication", "does not exist", "permission denied", "no pg_hba")


class Troubles:
    """What does not work at the moment, by name."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[str, float] = {}

    def tell(self, name: str, text: str) -> None:
        """Tell of a trouble, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._told.get(name, -_EVERY) >= _EVERY:
            self._told[name] = now
            self._say(f"{text}; waiting")

    def over(self, name: str, text: str) -> None:
        """Tell that a trouble is over, if there was one."""
        if self._told.pop(name, None) is not None:
            self._say(text)


def is_lasting(error: Exception) -> bool:
    """Say whether waiting does not help: a password, a version or a name is wrong."""
    if isinstance(error, BrokerUnreachable):
        cause: BaseException | None = error.__cause__
        while cause is not None and not isinstance(cause, RedisError):
            cause = cause.__cause__  # Kombu puts an error of its own around it
        return isinstance(cause, RedisError) and lasting_cause(cause) is not None
    if isinstance(error, StoreUnreachable):
        # A file is there or it is not; a server may still come up.
        is_file = error.address.startswith("sqlite")
        return is_file or any(sign in error.problem for sign in _REFUSALS)
    return isinstance(error, StoreTooNew)
