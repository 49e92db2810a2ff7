"""A real server finds a problem, and notifies of it once although it is killed with -9."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from longline.core.model import Event
from longline.storage.events.events import EventFilter
from longline.storage.events.webhooks import Webhook
from longline.storage.store import Store
from tests.server.served_home import ServedHome
from tests.servers import until
from tests.smtp_server import mail_server

FILE = """
alerts:
  mail:
    ops: {{host: 127.0.0.1, port: {port}, security: none, from: a@mail.test, to: b@mail.test}}
  notify: [mail:ops]
  group_wait: 0s
"""


async def break_something(store: Store) -> None:
    hook = Webhook("chat", "http://127.0.0.1:1/", ("env:HOOK",), created_at=time.time())
    await store.webhooks.add(hook, EventFilter(("custom.*",)))
    await store.webhooks.disable("chat", "it is gone", time.time())


async def read_lag(store: Store) -> Sequence[int]:
    found = await store.subscribers.list()
    return [one.lag for one in found if one.name == "alert/mail:ops"]


async def alert_events(store: Store) -> Sequence[Event]:
    return await store.events.last(EventFilter(("alert.*",)), limit=100)


def test_a_killed_server_fires_and_notifies_once(tmp_path: Path) -> None:
    home = ServedHome(tmp_path)
    home.read(break_something)

    with mail_server() as mailbox:
        (tmp_path / "longline.yaml").write_text(FILE.format(port=mailbox.port))
        with home.serving() as server:
            mailbox.acts[1] = server.kill  # the mail has arrived, and is not known to be sent
            server.wait(60)
        lag = home.read(read_lag)
        with home.serving():
            until(lambda: home.read(read_lag) == [0], "the delivery by the second server")

    events = home.read(alert_events)
    assert lag == [1]
    assert [one.type for one in events] == ["alert.firing", "alert.notified"]
    assert events[0].data["subject"] == "subscriber/webhook/chat"
    assert len(set(mailbox.ids)) == 1
