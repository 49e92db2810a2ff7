"""A job on a cluster in which nothing ends any more: noticed by whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longline.clock import Clock
from longline.jobs.owner import process_of
from longline.model import FINAL_STATES, ItemState
from longline.stores.store import Store

_LONG = 60.0  # seconds in which nothing ends, in a job that has not shown yet how slow it is
_PATIENCE = 2.0  # times the longest that it took between two looks before something had ended
_MOST_NAMED = 3


class Stalls:
    """Watches whether items of one job come to their end; one object a run."""

    def __init__(self, store: Store, clock: Clock, job: str) -> None:
        self._store = store
        self._clock = clock
        self._job = job
        self._ended: int | None = None
        self._since = clock.now()
        self._slowest = 0.0
        self._told = ""

    async def look(self) -> str:
        """Return a sentence while the job stands still, the same one until it moves; or none.

        A job whose items all wait until later does not.
        """
        now, counts = self._clock.now(), await self._store.queue.counts(self._job)
        ended = sum(counts[state] for state in FINAL_STATES)
        where = await self._where(counts)
        if ended != self._ended or not where:
            if ended != self._ended and self._ended is not None:
                self._slowest = max(self._slowest, now - self._since)
            self._ended, self._since, self._told = ended, now, ""
        seconds = now - self._since
        if not self._told and seconds >= max(_LONG, _PATIENCE * self._slowest):
            self._told = f"nothing has ended for {seconds:.0f} s: {where}"
        return self._told

    async def _where(self, counts: Mapping[ItemState, int]) -> str:
        """Say where the items are that should come to their end; nothing when there are none."""
        if leased := counts[ItemState.LEASED]:
            finder = (await self._store.chunks.standing(self._job)).finder
            owners = await self._store.queue.owners(self._job)
            holders = [owner for owner in owners if owner != finder]
            return f"{_items(leased)} in hand of {_named(holders)}"
        due = await self._store.queue.next_due(self._job)
        if due is None or due > await self._store.now():
            return ""
        return f"{_items(counts[ItemState.QUEUED])} queued, and no worker takes one"


def _items(count: int) -> str:
    return "1 item is" if count == 1 else f"{count} items are"


def _named(owners: Sequence[str]) -> str:
    """Return the processes that these are, as a person can find them."""
    names = sorted({_process(owner) for owner in owners})
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _process(owner: str) -> str:
    host = owner.partition(":")[0].partition("~")[0]  # what follows is for machines
    pid = process_of(owner)
    return host if pid is None else f"process {pid} on {host}"
