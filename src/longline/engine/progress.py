"""How far a job is: read from what was committed, so that it can never disagree with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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
    """What this run asked of one domain, and how its limit stands; None is unlimited."""

    domain: str
    requests: int
    rate: float | None
    capacity: int | None
    tokens: float | None
    waits: int
    waited: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A picture of a job at one moment.

    `success_rate` is of the items that could be had: what was skipped (gone from the site) is
    neither a success nor a failure. It, `mean_seconds` and `eta` are None while unknown; `eta` is
    a lower bound while discovery goes on.
    """

    job: str
    source: str
    state: JobState
    counts: Mapping[ItemState, int]
    figures: Mapping[str, float]
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
        """Items that are finished, however they ended."""
        return sum(self.counts[state] for state in FINAL_STATES)

    @property
    def remaining(self) -> int:
        """Items still to be worked on."""
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
        """The share of successes among the items that could be had."""
        tried = self.successful + self.failed
        return self.successful / tried if tried else None

    def figure(self, name: str) -> int:
        """Return a counter of the job, such as requests, retries or rate_limited."""
        return int(self.figures.get(name, 0))

    def as_dict(self) -> dict[str, Any]:
        """Return everything, computed figures included, for JSON."""
        computed = ("total", "processed", "remaining", "successful", "failed", "success_rate")
        return asdict(self) | {name: getattr(self, name) for name in computed}


class ProgressTracker:
    """Takes pictures of a job while it runs."""

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
        """Return how far the job is now.

        Raises:
            UnknownJob: there is no such job.
        """
        found = await self._store.queue.progress([self.job])
        if self.job not in found:
            raise UnknownJob(self.job)
        return self.progress(found[self.job])

    def progress(self, found: JobCounts) -> Progress:
        """Return how far the job is, by what was read from the database just now."""
        processed = sum(found.counts[state] for state in FINAL_STATES)
        requests = found.statistics.get("item_requests", 0.0)
        if self._before is None:
            self._before = processed, requests
        elapsed = self._clock.now() - self._started
        here = _Here(processed - self._before[0], requests - self._before[1], elapsed, self._pace())
        seconds = found.statistics.get("item_seconds", 0.0)
        return Progress(
            job=found.job,
            source=found.source,
            state=found.state,
            counts=found.counts,
            figures=found.statistics,
            is_discovered=found.is_discovered,
            elapsed=elapsed,
            items_per_minute=here.speed * 60,
            mean_seconds=seconds / processed if processed else None,
            eta=_eta(sum(found.counts.values()) - processed, here, found.is_discovered),
            last_key=found.last_key,
            last_checkpoint_at=self.last_checkpoint_at,
            pace=here.pace,
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


@dataclass(frozen=True, slots=True)
class _Here:
    """What this run did so far; earlier runs of the same job say nothing about its speed."""

    processed: int
    item_requests: float
    elapsed: float
    pace: tuple[PaceStatus, ...]

    @property
    def speed(self) -> float:
        return self.processed / self.elapsed if self.elapsed > 0 else 0.0

    def cost(self, one: PaceStatus) -> float:
        """Return the requests that an item makes to a domain.

        Those of discovery and robots.txt are none of an item's. Which domain an item's own went
        to is not counted, so they are shared out as all requests are.
        """
        everything = sum(pace.requests for pace in self.pace)
        share = one.requests / everything if everything else 0.0
        return self.item_requests / self.processed * share


def _eta(remaining: int, here: _Here, is_discovered: bool) -> float | None:  # noqa: FBT001
    """Return the seconds that remain: requests to come ÷ the allowed rate, or the speed if lower.

    The first minutes of a polite crawl are a burst; an ETA from speed alone would promise too
    much. None while no item is finished, since nobody knows yet what an item costs.
    """
    if not remaining:
        return 0.0 if is_discovered else None
    if not here.processed or not here.speed:
        return None
    by_pace = [remaining * here.cost(one) / one.rate for one in here.pace if one.rate]
    return max(remaining / here.speed, *by_pace, 0.0)


# ---------------- How often to look at what takes long to look at, so that looking never becomes

SHARE = 10
"""Times as long as a look has taken rests one whom nobody watches."""
_SHARE_WATCHED = 3  # times, where a person does; a busy run alone makes looks slow
_LONGEST = 15.0  # seconds: after them a person would take it to be dead


def rest_after(seconds: float, *, every: float = 0.0) -> float:
    """Return how long to wait before the next look, after one that took so many seconds.

    That is `every` so many seconds while a look is quick, and a quarter of a minute at most.
    """
    return max(every, min(_SHARE_WATCHED * seconds, _LONGEST))


# ---------------- How far a site is, for those who look at many: one picture a job, read from the


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
