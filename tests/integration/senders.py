"""Processes that send events and can be killed, and the receiver of their webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
from standardwebhooks import Webhook as Verifier

from longline.storage.events.subscribers import Subscriber
from longline.storage.store import open_store
from tests.fork_server import ForkServer

SECRET = "whsec_" + "bmV3" * 8
Act = Callable[[], None]


class Sender:
    """Runs `longline events deliver`, each time in a process of its own."""

    def __init__(self, server: ForkServer, home: Path, **env: str) -> None:
        self._server = server
        self.env = {**os.environ, "LONGLINE_HOME": str(home), "HOOK": SECRET, **env}

    def run(self, *words: str) -> int:
        """Run until it ends; return its exit code, negative for a signal."""
        result = self._server.run("events", "deliver", *words, env=self.env, timeout=50.0)
        assert not result.is_hung
        return result.code

    def kill(self) -> None:
        """Kill the process that runs now, and wait until it is gone."""
        (process,) = psutil.Process(self._server.pid).children()
        process.kill()
        psutil.wait_procs([process])

    def terminate(self) -> None:
        (process,) = psutil.Process(self._server.pid).children()
        process.send_signal(signal.SIGTERM)


class Receiver(HTTPServer):
    """Verifies each message as a receiver would, and acts at some requests before it responds."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self.messages: list[tuple[str, Any]] = []
        self.acts: dict[int, Act] = {}

    @property
    def numbers(self) -> list[int]:
        """The numbers of the events in the order of their first arrival."""
        return list(dict.fromkeys(int(body["id"]) for _, body in self.messages))

    def subjects(self) -> dict[str, list[int]]:
        """Return the numbers of the events of each subject as they arrived first."""
        found: dict[str, list[int]] = {}
        for _, body in self.messages:
            numbers = found.setdefault(body["subject"], [])
            if int(body["id"]) not in numbers:
                numbers.append(int(body["id"]))
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # the name that http.server calls
        body = self.rfile.read(int(self.headers["content-length"]))
        verified = Verifier(SECRET).verify(body, dict(self.headers.items()))
        self.server.messages.append((self.headers["webhook-id"], verified))
        self.server.acts.get(len(self.server.messages), lambda: None)()
        with contextlib.suppress(OSError):  # the sender may be dead
            self.send_response(204)
            self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def subscribers(database: str) -> Sequence[Subscriber]:
    with open_store(database) as store:
        return asyncio.run(store.subscribers.list())
