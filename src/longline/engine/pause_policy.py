"""Whether a job can continue: when it is paused, and when deferred items are skipped."""

from __future__ import annotations

from dataclasses import dataclass

from longline.config.job_spec import BudgetSpec
from longline.core.errors import BudgetSpent, FailureKind
from longline.core.model import JobState
from longline.engine.runtime import RunOptions
from longline.limits.budget import BudgetUsage, exceeded_limit
from longline.storage.store import Store

GRACE = 3.0
"""Seconds for items in flight when a run is stopped or its time is up; then they are released."""
_SILENT = "all items are deferred, and none has been completed for a long time"


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time budget of a run: its `seconds`, and the time when they are exhausted."""

    seconds: float
    until: float

    @classmethod
    def of(cls, seconds: float | None, since: float) -> TimeLimit | None:
        """Return the limit of a run that began at `since`; None when there is none."""
        return None if seconds is None else cls(seconds, since + seconds)

    def left(self, now: float) -> float:
        """Return the seconds that are left; 0 or less when the time is up."""
        return self.until - now

    @property
    def words(self) -> str:
        """The limit in words."""
        return str(exceeded_limit(BudgetSpec(seconds=self.seconds), BudgetUsage(), self.seconds))


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a job can do nothing for long; with `is_fatal`, it fails if nothing was found."""

    reason: str
    is_fatal: bool = False


async def skip_at_time_limit(
    store: Store, job: str, now: float, budget: float | None, spent: float
) -> bool:
    """Skip deferred items once the time budget, in seconds, is exhausted; return whether it is."""
    limit = exceeded_limit(BudgetSpec(seconds=budget), BudgetUsage(), spent)
    if limit is None:
        return False
    await store.queue.skip_queued(job, FailureKind.BUDGET, str(BudgetSpent("", limit)), now)
    return True


async def leave_open(store: Store, job: str, now: float, pause: Pause) -> None:
    """Pause a job, or fail it; nothing happens while other processes work on it."""
    if pause.is_fatal and not sum((await store.queue.counts(job)).values()):
        await store.jobs.fail(job, now, pause.reason)
    else:
        await store.jobs.pause_if_idle(job, now, pause.reason)


async def pause_of(store: Store, job: str, now: float, options: RunOptions) -> Pause | None:
    """Return why a job has to be paused, None when it can continue.

    All of it is read from the database, so that any process may call it at any time. A job goes on
    while an item is leased; one whose discovery has failed is paused when all found items are done.
    Deferred items are given up when the time budget is exhausted.
    """
    status = await store.chunks.status(job)
    if status.state is not JobState.RUNNING or status.leased:
        return None
    # While an item is due, the others need not be counted.
    is_due = await store.queue.is_due(job, now)
    waiting = {} if is_due else await store.queue.waiting(job)
    if (is_due or waiting) and not status.is_discovering:
        spent = now - status.begun_at
        if await skip_at_time_limit(store, job, now, options.seconds, spent):
            is_due, waiting = False, {}
    reason = None
    if waiting:
        blocks = [one.block if one.due > now else None for one in waiting.values()]
        if all(blocks) and not status.is_discovering:  # everything waits for the end of a ban
            reason = "; ".join(sorted({str(one) for one in blocks}))
        last = max(status.begun_at, await store.chunks.last_completion(job) or 0.0)
        is_deferred = min(one.due for one in waiting.values()) > now
        if reason is None and is_deferred and now - last > options.patience:
            reason = _SILENT
    failure = status.failure
    if failure is not None and (reason or not (is_due or waiting)):
        return Pause(str(failure["reason"]), is_fatal=bool(failure["is_fatal"]))
    return None if reason is None else Pause(reason)


async def pause_if_stuck(store: Store, job: str, now: float, options: RunOptions) -> str | None:
    """Pause a job that cannot continue for long; return why, None if it can."""
    pause = await pause_of(store, job, now, options)
    if pause is None:
        return None
    await leave_open(store, job, now, pause)
    return pause.reason
