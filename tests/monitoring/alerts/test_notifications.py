"""Which alerts are sent, when, together with which others, and what the message says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longline.monitoring.alerts.configuration import AlertSettings, QuietHours
from longline.monitoring.alerts.notifications import (
    decide_notifications,
    is_silenced,
    notification_html,
    notified_data,
)
from longline.storage.monitoring.alerts import Alert, AlertState, Notification, Silence
from tests.virtual import EPOCH  # 2027-01-15 08:00 UTC

HOUR = 3600.0
MAIL = {"ops": {"host": "mail.test", "from": "a@mail.test", "to": "b@mail.test"}}
WARNING = Alert(
    rule="failed",
    subject="source/shop",
    state=AlertState.FIRING,
    severity="warning",
    summary="it failed",
    evidence={"observed": 3, "expected": "90 to 110"},
    action="longline jobs 1",
    since=EPOCH,
    seen_at=EPOCH,
    fired_at=EPOCH,
    id=1,
)
CRITICAL = replace(WARNING, rule="banned", severity="critical", id=2)


def settings(**values: Any) -> AlertSettings:
    given_values = {"mail": MAIL, "notify": ["mail:ops"], **values}
    return AlertSettings.model_validate(given_values)


def decide(
    now: float, *alerts: Alert, silences: Sequence[Silence] = (), **values: Any
) -> list[Notification]:
    return decide_notifications(alerts, silences, settings(**values), now)


def test_nothing_is_sent_without_channels() -> None:
    assert not decide(EPOCH + HOUR, WARNING, notify=[])


def test_a_group_waits_for_further_alerts() -> None:
    other = replace(CRITICAL, fired_at=EPOCH + 20)

    early = decide(EPOCH + 29, WARNING, other)
    (sent,) = decide(EPOCH + 30, WARNING, other)

    assert not early
    assert (sent.group, sent.reason, set(sent.alerts)) == ("source/shop", "new", {1, 2})
    assert sent.channels == ("mail:ops",)
    assert [one["rule"] for one in sent.data["alerts"]] == ["banned", "failed"]


def test_a_later_alert_of_a_group_waits_for_the_interval() -> None:
    known = replace(WARNING, notified_at=EPOCH + 30)
    later = replace(CRITICAL, fired_at=EPOCH + 60)

    times = [now for now in range(60, 400, 10) if decide(EPOCH + now, known, later)]

    assert times[0] == 330


@pytest.mark.parametrize(("group_by", "count"), [("subject", 3), ("rule", 2), ("all", 1)])
def test_alerts_are_grouped(group_by: str, count: int) -> None:
    alerts = [
        WARNING,
        replace(CRITICAL, subject="domain/a.test"),
        replace(CRITICAL, subject="domain/b.test", id=3),
    ]

    sent = decide(EPOCH + HOUR, *alerts, group_by=group_by)

    assert len(sent) == count
    assert sorted(number for one in sent for number in one.alerts) == [1, 2, 3]


def test_the_end_is_sent_once_to_who_knows_the_beginning() -> None:
    ended = replace(WARNING, state=AlertState.RESOLVED, resolved_at=EPOCH + HOUR)
    known = replace(ended, notified_at=EPOCH + 30)

    (sent,) = decide(EPOCH + 2 * HOUR, known)

    assert sent.data["alerts"][0]["state"] == "resolved"
    assert not decide(EPOCH + 2 * HOUR, ended)
    assert not decide(EPOCH + 3 * HOUR, replace(known, notified_at=EPOCH + 2 * HOUR))


def test_what_still_fires_is_repeated() -> None:
    known = replace(WARNING, notified_at=EPOCH)

    early = decide(EPOCH + 12 * HOUR - 1, known, repeat="12h")
    (sent,) = decide(EPOCH + 12 * HOUR, known, repeat="12h")

    assert not early
    assert sent.reason == "reminder"
    assert not decide(EPOCH + 9999 * HOUR, known, repeat=None)


def test_an_alert_that_became_critical_is_sent_again() -> None:
    worse = replace(CRITICAL, notified_at=EPOCH + 30, fired_at=EPOCH + HOUR)

    (sent,) = decide(EPOCH + 2 * HOUR, worse)

    assert sent.reason == "new"


# ---------------- Silences


@pytest.mark.parametrize(
    ("rule", "subject", "is_silent"),
    [
        (None, None, True),
        ("failed", None, True),
        ("fail*", "source/*", True),
        (None, "source/shop", True),
        ("banned", None, False),
        (None, "domain/*", False),
    ],
)
def test_a_silence_has_patterns(rule: str | None, subject: str | None, *, is_silent: bool) -> None:
    silence = Silence(rule, subject, EPOCH + HOUR, "", EPOCH)

    sent = decide(EPOCH + 60, WARNING, silences=[silence])

    assert (not sent) is is_silent


def test_a_subject_with_brackets_is_silenced_by_its_name() -> None:
    alert = replace(WARNING, subject="domain/[::1]:80")

    assert is_silenced(alert, [Silence(None, "domain/[::1]:80", EPOCH, "", EPOCH)])


def test_an_alert_is_sent_when_its_silence_has_ended() -> None:
    assert decide(EPOCH + 5 * HOUR, WARNING)


# ---------------- Quiet hours

NIGHT = {"from": "22:00", "to": "07:00", "timezone": "Europe/Sofia"}


def at(hour: int, minute: int = 0) -> float:
    zone = ZoneInfo("Europe/Sofia")
    return datetime(2027, 1, 16, hour, minute, tzinfo=zone).timestamp()


def test_in_quiet_hours_only_critical_alerts_are_sent() -> None:
    alerts = [WARNING, CRITICAL]

    (night,) = decide(at(3), *alerts, quiet_hours=NIGHT)
    (morning,) = decide(at(7), *alerts, quiet_hours=NIGHT)

    assert night.alerts == (2,)
    assert set(morning.alerts) == {1, 2}


def test_quiet_hours_may_hold_critical_alerts() -> None:
    assert not decide(at(3), CRITICAL, quiet_hours={**NIGHT, "critical": "hold"})


def test_a_reminder_waits_for_the_end_of_quiet_hours() -> None:
    known = replace(WARNING, notified_at=EPOCH)

    sent = [decide(at(hour), known, quiet_hours=NIGHT, repeat="1h") for hour in (6, 7)]

    assert [len(one) for one in sent] == [0, 1]


@given(hour=st.integers(0, 23), minute=st.integers(0, 59))
def test_every_minute_is_quiet_or_not_as_the_clock_shows(hour: int, minute: int) -> None:
    night = QuietHours.model_validate(NIGHT)
    day = QuietHours.model_validate({**NIGHT, "from": "07:00", "to": "22:00"})

    assert night.includes(at(hour, minute)) is (hour >= 22 or hour < 7)
    assert day.includes(at(hour, minute)) is not night.includes(at(hour, minute))


# ---------------- Routes and escalation


def test_a_channel_may_want_only_critical_alerts_or_some_subjects() -> None:
    routes = [
        "mail:ops",
        {"channel": "webhook:pager", "severity": "critical"},
        {"channel": "webhook:shop", "subject": "source/shop*"},
        {"channel": "webhook:other", "subject": "source/other"},
    ]

    sent = decide(EPOCH + 60, WARNING, CRITICAL, notify=routes)

    assert {one.channels: set(one.alerts) for one in sent} == {
        ("mail:ops", "webhook:shop"): {1, 2},
        ("webhook:pager",): {2},
    }


def test_a_critical_alert_that_lasts_is_escalated_once() -> None:
    known = replace(CRITICAL, notified_at=EPOCH + 30)
    escalate = {"after": "15m", "to": ["webhook:phone"]}
    after = EPOCH + 900

    early = decide(after - 1, known, WARNING, escalate=escalate)
    sent = decide(after, known, replace(WARNING, notified_at=EPOCH + 30), escalate=escalate)
    again = decide(after, replace(known, escalated_at=EPOCH + 899), escalate=escalate)

    assert "escalation" not in [one.reason for one in early]
    assert [(one.reason, one.channels, one.escalated) for one in sent] == [
        ("escalation", ("webhook:phone",), (2,))
    ]
    assert not again


def test_a_silence_acknowledges_a_critical_alert() -> None:
    known = replace(CRITICAL, notified_at=EPOCH + 30)
    silence = Silence(None, "source/shop", EPOCH + 9 * HOUR, "on it", EPOCH)

    sent = decide(
        EPOCH + HOUR, known, silences=[silence], escalate={"after": "15m", "to": "webhook:phone"}
    )

    assert not sent


def test_the_end_of_an_escalated_alert_reaches_the_escalation_channels() -> None:
    ended = replace(
        CRITICAL,
        state=AlertState.RESOLVED,
        notified_at=EPOCH + 900,
        escalated_at=EPOCH + 900,
        resolved_at=EPOCH + HOUR,
    )

    (sent,) = decide(EPOCH + 2 * HOUR, ended, escalate={"after": "15m", "to": "webhook:phone"})

    assert sent.channels == ("mail:ops", "webhook:phone")


# ---------------- Histories


@given(
    steps=st.lists(st.tuples(st.integers(1, 2000), st.booleans(), st.booleans()), max_size=40),
    interval=st.sampled_from([0, 60, 300]),
)
def test_a_group_is_never_sent_more_often_than_its_interval(
    steps: list[tuple[int, bool, bool]], interval: int
) -> None:
    now, alerts, times = EPOCH, {1: WARNING}, []
    for number, (step, is_new, ends) in enumerate(steps, 2):
        now += step
        if is_new:
            alerts[number] = replace(WARNING, rule=f"r{number}", id=number, fired_at=now)
        if ends and alerts:
            first = next(iter(alerts))
            alerts[first] = replace(alerts[first], state=AlertState.RESOLVED, resolved_at=now)
        sent = decide(now, *alerts.values(), group_interval=interval, repeat=None)
        assert len(sent) <= 1
        for one in sent:
            times.append(now)
            for known in one.alerts:
                alerts[known] = replace(alerts[known], notified_at=now)

    assert all(later - earlier >= interval for earlier, later in pairwise(times))


# ---------------- Texts

HOSTILE = "<script>alert(1)</script>\r\nBcc: x@evil.test\x1b[31m \u202eevil" + "ж" * 5000


def hostile_alerts() -> list[Alert]:
    evidence = {f"{HOSTILE}{n}": HOSTILE for n in range(50)}
    return [
        replace(WARNING, id=n, summary=HOSTILE, subject=HOSTILE, action=HOSTILE, evidence=evidence)
        for n in range(1, 200)
    ]


def test_hostile_text_is_cut_and_harmless() -> None:
    data = notified_data(hostile_alerts(), "new", EPOCH)
    html = notification_html(data, EPOCH)

    assert len(json.dumps(data, ensure_ascii=False).encode()) < 19_000
    assert data["unlisted"] + len(data["alerts"]) == 199
    assert "\n" not in data["title"]
    assert "\r" not in data["text"]
    assert "\x1b" not in json.dumps(data, ensure_ascii=False)
    assert "\u202e" not in data["text"]
    assert "<script" not in html


@given(text=st.text())
def test_any_text_makes_a_valid_message(text: str) -> None:
    alert = replace(WARNING, summary=text, subject=text, evidence={text: [text]})

    data = notified_data([alert], "new", EPOCH)

    assert "\n" not in data["title"]
    assert json.loads(json.dumps(data)) == data
    assert notification_html(data, EPOCH).count("<h3>") == 1


def test_one_alert_is_the_title_and_several_are_counted() -> None:
    ended = replace(CRITICAL, state=AlertState.RESOLVED, resolved_at=EPOCH)

    one = notified_data([WARNING], "new", EPOCH)["title"]
    several = notified_data([WARNING, ended], "new", EPOCH)["title"]

    assert one == "warning: source/shop: it failed"
    assert several == "1 alert firing, 1 resolved: source/shop"


def test_the_text_says_what_since_when_and_what_to_do() -> None:
    text = notified_data([WARNING], "new", EPOCH + HOUR)["text"]

    assert [line.strip().partition(":")[0] for line in text.splitlines()] == [
        "WARNING source/shop",
        "problem",
        "since",
        "rule",
        "observed",
        "expected",
        "action",
    ]
