"""longline webhooks: added, tested, delivered and inspected from the command line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier

from tests.cli.terminal import Terminal

SECRET = "whsec_" + "bmV3" * 8


class Receiver(HTTPServer):
    """Verifies each message as a receiver would, and keeps it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        self.status = 204
        self.ids: list[str] = []
        self.messages: list[Any] = []


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:  # the name that http.server calls
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.messages.append(Verifier(SECRET).verify(body, dict(self.headers.items())))
        self.server.ids.append(self.headers["webhook-id"])
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("HOOK", SECRET)
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, args=(0.01,))
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


def add(longline: Terminal, url: str, *more: str) -> Any:
    words = ("chat", url, "--secret", "env:HOOK", "--allow-private", *more)
    return longline("webhooks", "add", *words, "--json").last


def test_events_of_a_run_are_delivered_once(
    longline: Terminal, shop: Path, receiver: Receiver
) -> None:
    add(longline, receiver.url, "--type", "job.*")
    longline("run", shop)

    sent = longline("events", "deliver", "--once")
    again = longline("events", "deliver", "--once")

    assert (sent.code, again.code) == (0, 0)
    types = [one["type"] for one in receiver.messages]
    assert types == ["job.created", "job.started", "job.discovered", "job.complete"]
    (row,) = longline("webhooks", "list", "--json").last
    assert (row["name"], row["lag"], row["secrets"]) == ("chat", 0, ["env:HOOK"])
    assert SECRET not in longline("webhooks", "list").out


def test_events_are_filtered_by_their_subject(
    longline: Terminal, shop: Path, receiver: Receiver
) -> None:
    row = add(longline, receiver.url, "--subject", "source/shop")
    longline("run", shop)

    longline("events", "deliver", "--once")

    assert row["subject"] == "source/shop"
    assert {one["subject"] for one in receiver.messages} == {"source/shop"}


def test_a_test_prints_the_status(longline: Terminal, receiver: Receiver) -> None:
    add(longline, receiver.url)

    accepted = longline("webhooks", "test", "chat", "--json")
    receiver.status = 500
    refused = longline("webhooks", "test", "chat")

    assert (accepted.code, accepted.last["status"]) == (0, 204)
    assert refused.code == 1
    assert "500" in refused.out
    assert [one["type"] for one in receiver.messages] == ["custom.test"] * 2


def test_an_event_is_delivered_again_with_the_same_id(
    longline: Terminal, shop: Path, receiver: Receiver
) -> None:
    add(longline, receiver.url, "--type", "job.created")
    longline("run", shop)
    longline("events", "deliver", "--once")

    again = longline("webhooks", "redeliver", "chat", "--event", "1", "--json")

    rows = longline("webhooks", "deliveries", "chat", "--json").last
    assert (again.code, receiver.ids) == (0, [rows[0]["message_id"]] * 2)
    assert [row["attempt"] for row in rows] == [1, 2]
    assert receiver.ids[0] in longline("webhooks", "deliveries", "chat").out


def test_a_failed_delivery_is_exit_code_1(
    longline: Terminal, shop: Path, receiver: Receiver
) -> None:
    receiver.status = 500
    add(longline, receiver.url)
    longline("run", shop)

    sent = longline("events", "deliver", "--once", "--json")

    assert (sent.code, sent.last["subscriber"], sent.last["events"]) == (1, "webhook/chat", 0)
    assert "500" in sent.last["error"]
    assert longline("webhooks", "list", "--json").last[0]["failures"] == 1


def test_a_disabled_webhook_is_listed_with_its_reason_and_enabled(
    longline: Terminal, receiver: Receiver
) -> None:
    add(longline, receiver.url)
    receiver.status = 410
    longline("webhooks", "test", "chat")

    (disabled,) = longline("webhooks", "list", "--json").last
    shown = longline("webhooks", "list").out
    enabled = longline("webhooks", "enable", "chat", "--json")

    assert not disabled["is_enabled"]
    assert disabled["disabled_reason"] in shown
    assert (enabled.code, enabled.last["is_enabled"]) == (0, True)
    assert longline("webhooks", "enable", "nosuch").code == 1


def test_a_removed_webhook_is_unknown(longline: Terminal, receiver: Receiver) -> None:
    add(longline, receiver.url)

    removed = longline("webhooks", "remove", "chat")

    assert removed.code == 0
    assert longline("webhooks", "list", "--json").last == []
    assert longline("webhooks", "test", "chat").code == 1


@pytest.mark.usefixtures("receiver")
@pytest.mark.parametrize(
    "words",
    [
        ["add", "chat", "https://chat.test/", "--secret", "env:HOOK", "--type", "jobs.*"],
        ["add", "chat", "http://127.0.0.1/", "--secret", "env:HOOK"],
        ["add", "chat", "ftp://chat.test/", "--secret", "env:HOOK"],
        ["add", "chat", "https://chat.test/", "--secret", "env:MISSING"],
        ["add", "chat", "https://chat.test/", "--secret", SECRET],
        ["add", "chat", "https://chat.test/"],
        ["add", "a/b", "https://chat.test/", "--secret", "env:HOOK"],
        ["remove", "nosuch"],
        ["test", "nosuch"],
        ["deliveries", "nosuch"],
        ["redeliver", "nosuch", "--event", "1"],
    ],
)
def test_bad_input_is_one_sentence(longline: Terminal, words: list[str]) -> None:
    answer = longline("webhooks", *words)

    assert answer.code in (1, 2)
    assert "Traceback" not in answer.err
    assert "internal error" not in answer.err
    assert SECRET not in answer.err
    assert answer.out == ""
    assert longline("webhooks", "list", "--json").last == []


def test_an_unknown_event_cannot_be_delivered_again(longline: Terminal, receiver: Receiver) -> None:
    add(longline, receiver.url)

    assert longline("webhooks", "redeliver", "chat", "--event", "99").code == 2
    assert receiver.messages == []
