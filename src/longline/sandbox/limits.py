"""How many requests the practice web takes from each client: an exact token bucket."""

from __future__ import annotations


class TokenBucket:
    """Starts full, is refilled all the time, and never grants a token it does not have."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = now

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._refill(now)
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate
        self._tokens -= 1.0
        return 0.0

    def _refill(self, now: float) -> None:
        elapsed = now - self._filled_at
        if elapsed <= 0.0:  # the wall clock was set back
            return
        self._tokens = min(float(self._burst), self._tokens + elapsed * self._rate)
        self._filled_at = now


class Limits:
    """A bucket for each client; `rate` is in requests a second, None lets everything pass."""

    def __init__(self, rate: float | None, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, client: str, now: float) -> float:
        """Let one request of this client pass and return 0, or return how long it must wait."""
        if self._rate is None:
            return 0.0
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(self._rate, self._burst, now)
        return bucket.take(now)
