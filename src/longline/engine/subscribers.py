"""Deliver events to subscribers: at least once, in order, each independent of the others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from longline.core.clock import Clock, backoff
from longline.core.errors import LonglineError, StoreError, error_text
from longline.core.model import Event
from longline.engine.owner import this_run
from longline.storage.events import EventFilter
from longline.storage.store import Store
from longline.storage.subscribers import Subscriber

_LOG = logging.getLogger(__name__)
_POLL = 0.5  # seconds between two looks for new events
_LEASE = 60.0  # seconds; renewed while events are handled
_TIMEOUT = 40.0  # seconds that a handler has for one event, less than the lease
_BATCH = 200  # events that are read together
_FIRST_RETRY = 1.0  # seconds after a failure
_LONGEST_RETRY = 300.0

RetryWait = Callable[[int], float]
"""Returns the seconds to wait after this many failures in a row."""
Handler = Callable[[Event], Awaitable[None]]
"""Handles one event within 40 s; called again with the same event after a crash or a failure."""


async def find_cursor(store: Store, since: int | datetime | None) -> int:
    """Return the cursor after an event, before a time, or after all events."""
    if since is None:
        return await store.events.newest()
    if isinstance(since, datetime):
        return await store.events.before(since.timestamp())
    return since


async def read_events(
    store: Store, clock: Clock, wanted: EventFilter, after: int, *, follows: bool = True
) -> AsyncIterator[Event]:
    """Yield the events after a cursor in the order of their commits; with `follows`, without end.

    Raises:
        BadOption: there is no such event type, or the cursor is past the newest event.
    """
    while True:
        found, after = await store.events.read(after, wanted)
        for event in found:
            yield event
        if not found:
            if not follows:
                return
            await clock.sleep(_POLL)


@contextlib.asynccontextmanager
async def subscribed(
    store: Store,
    clock: Clock,
    name: str,
    handle: Handler,
    *,
    wanted: EventFilter | None = None,
    start: int | None = None,
) -> AsyncIterator[Subscriber]:
    """Deliver events to a handler while the block runs; the cursor survives the process.

    Of several processes with a subscriber of this name, one delivers at a time.

    Raises:
        BadOption: there is no such event type, or `start` is past the newest event.
    """
    added = await store.subscribers.add(name, wanted or EventFilter(), clock.now(), start)
    delivery = Delivery(store, clock, name, handle)
    task = asyncio.create_task(delivery.run())
    try:
        yield added
    finally:
        task.cancel()
        await asyncio.wait([task])
        with contextlib.suppress(StoreError):  # otherwise the lease expires
            await store.subscribers.release(name, delivery.owner)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def default_wait(failures: int) -> float:
    """Return 1 s after the first failure, then twice as long each time, up to 5 min."""
    return backoff(failures, base=_FIRST_RETRY, ceiling=_LONGEST_RETRY)


class Delivery:
    """Delivers events to one subscriber; a failure is retried after `retry_wait`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        name: str,
        handle: Handler,
        retry_wait: RetryWait = default_wait,
    ) -> None:
        self._store = store
        self._clock = clock
        self._name = name
        self._handle = handle
        self._retry_wait = retry_wait
        self.owner = this_run()

    async def run(self) -> None:
        """Deliver until cancelled, or until the subscriber is removed.

        Raises:
            UnknownSubscriber: it was removed.
            StoreError: the database cannot be used.
        """
        while True:
            if not await self.deliver_batch():
                await self._clock.sleep(_POLL)

    async def deliver_batch(self) -> bool:
        """Deliver the next events; False when there are none, or when they have to wait."""
        now = self._clock.now()
        if not await self._store.subscribers.is_due(self._name, now):
            return False  # while it is idle, it only reads
        claimed = await self._store.subscribers.claim(self._name, self.owner, now, now + _LEASE)
        if claimed is None:
            return False
        found, after = await self._store.events.read(claimed.cursor, claimed.wanted, limit=_BATCH)
        handled, error = await self._handle_in_order(found, claimed.cursor)
        if error is not None:
            await self._fail(claimed, handled, error)
            return False
        if after > claimed.cursor:
            now = self._clock.now()
            await self._store.subscribers.advance(self._name, self.owner, after, now)
        return bool(found)

    async def _handle_in_order(
        self, found: Sequence[Event], cursor: int
    ) -> tuple[int, Exception | None]:
        """Return the last event that was handled, and the error of the next one."""
        renewed = self._clock.now()
        for event in found:
            if self._clock.now() - renewed > _LEASE / 4:
                renewed = self._clock.now()
                # What was handled is not repeated if this process dies.
                if not await self._store.subscribers.advance(
                    self._name, self.owner, cursor, renewed
                ):
                    return cursor, None
                await self._store.subscribers.claim(
                    self._name, self.owner, renewed, renewed + _LEASE
                )
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self._handle(event)
            except Exception as error:  # noqa: BLE001  # the edge of a subscriber
                return cursor, error
            cursor = event.id
        return cursor, None

    async def _fail(self, claimed: Subscriber, cursor: int, error: Exception) -> None:
        failures = 1 if cursor > claimed.cursor else claimed.failures + 1
        wait = self._retry_wait(failures)
        text = str(error) if isinstance(error, LonglineError) else error_text(error)
        _LOG.warning("subscriber %s failed; next attempt in %g s: %s", self._name, wait, text)
        await self._store.subscribers.fail(
            self._name,
            self.owner,
            cursor=cursor,
            failures=failures,
            due_at=self._clock.now() + wait,
            error=f"{type(error).__name__}: {text}",
        )
