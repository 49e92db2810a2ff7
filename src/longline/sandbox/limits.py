"""The rate limit of the practice web per client: an exact token bucket."""

from __future__ import annotations


class TokenBucket:
    """A token bucket that starts full and is refilled continuously."""

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
    """A bucket for each client; `rate` is in requests per second, None is unlimited."""

    def __init__(self, rate: float | None, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, client: str, now: float) -> float:
        """Admit one request of this client and return 0, or return its wait in seconds."""
        if self._rate is None:
            return 0.0
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(self._rate, self._burst, now)
        return bucket.take(now)
