"""Whether a job can go on: the rules by which it rests, is paused, or gives up what is parked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from longline.core.errors import FailureKind
from longline.core.model import JobState
from longline.engine.domain_queues import DomainRests
from longline.engine.options import RunOptions
from longline.limits.budget import Budget, BudgetUsage, exceeded_limit
from longline.limits.errors import BudgetSpent
from longline.storage.queue.queue import Waiting
from longline.storage.store import Store

GRACE = 3.0
"""Seconds for items in flight when a run is stopped or its time is up; then they are released."""
_SILENT = "every item is parked: the site has not answered for too long"


def pause_reason(
    rests: DomainRests,
    waiting: Mapping[str, Waiting],
    now: float,
    *,
    is_discovering: bool,
    is_silent: bool,
) -> str | None:
    """Return why a job that waits can do nothing for long; None when there is hope.

    Args:
        rests: which domains rest.
        waiting: what is queued, by domain; not empty.
        now: the moment.
        is_discovering: more may be found, on other sites perhaps.
        is_silent: no item was finished for longer than anybody is willing to wait.
    """
    block = rests.block(waiting, now)
    if block is not None and not is_discovering:
        return block
    due = rests.next_due(waiting)
    return _SILENT if is_silent and due is not None and due > now else None


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


async def rest_or_pause(store: Store, job: str, now: float, options: RunOptions) -> str | None:
    """Pause a job on a cluster that can do nothing for long; return why, None when it goes on.

    What a single process knows from its own run is read from the database here, so that anybody
    may call it at any time: it does nothing while somebody works on an item, and a job whose
    discovery has failed is paused only when all that was found is done.
    """
    standing = await store.chunks.standing(job)
    if standing.state is not JobState.RUNNING or standing.leased:
        return None
    # While something only has to be taken, what else waits need not be counted.
    is_due = await store.queue.is_due(job, now)
    waiting = {} if is_due else await store.queue.waiting(job)
    failure = standing.failure
    reason = None
    if (is_due or waiting) and not standing.is_searched:
        spent = now - standing.begun_at
        if await is_given_up(store, job, now, options.seconds, spent):
            is_due, waiting = False, {}
    if waiting:
        last = max(standing.begun_at, await store.chunks.last_finish(job) or 0.0)
        is_silent, is_searched = now - last > options.patience, standing.is_searched
        reason = pause_reason(
            DomainRests(), waiting, now, is_discovering=is_searched, is_silent=is_silent
        )
    if failure is not None and (reason or not (is_due or waiting)):
        reason = str(failure["reason"])
    if reason is not None:
        is_fatal = failure is not None and bool(failure["is_fatal"])
        await leave_open(store, job, now, reason, is_fatal=is_fatal)
    return reason
