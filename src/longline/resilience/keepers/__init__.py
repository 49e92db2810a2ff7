"""Where the shared state of a policy lives: in this process, or in a small SQLite file."""

from longline.resilience.keepers.base import BreakerKeeper, PaceKeeper
from longline.resilience.keepers.memory import MemoryBreakerKeeper, MemoryPaceKeeper
from longline.resilience.keepers.sqlite import SqliteBreakerKeeper, SqlitePaceKeeper

__all__ = [
    "BreakerKeeper",
    "MemoryBreakerKeeper",
    "MemoryPaceKeeper",
    "PaceKeeper",
    "SqliteBreakerKeeper",
    "SqlitePaceKeeper",
]
