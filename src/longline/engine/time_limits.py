"""Tries that take longer than they may, again and again: the item fails, so that its job ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from longline.core.errors import FailureKind
from longline.core.model import OVERRAN, Failure, Lease, Outcome, OutcomeAction, Usage
from longline.storage.queue.outcomes import Completion

_MOST = 3  # tries of an item that may do so


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # a try is made where it is worked on
    return task


@dataclass(slots=True, eq=False)
class Try:
    """A try at an item that is under way. `usage` is filled as it goes."""

    lease: Lease
    usage: Usage = field(default_factory=Usage)
    began: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    task: asyncio.Task[None] = field(default_factory=_this_task)

    def lasted(self) -> float:
        """Return the seconds since it began."""
        return asyncio.get_running_loop().time() - self.began

    def worked(self) -> float:
        """Return those of them in which it did not only wait."""
        return self.lasted() - self.usage.waiting.seconds()

    def deserves_time(self, limit: float) -> bool:
        """Say whether to let it go on when the time of the whole work is up.

        Not when it has worked for longer than `limit`, or was begun late and mostly works: it may
        do better next time. All others would fare the same again.
        """
        lasted, worked = self.lasted(), self.worked()
        return worked < limit and (lasted >= limit or worked < lasted / 2)

    def overrun(self, at: float, limit: float, before: int) -> Completion:
        """Return the end of a try that has worked for longer than `limit` and was broken off.

        `before` is how often that has happened to its item: the third time, it fails. Whoever
        queues it again has three more.
        """
        item, worked = self.lease.item, self.worked()
        usage = self.usage.take()  # a thread that nobody can break off may still add to it
        if (before + 1) % _MOST:
            told = f"it took longer than {limit:g} s, waits not counted"
            outcome = Outcome(OutcomeAction.DEFER, kind=FailureKind.TIMEOUT, reason=told, due=at)
        else:
            told = (
                f"it took longer than {limit:g} s three times, waits not counted: "
                "raise soft_limit, or make the source quicker"
            )
            outcome = Outcome(OutcomeAction.FAIL, kind=FailureKind.TIMEOUT, reason=told)
        usage.failures.append(
            Failure(at, item.url, FailureKind.TIMEOUT, told, OVERRAN, worked, usage.status)
        )
        return Completion(self.lease, outcome, at, worked, usage)


# ---------------- Why a piece of work has to end


class StopSignal:
    """Says once, and for good, that nothing more is to be begun."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.grace: float | None = None
        """Seconds that what is in flight has at most; None: what the work allows."""
        self._said = asyncio.Event()

    def say(self, reason: str, *, grace: float | None = None) -> None:
        """Have the work come to its end; the first reason counts."""
        self.reason = self.reason or reason
        self.grace = grace if self.grace is None else self.grace
        self._said.set()

    async def wait(self) -> None:
        """Wait until it was said."""
        await self._said.wait()
