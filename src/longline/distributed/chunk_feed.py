"""Chunks as a feed of leases: a worker of a cluster takes the next before it runs dry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from longline.core.clock import Clock
from longline.core.model import Lease
from longline.engine.job_engine import JobEngine
from longline.engine.worker import WorkEnd
from longline.storage.queue.chunks import TakeMore, Taken, Turn
from longline.storage.store import Store

More = Callable[[], Awaitable[TakeMore | None]]
"""Returns what to take next; None: no more are wanted."""


class ChunkFeed:
    """Marks chunks as done and takes others of the same job and domain, in one transaction.

    Args:
        store: the database.
        clock: what time it is.
        taken: the first chunk.
        more: returns what to take next; without it, nothing more is taken.
        on_taken: called for each chunk that was taken.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        taken: Taken,
        more: More | None,
        on_taken: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._job = taken.job
        self._domain = taken.leases[0].domain
        self._more = more
        self._on_taken = on_taken
        self._chunks: dict[str, list[int]] = {}
        self._note(taken)

    async def __call__(self, emptied: Sequence[str], wanted: int) -> Sequence[Lease]:
        done = [(chunk, owner) for owner in emptied for chunk in self._chunks.pop(owner, ())]
        wish = await self._more() if wanted and self._more is not None else None
        if wish is None:
            for chunk, owner in done:
                await self._store.chunks.finish(chunk, owner, self._clock.now())
            return ()
        count = -(-wanted // wish.size)
        then = replace(wish, domain=self._domain, busy=frozenset())
        several = await self._store.chunks.turn(Turn(self._job, done, then, count))
        for taken in several:
            self._note(taken)
        return [lease for taken in several for lease in taken.leases]

    def _note(self, taken: Taken) -> None:
        self._chunks.setdefault(taken.owner, []).append(taken.chunk)
        self._on_taken()


async def run_chunk(
    engine: JobEngine,
    taken: Taken,
    *,
    store: Store,
    clock: Clock,
    seconds: float,
    more: More | None = None,
    on_taken: Callable[[], None] = lambda: None,
) -> WorkEnd:
    """Work on a chunk that was taken, and on those that `more` asks for, and mark them done.

    Raises:
        StoreError: the database does not take any more. The chunk is lost then, and the sweeper
            offers what was in it again.
    """
    feed = ChunkFeed(store, clock, taken, more, on_taken)
    return await engine.work(taken.leases, feed=feed, seconds=seconds)
