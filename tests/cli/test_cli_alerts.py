"""longline alerts: listed, shown, tested and silenced from the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longline.config.settings import load_settings, prepare_home
from longline.storage.monitoring.alerts import Alert, AlertChange, AlertState, Notification
from longline.storage.store import Store, open_store
from tests.cli.terminal import Terminal
from tests.smtp_server import Mailbox, mail_server

FILE = """
alerts:
  mail:
    ops: {{host: 127.0.0.1, port: {port}, security: none, from: a@mail.test, to: b@mail.test}}
  notify: [mail:ops]
"""
UNENCRYPTED = (
    "{host: mail.test, security: none, user: a, password: env:X, from: a@b.test, to: a@b.test}"
)
Use = Callable[[Callable[[Store], Any]], Any]


@pytest.fixture
def mailbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    monkeypatch.chdir(tmp_path)
    with mail_server() as mailbox:
        Path("longline.yaml").write_text(FILE.format(port=mailbox.port))
        yield mailbox


@pytest.fixture
def use() -> Use:
    """Open the store of the home and use it."""

    def run(action: Callable[[Store], Any]) -> Any:
        settings = load_settings()
        prepare_home(settings)
        with open_store(settings.database) as store:
            return asyncio.run(action(store))

    return run


def an_alert(**values: Any) -> Alert:
    now = time.time()
    base = Alert(
        rule="few-records",
        subject="source/shop",
        state=AlertState.FIRING,
        severity="critical",
        summary="3 records instead of 90 to 110",
        evidence={"observed": 3, "expected": [90, 110]},
        action="longline jobs JOB",
        since=now - 600,
        seen_at=now,
        fired_at=now - 300,
    )
    return replace(base, **values)


async def fire(store: Store) -> None:
    now = time.time()
    alerts = [
        an_alert(),
        an_alert(rule="ban", subject="domain/a.test", severity="warning"),
        an_alert(rule="disk-low", subject="home", state=AlertState.RESOLVED, resolved_at=now),
    ]
    changes = [AlertChange(one, "alert.firing") for one in alerts]
    await store.alerts.change(lambda _opened: changes, now)


async def notify(store: Store) -> None:
    row = {"alert": 1, "rule": "few-records", "subject": "source/shop", "state": "firing"}
    row |= {"severity": "critical", "summary": "x", "evidence": {}, "action": "y", "since": 1.0}
    data = {"title": "t", "text": "x", "alerts": [{**row, "resolved_at": None}], "unlisted": 0}
    several = [Notification("source/shop", "new", ("mail:ops",), (1,), data=data)]
    await store.alerts.notify(lambda _alerts, _silences: several, time.time())


def test_a_home_without_alerts_says_who_evaluates_rules(longline: Terminal) -> None:
    answer = longline("alerts", "list")

    assert answer.code == 0
    assert "no alerts" in answer.out
    assert "longline serve" in answer.err
    assert longline("alerts", "list", "--json").last == {
        "evaluated_at": None,
        "error": None,
        "failing_channels": {},
        "alerts": [],
    }


def test_open_alerts_are_listed_and_resolved_ones_on_request(longline: Terminal, use: Use) -> None:
    use(fire)

    opened = longline("alerts", "list", "--json").last["alerts"]
    everything = longline("alerts", "list", "--all", "--json").last["alerts"]
    text = longline("alerts", "list").out

    assert [one["rule"] for one in opened] == ["few-records", "ban"]
    assert [one["state"] for one in everything] == ["firing", "firing", "resolved"]
    assert "source/shop" in text


def test_an_alert_is_shown_with_what_was_sent(
    longline: Terminal, use: Use, mailbox: Mailbox
) -> None:
    use(fire)
    use(notify)
    longline("events", "deliver", "--once")

    row = longline("alerts", "show", "1", "--json").last
    text = longline("alerts", "show", "1").out
    deliveries = longline("alerts", "deliveries", "mail:ops", "--json").last

    assert len(mailbox.mails) == 1
    assert row["evidence"] == {"observed": 3, "expected": [90, 110]}
    assert [one["channels"] for one in row["notifications"]] == [["mail:ops"]]
    assert [(one["channel"], one["status"]) for one in row["deliveries"]] == [("mail:ops", 250)]
    assert deliveries == row["deliveries"]
    assert "longline jobs JOB" in text
    assert "mail:ops" in text


def test_hostile_alerts_do_not_reach_the_terminal(longline: Terminal, use: Use) -> None:
    evil = "\x1b[31mevil\u202e\nspoofed"
    alert = an_alert(subject=evil, summary=evil, action=evil, evidence={evil: evil})

    async def add(store: Store) -> None:
        await store.alerts.change(lambda _opened: [AlertChange(alert, "alert.firing")], 1.0)

    use(add)
    printed = [
        longline(*words.split())
        for words in ("alerts list", "alerts show 1", "alerts silence 1", "alerts silences")
    ]

    text = "".join(one.out + one.err for one in printed)
    assert [one.code for one in printed] == [0, 0, 0, 0]
    assert "evil" in text
    assert "\x1b[31mevil" not in text
    assert "\u202e" not in text
    assert not any(line.startswith("spoofed") for line in text.splitlines())


def test_a_channel_is_tested(longline: Terminal, mailbox: Mailbox) -> None:
    sent = longline("alerts", "test", "mail:ops", "--json")
    mailbox.replies = ["554 no"]
    refused = longline("alerts", "test", "mail:ops")
    unknown = longline("alerts", "test", "mail:nobody")
    missing = longline("alerts", "test", "webhook:nobody")

    assert (sent.code, sent.last["status"], sent.last["error"]) == (0, 250, None)
    assert (refused.code, unknown.code, missing.code) == (1, 2, 1)
    assert "554" in refused.out
    assert len(mailbox.mails) == 1


def test_a_failing_channel_is_named(longline: Terminal, use: Use, mailbox: Mailbox) -> None:
    mailbox.replies = ["554 no"]
    use(fire)
    use(notify)
    longline("events", "deliver", "--once")

    answer = longline("alerts", "list", "--json")

    assert list(answer.last["failing_channels"]) == ["mail:ops"]
    assert "mail:ops" in answer.err


def test_an_alert_is_silenced_and_unsilenced(longline: Terminal, use: Use) -> None:
    use(fire)

    silence = longline("alerts", "silence", "1", "--for", "2h", "--reason", "redesign", "--json")
    (first, second) = longline("alerts", "list", "--json").last["alerts"]
    listed = longline("alerts", "silences", "--json").last
    ended = longline("alerts", "unsilence", "1")

    assert (silence.last["rule"], silence.last["subject"]) == ("few-records", "source/shop")
    assert (first["is_silenced"], second["is_silenced"]) == (True, False)
    assert [one["reason"] for one in listed] == ["redesign"]
    assert ended.code == 0
    assert longline("alerts", "silences", "--json").last == []
    assert longline("alerts", "unsilence", "1").code == 2


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--rule", ""),
        ("1", "--rule", "ban"),
        ("--rule", "ban", "--for", "0s"),
        ("--rule", "ban", "--for", "soon"),
        ("--rule", "few-recrods"),
        ("--subject", "shop*"),
        ("--subject", "source"),
        ("one",),
    ],
)
def test_a_bad_silence_is_refused(longline: Terminal, words: tuple[str, ...]) -> None:
    answer = longline("alerts", "silence", *words)

    assert answer.code == 2
    assert longline("alerts", "silences", "--json").last == []


def test_rules_are_listed_as_the_file_changes_them(longline: Terminal) -> None:
    text = "alerts: {rules: {ban: {severity: warning}, disk-low: {enabled: false, min: 10%}}}\n"
    Path("longline.yaml").write_text(text)

    rows = {one["name"]: one for one in longline("alerts", "rules", "--json").last}
    answer = longline("alerts", "rules")

    assert rows["ban"]["severity"] == "warning"
    assert (rows["disk-low"]["enabled"], rows["disk-low"]["min"]) == (False, 0.1)
    assert rows["few-records"]["sources_with_history"] == 0
    assert "few-records" in answer.out


def test_rules_of_a_manifest_are_validated_and_listed(longline: Terminal, tmp_path: Path) -> None:
    manifest = tmp_path / "shop.yaml"
    text = "manifest: html\nname: shop\nstart: {url: 'http://a.test/'}\nitems: {links: a}\n"
    manifest.write_text(text + "fields: {title: h1}\nalerts: {few-records: {min: 500}}\n")
    Path("longline.yaml").write_text(f"sources: ['{manifest}']\n")

    fine = longline("config", "validate")
    rows = longline("alerts", "rules", "--json").last
    bad = longline("config", "set", "shop", "alerts.few-records.min", "-5")

    mins = [(one["only"], one["min"]) for one in rows if one["name"] == "few-records"]
    assert (fine.code, bad.code) == (0, 2)
    assert mins == [([], None), (["shop"], 500)]
    assert "(shop)" in longline("alerts", "rules").out
    manifest.write_text(text + "fields: {title: h1}\nalerts: {ban: {enabled: false}}\n")
    assert longline("config", "validate", "--json").last["problems"][0]["line"] == 6


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("alerts:\n  nottify: [mail:ops]\n", 2),
        ("alerts:\n  notify:\n    - mail:ops\n", 3),
        ("alerts:\n  escalate: {after: 5m, to: 'apprise:phone'}\n", 2),
        ("alerts:\n  notify: [ops]\n", 2),
        ("alerts:\n  mail:\n    ops: {host: a, from: x, to: y@z.test}\n", 3),
        ("alerts:\n  group_by: all\n  quiet_hours: {from: '25:00', to: '07:00'}\n", 3),
        ("alerts:\n  quiet_hours: {from: '07:00', to: '07:00'}\n", 2),
        ("alerts:\n  escalate: {after: 5m}\n", 2),
        ("alerts:\n  rules:\n    no-such-rule: {}\n", 3),
        ("alerts:\n  notify:\n    - {channel: webhook:chat, subject: 'shop*'}\n", 3),
        (f"alerts:\n  mail:\n    ops: {UNENCRYPTED}\n", 3),
    ],
)
def test_bad_settings_are_named_with_file_and_line(
    longline: Terminal, text: str, line: int
) -> None:
    Path("longline.yaml").write_text(text)

    answer = longline("config", "validate", "--json")
    command = longline("alerts", "rules")
    server = longline("serve", "--no-web", "--once")

    (problem,) = answer.last["problems"]
    assert (answer.code, command.code, server.code) == (2, 2, 2)
    assert Path(problem["file"]).name == "longline.yaml"
    assert problem["line"] == line


def test_a_missing_webhook_is_an_error_where_it_can_be_known(
    longline: Terminal, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "whsec_" + "bmV3" * 8)
    Path("longline.yaml").write_text("alerts:\n  notify:\n    - webhook:chat\n")
    unknown = longline("config", "validate")
    use(fire)
    missing = longline("config", "validate", "--json")
    unchecked = longline("config", "validate", "--no-secrets")
    server = longline("serve", "--no-web", "--once")
    health = longline("health", "--json").last["checks"]
    added = longline("webhooks", "add", "chat", "https://a.test/", "--secret", "env:HOOK")
    fine = longline("config", "validate")
    removed = longline("webhooks", "remove", "chat")

    (problem,) = missing.last["problems"]
    assert (unknown.code, missing.code, unchecked.code, server.code) == (0, 2, 0, 2)
    assert "not checked" in unknown.err
    assert problem["line"] == 3
    assert "longline webhooks add chat" in str(health)
    assert (added.code, fine.code, fine.err) == (0, 0, "")
    assert "longline.yaml" in removed.err


@pytest.mark.parametrize("subject", ["*", "s*", "source/*", "domain/[::1]:80", "home", "*/shop"])
def test_a_silence_may_have_any_pattern_that_fits(longline: Terminal, subject: str) -> None:
    assert longline("alerts", "silence", "--rule", "*-records", "--subject", subject).code == 0


def test_an_invalid_element_is_named_instead_of_its_list(longline: Terminal) -> None:
    Path("longline.yaml").write_text("reports:\n  week: {to: ['file:week.pdf']}\n")

    answer = longline("config", "validate")

    assert (answer.code, longline("serve", "--no-web", "--once").code) == (2, 2)
    assert "week.pdf" in answer.err


@pytest.mark.parametrize(
    "text", ["alerts: {apprise: {phone: env:NO_SUCH}}\n", "monitoring_token: env:NO_SUCH\n"]
)
def test_a_missing_secret_of_the_settings_is_reported(longline: Terminal, text: str) -> None:
    Path("longline.yaml").write_text(text)

    checked = longline("config", "validate")
    unchecked = longline("config", "validate", "--no-secrets")

    assert (checked.code, unchecked.code) == (2, 0)
    assert "NO_SUCH" in checked.err
