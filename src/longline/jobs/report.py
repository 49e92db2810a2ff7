"""How a run ended: the counts that add up, for people, programs and exit codes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from longline.jobs.progress import Progress
from longline.model import Caveats, ItemState, JobState

_EXIT_CODES = {
    JobState.COMPLETE: 0,
    JobState.FAILED: 1,
    JobState.PARTIAL: 3,
    JobState.PAUSED: 4,
    JobState.CANCELLED: 4,
}
INTERRUPTED = 130
_UNWRITTEN = 2


@dataclass(frozen=True, slots=True)
class JobReport:
    """The end of one run of a job."""

    progress: Progress
    seconds: float
    reason: str | None = None
    output: str | None = None
    is_interrupted: bool = False
    closed_host: str | None = None
    """The host whose robots.txt stopped it: going on needs an override for it."""
    caveats: Caveats = field(default_factory=Caveats)
    """What was cut, warned of and limited: what the counts alone do not say."""
    unwritten: str | None = None
    """Why its records are not where they were to be written."""

    @property
    def job(self) -> str:
        """The job's id."""
        return self.progress.job

    @property
    def state(self) -> JobState:
        """The state the job was left in."""
        return self.progress.state

    @property
    def exit_code(self) -> int:
        """What the command line exits with."""
        if self.is_interrupted and self.state is not JobState.COMPLETE:
            return INTERRUPTED
        return _EXIT_CODES.get(self.state, 4) or (_UNWRITTEN if self.unwritten else 0)

    def with_output(self, path: str) -> JobReport:
        """Return the same report with the place of an export."""
        return replace(self, output=path)

    def as_dict(self) -> dict[str, Any]:
        """Return the object that `--json` prints last."""
        progress = self.progress
        counts = progress.counts
        rate = progress.success_rate
        return {
            "job": progress.job,
            "source": progress.source,
            "state": progress.state.value,
            "reason": self.reason,
            "discovered": progress.total,
            "stored": counts[ItemState.STORED],
            "unchanged": counts[ItemState.UNCHANGED],
            "skipped": counts[ItemState.SKIPPED],
            "failed": counts[ItemState.FAILED],
            "quarantined": counts[ItemState.QUARANTINED],
            "remaining": progress.remaining,
            "requests": progress.figure("requests"),
            "retries": progress.figure("retries"),
            "rate_limited": progress.figure("rate_limited"),
            "seconds": round(self.seconds, 3),
            "success_rate": None if rate is None else round(rate, 4),
            **self.caveats.as_dict(),
            "output": self.output,
            **({"unwritten": self.unwritten} if self.unwritten else {}),
        }
