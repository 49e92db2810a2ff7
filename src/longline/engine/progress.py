"""How far a job is: read from what was committed, so that it can never disagree with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from longline.core.clock import Clock, SystemClock
from longline.core.model import FINAL_STATES, ItemState, JobState
from longline.limits.limiter import RateLimiter
from longline.storage.errors import UnknownJob
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
