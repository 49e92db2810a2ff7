"""How a run ended: the counts that add up, for people, programs and exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from longline.core.html import html_table
from longline.core.model import Caveats, ItemState, JobState
from longline.engine.progress import Progress
from longline.storage.store import Store

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

    def _repr_html_(self) -> str:
        rows = [
            [name, "" if value is None else str(value)] for name, value in self.as_dict().items()
        ]
        return html_table(("", self.job), rows)

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


# ---------------- What became of single items and of lists of them, as a program gets it


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of one item."""

    success: bool
    key: str
    quality_score: float | None
    processing_time: float
    stored: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of a list of items."""

    total: int
    processed: int
    successful: int
    failed: int
    success_rate: float | None
    results: tuple[ItemResult, ...]
    statistics: Mapping[str, float]
    job: str


async def batch_result(store: Store, report: JobReport) -> BatchResult:
    """Read from the store what became of a batch."""
    progress = report.progress
    rows = await store.queue.finished(report.job)
    scores = await store.records.scores(progress.source, [row["key"] for row in rows])
    return BatchResult(
        total=progress.total,
        processed=progress.processed,
        successful=progress.successful,
        failed=progress.failed,
        success_rate=progress.success_rate,
        results=tuple(_item_result(row, scores) for row in rows),
        statistics=dict(progress.figures),
        job=report.job,
    )


def _item_result(row: Mapping[str, Any], scores: Mapping[str, float | None]) -> ItemResult:
    is_stored = row["state"] in {ItemState.STORED, ItemState.UNCHANGED}
    return ItemResult(
        success=is_stored,
        key=row["key"],
        quality_score=scores.get(row["key"]) if is_stored else None,
        processing_time=row["seconds"] or 0.0,
        stored=is_stored,
        error=None if is_stored else row["reason"],
    )
