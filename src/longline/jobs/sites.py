"""How far a site is, for those who look at many: one picture a job, read from the database."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from longline.model import ItemState, Job, JobState
from longline.stores.store import Store


class SiteStatus(StrEnum):
    """How far a site is, in the four words that onlookers know."""

    DISPATCHED = "DISPATCHED"
    PROCESSING = "PROCESSING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"


_STATUS = {
    JobState.PENDING: SiteStatus.DISPATCHED,
    JobState.COMPLETE: SiteStatus.COMPLETE,
    JobState.PARTIAL: SiteStatus.COMPLETE,
    JobState.FAILED: SiteStatus.FAILED,
    JobState.CANCELLED: SiteStatus.FAILED,
}


@dataclass(frozen=True, slots=True)
class SiteProgress:
    """A picture of one job; `state` says exactly what `status` says roughly.

    While discovery goes on, more chunks may come. `result_count` are the records as the site has
    them now.
    """

    job: str
    source: str
    status: SiteStatus
    state: JobState
    total_chunks: int
    completed_chunks: int
    total_items: int
    completed_items: int
    failed_items: int
    result_count: int
    started_at: float | None
    completed_at: float | None
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether nobody works on it any more, for now at least."""
        return self.state not in (JobState.PENDING, JobState.RUNNING)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


async def progress_of(store: Store, job: Job) -> SiteProgress:
    """Return how far a job is, as the database has it."""
    chunks = await store.chunks.progress(job.id)
    counts = await store.queue.counts(job.id)
    waiting = counts[ItemState.QUEUED] + counts[ItemState.LEASED]
    is_begun = bool(chunks.taken or chunks.completed)
    doing = SiteStatus.PROCESSING if is_begun else SiteStatus.DISPATCHED
    return SiteProgress(
        job=job.id,
        source=job.source,
        status=_STATUS.get(job.state, doing),
        state=job.state,
        total_chunks=chunks.total,
        completed_chunks=chunks.completed,
        total_items=sum(counts.values()),
        completed_items=sum(counts.values()) - waiting,
        failed_items=counts[ItemState.FAILED] + counts[ItemState.QUARANTINED],
        result_count=counts[ItemState.STORED] + counts[ItemState.UNCHANGED],
        started_at=job.started_at,
        completed_at=job.finished_at,
        reason=job.reason,
    )
