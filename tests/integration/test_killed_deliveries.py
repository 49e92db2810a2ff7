"""A sender of events that is killed with -9 loses none, and another one continues at once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from longline.storage.events.events import EventFilter, event_row
from longline.storage.events.webhooks import Webhook
from longline.storage.store import Store, open_store
from tests.fork_server import ForkServer
from tests.integration.senders import Act, Receiver, Sender, subscribers
from tests.servers import RedisServer
from tests.virtual import EPOCH

JOBS = 3
EVENTS = 24


def fill(database: str, url: str | None) -> None:
    """Append events of several jobs, for a webhook at a URL."""

    async def append(store: Store) -> None:
        if url is not None:
            hook = Webhook("chat", url, ("env:HOOK",), allows_private=True, created_at=EPOCH)
            await store.webhooks.add(hook, EventFilter())
        rows = [event_row(f"job-{n % JOBS}", EPOCH, "custom.a", n=n) for n in range(EVENTS)]
        await store.events.append(*rows)

    with open_store(database) as store:
        asyncio.run(append(store))


def test_a_killed_sender_of_webhooks_loses_nothing(
    server: ForkServer, receiver: Receiver, database: str, tmp_path: Path
) -> None:
    fill(database, receiver.url)
    sender = Sender(server, tmp_path, LONGLINE_DATABASE_URL=database)
    receiver.acts = dict.fromkeys((1, 8, 9, 20), sender.kill)

    codes = [sender.run("--once") for _ in range(5)]

    ids: dict[int, set[str]] = {}
    for message_id, body in receiver.messages:
        ids.setdefault(int(body["id"]), set()).add(message_id)
    assert codes == [-signal.SIGKILL] * 4 + [0]
    assert len(receiver.messages) >= EVENTS + 4
    assert receiver.numbers == sorted(receiver.numbers)
    assert len(receiver.numbers) == EVENTS
    assert all(numbers == sorted(numbers) for numbers in receiver.subjects().values())
    assert len(receiver.subjects()) == JOBS
    assert {len(several) for several in ids.values()} == {1}
    assert len(set.union(*ids.values())) == EVENTS
    assert [(one.lag, one.failures) for one in subscribers(database)] == [(0, 0)]


def test_a_stop_signal_ends_the_sender_cleanly(
    server: ForkServer, receiver: Receiver, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'longline.sqlite'}"
    fill(database, receiver.url)
    sender = Sender(server, tmp_path)
    receiver.acts[5] = sender.terminate

    code = sender.run()
    (stopped,) = subscribers(database)
    rest = sender.run("--once")

    assert (code, rest) == (0, 0)
    assert (stopped.owner, stopped.failures) == (None, 0)
    assert stopped.cursor >= receiver.numbers[3]  # what was accepted before the signal is saved
    assert len(receiver.numbers) == EVENTS


class KillingProxy:
    """Passes commands on to Redis, and kills the sender at some of those that add an event.

    `before` are the numbers of the commands that Redis never sees; of those in `after`, the sender
    never sees the reply.
    """

    def __init__(self, port: int, before: set[int], after: set[int]) -> None:
        self._redis = port
        self._before = before
        self._after = after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.kill: Act = lambda: None
        self.commands = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        redis = socket.create_connection(("127.0.0.1", self._redis))
        threading.Thread(target=self._reply, args=(redis, client), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self.commands += b"EVALSHA" in data
                if self.commands in self._before:
                    self._before.discard(self.commands)
                    self.kill()
                    break
                redis.sendall(data)
        client.close()
        with contextlib.suppress(OSError):
            redis.shutdown(socket.SHUT_RDWR)

    def _reply(self, redis: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := redis.recv(65536):
                if self.commands in self._after:
                    self._after.discard(self.commands)
                    self.kill()
                    break
                client.sendall(data)
        redis.close()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[KillingProxy]:
    proxy = KillingProxy(redis_server.port, before={1, 12}, after={6, 7, 20})
    yield proxy
    proxy.close()


def test_a_killed_sender_adds_each_event_to_the_redis_stream_once(
    server: ForkServer, redis_server: RedisServer, proxy: KillingProxy, tmp_path: Path
) -> None:
    database = f"sqlite:///{tmp_path / 'longline.sqlite'}"
    fill(database, None)
    name = f"killed-{tmp_path.name}"
    url = redis_server.url.replace(str(redis_server.port), str(proxy.port))
    sender = Sender(server, tmp_path, LONGLINE_REDIS_URL=url, LONGLINE_EVENT_STREAM_NAME=name)
    proxy.kill = sender.kill

    codes = [sender.run("--once") for _ in range(6)]

    with Redis.from_url(redis_server.url, decode_responses=True) as redis:
        entries: Any = redis.xrange(name)
        redis.delete(name, f"{name}:log")
    assert codes == [-signal.SIGKILL] * 5 + [0]
    assert proxy.commands >= EVENTS + 5
    assert [entry for entry, _ in entries] == [f"{n}-0" for n in range(1, EVENTS + 1)]
    assert [(one.lag, one.failures) for one in subscribers(database)] == [(0, 0)]
