"""Deliver events to subscribers: at least once, in order, each independent of the others."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from longline.core.clock import Clock, backoff, utc_datetime
from longline.core.errors import BadOption, ConfigError, LonglineError, StoreError, error_text
from longline.core.model import Event
from longline.engine.owner import dead_among, this_run
from longline.storage.events.events import EventFilter
from longline.storage.events.subscribers import Subscriber
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)
_POLL = 0.5  # seconds between two polls for new events
_LEASE = 60.0  # seconds; renewed while events are handled
_SAVE_INTERVAL = 1.0  # seconds after which the cursor is stored; a crash repeats what came later
_TIMEOUT = 40.0  # seconds that a handler has for one event, less than the lease
_BATCH = 200  # events that are read together
_FIRST_RETRY = 1.0  # seconds after a failure
_LONGEST_RETRY = 300.0

RetryWait = Callable[[int], float | None]
"""Returns the seconds to wait after this many failures in a row; None: there is no other retry."""
GiveUp = Callable[[BaseException], Awaitable[None]]
"""Called with the last error of an event that is not retried; disables the subscriber."""
Handler = Callable[[Event], Awaitable[None]]
"""Handles one event within 40 s; called again with the same event after a crash or a failure."""


async def find_cursor(store: Store, since: int | datetime | None) -> int:
    """Return the cursor after an event, before a time, or after all events."""
    if since is None:
        return await store.events.newest()
    if isinstance(since, datetime):
        return await store.events.before(since.timestamp())
    return since


async def complete_job(store: Store, wanted: EventFilter) -> EventFilter:
    """Return a filter with the whole id of its job, of which users may write the beginning.

    Raises:
        UnknownJob: there is no such job, or several ids begin so.
    """
    if wanted.job is None:
        return wanted
    return replace(wanted, job=(await store.jobs.get(wanted.job)).id)


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


def cloud_event(event: Event, log_id: str) -> dict[str, Any]:
    """Return an event for programs outside, with the attribute names of CloudEvents 1.0.

    `id` is unique together with `source`, which names the event log of one database.
    """
    attributes = {
        "id": str(event.id),
        "source": f"/longline/{log_id}",
        "type": event.type,
        "specversion": "1.0",
        "time": utc_datetime(event.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "subject": event.subject,
        "datacontenttype": "application/json",
        "longlinejob": event.job,
        "longlinekey": event.key,
        "data": dict(event.data),
    }
    return {name: value for name, value in attributes.items() if value is not None}


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
    subscription = Subscription(name, handle, wanted or EventFilter(), start)
    delivery = Delivery(store, clock, subscription)
    added = await delivery.subscribe()
    task = asyncio.create_task(delivery.run())
    try:
        yield added
    finally:
        task.cancel()
        await asyncio.wait([task])
        await delivery.close()
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def default_wait(failures: int) -> float:
    """Return 1 s after the first failure, then twice as long each time, up to 5 min."""
    return backoff(failures, base=_FIRST_RETRY, ceiling=_LONGEST_RETRY)


async def _never_give_up(_error: BaseException) -> None:
    """Do nothing: the default waits never end."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """How events are delivered to the subscriber `name`.

    `wanted` and `start` are as for `Subscribers.add`; if `wanted` is None, the subscriber was added
    before, and keeps its filter.
    """

    name: str
    handle: Handler
    wanted: EventFilter | None = None
    start: int | None = None
    retry_wait: RetryWait = default_wait
    give_up: GiveUp = _never_give_up


class BadSubscriber(ConfigError):
    """What a plugin provides is not a subscriber."""

    name: str
    problem: str
    message = "{name} cannot be used as a subscriber: {problem}"


def plugin_subscription(name: str, handler: Any) -> Subscription:
    """Return how events are delivered to the handler of a plugin, to a new one from now on.

    It is an async callable that takes an event. If it has the attributes `types`, `source` or
    `subject`, it gets only such events.

    Raises:
        BadSubscriber: it is not one.
    """
    method = getattr(type(handler), "__call__", None)  # noqa: B004  # it must be async
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(method):
        raise BadSubscriber(name, "it is not an async function or an object with async __call__")
    types = getattr(handler, "types", ())
    if not isinstance(types, (list, tuple)) or not all(isinstance(one, str) for one in types):
        raise BadSubscriber(name, "its types are not a list of event types")
    source, subject = getattr(handler, "source", None), getattr(handler, "subject", None)
    wanted = EventFilter(tuple(types), source=source, subject=subject)
    try:
        list(wanted.clauses())
    except BadOption as error:
        raise BadSubscriber(name, error.problem) from error
    return Subscription(f"plugin/{name}", handler, wanted)


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """What an attempt to deliver events has achieved.

    `events` were handled, the last of them is `cursor`. `error` is that of the next event, which is
    tried again at `due_at`; None: it is not.
    """

    subscriber: str
    events: int
    cursor: int
    error: str | None = None
    due_at: float | None = None


OnResult = Callable[[DeliveryResult], None]


def ignore_result(_result: DeliveryResult) -> None:
    """Do nothing with a result."""


class Delivery:
    """Delivers events to one subscriber, and retries what fails; close it at the end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        subscription: Subscription,
        on_result: OnResult = ignore_result,
    ) -> None:
        self._store = store
        self._clock = clock
        self._name = subscription.name
        self._subscription = subscription
        self._on_result = on_result
        self._owner = this_run()
        self._cursor = 0  # the last event that was handled
        self._saved = 0
        self._saved_at = 0.0

    async def subscribe(self) -> Subscriber:
        """Add the subscriber, or change what a known one wants.

        Raises:
            BadOption: there is no such event type, or `start` is past the newest event.
            UnknownSubscriber: it was removed.
        """
        wanted, start = self._subscription.wanted, self._subscription.start
        if wanted is None:
            return await self._store.subscribers.get(self._name)
        return await self._store.subscribers.add(self._name, wanted, self._clock.now(), start)

    async def run(self) -> None:
        """Deliver until cancelled, or until the subscriber is removed.

        Raises:
            UnknownSubscriber: it was removed.
            StoreError: the database cannot be used.
        """
        while True:
            if not await self.deliver_batch():
                await self._clock.sleep(_POLL)

    async def close(self) -> None:
        """Save the cursor, and let another process continue immediately."""
        with contextlib.suppress(StoreError):  # otherwise the lease expires
            if self._cursor > self._saved:
                await self._save()
            await self._store.subscribers.release(self._name, self._owner)

    async def deliver_batch(self) -> bool:
        """Deliver the next events; False when there are none, or when they have to wait."""
        claimed = await self._claim()
        if claimed is None:
            return False
        try:
            found, after = await self._store.events.read(
                claimed.cursor, claimed.wanted, limit=_BATCH
            )
        except BadOption as refused:  # its filter or its cursor is of another database
            await self._fail(claimed, 0, refused)
            return False
        handled, error = await self._handle_in_order(found)
        if error is not None:
            await self._fail(claimed, handled, error)
            return False
        if handled == len(found):
            self._cursor = after
            if after > self._saved:
                await self._save()
        if handled:
            self._on_result(DeliveryResult(self._name, handled, self._cursor))
        return bool(found)

    async def _claim(self) -> Subscriber | None:
        now = self._clock.now()
        due = await self._store.subscribers.find_due(self._name, now)
        if due is None:
            return None  # while it is idle, it only reads
        dead = [] if due.owner is None else dead_among([due.owner])
        claimed = await self._store.subscribers.claim(
            self._name, self._owner, at=now, until=now + _LEASE, dead=dead
        )
        if claimed is not None:
            self._cursor = self._saved = claimed.cursor
            self._saved_at = now
        return claimed

    async def _handle_in_order(self, found: Sequence[Event]) -> tuple[int, BaseException | None]:
        """Return how many events were handled, and the error of the next one.

        Without an error, not all are handled when the lease was lost.
        """
        for number, event in enumerate(found):
            # What was handled is not repeated if this process dies.
            is_due = self._clock.now() - self._saved_at >= _SAVE_INTERVAL
            if is_due and not await self._save():
                return number, None
            try:
                async with asyncio.timeout(_TIMEOUT):
                    await self._subscription.handle(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001  # the edge of a subscriber
                return number, error
            self._cursor = event.id
        return len(found), None

    async def _save(self) -> bool:
        """Store the cursor and renew the lease; False when it was lost."""
        now = self._clock.now()
        is_kept = await self._store.subscribers.advance(
            self._name, self._owner, cursor=self._cursor, at=now, until=now + _LEASE
        )
        self._saved, self._saved_at = self._cursor, now
        return is_kept

    async def _fail(self, claimed: Subscriber, handled: int, error: BaseException) -> None:
        failures = 1 if self._cursor > claimed.cursor else claimed.failures + 1
        wait = self._subscription.retry_wait(failures)
        text = str(error) if isinstance(error, LonglineError) else error_text(error)
        following = "no further attempts" if wait is None else f"next attempt in {wait:g} s"
        _LOG.warning("subscriber %s failed; %s: %s", self._name, following, text)
        due_at = self._clock.now() + (wait or 0.0)
        await self._store.subscribers.fail(
            self._name,
            self._owner,
            cursor=self._cursor,
            failures=failures,
            due_at=due_at,
            error=f"{type(error).__name__}: {text}",
        )
        self._saved = self._cursor
        if wait is None:
            await self._subscription.give_up(error)
        self._on_result(
            DeliveryResult(
                self._name, handled, self._cursor, text, None if wait is None else due_at
            )
        )
