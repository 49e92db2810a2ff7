"""Where the shared state of a policy lives: in this process, a small SQLite file, or Redis.

The Redis backends are in `redis.py`. They need an extra, so they are not imported here.
"""

from longline.limits.backends.base import BreakerBackend, ConcurrencyBackend, RateLimitBackend
from longline.limits.backends.memory import (
    MemoryBreakerBackend,
    MemoryConcurrencyBackend,
    MemoryRateLimitBackend,
)
from longline.limits.backends.sqlite import (
    SqliteBreakerBackend,
    SqliteConcurrencyBackend,
    SqliteFile,
    SqliteRateLimitBackend,
)

__all__ = [
    "BreakerBackend",
    "ConcurrencyBackend",
    "MemoryBreakerBackend",
    "MemoryConcurrencyBackend",
    "MemoryRateLimitBackend",
    "RateLimitBackend",
    "SqliteBreakerBackend",
    "SqliteConcurrencyBackend",
    "SqliteFile",
    "SqliteRateLimitBackend",
]
