"""How far a site is, for those who look at many: one picture a job, read from the database."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from longline.core.model import ItemState, Job, JobState
from longline.engine.progress import SHARE
from longline.storage.store import Store


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
_AT_WORK = (JobState.PENDING, JobState.RUNNING)


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
        return self.state not in _AT_WORK

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def is_over(job: Job) -> bool:
    """Say whether nobody works on a job any more, for now at least."""
    return job.state not in _AT_WORK


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


@dataclass(frozen=True, slots=True)
class _Picture:
    progress: SiteProgress
    until: float


class Pictures:
    """Pictures of many jobs, for one who looks at them again and again.

    To count the items of a job takes the longer the more there are, and must not take up the time
    of whoever looks: a tenth of it at most, for all jobs together, however many they are. Until it
    is a job's turn, it is shown as it was. One that is new, or whose state has changed, is counted
    at once, and the others wait the longer for it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: dict[str, _Picture] = {}
        self._rested = 0.0  # the moment at which all that was counted has been rested for

    async def of(self, job: Job) -> SiteProgress:
        """Return how far a job is, or was a while ago."""
        begun = _time()
        known = self._taken.get(job.id)
        if known and known.progress.state is job.state and begun < known.until:
            return known.progress
        progress = await progress_of(self._store, job)
        self._keep(progress, _time() - begun)
        return progress

    def _keep(self, progress: SiteProgress, seconds: float) -> None:
        now = _time()
        # Rests follow each other, as turns do; to count is no rest from what was counted before.
        self._rested = max(now, self._rested + seconds) + SHARE * seconds
        current = {job: one for job, one in self._taken.items() if now < one.until}
        self._taken = current | {progress.job: _Picture(progress, self._rested)}


def _time() -> float:
    # The loop's own: a clock that is set anew in between would make a rest of hours.
    return asyncio.get_running_loop().time()
