"""Progress of jobs, read from what was committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from longline.core.clock import Clock, SystemClock
from longline.core.errors import UnknownJob
from longline.core.model import FINAL_STATES, ItemState, Job, JobState
from longline.limits.limiter import RateLimiter
from longline.storage.queue.queue import JobCounts
from longline.storage.store import Store


@dataclass(frozen=True, slots=True)
class PaceStatus:
    """Requests of this run to one domain, and its rate limit; None is unlimited."""

    domain: str
    requests: int
    rate: float | None
    capacity: int | None
    tokens: float | None
    waits: int
    waited: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job at one time.

    `success_rate` ignores skipped items (gone from the site). It, `mean_seconds` and `eta` are None
    while unknown; `eta` is a lower bound during discovery.
    """

    job: str
    source: str
    state: JobState
    counts: Mapping[ItemState, int]
    statistics: Mapping[str, float]
    is_discovered: bool
    elapsed: float
    items_per_minute: float
    mean_seconds: float | None
    eta: float | None
    last_key: str | None = None
    last_checkpoint_at: float | None = None
    pace: tuple[PaceStatus, ...] = ()

    @property
    def total(self) -> int:
        """Items discovered so far."""
        return sum(self.counts.values())

    @property
    def processed(self) -> int:
        """Finished items, in any state."""
        return sum(self.counts[state] for state in FINAL_STATES)

    @property
    def remaining(self) -> int:
        """Items that are not finished."""
        return self.total - self.processed

    @property
    def successful(self) -> int:
        """Items whose record is in the database as the site has it now."""
        return self.counts[ItemState.STORED] + self.counts[ItemState.UNCHANGED]

    @property
    def failed(self) -> int:
        """Items that failed or whose data was quarantined."""
        return self.counts[ItemState.FAILED] + self.counts[ItemState.QUARANTINED]

    @property
    def success_rate(self) -> float | None:
        """The share of successes among the items that were not skipped."""
        tried = self.successful + self.failed
        return self.successful / tried if tried else None

    def statistic(self, name: str) -> int:
        """Return a counter of the job, such as requests, retries or rate_limited."""
        return int(self.statistics.get(name, 0))

    def as_dict(self) -> dict[str, Any]:
        """Return all fields and computed values for JSON."""
        computed = ("total", "processed", "remaining", "successful", "failed", "success_rate")
        return asdict(self) | {name: getattr(self, name) for name in computed}


class ProgressTracker:
    """Computes the progress of a job while it runs."""

    def __init__(
        self,
        store: Store,
        job: str,
        clock: Clock | None = None,
        *,
        limiter: RateLimiter | None = None,
    ) -> None:
        self._store = store
        self.job = job
        self._clock = clock or SystemClock()
        self._limiter = limiter
        self._started = self._clock.now()
        self._before: tuple[int, float] | None = None
        self.last_checkpoint_at: float | None = None

    async def snapshot(self) -> Progress:
        """Return the present progress.

        Raises:
            UnknownJob: there is no such job.
        """
        found = await self._store.queue.progress([self.job])
        if self.job not in found:
            raise UnknownJob(self.job)
        return self.progress(found[self.job])

    def progress(self, found: JobCounts) -> Progress:
        """Return the progress for counts that were just read from the database."""
        processed = sum(found.counts[state] for state in FINAL_STATES)
        requests = found.statistics.get("item_requests", 0.0)
        if self._before is None:
            self._before = processed, requests
        elapsed = self._clock.now() - self._started
        # Earlier runs of the same job say nothing about the speed of this one.
        done = processed - self._before[0]
        speed = done / elapsed if elapsed > 0 else 0.0
        pace = self._pace()
        seconds = found.statistics.get("item_seconds", 0.0)
        remaining = sum(found.counts.values()) - processed
        eta: float | None = None
        if not remaining:
            eta = 0.0 if found.is_discovered else None
        elif speed:
            costs = _seconds_by_pace((requests - self._before[1]) / done, pace)
            eta = max(remaining / speed, *(remaining * cost for cost in costs), 0.0)
        return Progress(
            job=found.job,
            source=found.source,
            state=found.state,
            counts=found.counts,
            statistics=found.statistics,
            is_discovered=found.is_discovered,
            elapsed=elapsed,
            items_per_minute=speed * 60,
            mean_seconds=seconds / processed if processed else None,
            eta=eta,
            last_key=found.last_key,
            last_checkpoint_at=self.last_checkpoint_at,
            pace=pace,
        )

    def _pace(self) -> tuple[PaceStatus, ...]:
        if self._limiter is None:
            return ()
        domains = self._limiter.get_statistics().domains
        return tuple(
            PaceStatus(
                domain=name,
                requests=one.requests,
                rate=one.rate,
                capacity=one.capacity,
                tokens=one.tokens,
                waits=one.waits,
                waited=one.total_wait,
            )
            for name, one in domains.items()
        )


def _seconds_by_pace(requests_per_item: float, pace: Sequence[PaceStatus]) -> list[float]:
    """Return the seconds per item that the rate limit of each domain allows.

    The first minutes of a run are a burst; an ETA from speed alone would promise too much. To which
    domain the requests of items went is not counted, so they are distributed as all requests are.
    """
    total = sum(one.requests for one in pace)
    return [
        requests_per_item * one.requests / total / one.rate for one in pace if one.rate and total
    ]


# ---------------- Progress of many jobs


class SiteStatus(StrEnum):
    """The status of a site in progress reports."""

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
    """The progress of one job; `state` is more exact than `status`.

    During discovery, `total_chunks` may grow. `result_count` counts stored and unchanged records.
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
        """Whether no process works on it."""
        return self.state not in _AT_WORK

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def is_over(job: Job) -> bool:
    """Return whether no process works on a job."""
    return job.state not in _AT_WORK


async def progress_of(store: Store, job: Job) -> SiteProgress:
    """Return the progress of a job from the database."""
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
