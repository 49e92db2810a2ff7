"""Subscribers get every event at least once and in order, and hold up no other."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from longline.core.errors import BadOption
from longline.core.model import Event
from longline.engine.owner import this_host
from longline.engine.subscribers import Delivery, Subscription, subscribed
from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.subscribers import UnknownSubscriber
from longline.storage.store import Store, open_store
from tests.virtual import EPOCH, VirtualClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


async def append(store: Store, *names: str) -> None:
    await store.events.append(*(event_row("job", EPOCH, f"custom.{name}") for name in names))


def collecting(seen: list[str]) -> Callable[[Event], Awaitable[None]]:
    async def handle(event: Event) -> None:
        seen.append(event.type.removeprefix("custom."))

    return handle


async def test_events_are_delivered_in_order_while_the_block_runs(
    store: Store, clock: VirtualClock
) -> None:
    seen: list[str] = []
    async with subscribed(store, clock, "mail", collecting(seen)):
        await append(store, "a", "b")
        await append(store, "c")
        await clock.sleep(2)

    assert seen == ["a", "b", "c"]


async def test_delivery_continues_after_the_last_handled_event(
    store: Store, clock: VirtualClock
) -> None:
    seen: list[str] = []
    async with subscribed(store, clock, "mail", collecting(seen)):
        await append(store, "a")
        await clock.sleep(2)
    await append(store, "b")

    async with subscribed(store, clock, "mail", collecting(seen)):
        await clock.sleep(2)

    assert seen == ["a", "b"]


async def test_a_subscriber_that_fails_is_retried_and_holds_up_no_other(
    store: Store, clock: VirtualClock
) -> None:
    attempts: list[float] = []
    seen: list[str] = []

    async def fail(_event: Event) -> None:
        attempts.append(clock.now())
        if len(attempts) < 4:  # three failures
            raise RuntimeError("no answer")

    async with (
        subscribed(store, clock, "bad", fail),
        subscribed(store, clock, "good", collecting(seen)),
    ):
        await append(store, "a")
        await clock.sleep(5)
        (bad, good) = await store.subscribers.list()
        await clock.sleep(60)

    waits = [later - earlier for earlier, later in pairwise(attempts)]
    assert seen == ["a"]
    assert (good.lag, good.error) == (0, None)
    assert (bad.failures, bad.lag) == (3, 1)
    assert "no answer" in (bad.error or "")
    assert waits[0] < waits[1] < waits[2]
    assert [one.failures for one in await store.subscribers.list()] == [0, 0]


async def test_what_was_handled_before_a_failure_is_not_repeated(
    store: Store, clock: VirtualClock
) -> None:
    seen: list[str] = []

    async def handle(event: Event) -> None:
        seen.append(event.type)
        if seen == ["custom.a", "custom.b"]:
            raise RuntimeError

    async with subscribed(store, clock, "mail", handle):
        await append(store, "a", "b", "c")
        await clock.sleep(10)

    assert seen == ["custom.a", "custom.b", "custom.b", "custom.c"]


async def test_one_of_two_processes_delivers(store: Store, clock: VirtualClock) -> None:
    seen: list[str] = []
    await store.subscribers.add("mail", EventFilter(), clock.now(), None)
    await append(store, "a")
    first = Delivery(store, clock, Subscription("mail", collecting(seen)))
    second = Delivery(store, clock, Subscription("mail", collecting(seen)))

    delivered = [await one.deliver_batch() for one in (first, second, second)]

    assert delivered == [True, False, False]
    assert seen == ["a"]


@pytest.mark.parametrize(
    ("owner", "seconds"), [("elsewhere:1:1.00", 60), (f"{this_host()}:999999999:1.00", 0)]
)
async def test_another_process_continues_when_the_owner_is_dead_or_its_lease_expires(
    store: Store, clock: VirtualClock, owner: str, seconds: float
) -> None:
    seen: list[str] = []
    now = clock.now()
    await store.subscribers.add("mail", EventFilter(), now, None)
    await append(store, "a")
    await store.subscribers.claim("mail", owner, at=now, until=now + 60)

    async with subscribed(store, clock, "mail", collecting(seen)):
        await clock.sleep(seconds)
        before = [*seen]
        await clock.sleep(5)

    assert (before, seen) == ([], ["a"])


async def test_what_was_handled_before_a_stop_is_not_repeated(
    store: Store, clock: VirtualClock
) -> None:
    seen: list[str] = []
    is_at_c = asyncio.Event()

    async def hang_at_c(event: Event) -> None:
        seen.append(event.type.removeprefix("custom."))
        if seen[-1] == "c":
            is_at_c.set()
            await clock.sleep(30)

    async with subscribed(store, clock, "mail", hang_at_c):
        await append(store, *"abcd")
        await is_at_c.wait()
    async with subscribed(store, clock, "mail", collecting(seen)):
        await clock.sleep(2)

    assert seen == ["a", "b", "c", "c", "d"]


async def test_a_handler_that_exits_is_a_failure(store: Store, clock: VirtualClock) -> None:
    async def leave(_event: Event) -> None:
        sys.exit(3)

    async with subscribed(store, clock, "mail", leave):
        await append(store, "a")
        await clock.sleep(2)

    assert [one.failures for one in await store.subscribers.list()] == [2]


async def test_a_filter_of_another_version_is_a_failure(store: Store, clock: VirtualClock) -> None:
    await store.subscribers.add("mail", EventFilter(), clock.now(), None)
    await append(store, "a")
    with closing(sqlite3.connect(store.address.removeprefix("sqlite:///"))) as file, file:
        file.execute("""UPDATE subscribers SET types = '["job.unknown"]'""")

    is_delivered = await Delivery(
        store, clock, Subscription("mail", collecting([]))
    ).deliver_batch()

    (mail,) = await store.subscribers.list()
    assert (is_delivered, mail.failures, mail.cursor, mail.lag) == (False, 1, 0, 1)


async def test_an_idle_subscriber_is_only_read(store: Store, clock: VirtualClock) -> None:
    async with subscribed(store, clock, "mail", collecting([])):
        await clock.sleep(10)
        (idle,) = await store.subscribers.list()

    assert (idle.owner, idle.moved_at) == (None, None)


async def test_a_replay_reads_again(store: Store, clock: VirtualClock) -> None:
    seen: list[str] = []
    async with subscribed(store, clock, "mail", collecting(seen), start=0):
        await append(store, "a", "b")
        await clock.sleep(2)
        await store.subscribers.replay("mail", 1)
        await clock.sleep(2)

    assert seen == ["a", "b", "b"]


async def test_a_handler_that_takes_long_keeps_its_lease(store: Store, clock: VirtualClock) -> None:
    seen: list[str] = []

    async def slow(event: Event) -> None:
        await clock.sleep(15)
        seen.append(event.type.removeprefix("custom."))

    async with (
        subscribed(store, clock, "mail", slow),
        subscribed(store, clock, "mail", slow),
    ):
        await append(store, *"abcd")
        await clock.sleep(120)

    assert seen == ["a", "b", "c", "d"]


async def test_only_wanted_events_are_delivered(store: Store, clock: VirtualClock) -> None:
    seen: list[str] = []
    wanted = EventFilter(("custom.b",), job="job")
    async with subscribed(store, clock, "mail", collecting(seen), wanted=wanted):
        await append(store, "a", "b")
        await store.events.append(event_row("other", EPOCH, "custom.b"))
        await clock.sleep(2)

    assert seen == ["b"]


async def test_bad_subscriptions_are_refused(store: Store, clock: VirtualClock) -> None:
    handle = collecting([])
    with pytest.raises(BadOption):
        async with subscribed(store, clock, "mail", handle, wanted=EventFilter(("jbo.created",))):
            pass
    with pytest.raises(BadOption):
        async with subscribed(store, clock, "mail", handle, start=7):
            pass
    with pytest.raises(UnknownSubscriber):
        await store.subscribers.replay("mail", 0)


async def test_a_removed_subscriber_ends_its_delivery(store: Store, clock: VirtualClock) -> None:
    delivery = Delivery(store, clock, Subscription("mail", collecting([])))
    await store.subscribers.add("mail", EventFilter(), clock.now(), None)
    running = asyncio.create_task(delivery.run())
    await clock.sleep(2)
    await store.subscribers.remove("mail")

    with pytest.raises(UnknownSubscriber):
        await running
