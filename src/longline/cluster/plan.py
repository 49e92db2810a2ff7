"""What a supervisor tells its Celery worker to be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a Celery worker is to do; `queues` by the names that people use."""

    settings: dict[str, Any]
    name: str
    processes: int
    queues: tuple[str, ...]
    reports: int
    """The pipe that children tell things through."""
    parent: int

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return orjson.dumps(asdict(self)) + b"\n"
