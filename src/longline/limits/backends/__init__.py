"""Where the shared state of a policy lives: in this process, a small SQLite file, or Redis.

The keepers on Redis stand in `redis.py` and need an extra, so they are not imported here.
"""

from longline.limits.backends.base import BreakerKeeper, ConcurrencyKeeper, PaceKeeper
from longline.limits.backends.memory import (
    MemoryBreakerKeeper,
    MemoryConcurrencyKeeper,
    MemoryPaceKeeper,
)
from longline.limits.backends.sqlite import (
    SqliteBreakerKeeper,
    SqliteConcurrencyKeeper,
    SqlitePaceKeeper,
)

__all__ = [
    "BreakerKeeper",
    "ConcurrencyKeeper",
    "MemoryBreakerKeeper",
    "MemoryConcurrencyKeeper",
    "MemoryPaceKeeper",
    "PaceKeeper",
    "SqliteBreakerKeeper",
    "SqliteConcurrencyKeeper",
    "SqlitePaceKeeper",
]
