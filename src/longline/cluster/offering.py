"""Offering what is due to whoever is free: first in the database, then by message."""

from __future__ import annotations

from longline.clock import Clock
from longline.cluster.messages import Messages
from longline.stores.store import Store


async def offer(store: Store, messages: Messages, job: str, clock: Clock, size: int) -> int:
    """Offer chunks for what is due and not offered yet; return how many.

    Raises:
        BrokerUnreachable: they are offered, but nobody was told.
    """
    ids = await store.chunks.offer(job, clock.now(), size=size)
    await messages.collect(ids)
    await store.chunks.sent(ids, clock.now())
    return len(ids)
