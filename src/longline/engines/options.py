"""How a job is run here, whatever runs it."""

from __future__ import annotations

from dataclasses import dataclass

from longline.config.settings import Settings
from longline.config.spec import JobSpec

_PATIENCE = 900.0  # seconds without a finished item, all parked, until the job is paused


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is run here; none of it changes what is collected.

    `concurrency` is how many items of one domain are worked on at once.
    """

    concurrency: int = 8
    limit: int | None = None
    patience: float = _PATIENCE
    seconds: float | None = None
    """The budget of time; requests look at it themselves, and what is parked is given up then."""
    soft_limit: float = 600.0
    """Seconds that one item may take on a cluster, waits not counted."""


def options_of(settings: Settings, spec: JobSpec) -> RunOptions:
    """Return how a job is run on this machine."""
    return RunOptions(
        concurrency=spec.concurrency or settings.concurrency,
        limit=spec.limit,
        seconds=spec.budget.seconds,
        soft_limit=settings.soft_limit,
    )
