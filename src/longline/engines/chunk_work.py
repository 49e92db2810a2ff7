"""The work on one chunk: some items of one domain, several at once, within a limit of time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from longline.clock import Clock
from longline.engines.committing import Committer, finish_of
from longline.engines.halting import Halt, beat
from longline.engines.options import RunOptions
from longline.engines.raising import first_of
from longline.errors import FailureKind, LonglineError
from longline.jobs.collector import Collector
from longline.model import ItemState, Lease, Outcome, Verdict
from longline.stores.finishing import Finish
from longline.stores.store import Store
from longline.stores.taking import Taken

_GRACE = 0.1  # of the limit of time, for what is in flight when it is reached
_LONGEST_GRACE = 60.0


OnItem = Callable[[int, bool], None]
"""Told the id of an item when work on it begins, with True, and when that ends."""


@dataclass(frozen=True, slots=True)
class ChunkEnd:
    """How many items were committed, how many go to somebody else, and how long it took.

    `reason` is why not all of them were begun, or came to their end. `then` is the next chunk,
    which was taken in the same step, if one was wished for.
    """

    finished: int
    handed_back: int
    seconds: float
    reason: str | None = None
    then: Taken | None = None


class ChunkWork:
    """Works on the leases of one chunk; one object a chunk.

    `halt` ends it early, and is told why when it does so by itself; `on_commit` is told the new
    state of each item, or None when its lease was lost; `on_item` what is being worked on, `width`
    of them at once.
    """

    def __init__(
        self,
        store: Store,
        collector: Collector,
        clock: Clock,
        options: RunOptions,
        *,
        taken: Taken,
        width: int,
        halt: Halt,
        on_commit: Callable[[Finish, ItemState | None], None],
        on_item: OnItem,
    ) -> None:
        self._store = store
        self._collector = collector
        self._clock = clock
        self._options = options
        self._taken = taken
        self._width = width
        self._halt = halt
        self._on_commit = on_commit
        self._on_item = on_item
        self._waiting = deque(taken.leases)
        self._begun: dict[int, Lease] = {}
        self._uncommitted = len(taken.leases)
        self._finished = 0
        self._handed_back = 0
        self._rest: Outcome | None = None
        self._committer = Committer(
            store.queue, options.concurrency * 16, self._count, lambda: self._uncommitted
        )

    @property
    def domain(self) -> str:
        """Whose items they are."""
        return self._taken.leases[0].domain

    @property
    def has_waiting(self) -> bool:
        """Whether some are not begun yet."""
        return bool(self._waiting)

    @property
    def in_flight(self) -> int:
        """How many are being worked on."""
        return len(self._begun)

    async def run(self, seconds: float) -> ChunkEnd:
        """Work until all is done or handed back.

        Raises:
            StoreError: the database does not take any more.
        """
        started = self._clock.now()
        try:
            await self._run_tasks(seconds)
        except* LonglineError as several:
            raise first_of(several) from several
        spent = self._clock.now() - started
        return ChunkEnd(self._finished, self._handed_back, spent, self._halt.reason)

    async def _run_tasks(self, seconds: float) -> None:
        taken = self._taken
        async with asyncio.TaskGroup() as group:
            beats = group.create_task(
                beat(self._store, self._clock, taken.job, taken.owner, self._halt)
            )
            halting = group.create_task(self._halt.wait())
            committing = group.create_task(self._committer.run())
            count = min(self._width, len(taken.leases))
            workers = [group.create_task(self._serve()) for _ in range(count)]
            await self._until_ended(workers, halting, seconds)
            await self._bring_home(workers, seconds)
            self._committer.close()
            await asyncio.wait([committing])
            beats.cancel()
            halting.cancel()

    async def _until_ended(
        self,
        workers: Sequence[asyncio.Task[None]],
        halting: asyncio.Task[None],
        seconds: float,
    ) -> None:
        """Wait until every worker has ended, nothing more may be begun, or the time is up."""
        over = self._clock.now() + seconds
        while not halting.done() and any(not one.done() for one in workers):
            busy = [one for one in workers if not one.done()]
            left = over - self._clock.now()
            if left <= 0:
                self._halt.say(f"the limit of {seconds:g} s is reached")
                return
            await asyncio.wait([*busy, halting], timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _bring_home(self, workers: Sequence[asyncio.Task[None]], seconds: float) -> None:
        """Hand back what was not begun, at once, and later what does not come to its end."""
        untouched = list(self._waiting)
        self._waiting.clear()
        await self._hand_back(untouched)
        await self._park()
        busy = [one for one in workers if not one.done()]
        if not busy:
            return
        await asyncio.wait(busy, timeout=min(seconds * _GRACE, _LONGEST_GRACE))
        for one in busy:
            one.cancel()
        await asyncio.wait(busy)
        await self._hand_back(list(self._begun.values()))

    async def _hand_back(self, leases: Sequence[Lease]) -> None:
        if leases:
            self._handed_back += len(leases)
            self._uncommitted -= len(leases)
            await self._store.queue.release(leases)

    async def _park(self) -> None:
        """Have the domain's other items wait, too, if they would fare the same."""
        rest, taken = self._rest, self._taken
        if rest is None or rest.due is None:
            return
        domain = self.domain
        kind, reason = rest.kind or FailureKind.NETWORK, rest.reason or f"{domain} rests"
        await self._store.chunks.park(taken.job, domain, rest.due, kind=kind, reason=reason)

    async def _serve(self) -> None:
        while self._waiting and self._halt.reason is None:
            lease = self._waiting.popleft()
            self._begun[lease.id] = lease
            self._on_item(lease.id, True)
            await self._work(lease)
            self._on_item(lease.id, False)
            del self._begun[lease.id]

    async def _work(self, lease: Lease) -> None:
        extraction = await self._collector.collect(lease.item, tries=lease.tries)
        outcome = extraction.outcome
        if outcome.verdict is Verdict.LATER and outcome.is_for_domain:
            self._rest = self._rest or outcome
            self._halt.say(outcome.reason or f"{lease.domain} rests")
        now = self._clock.now()
        await self._committer.hand_over(finish_of(lease, extraction, now, self._options.limit))

    def _count(self, finish: Finish, state: ItemState | None) -> None:
        self._uncommitted -= 1
        self._finished += state is not None
        self._on_commit(finish, state)
