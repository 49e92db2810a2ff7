"""Deliver the events of a home to all its subscribers, each independent of the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from longline.core.clock import Clock
from longline.core.errors import LonglineError
from longline.engine.runtime import first_error
from longline.engine.subscribers import Delivery, OnResult, Subscription, ignore_result
from longline.engine.webhooks import WebhookSender
from longline.storage.events.subscribers import UnknownSubscriber
from longline.storage.store import Store

_POLL = 5.0  # seconds between two polls for new webhooks

FindSubscriptions = Callable[[], Awaitable[Sequence[Subscription]]]
"""Returns subscriptions that are not known from the start, such as the channels of alerts."""


async def _find_none() -> Sequence[Subscription]:
    """Return no subscriptions."""
    return ()


class EventDeliveries:
    """Delivers events to the webhooks of a home and to other subscriptions.

    Several processes may do so: one of them delivers to a subscriber at a time.

    Args:
        sender: sends to the webhooks.
        others: what else gets events.
        find_more: returns further subscriptions, which may change; polled every 5 s.
        on_result: called after each attempt to deliver events, also a failed one.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sender: WebhookSender,
        others: Sequence[Subscription] = (),
        on_result: OnResult = ignore_result,
        *,
        find_more: FindSubscriptions = _find_none,
    ) -> None:
        self._store = store
        self._clock = clock
        self._sender = sender
        self._others = others
        self._on_result = on_result
        self._find_more = find_more

    async def run(self) -> None:
        """Deliver until cancelled, also to webhooks that are added later.

        Raises:
            StoreError: the database cannot be used.
        """
        running: dict[str, asyncio.Task[None]] = {}
        async with _task_group() as group:
            while True:
                for one in await self._subscriptions():
                    # A task ends when its subscriber is removed, which may be added again.
                    if one.name not in running or running[one.name].done():
                        running[one.name] = group.create_task(self._deliver(one))
                await self._clock.sleep(_POLL)

    async def run_once(self) -> None:
        """Deliver what is due.

        Raises:
            StoreError: the database cannot be used.
        """
        async with _task_group() as group:
            for one in await self._subscriptions():
                group.create_task(self._deliver(one, is_once=True))

    async def _subscriptions(self) -> list[Subscription]:
        webhooks = await self._store.webhooks.list()
        watches = await self._store.webhooks.watches()
        return [
            *(self._sender.subscription(one.name) for one in webhooks),
            *(self._sender.subscription(webhook, name) for name, webhook in watches),
            *self._others,
            *await self._find_more(),
        ]

    async def _deliver(self, subscription: Subscription, *, is_once: bool = False) -> None:
        delivery = Delivery(self._store, self._clock, subscription, self._on_result)
        try:
            await delivery.subscribe()
            if not is_once:
                await delivery.run()
            while await delivery.deliver_batch():
                pass
        except UnknownSubscriber:
            return  # it was removed
        finally:
            await delivery.close()


@contextlib.asynccontextmanager
async def _task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a group of tasks that raises the first error itself, not a group of errors."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* LonglineError as several:
        raise first_error(several) from several
