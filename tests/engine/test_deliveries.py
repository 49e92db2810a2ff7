"""All subscribers of a home get their events, whatever happens to one of them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from longline.core.errors import StoreError
from longline.core.model import Event
from longline.engine.deliveries import EventDeliveries
from longline.engine.runtime import in_background
from longline.engine.subscribers import DeliveryResult, Subscription
from longline.engine.webhooks import WebhookSender
from longline.http.transport import HttpOptions
from longline.storage.events.events import EventFilter, EventRow, event_row
from longline.storage.events.webhooks import Webhook
from longline.storage.store import Store, open_store
from tests.scripted_site import ScriptedSite
from tests.virtual import EPOCH, VirtualClock


class Received(list[str]):
    """The types of the events that a webhook or a handler has received."""

    async def handle(self, event: Event) -> None:
        self.append(event.type.removeprefix("custom."))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.append((await request.json())["type"].removeprefix("custom."))
        return web.Response()


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "whsec_" + "bmV3" * 8)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'longline.sqlite'}") as store:
        yield store


@pytest.fixture
async def sender(store: Store, clock: VirtualClock) -> AsyncIterator[WebhookSender]:
    sender = WebhookSender(store, clock, HttpOptions(has_limit=False))
    yield sender
    await sender.close()


@pytest.fixture
def received(site: ScriptedSite) -> Received:
    received = Received()
    site.answers["/hook"] = received.answer
    return received


async def add_webhook(store: Store, name: str, url: str) -> None:
    webhook = Webhook(name, url, ("env:HOOK",), allows_private=True, created_at=EPOCH)
    await store.webhooks.add(webhook, EventFilter())


async def append(store: Store, *names: str) -> None:
    await store.events.append(*(event_row("job", EPOCH, f"custom.{name}") for name in names))


async def test_a_subscriber_that_fails_holds_up_no_other(
    store: Store,
    sender: WebhookSender,
    clock: VirtualClock,
    site: ScriptedSite,
    received: Received,
) -> None:
    async def fail(_event: Event) -> None:
        raise RuntimeError

    async def stop(_event: Event) -> None:
        raise asyncio.CancelledError

    heard = Received()
    others = [
        Subscription("broken", fail, EventFilter()),
        Subscription("cancelled", stop, EventFilter()),
        Subscription("heard", heard.handle, EventFilter(("custom.b",))),
    ]
    await add_webhook(store, "missing", f"{site.url}/missing")
    await add_webhook(store, "chat", f"{site.url}/hook")

    async with in_background(EventDeliveries(store, clock, sender, others).run()):
        await clock.sleep(1)
        await append(store, "a", "b")
        await clock.sleep(20)

    assert received == ["a", "b"]
    assert heard == ["b"]
    lags = {one.name: one.lag for one in await store.subscribers.list()}
    assert lags == {
        "broken": 2,
        "cancelled": 2,
        "heard": 0,
        "webhook/chat": 0,
        "webhook/missing": 2,
    }


async def test_webhooks_may_be_added_and_removed_while_it_runs(
    store: Store,
    sender: WebhookSender,
    clock: VirtualClock,
    site: ScriptedSite,
    received: Received,
) -> None:
    async with in_background(EventDeliveries(store, clock, sender).run()):
        await clock.sleep(1)
        await add_webhook(store, "chat", f"{site.url}/hook")
        await append(store, "a")
        await clock.sleep(10)
        await store.webhooks.remove("chat")
        await append(store, "b")
        await clock.sleep(10)
        await add_webhook(store, "chat", f"{site.url}/hook")
        await append(store, "c")
        await clock.sleep(10)

    assert received == ["a", "c"]


async def test_a_stop_saves_the_cursors_and_releases_the_leases(
    store: Store, sender: WebhookSender, clock: VirtualClock
) -> None:
    is_at_c = asyncio.Event()

    async def hang_at_c(event: Event) -> None:
        if event.type == "custom.c":
            is_at_c.set()
            await clock.sleep(30)

    others = [Subscription("slow", hang_at_c, EventFilter())]
    async with in_background(EventDeliveries(store, clock, sender, others).run()):
        await clock.sleep(1)
        await append(store, *"abcd")
        await is_at_c.wait()

    (slow,) = await store.subscribers.list()
    assert (slow.cursor, slow.owner, slow.lag) == (2, None, 2)


async def test_once_delivers_what_is_due_and_reports_each_attempt(
    store: Store,
    sender: WebhookSender,
    clock: VirtualClock,
    site: ScriptedSite,
    received: Received,
) -> None:
    await add_webhook(store, "chat", f"{site.url}/hook")
    await add_webhook(store, "missing", f"{site.url}/missing")
    await append(store, "a", "b")
    results: list[DeliveryResult] = []
    deliveries = EventDeliveries(store, clock, sender, on_result=results.append)

    await deliveries.run_once()
    await deliveries.run_once()

    assert received == ["a", "b"]
    found = {one.subscriber: one for one in results}
    assert len(results) == 2
    assert found["webhook/chat"] == DeliveryResult("webhook/chat", 2, 2)
    failed = found["webhook/missing"]
    assert (failed.events, failed.cursor) == (0, 0)
    assert "404" in (failed.error or "")
    assert failed.due_at == pytest.approx(clock.now() + 5, abs=2)


async def test_a_database_that_fails_is_one_error(
    store: Store, sender: WebhookSender, clock: VirtualClock, tmp_path: Path
) -> None:
    await add_webhook(store, "chat", "https://chat.test/")
    with closing(sqlite3.connect(tmp_path / "longline.sqlite")) as file:
        file.execute("DROP TABLE subscribers")

    with pytest.raises(StoreError):
        await EventDeliveries(store, clock, sender).run_once()


def changed(source: str) -> EventRow:
    counts = {"new": 1, "changed": 0, "gone": 0, "returned": 0, "unlisted": 1}
    data: dict[str, Any] = {"source": source, "state": "complete", **counts, "records": []}
    return event_row(None, EPOCH, "source.changed", **data)


@pytest.fixture
async def watched(store: Store, site: ScriptedSite) -> None:
    """A webhook that gets no events but the changes of the source shop."""
    webhook = Webhook("hooks", site.url + "/hook", ("env:HOOK",), allows_private=True)
    await store.webhooks.add(webhook, EventFilter(("job.failed",)))
    await store.webhooks.watch("hooks", "shop", EPOCH)


@pytest.mark.usefixtures("watched")
async def test_a_watch_sends_the_changes_of_its_source(
    store: Store, sender: WebhookSender, clock: VirtualClock, received: Received
) -> None:
    await store.events.append(changed("shop"), changed("other"))
    await append(store, "a")

    await EventDeliveries(store, clock, sender).run_once()
    await EventDeliveries(store, clock, sender).run_once()

    assert received == ["source.changed"]


@pytest.mark.usefixtures("watched")
async def test_a_disabled_webhook_gets_its_changes_when_enabled(
    store: Store, sender: WebhookSender, clock: VirtualClock, received: Received
) -> None:
    await store.webhooks.disable("hooks", "down", EPOCH)
    await store.events.append(changed("shop"))
    await EventDeliveries(store, clock, sender).run_once()
    assert received == []

    await store.webhooks.enable("hooks")
    await EventDeliveries(store, clock, sender).run_once()

    assert received == ["source.changed"]


@pytest.mark.usefixtures("watched")
async def test_removing_a_webhook_removes_its_watches(store: Store) -> None:
    await store.webhooks.remove("hooks")

    assert await store.subscribers.list() == []
    assert await store.webhooks.watches() == []
