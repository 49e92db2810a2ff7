"""Orders as people see them: who is at which, and which are not wanted any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from longline.jobs.owner import dead_among
from longline.model import Job
from longline.stores.orders import Order, OrderKind
from longline.stores.store import Store


@dataclass(frozen=True, slots=True)
class Taken:
    """Exports that were taken back, and those that were not, since somebody writes them now."""

    dropped: Sequence[Order] = ()
    under_way: Sequence[Order] = ()


def holder_of(order: Order, at: float) -> str | None:
    """Return who is at an order, as far as is known; None when nobody alive is."""
    owner = order.owner
    return None if owner is None or order.is_free(at, dead_among([owner])) else owner


async def take_back(store: Store, job: Job, output: str | None = None) -> Taken:
    """Drop the orders to write the records of a job; with `output`, only those to write there.

    One that somebody is at is left: what it replaces may be gone already.
    """
    at = await store.now()
    dropped = [
        order
        for order in await _exports(store, job, output)
        if await store.orders.drop(order, at, dead_among([order.owner] if order.owner else []))
    ]
    return Taken(dropped, await _exports(store, job, output))


async def _exports(store: Store, job: Job, output: str | None) -> list[Order]:
    return [
        order
        for order in await store.orders.of(job.id)
        if order.kind is OrderKind.EXPORT and output in (None, order.what.get("output"))
    ]
