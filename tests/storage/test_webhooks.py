"""Webhooks and the log of their deliveries, on both databases."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from longline.core.errors import BadOption
from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import UnknownWebhook, Webhook, WebhookDelivery
from longline.storage.store import Store
from tests.virtual import EPOCH

CHAT = Webhook("chat", "https://chat.test/", ("env:NEW", "env:OLD"), created_at=EPOCH)
MADE = WebhookDelivery("chat", 1, "evt_1", EPOCH, 503, 0.5, "the receiver responded 503")


async def test_a_webhook_is_changed_by_adding_it_again(store: Store) -> None:
    added = await store.webhooks.add(CHAT, EventFilter(("job.*",)))

    changed = replace(CHAT, url="https://other.test/", created_at=EPOCH + 9)
    again = await store.webhooks.add(changed, EventFilter(("record.*",)))

    (one,) = await store.subscribers.list()
    assert added == CHAT
    assert again == replace(CHAT, url="https://other.test/")
    assert one.wanted.types == ("record.*",)


async def test_a_disabled_webhook_is_enabled_by_a_command_or_by_adding_it(store: Store) -> None:
    await store.webhooks.add(CHAT, EventFilter(("custom.a",)))
    await store.webhooks.disable("chat", "it is gone", EPOCH)
    await store.webhooks.disable("chat", "it is gone again", EPOCH)
    disabled = await store.webhooks.get("chat")
    (idle,) = await store.subscribers.list()

    enabled = await store.webhooks.enable("chat")
    (active,) = await store.subscribers.list()
    await store.webhooks.disable("chat", "no", EPOCH)
    added = await store.webhooks.add(CHAT, EventFilter())

    events = await store.events.last(EventFilter(("webhook.*",)), limit=9)
    assert disabled == replace(CHAT, is_enabled=False, disabled_reason="it is gone")
    assert (idle.is_enabled, active.is_enabled) == (False, True)
    assert enabled == added == CHAT
    assert [(event.subject, event.data["reason"]) for event in events] == [
        ("webhook/chat", "it is gone"),
        ("webhook/chat", "no"),
    ]


async def test_attempts_of_a_message_are_counted(store: Store) -> None:
    await store.webhooks.add(CHAT, EventFilter())

    first = await store.webhooks.log_delivery(MADE)
    other = await store.webhooks.log_delivery(replace(MADE, event_id=2, message_id="evt_2"))
    second = await store.webhooks.log_delivery(replace(MADE, status=200, error=None))

    assert [one.attempt for one in (first, other, second)] == [1, 1, 2]
    assert await store.webhooks.deliveries("chat") == [first, other, second]
    assert await store.webhooks.deliveries("chat", limit=1) == [second]


async def test_the_last_thousand_deliveries_are_kept(store: Store) -> None:
    await store.webhooks.add(CHAT, EventFilter())
    made = [replace(MADE, event_id=one, message_id=f"evt_{one}") for one in range(1, 1004)]

    await asyncio.gather(*map(store.webhooks.log_delivery, made))

    kept = await store.webhooks.deliveries("chat")
    assert [one.event_id for one in kept] == list(range(4, 1004))


async def test_a_removed_webhook_leaves_nothing(store: Store) -> None:
    await store.webhooks.add(CHAT, EventFilter())
    await store.webhooks.log_delivery(MADE)

    await store.webhooks.remove("chat")

    assert await store.webhooks.list() == []
    assert await store.subscribers.list() == []
    with pytest.raises(UnknownWebhook):
        await store.webhooks.deliveries("chat")


async def test_an_unknown_event_type_adds_nothing(store: Store) -> None:
    with pytest.raises(BadOption):
        await store.webhooks.add(CHAT, EventFilter(("jobs.*",)))

    assert await store.webhooks.list() == []


async def test_a_subscriber_of_a_webhook_is_removed_only_with_it(store: Store) -> None:
    await store.webhooks.add(CHAT, EventFilter())

    with pytest.raises(BadOption):
        await store.subscribers.remove("webhook/chat")
