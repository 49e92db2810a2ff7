"""Offering what is due to whoever is free: first in the database, then by message.

A message wakes a process that has nothing to do, and any message does: whoever gets one takes what
it finds offered. While messages wait, nobody is idle, so no more of them are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from longline.clock import Clock
from longline.cluster.app import FETCH
from longline.cluster.messages import Messages
from longline.stores.store import Store

_ENOUGH = 32  # messages that wait


async def offer(store: Store, messages: Messages, job: str, clock: Clock, size: int) -> int:
    """Offer chunks for what is due and not offered yet; return how many.

    Raises:
        BrokerUnreachable: they are offered, but nobody was told.
    """
    ids = await store.chunks.offer(job, clock.now(), size=size)
    await tell_of(messages, ids)
    return len(ids)


async def tell_of(messages: Messages, chunks: Sequence[int]) -> int:
    """Wake processes for chunks, as many as can be idle; return how many were told.

    Raises:
        BrokerUnreachable: nobody was.
    """
    if not chunks:
        return 0
    room = max(0, _ENOUGH - (await messages.waiting())[FETCH])
    await messages.collect(chunks[:room])
    return min(room, len(chunks))
