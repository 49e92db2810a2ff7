"""Whether a job can go on: the rules by which it rests, is paused, or gives up what is parked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from longline.core.errors import BudgetSpent, FailureKind
from longline.core.model import JobState
from longline.engine.runtime import RunOptions
from longline.limits.budget import Budget, BudgetUsage, exceeded_limit
from longline.storage.queue.queue import Waiting
from longline.storage.store import Store

GRACE = 3.0
"""Seconds for items in flight when a run is stopped or its time is up; then they are released."""
_SILENT = "every item is parked: the site has not answered for too long"


def _block(waiting: Mapping[str, Waiting], now: float) -> str | None:
    """Return why nothing can be done for long: all that waits, waits for a ban to end.

    None when there is anything else to wait for.
    """
    reasons = [one.block if one.due > now else None for one in waiting.values()]
    return "; ".join(sorted({str(one) for one in reasons})) if all(reasons) else None


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """The time budget of a run: its `seconds`, and the time when they are spent."""

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
        """What the limit is called in reports."""
        return str(exceeded_limit(Budget(seconds=self.seconds), BudgetUsage(), self.seconds))


async def is_given_up(
    store: Store, job: str, now: float, budget: float | None, spent: float
) -> bool:
    """Give up what is parked once the budget of time, in seconds, is spent; say whether it is."""
    limit = exceeded_limit(Budget(seconds=budget), BudgetUsage(), spent)
    if limit is None:
        return False
    await store.queue.give_up(job, FailureKind.BUDGET, str(BudgetSpent("", limit)), now)
    return True


async def leave_open(store: Store, job: str, now: float, reason: str, *, is_fatal: bool) -> None:
    """Pause a job that has not come to its end; it fails if that is fatal, and nothing was found.

    Nothing happens while others work on it.
    """
    found = sum((await store.queue.counts(job)).values())
    if is_fatal and not found:
        await store.jobs.fail(job, now, reason)
    else:
        await store.jobs.pause(job, now, reason)


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a job can do nothing for long; `is_fatal`: it fails if nothing was found."""

    reason: str
    is_fatal: bool = False


async def pause_of(store: Store, job: str, now: float, options: RunOptions) -> Pause | None:
    """Return why a job has to be paused, None when it goes on.

    All of it is read from the database, so that any process may call it at any time: a job goes on
    while somebody works on an item, and one whose discovery has failed is paused only when all that
    was found is done. What is parked is given up when the time budget is spent.
    """
    standing = await store.chunks.standing(job)
    if standing.state is not JobState.RUNNING or standing.leased:
        return None
    # While something only has to be leased, what else waits need not be counted.
    is_due = await store.queue.is_due(job, now)
    waiting = {} if is_due else await store.queue.waiting(job)
    if (is_due or waiting) and not standing.is_searched:
        spent = now - standing.begun_at
        if await is_given_up(store, job, now, options.seconds, spent):
            is_due, waiting = False, {}
    reason = None
    if waiting:
        reason = None if standing.is_searched else _block(waiting, now)
        last = max(standing.begun_at, await store.chunks.last_finish(job) or 0.0)
        is_parked = min(one.due for one in waiting.values()) > now
        if reason is None and is_parked and now - last > options.patience:
            reason = _SILENT
    failure = standing.failure
    if failure is not None and (reason or not (is_due or waiting)):
        return Pause(str(failure["reason"]), is_fatal=bool(failure["is_fatal"]))
    return None if reason is None else Pause(reason)


async def rest_or_pause(store: Store, job: str, now: float, options: RunOptions) -> str | None:
    """Pause a job that can do nothing for long; return why, None when it goes on."""
    pause = await pause_of(store, job, now, options)
    if pause is None:
        return None
    await leave_open(store, job, now, pause.reason, is_fatal=pause.is_fatal)
    return pause.reason
