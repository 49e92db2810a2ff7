"""Webhooks are signed as receivers verify them, and retried with the same id."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook as Verifier

from longline.core.errors import BadOption, UnknownSecret
from longline.engine.deliveries import EventDeliveries
from longline.engine.runtime import in_background
from longline.engine.subscribers import Delivery
from longline.engine.webhooks import WebhookSender, check_webhook
from longline.http.transport import HttpOptions
from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.subscribers import Subscriber
from longline.storage.events.webhooks import Webhook
from longline.storage.store import Store, open_store
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
        response = web.Response(status=self.status, headers=self.headers)
        # aiohttp checks a kept connection every 15 s of virtual time, for 15 s of real time.
        response.force_close()
        return response

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


async def ids_of(store: Store, *events: int) -> list[str]:
    log = await store.events.log_id()
    return [f"evt_{log}_{one}_{EPOCH * 1000:.0f}" for one in events]


async def subscriber(store: Store) -> Subscriber:
    (one,) = await store.subscribers.list()
    return one


async def run_for(store: Store, sender: WebhookSender, clock: VirtualClock, seconds: float) -> None:
    async with in_background(EventDeliveries(store, clock, sender).run()):
        await clock.sleep(seconds)


async def retry_for(
    store: Store, sender: WebhookSender, clock: VirtualClock, seconds: float
) -> None:
    """Deliver whenever a retry is due; polling for hours would take long, even on virtual time."""
    delivery = Delivery(store, clock, sender.subscription("chat"))
    end = clock.now() + seconds
    while clock.now() < end:
        if not await delivery.deliver_batch():
            due = (await subscriber(store)).due_at
            await clock.sleep((due if clock.now() < due < end else end) - clock.now())
    await delivery.close()


def signature(secret: str, headers: dict[str, str], body: bytes) -> str:
    """Return the signature that a receiver with this secret expects."""
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    return Verifier(secret).sign(headers["webhook-id"], at, body.decode())


async def test_an_event_is_sent_signed_as_a_cloud_event(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    await add(store, receiver.url)
    await append(store, "a", price=5)

    await run_for(store, sender, clock, 2)

    ((headers, body),) = receiver.messages
    assert [headers["webhook-id"]] == await ids_of(store, 1)
    assert int(headers["webhook-timestamp"]) >= EPOCH
    assert headers["webhook-signature"] == signature(NEW, headers, body)
    assert json.loads(body) == {
        "id": "1",
        "source": f"/longline/{await store.events.log_id()}",
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
    assert receiver.ids == await ids_of(store, 1, 1, 1, 1, 1, 2)
    made = await store.webhooks.deliveries("chat")
    assert [one.attempt for one in made] == [1, 2, 3, 4, 5, 1]
    waits = [later.at - earlier.at for earlier, later in pairwise(made[:5])]
    assert waits == pytest.approx([5, 300, 1800, 2 * HOUR], abs=2)
    assert (await subscriber(store)).lag == 0


async def test_a_receiver_that_never_accepts_an_event_is_disabled_after_ten_attempts(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    receiver.status = 500
    await add(store, receiver.url, types=("custom.a", "custom.b"))
    await append(store, "a", "b")

    await retry_for(store, sender, clock, 200 * HOUR)
    disabled = await store.webhooks.get("chat")
    attempts = [*receiver.ids]
    receiver.status = 200
    await store.webhooks.enable("chat")
    await retry_for(store, sender, clock, 5)

    made = await store.webhooks.deliveries("chat")
    waits = [later.at - earlier.at for earlier, later in pairwise(made[:10])]
    hours = [2, 5, 10, 14, 20, 24]
    assert attempts == await ids_of(store, *[1] * 10)
    assert waits == pytest.approx([5, 300, 1800, *(one * HOUR for one in hours)], abs=9)
    assert not disabled.is_enabled
    assert "500" in (disabled.disabled_reason or "")
    (event,) = await store.events.last(EventFilter(("webhook.disabled",)), limit=9)
    assert event.data == {"webhook": "chat", "reason": disabled.disabled_reason}
    assert receiver.ids[10:] == await ids_of(store, 1, 2)


async def test_a_disabled_webhook_is_not_enabled_by_a_replay(
    store: Store, sender: WebhookSender, receiver: Receiver, clock: VirtualClock
) -> None:
    await add(store, receiver.url, types=("custom.a",))
    await append(store, "a", "a")
    await store.webhooks.disable("chat", "no", clock.now())
    await store.subscribers.replay("webhook/chat", 1)

    await run_for(store, sender, clock, 2)
    before = [*receiver.ids]
    await store.webhooks.enable("chat")
    await run_for(store, sender, clock, 2)

    assert before == []
    assert receiver.ids == await ids_of(store, 2)


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
    await add(store, receiver.url, types=("custom.a",))
    await append(store, "a")

    await retry_for(store, sender, clock, 2 * HOUR)
    disabled = await store.webhooks.get("chat")
    receiver.status = 200
    await add(store, receiver.url, types=("custom.a",))
    await run_for(store, sender, clock, 2)

    assert not disabled.is_enabled
    assert disabled.disabled_reason
    assert receiver.ids == await ids_of(store, 1, 1)
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
