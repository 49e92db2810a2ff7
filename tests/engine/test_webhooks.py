"""Webhooks are signed as receivers verify them, and retried with the same id."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook as Verifier

from longline.core.errors import BadOption, StoreError, UnknownSecret
from longline.engine.subscribers import Delivery
from longline.engine.webhooks import WebhookSender, check_webhook, webhook_wait
from longline.http.transport import HttpOptions
from longline.storage.events import EventFilter, event_row
from longline.storage.store import Store, open_store
from longline.storage.subscribers import Subscriber
from longline.storage.webhooks import UnknownWebhook, Webhook
from tests.scripted_site import ScriptedSite
from tests.virtual import EPOCH, VirtualClock

NEW = "whsec_" + "bmV3" * 8
OLD = "whsec_" + "b2xk" * 8
HOUR = 3600


class Receiver:
    """Keeps the messages that arrive at `/hook` of a site, and responds with `status`."""

    def __init__(self, site: ScriptedSite) -> None:
        self.url = f"{site.url}/hook"
        self.site = site
        self.status = 200
        self.headers: dict[str, str] = {}
        self.messages: list[tuple[dict[str, str], bytes]] = []
        site.answers["/hook"] = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        names = ("webhook-id", "webhook-timestamp", "webhook-signature")
        headers = {name: request.headers[name] for name in names}
        self.messages.append((headers, await request.read()))
        return web.Response(status=self.status, headers=self.headers)

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers, _ in self.messages]

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.messages]


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", NEW)
    monkeypatch.setenv("OLD", OLD)


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
def receiver(site: ScriptedSite) -> Receiver:
    return Receiver(site)


async def add(
    store: Store, url: str, *secrets: str, allows_private: bool = True, types: tuple[str, ...] = ()
) -> Webhook:
    webhook = Webhook("chat", url, secrets or ("env:NEW",), allows_private, created_at=EPOCH)
    return await store.webhooks.add(webhook, EventFilter(types))


async def append(store: Store, *names: str, **data: Any) -> None:
    rows = [event_row("job-1", EPOCH, f"custom.{name}", key="k", **data) for name in names]
    await store.events.append(*rows)


async def subscriber(store: Store) -> Subscriber:
    (one,) = await store.subscribers.list()
    return one


async def run_for(sender: WebhookSender, clock: VirtualClock, seconds: float) -> None:
    task = asyncio.create_task(sender.run())
    await clock.sleep(seconds)
    task.cancel()
    await asyncio.wait([task])


async def retry_for(
    store: Store, sender: WebhookSender, clock: VirtualClock, seconds: float
) -> None:
    """Deliver whenever a retry is due; polling for hours would take long, even on virtual time."""
    delivery = sender.delivery("chat")
    end = clock.now() + seconds
    while clock.now() < end:
        if not await delivery.deliver_batch():
            due = (await subscriber(store)).due_at
            await clock.sleep((due if clock.now() < due < end else end) - clock.now())
    await store.subscribers.release("webhook/chat", delivery.owner)


def signature(secret: str, headers: dict[str, str], body: bytes) -> str:
    """Return the signature that a receiver with this secret expects."""
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    return Verifier(secret).sign(headers["webhook-id"], at, body.decode())


async def test_an_event_is_sent_signed_as_a_cloud_event(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    await add(store, receiver.url)
    await append(store, "a", price=5)

    await run_for(sender, clock, 2)

    ((headers, body),) = receiver.messages
    assert headers["webhook-id"] == "evt_1"
    assert int(headers["webhook-timestamp"]) >= EPOCH
    assert headers["webhook-signature"] == signature(NEW, headers, body)
    assert json.loads(body) == {
        "id": "1",
        "source": "/longline",
        "type": "custom.a",
        "specversion": "1.0",
        "time": "2027-01-15T08:00:00.000Z",
        "subject": "job/job-1",
        "datacontenttype": "application/json",
        "longlinejob": "job-1",
        "longlinekey": "k",
        "data": {"price": 5},
    }
    (made,) = await store.webhooks.deliveries("chat")
    assert (made.status, made.error, made.event_id, made.attempt) == (200, None, 1, 1)


async def test_two_secrets_give_two_signatures(
    store: Store, sender: WebhookSender, receiver: Receiver
) -> None:
    webhook = await add(store, receiver.url, "env:NEW", "env:OLD")
    await append(store, "a")

    await sender.send(webhook, await store.events.get(1))

    ((headers, body),) = receiver.messages
    expected = [signature(secret, headers, body) for secret in (NEW, OLD)]
    assert headers["webhook-signature"].split(" ") == expected


async def test_a_receiver_that_recovers_gets_all_events_with_the_same_ids(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.status = 503
    await add(store, receiver.url)
    await append(store, "a", "b")

    await retry_for(store, sender, clock, HOUR)
    failed = await subscriber(store)
    receiver.status = 200
    await retry_for(store, sender, clock, 2 * HOUR)

    assert failed.failures == 4  # after 0 s, 5 s, 5 min and 30 min
    assert receiver.ids == [*["evt_1"] * 5, "evt_2"]
    made = await store.webhooks.deliveries("chat")
    assert [one.attempt for one in made] == [1, 2, 3, 4, 5, 1]
    waits = [later.at - earlier.at for earlier, later in pairwise(made[:5])]
    assert waits == pytest.approx([5, 300, 1800, 2 * HOUR], abs=2)
    assert (await subscriber(store)).lag == 0


def test_the_waits_grow_to_a_day_and_stay_there() -> None:
    waits = [webhook_wait(failures) for failures in range(1, 13)]

    hours = [2, 5, 10, 14, 20, 24, 24, 24, 24]
    assert waits == [5, 300, 1800, *(one * HOUR for one in hours)]


async def test_a_redirect_is_a_failure_and_is_not_followed(
    store: Store, sender: WebhookSender, receiver: Receiver
) -> None:
    receiver.status, receiver.headers = 307, {"location": f"{receiver.site.url}/other"}
    webhook = await add(store, receiver.url)
    await append(store, "a")

    made = await sender.send(webhook, await store.events.get(1))

    assert made.status == 307
    assert made.error is not None
    assert receiver.site.hits == {"/hook": 1}


async def test_410_disables_until_the_webhook_is_added_again(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.status = 410
    await add(store, receiver.url)
    await append(store, "a")

    await retry_for(store, sender, clock, 2 * HOUR)
    disabled = await store.webhooks.get("chat")
    receiver.status = 200
    await add(store, receiver.url)
    await run_for(sender, clock, 2)

    assert not disabled.is_enabled
    assert disabled.disabled_reason
    assert receiver.ids == ["evt_1", "evt_1"]
    assert (await store.webhooks.get("chat")).is_enabled


async def test_a_receiver_that_hangs_times_out_after_20_seconds(
    store: Store, sender: WebhookSender, site: ScriptedSite
) -> None:
    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(HOUR)
        return web.Response()

    site.answers["/hook"] = hang
    webhook = await add(store, f"{site.url}/hook")
    await append(store, "a")

    made = await sender.send(webhook, await store.events.get(1))

    assert made.status is None
    assert made.seconds == pytest.approx(20, abs=1)


async def test_an_event_of_a_killed_sender_is_sent_again_with_the_same_id(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    webhook = await add(store, receiver.url)
    await append(store, "a")
    killed = sender.delivery("chat")
    now = clock.now()
    await store.subscribers.claim("webhook/chat", killed.owner, now, now + 60)
    await sender.send(webhook, await store.events.get(1))  # and dies before its cursor moves
    other: Delivery = sender.delivery("chat")

    before = await other.deliver_batch()
    await clock.sleep(90)
    after = await other.deliver_batch()

    assert (before, after) == (False, True)
    assert receiver.ids == ["evt_1", "evt_1"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_private_address_is_refused(
    store: Store, sender: WebhookSender, receiver: Receiver, host: str
) -> None:
    url = receiver.url.replace("127.0.0.1", host)
    webhook = await add(store, url, allows_private=False)
    await append(store, "a")

    made = await sender.send(webhook, await store.events.get(1))

    assert made.status is None
    assert "--allow-private" in (made.error or "")
    assert receiver.messages == []


async def test_metadata_services_are_refused_even_then(store: Store, sender: WebhookSender) -> None:
    webhook = await add(store, "http://169.254.169.254/hook")
    await append(store, "a")

    made = await sender.send(webhook, await store.events.get(1))

    assert made.status is None
    assert "169.254.169.254 is not a public address" in (made.error or "")


async def test_large_data_is_left_out(
    store: Store, sender: WebhookSender, receiver: Receiver
) -> None:
    webhook = await add(store, receiver.url)
    await append(store, "a", text="x" * 20_000)

    await sender.send(webhook, await store.events.get(1))

    (body,) = receiver.bodies
    assert body["data"] is None
    assert body["longlinetruncated"] is True


async def test_a_missing_secret_is_a_failed_delivery(
    store: Store, sender: WebhookSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = await add(store, receiver.url)
    await append(store, "a")
    monkeypatch.delenv("NEW")

    made = await sender.send(webhook, await store.events.get(1))

    assert "env:NEW" in (made.error or "")
    assert receiver.messages == []


async def test_a_test_is_sent_with_an_id_of_its_own(
    store: Store, sender: WebhookSender, receiver: Receiver
) -> None:
    await add(store, receiver.url, types=("job.*",))

    made = [await sender.send_test("chat") for _ in range(2)]

    assert [one.status for one in made] == [200, 200]
    assert len(set(receiver.ids)) == 2
    assert receiver.bodies[0]["type"] == "custom.test"
    assert await store.events.newest() == 0


async def test_a_webhook_that_fails_holds_up_no_other(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    await add(store, f"{receiver.site.url}/missing")
    other = Webhook("other", receiver.url, ("env:NEW",), allows_private=True, created_at=EPOCH)
    await store.webhooks.add(other, EventFilter(("custom.b",)))
    await append(store, "a", "b")

    await run_for(sender, clock, 2)

    assert receiver.ids == ["evt_2"]


async def test_a_removed_webhook_leaves_nothing(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    await add(store, receiver.url)
    running = asyncio.create_task(sender.run())
    await clock.sleep(1)
    await store.webhooks.remove("chat")
    await append(store, "a")
    await clock.sleep(20)
    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert receiver.messages == []
    assert await store.subscribers.list() == []
    with pytest.raises(UnknownWebhook):
        await store.webhooks.deliveries("chat")


async def test_a_database_that_fails_is_one_error(
    store: Store, sender: WebhookSender, tmp_path: Path
) -> None:
    await add(store, "https://chat.test/")
    with closing(sqlite3.connect(tmp_path / "longline.sqlite")) as file:
        file.execute("DROP TABLE subscribers")

    with pytest.raises(StoreError):
        await sender.run_once()


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("ftp://chat.test/", "env:NEW"),
        ("chat.test", "env:NEW"),
        ("https://", "env:NEW"),
        ("https://me:word@chat.test/", "env:NEW"),
        ("http://10.0.0.1/", "env:NEW"),
        ("http://[::1]/", "env:NEW"),
        ("https://chat.test/", NEW),
    ],
)
async def test_what_cannot_be_a_webhook_is_refused(url: str, secret: str) -> None:
    with pytest.raises(BadOption) as caught:
        check_webhook(Webhook("chat", url, (secret,)))

    assert NEW not in str(caught.value)


@pytest.mark.parametrize("value", ["", "plain", "whsec_???", "whsec_c2hvcnQ="])
async def test_what_is_not_a_secret_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", value)

    with pytest.raises(UnknownSecret):
        check_webhook(Webhook("chat", "https://chat.test/", ("env:NEW",)))
