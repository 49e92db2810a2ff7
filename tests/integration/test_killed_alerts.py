"""A sender of notifications that is killed with -9 loses none; each has one id for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import Webhook
from longline.storage.monitoring.alerts import Notification
from longline.storage.store import Store, open_store
from tests.fork_server import ForkServer
from tests.integration.senders import SECRET, Receiver, Sender, subscribers
from tests.smtp_server import Mailbox, mail_server
from tests.virtual import EPOCH

NOTIFICATIONS = 20
KILLED_AT = (1, 8, 15)  # messages of each channel, or the next ones
FILE = """
alerts:
  mail:
    ops: {{host: 127.0.0.1, port: {port}, security: none, from: a@mail.test, to: b@mail.test}}
  notify: [mail:ops, "webhook:chat"]
"""


class Killer:
    """Kills the sender at some messages of each channel.

    Messages of a sender that is dead already may arrive later; then a later one kills the next.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._lock = threading.Lock()
        self.kills = 0
        self.is_alive = True

    def revive(self) -> None:
        with self._lock:
            self.is_alive = True

    def acts(self) -> dict[int, Callable[[], None]]:
        """Return what happens at each message of a channel."""
        left = [*KILLED_AT]

        def act(number: int) -> None:
            with self._lock:
                if not left or number < left[0] or not self.is_alive:
                    return
                self.is_alive = False  # before the main thread learns of it, and starts another
                with contextlib.suppress(ValueError):  # the next one has not started yet
                    self._sender.kill()
                    self.kills += 1
                    left.pop(0)

        return {number: partial(act, number) for number in range(1, 10 * NOTIFICATIONS)}


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with mail_server() as mailbox:
        yield mailbox


def fill(database: str, url: str) -> None:
    """Append notifications for both channels, as alerting does."""

    async def notify(store: Store) -> None:
        hook = Webhook("chat", url, ("env:HOOK",), allows_private=True, created_at=EPOCH)
        await store.webhooks.add(hook, EventFilter(("custom.*",)))
        now = await store.now()
        data = {"title": "it failed", "text": "what", "alerts": [], "unlisted": 0}
        several = [
            Notification(f"source/{n}", "new", ("mail:ops", "webhook:chat"), (), data=data)
            for n in range(NOTIFICATIONS)
        ]
        await store.alerts.notify(lambda _alerts, _silences: several, now)

    with open_store(database) as store:
        asyncio.run(notify(store))


def test_each_notification_arrives_once_though_the_sender_is_killed(
    server: ForkServer, receiver: Receiver, mailbox: Mailbox, database: str, tmp_path: Path
) -> None:
    fill(database, receiver.url)
    file = tmp_path / "longline.yaml"
    file.write_text(FILE.format(port=mailbox.port))
    sender = Sender(server, tmp_path, LONGLINE_DATABASE_URL=database, LONGLINE_CONFIG=str(file))
    killer = Killer(sender)
    mailbox.acts, receiver.acts = killer.acts(), killer.acts()

    codes: list[int] = []
    while not codes or codes[-1] != 0:
        killer.revive()
        codes.append(sender.run("--once"))
        assert len(codes) <= 2 * len(KILLED_AT) + 1

    mails, hooks = Counter(mailbox.ids), Counter(number for number, _ in receiver.messages)
    groups = Counter(body["data"]["group"] for _, body in receiver.messages)
    assert codes == [-signal.SIGKILL] * killer.kills + [0]
    assert killer.kills >= len(KILLED_AT)
    assert len(mails) == len(hooks) == len(groups) == NOTIFICATIONS
    # At most what was on its way when the sender died arrived twice, with the same id.
    assert mails.total() + hooks.total() <= 2 * (NOTIFICATIONS + killer.kills)
    assert {one.strip("<>").partition("@")[0] for one in mails} == set(hooks)
    lags = {one.name: (one.lag, one.failures) for one in subscribers(database)}
    assert lags["alert/mail:ops"] == lags["alert/webhook:chat"] == (0, 0)


def test_the_secrets_of_channels_are_in_no_file_of_the_home(
    server: ForkServer, mailbox: Mailbox, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'longline.sqlite'}"
    fill(database, "http://127.0.0.1:1/hook")
    file = tmp_path / "longline.yaml"
    text = FILE.format(port=mailbox.port)
    login = text.replace("security: none", "security: none, user: me, password: env:SMTP")
    file.write_text(login)
    secret = "very-secret-password"  # noqa: S105  # planted
    env = {"SMTP": secret, "LONGLINE_CONFIG": str(file)}
    env = {**os.environ, "LONGLINE_HOME": str(tmp_path), "HOOK": SECRET, **env}

    outputs = [
        server.run(*words.split(), env=env, timeout=50.0)
        for words in (
            "events deliver --once -vv",
            "alerts deliveries --json",
            "alerts list",
            "alerts test mail:ops",
            "config validate",
        )
    ]

    written = b"".join(one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())
    printed = b"".join(one.out + one.err for one in outputs)
    assert b"mail:ops" in printed
    for one in (secret, SECRET, SECRET.removeprefix("whsec_")):
        assert one.encode() not in written + printed
