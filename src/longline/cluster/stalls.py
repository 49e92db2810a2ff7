"""A job on a cluster in which nothing is found or ends any more: noticed by whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longline.clock import Clock
from longline.engines.discovering import WAITED
from longline.jobs.owner import in_words
from longline.model import FINAL_STATES, ItemState
from longline.stores.standing import Standing
from longline.stores.store import Store

_LONG = 60.0  # seconds in which nothing happens, in a job that has not shown yet how slow it is
_PATIENCE = 2.0  # times the longest that it took between two looks before something had happened
_MOST_NAMED = 3


class Stalls:
    """Watches whether items of one job are found and come to their end; one object a run."""

    def __init__(self, store: Store, clock: Clock, job: str) -> None:
        self._store = store
        self._clock = clock
        self._job = job
        self._ends = _Standstill("nothing has ended")
        self._finds = _Standstill("nothing has been found")

    async def look(self) -> str:
        """Return a sentence while the job stands still, the same one until it moves; or none.

        A job whose items all wait until later does not, nor does one whose discovery only waits,
        for a slow pace or until a site has rested.

        Raises:
            UnknownJob: it is gone.
        """
        now, counts = self._clock.now(), await self._store.queue.counts(self._job)
        standing = await self._store.chunks.standing(self._job)
        ended = sum(counts[state] for state in FINAL_STATES)
        unended = self._ends.look(ended, now, await self._where(counts, standing))
        cursor = (await self._store.jobs.get(self._job)).cursor
        waited = (await self._store.journal.statistics(self._job)).get(WAITED, 0.0)
        found = (sum(counts.values()), ended, cursor)
        unfound = self._finds.look(found, now - waited, await self._who(standing))
        return unended or unfound

    async def _who(self, standing: Standing) -> str:
        """Say who should find more; nothing when nobody should."""
        if not standing.is_searched:
            return ""
        if standing.finder is None or standing.lacks_finder(await self._store.now()):
            return "no worker discovers"
        return f"{in_words(standing.finder)} discovers"

    async def _where(self, counts: Mapping[ItemState, int], standing: Standing) -> str:
        """Say where the items are that should come to their end; nothing when there are none."""
        if leased := counts[ItemState.LEASED]:
            owners = await self._store.queue.owners(self._job)
            holders = [owner for owner in owners if owner != standing.finder]
            return f"{_items(leased)} in hand of {_named(holders)}"
        due = await self._store.queue.next_due(self._job)
        if due is None or due > await self._store.now():
            return ""
        return f"{_items(counts[ItemState.QUEUED])} queued, and no worker takes one"


class _Standstill:
    """How long something has stood still, and whether that is long for it."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._mark: object = None
        self._since = 0.0
        self._slowest = 0.0
        self._told = ""

    def look(self, mark: object, now: float, where: str) -> str:
        """Return a sentence when the `mark` has not changed for long; or none.

        `where` says what holds it up; when nothing does, it does not stand still.
        """
        is_first, has_moved = self._mark is None, mark != self._mark
        if has_moved and not is_first:
            self._slowest = max(self._slowest, now - self._since)
        if has_moved or not where:
            self._mark, self._since, self._told = mark, now, ""
        seconds = now - self._since
        if not self._told and seconds >= max(_LONG, _PATIENCE * self._slowest):
            self._told = f"{self._words} for {seconds:.0f} s: {where}"
        return self._told


def _items(count: int) -> str:
    return "1 item is" if count == 1 else f"{count} items are"


def _named(owners: Sequence[str]) -> str:
    """Return the processes that these are, as a person can find them."""
    names = sorted({in_words(owner) for owner in owners})
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
