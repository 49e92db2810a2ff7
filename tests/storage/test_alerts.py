"""Alerts and silences, each change with its event, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from longline.core.model import Event
from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import WebhookDelivery
from longline.storage.monitoring.alerts import (
    Alert,
    AlertChange,
    AlertState,
    Notification,
    Silence,
    UnknownAlert,
    UnknownSilence,
)
from longline.storage.store import Store, open_store
from tests.virtual import EPOCH

DAY = 86_400.0
FIRING = Alert(
    rule="failed",
    subject="source/shop",
    state=AlertState.FIRING,
    severity="warning",
    summary="it failed \ud800",
    evidence={"observed": 3, "text": "\ud800"},
    action="look",
    since=EPOCH - 9,
    seen_at=EPOCH,
    fired_at=EPOCH,
)
DATA = {"title": "t", "text": "x", "alerts": [], "unlisted": 0}


async def add(store: Store, *alerts: Alert) -> Sequence[Alert]:
    changes = [AlertChange(one, "alert.firing") for one in alerts]
    await store.alerts.change(lambda _opened: changes, EPOCH)
    return await store.alerts.list(with_resolved=True)


async def events(store: Store, *types: str) -> Sequence[Event]:
    return await store.events.last(EventFilter(types or ("alert.*",)), limit=100)


async def test_a_new_alert_is_stored_with_its_event(store: Store) -> None:
    (added,) = await add(store, FIRING)

    (event,) = await events(store)
    assert added == replace(
        FIRING,
        id=added.id,
        summary="it failed \\ud800",
        evidence={"observed": 3, "text": "\\ud800"},
    )
    assert (event.type, event.subject, event.data["alert"]) == (
        "alert.firing",
        f"alert/{added.id}",
        added.id,
    )
    assert event.data["evidence"]["observed"] == 3


async def test_one_alert_of_a_rule_and_subject_is_open(store: Store, address: str) -> None:
    """Two servers that find the same condition at the same time open one alert."""

    def fire(opened: Sequence[Alert]) -> Sequence[AlertChange]:
        return [] if opened else [AlertChange(FIRING, "alert.firing")]

    with open_store(address) as other:
        servers = [store, other] * 5
        await asyncio.gather(*(one.alerts.change(fire, EPOCH) for one in servers))

    assert len(await store.alerts.list()) == 1
    assert len(await events(store)) == 1


async def test_a_pending_alert_is_dropped_without_a_trace(store: Store) -> None:
    pending = replace(FIRING, state=AlertState.PENDING, fired_at=None)
    await store.alerts.change(lambda _: [AlertChange(pending)], EPOCH)

    await store.alerts.change(lambda opened: [AlertChange(opened[0], is_dropped=True)], EPOCH)

    assert not await store.alerts.list(with_resolved=True)
    assert not await events(store)


async def test_firing_and_critical_alerts_are_listed_first(store: Store) -> None:
    await add(
        store,
        replace(FIRING, rule="old", since=EPOCH - 100),
        replace(FIRING, rule="done", state=AlertState.RESOLVED, resolved_at=EPOCH),
        replace(FIRING, rule="wait", state=AlertState.PENDING, severity="critical"),
        replace(FIRING, rule="new"),
        replace(FIRING, rule="worst", severity="critical", since=EPOCH - 200),
    )

    some = await store.alerts.list()
    everything = await store.alerts.list(with_resolved=True)

    assert [one.rule for one in some] == ["worst", "new", "old", "wait"]
    assert [one.rule for one in everything] == ["worst", "new", "old", "wait", "done"]


async def test_a_missing_alert_is_an_error(store: Store) -> None:
    with pytest.raises(UnknownAlert):
        await store.alerts.get(7)


async def test_resolved_alerts_are_deleted_after_90_days(store: Store) -> None:
    await add(
        store,
        replace(FIRING, rule="old", state=AlertState.RESOLVED, resolved_at=EPOCH),
        replace(FIRING, rule="open"),
    )

    await store.alerts.change(lambda _: [], EPOCH + 91 * DAY)

    assert [one.rule for one in await store.alerts.list(with_resolved=True)] == ["open"]


async def test_a_notification_marks_its_alerts_and_adds_the_channels(store: Store) -> None:
    (added,) = await add(store, FIRING)
    notification = Notification(
        "source/shop", "new", ("mail:ops", "webhook:chat"), (added.id,), (added.id,), DATA
    )

    await store.alerts.notify(lambda _alerts, _silences: [notification], EPOCH + 5)

    (event,) = await events(store, "alert.notified")
    marked = await store.alerts.get(added.id)
    subscribers = await store.subscribers.list()
    assert (event.subject, event.data["channels"]) == (
        "alert_group/source/shop",
        ["mail:ops", "webhook:chat"],
    )
    assert (marked.notified_at, marked.escalated_at) == (EPOCH + 5, EPOCH + 5)
    assert [(one.name, one.lag) for one in subscribers] == [
        ("alert/mail:ops", 1),
        ("alert/webhook:chat", 1),
    ]


async def test_the_subscribers_of_channels_that_are_gone_are_removed(store: Store) -> None:
    await add(store, FIRING)
    notification = Notification("g", "new", ("mail:a", "mail:b"), (1,), data=DATA)
    await store.alerts.notify(lambda _alerts, _silences: [notification], EPOCH)
    await store.subscribers.add("alertness", EventFilter(), EPOCH, None)

    removed = await store.alerts.keep_channels(["mail:b"])

    assert removed == 1
    assert [one.name for one in await store.subscribers.list()] == ["alert/mail:b", "alertness"]


async def test_what_was_sent_about_an_alert_is_found(store: Store) -> None:
    first, second = await add(store, FIRING, replace(FIRING, rule="other"))
    data = {**DATA, "alerts": [_listed(first)]}
    notification = Notification("g", "new", ("mail:a",), (first.id,), data=data)
    await store.alerts.notify(lambda _alerts, _silences: [notification], EPOCH)
    (event,) = await events(store, "alert.notified")
    await store.webhooks.log_delivery(
        WebhookDelivery("mail:a", event.id, "m1", EPOCH, 250, 0.1, None)
    )
    await store.webhooks.log_delivery(WebhookDelivery("chat", 1, "m2", EPOCH, 200, 0.1, None))

    (sent,) = await store.alerts.notifications(first)
    deliveries = await store.alerts.deliveries()

    assert (sent.event_id, sent.reason, sent.channels) == (event.id, "new", ("mail:a",))
    assert not await store.alerts.notifications(second)
    assert [(channel, made.message_id) for channel, made in deliveries] == [("mail:a", "m1")]
    assert await store.webhooks.was_delivered("mail:a", "m1")
    assert not await store.webhooks.was_delivered("mail:a", "m2")


async def test_a_silence_is_active_until_its_time_or_its_end(store: Store) -> None:
    long = await store.alerts.silence(Silence("failed", None, EPOCH + 100, "repair", EPOCH))
    await store.alerts.silence(Silence(None, "source/*", EPOCH + 10, "short", EPOCH))

    active = [len(await store.alerts.silences(at)) for at in (EPOCH, EPOCH + 50)]
    await store.alerts.unsilence(long.id, EPOCH + 50)

    assert active == [2, 1]
    assert not await store.alerts.silences(EPOCH + 50)
    assert [one.type for one in await events(store)] == [
        "alert.silenced",
        "alert.silenced",
        "alert.unsilenced",
    ]
    with pytest.raises(UnknownSilence):
        await store.alerts.unsilence(long.id, EPOCH + 60)


async def test_open_and_unreported_alerts_may_be_notified(store: Store) -> None:
    ended = replace(FIRING, state=AlertState.RESOLVED, resolved_at=EPOCH)
    await add(store, ended, replace(ended, rule="unreported", notified_at=EPOCH - 5))
    quiet = await store.alerts.is_quiet()
    silence = await store.alerts.silence(Silence(None, None, EPOCH + 9, "", EPOCH))

    found, silences = await store.alerts.candidates(EPOCH)

    assert quiet
    assert [one.rule for one in found] == ["unreported"]
    assert silences == [silence]
    assert await store.alerts.candidates(EPOCH + 3 * DAY) == ([], [])


def _listed(alert: Alert) -> dict[str, object]:
    return {
        "alert": alert.id,
        "rule": alert.rule,
        "subject": alert.subject,
        "state": alert.state.value,
        "severity": alert.severity,
        "summary": alert.summary,
        "evidence": {},
        "action": alert.action,
        "since": alert.since,
        "resolved_at": None,
    }
