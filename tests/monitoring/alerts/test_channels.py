"""Channels: mails on a real server, webhooks and Apprise on a real receiver."""

from __future__ import annotations

import smtplib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from longline.core.errors import BadOption
from longline.engine.deliveries import EventDeliveries
from longline.engine.runtime import in_background
from longline.engine.webhooks import WebhookSender
from longline.http.transport import HttpOptions
from longline.monitoring.alerts.channels import Channels
from longline.monitoring.alerts.configuration import AlertFile, MailChannel
from longline.monitoring.alerts.mail import Mail, compose_mail, send_mail
from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import Webhook
from longline.storage.monitoring.alerts import Notification
from longline.storage.store import Store, open_store
from tests.certificates import Authority, self_signed
from tests.scripted_site import ScriptedSite
from tests.smtp_server import Mailbox, mail_server
from tests.virtual import EPOCH, VirtualClock

DeliverFor = Callable[[float], Awaitable[None]]
HOUR = 3600.0
SECRET = "whsec_" + "bmV3" * 8
DATA = {"title": "it <failed>", "text": "what: it failed", "alerts": [], "unlisted": 0}
TEXT = """
alerts:
  mail:
    ops: {{host: 127.0.0.1, port: {port}, security: none, from: a@mail.test, to: [b@mail.test]}}
    dead: {{host: 127.0.0.1, port: 1, security: none, from: a@mail.test, to: [b@mail.test]}}
  apprise:
    phone: env:APPRISE
  notify: [mail:ops, mail:dead, apprise:phone, "webhook:chat"]
"""


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as mailbox:
        yield mailbox


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
def file(mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AlertFile:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOK", SECRET)
    (tmp_path / "longline.yaml").write_text(TEXT.format(port=mailbox.port))
    return AlertFile()


@pytest.fixture
def channels(store: Store, clock: VirtualClock, sender: WebhookSender, file: AlertFile) -> Channels:
    return Channels(store, clock, sender, file)


@pytest.fixture
def deliver_for(
    store: Store, clock: VirtualClock, sender: WebhookSender, channels: Channels
) -> DeliverFor:
    async def deliver(seconds: float) -> None:
        more = channels.subscriptions
        async with in_background(EventDeliveries(store, clock, sender, find_more=more).run()):
            await clock.sleep(seconds)

    return deliver


async def notify(store: Store, *names: str, at: float = EPOCH, count: int = 1) -> None:
    several = [Notification(f"g{n}", "new", names, (), data=DATA) for n in range(count)]
    await store.alerts.notify(lambda _alerts, _silences: several, at)


async def test_a_mail_is_sent_in_plain_text_and_html(
    store: Store, deliver_for: DeliverFor, mailbox: Mailbox
) -> None:
    await notify(store, "mail:ops")

    await deliver_for(3)

    (mail,) = mailbox.mails
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    ((channel, made),) = await store.alerts.deliveries()
    assert plain is not None
    assert html is not None
    assert plain.get_content().strip() == DATA["text"]
    assert "it &lt;failed&gt;" in html.get_content()
    assert (mail["Subject"], mail["To"]) == ("[longline] it <failed>", "b@mail.test")
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail["Message-ID"] == f"<{made.message_id}@mail.test>"
    assert (channel, made.status, made.error, made.attempt) == ("mail:ops", 250, None, 1)


async def test_a_refused_mail_is_retried_with_the_same_id(
    store: Store, deliver_for: DeliverFor, mailbox: Mailbox
) -> None:
    mailbox.replies = ["451 later", "554 no"]
    await notify(store, "mail:ops")

    await deliver_for(20)

    made = [one for _, one in await store.alerts.deliveries()]
    assert len(mailbox.mails) == 1
    assert [(one.status, one.attempt) for one in made] == [(451, 1), (554, 2), (250, 3)]
    assert len({one.message_id for one in made}) == 1


async def test_a_channel_that_fails_delays_no_other(
    store: Store, deliver_for: DeliverFor, mailbox: Mailbox
) -> None:
    await notify(store, "mail:dead", "mail:ops", count=5)

    await deliver_for(3)

    dead, fine = await store.subscribers.list()
    assert len(set(mailbox.ids)) == len(mailbox.ids) == 5
    assert (dead.lag, fine.lag) == (5, 0)
    assert dead.failures > 0


async def test_a_notification_is_given_up_after_a_day(
    store: Store, deliver_for: DeliverFor, mailbox: Mailbox
) -> None:
    await notify(store, "mail:ops", at=EPOCH - 25 * HOUR)
    await notify(store, "mail:ops")

    await deliver_for(3)

    made = [one for _, one in await store.alerts.deliveries()]
    assert len(mailbox.mails) == 1
    assert [one.error is None for one in made] == [False, True]


async def test_what_was_delivered_is_not_sent_again_after_a_replay(
    store: Store, deliver_for: DeliverFor, mailbox: Mailbox
) -> None:
    await notify(store, "mail:ops")
    await deliver_for(3)
    await store.subscribers.replay("alert/mail:ops", 0)

    await deliver_for(3)

    assert len(mailbox.mails) == 1


async def test_a_channel_gets_only_what_is_meant_for_it(
    store: Store, deliver_for: DeliverFor, mailbox: Mailbox
) -> None:
    await notify(store, "mail:ops", "mail:dead")
    await notify(store, "mail:dead")

    await deliver_for(3)

    assert len(mailbox.mails) == 1


# ---------------- Webhooks and Apprise

# One of its own packages imports a module that Python will remove.
APPRISE = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


class Receiver:
    def __init__(self, site: ScriptedSite) -> None:
        self.url = f"{site.url}/hook"
        self.bodies: list[Any] = []
        self.ids: list[str] = []
        site.answers["/hook"] = self._answer

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.ids.append(request.headers.get("webhook-id", ""))
        return web.Response()


@pytest.mark.parametrize(("types", "prefix"), [(("job.*",), "alert/webhook:"), ((), "webhook/")])
async def test_a_webhook_gets_a_notification_once_whatever_its_filter(
    store: Store,
    deliver_for: DeliverFor,
    site: ScriptedSite,
    types: tuple[str, ...],
    prefix: str,
) -> None:
    receiver = Receiver(site)
    hook = Webhook("chat", receiver.url, ("env:HOOK",), allows_private=True, created_at=EPOCH)
    await store.webhooks.add(hook, EventFilter(types))
    await notify(store, "webhook:chat")

    await deliver_for(8)

    (body,) = receiver.bodies
    ((channel, made),) = await store.alerts.deliveries(channel="webhook:chat")
    lags = {one.name: one.lag for one in await store.subscribers.list()}
    assert (body["type"], body["data"]["title"]) == ("alert.notified", DATA["title"])
    assert (channel, [made.message_id]) == ("webhook:chat", receiver.ids)
    assert lags[f"{prefix}chat"] == 0


async def test_a_missing_webhook_is_retried(store: Store, deliver_for: DeliverFor) -> None:
    await notify(store, "webhook:chat")

    await deliver_for(3)

    (one,) = await store.subscribers.list()
    assert one.lag == 1
    assert "UnknownWebhook" in (one.error or "")


@pytest.mark.real_time
@APPRISE
async def test_apprise_sends_to_the_services_of_its_urls(
    channels: Channels, site: ScriptedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[Any] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        received.append(await request.json())
        return web.Response()

    site.answers["/topsecret"] = answer
    monkeypatch.setenv("APPRISE", f"json://127.0.0.1:{site.port}/topsecret")

    made = await channels.send_sample("apprise:phone")

    (body,) = received
    assert made.error is None
    assert body["title"] == "warning: home: this is a test; nothing is wrong"


@pytest.mark.real_time
@APPRISE
@pytest.mark.parametrize("url", ["json://127.0.0.1:1/topsecret", "nothing://topsecret-url"])
async def test_a_failure_of_apprise_names_no_url(
    channels: Channels, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("APPRISE", url)

    made = await channels.send_sample("apprise:phone")

    assert made.error is not None
    assert "topsecret" not in made.error


# ---------------- Tests of channels


async def test_a_test_message_is_sent_and_logged(channels: Channels, mailbox: Mailbox) -> None:
    made = await channels.send_sample("mail:ops")

    assert (made.webhook, made.event_id, made.status) == ("mail:ops", None, 250)
    assert mailbox.ids == [f"<{made.message_id}@mail.test>"]


@pytest.mark.parametrize("name", ["mail:nobody", "ops", "rules:x", "mail:", "model_fields:x"])
async def test_a_test_of_an_unknown_channel_is_refused(channels: Channels, name: str) -> None:
    with pytest.raises(BadOption):
        await channels.send_sample(name)


# ---------------- SMTP

MAIL = Mail("evt_1", EPOCH, "title", "text", "<p>text</p>")


def channel(mailbox: Mailbox, **values: Any) -> MailChannel:
    base = {"host": "127.0.0.1", "port": mailbox.port, "from": "a@mail.test", "to": "b@mail.test"}
    return MailChannel.model_validate({**base, **values})


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_mail_is_sent_encrypted_with_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, security: str
) -> None:
    authority = Authority.make(tmp_path)
    monkeypatch.setenv("PASSWORD", "right-password")
    login = {"user": "me", "password": "env:PASSWORD", "security": security}

    with mail_server(
        tls=authority.server(tmp_path), is_starttls=security == "starttls", needs_login=True
    ) as mailbox:
        result = send_mail(channel(mailbox, **login), MAIL, authority.file)

    assert result == (250, None)
    assert mailbox.logins == [("me", "right-password")]
    assert len(mailbox.mails) == 1


def test_an_untrusted_server_gets_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD", "right-password")
    login = {"user": "me", "password": "env:PASSWORD"}

    with mail_server(tls=self_signed(tmp_path), needs_login=True) as mailbox:
        status, error = send_mail(channel(mailbox, **login), MAIL, None)

    assert (status, mailbox.logins) == (None, [])
    assert error is not None


def test_a_server_without_starttls_gets_no_mail(mailbox: Mailbox) -> None:
    status, error = send_mail(channel(mailbox), MAIL, None)

    assert (status, len(mailbox.mails)) == (None, 0)
    assert error is not None


def test_a_wrong_password_is_reported_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.make(tmp_path)
    monkeypatch.setenv("PASSWORD", "wrong-password")
    login = {"user": "me", "password": "env:PASSWORD"}

    with mail_server(tls=authority.server(tmp_path), needs_login=True) as mailbox:
        status, error = send_mail(channel(mailbox, **login), MAIL, authority.file)

    assert status == 535
    assert "wrong-password" not in (error or "")


@given(title=st.text(), text=st.text(), html=st.text())
def test_no_text_becomes_a_header(title: str, text: str, html: str) -> None:
    box = Mailbox()
    box.port = 25
    mail = Mail("evt_1", EPOCH, f"{title}\r\nBcc: x@evil.test\n\n{title}", text, html)

    composed = compose_mail(channel(box), mail)

    assert composed["Bcc"] is None
    assert set(composed.keys()) == {
        *("From", "To", "Subject", "Date", "Message-ID"),
        *("Auto-Submitted", "MIME-Version", "Content-Type"),
    }
    with suppress(smtplib.SMTPException):  # only its text is looked at
        assert b"\nBcc:" not in composed.as_bytes()
