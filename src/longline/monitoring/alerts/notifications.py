"""What is sent to channels: groups of alerts, and when.

Alerts are grouped, so that one problem with many symptoms is one message. A group waits a little
for further alerts before its first notification, and then between two of them. Silenced alerts and,
in quiet hours, those that are not critical are left out until the silence or the hours end.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from html import escape
from typing import Any

from longline.core.clock import utc_datetime
from longline.core.json import as_text
from longline.core.output import count_text, sanitize
from longline.monitoring.alerts.configuration import AlertSettings, check_silence
from longline.storage.monitoring.alerts import Alert, AlertState, Notification, Silence
from longline.storage.store import Store

_CRITICAL = "critical"
_LISTED = 20  # alerts in one notification
_LISTED_BYTES = 11_000  # of their JSON, since webhooks send at most 20 KB
_TEXT_BYTES = 6000
_LONGEST_TITLE = 150  # characters
_LONGEST_LINE = 300
_LONGEST_VALUE = 100
_MOST_VALUES = 6  # of the evidence of an alert


def is_silenced(alert: Alert, silences: Iterable[Silence]) -> bool:
    """Return whether one of the silences has the rule and the subject of an alert."""
    return any(
        _is_like(alert.rule, one.rule) and _is_like(alert.subject, one.subject) for one in silences
    )


async def silence_alerts(
    store: Store,
    chosen: int | tuple[str | None, str | None],
    *,
    seconds: float,
    reason: str,
    at: float,
) -> Silence:
    """Silence the rule and the subject of an alert, or patterns of both, from now on.

    Raises:
        UnknownAlert: there is no alert of this number.
        BadOption: there is no pattern, or it matches no rule or subject.
    """
    if isinstance(chosen, int):
        found = await store.alerts.get(chosen)
        chosen = found.rule, found.subject
    else:
        await asyncio.to_thread(check_silence, *chosen)
    rule, subject = (one or None for one in chosen)
    return await store.alerts.silence(Silence(rule, subject, at + seconds, reason, at))


def _is_like(text: str, pattern: str | None) -> bool:
    # A subject such as domain/[::1]:80 has characters of patterns.
    return pattern is None or text == pattern or fnmatchcase(text, pattern)


def decide_notifications(
    alerts: Sequence[Alert], silences: Sequence[Silence], settings: AlertSettings, now: float
) -> list[Notification]:
    """Return what is to be sent now.

    Args:
        alerts: the open ones, those whose end is not reported, and those notified recently.
        silences: the active ones.
        settings: channels and times.
        now: the time.
    """
    groups: dict[str, list[Alert]] = defaultdict(list)
    for one in alerts:
        groups[_group_of(one, settings)].append(one)
    return [
        notification
        for name, members in groups.items()
        for notification in _Group(name, members, settings, now).notifications(silences)
    ]


def _group_of(alert: Alert, settings: AlertSettings) -> str:
    return {"subject": alert.subject, "rule": alert.rule, "all": "all"}[settings.group_by]


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    members: Sequence[Alert]
    settings: AlertSettings
    now: float

    def notifications(self, silences: Sequence[Silence]) -> Iterator[Notification]:
        active = [one for one in self.members if _is_active(one) and not is_silenced(one, silences)]
        quiet_hours = self.settings.quiet_hours
        if quiet_hours is not None and quiet_hours.includes(self.now):
            passes = quiet_hours.critical == "pass"
            active = [one for one in active if passes and one.severity == _CRITICAL]
        reason = self._reason(active)
        if reason is not None:
            yield from self._for_channels(active, reason)
        yield from self._escalation(active)

    def _reason(self, active: Sequence[Alert]) -> str | None:
        """Return why a group is notified now; None: it is not."""
        routed = [one for one in active if self._channels_of(one)]
        settings, now = self.settings, self.now
        news = [one.resolved_at or one.fired_at or now for one in routed if _is_news(one)]
        # What was sent before, in quiet hours or to a silenced part of the group, counts, too.
        last = max((one.notified_at for one in self.members if one.notified_at), default=None)
        if news:
            due = min(news) + settings.group_wait
            if last is not None:
                due = max(due, last + settings.group_interval)
            return "new" if due <= now else None
        firing = [one.notified_at for one in routed if one.state is AlertState.FIRING]
        oldest = min((one for one in firing if one is not None), default=None)
        if settings.repeat is None or oldest is None or now - oldest < settings.repeat:
            return None
        return "reminder"

    def _channels_of(self, alert: Alert) -> list[str]:
        channels = [
            one.channel
            for one in self.settings.notify
            if one.severity != _CRITICAL or alert.severity == _CRITICAL
            if _is_like(alert.subject, one.subject)
        ]
        # Who was called is also sent the end.
        if alert.escalated_at is not None and self.settings.escalate is not None:
            channels += self.settings.escalate.to
        return channels

    def _for_channels(self, active: Sequence[Alert], reason: str) -> Iterator[Notification]:
        """Yield one notification for all channels that get the same alerts."""
        of_channel: dict[str, list[Alert]] = defaultdict(list)
        for alert in active:
            for channel in self._channels_of(alert):
                if alert not in of_channel[channel]:
                    of_channel[channel].append(alert)
        shared: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for channel, several in of_channel.items():
            shared[tuple(one.id for one in several)].append(channel)
        by_number = {one.id: one for one in active}
        for numbers, channels in shared.items():
            listed = [by_number[number] for number in numbers]
            # A channel that gets a part of the group hears only of what is new to it.
            if reason == "new" and not any(map(_is_news, listed)):
                continue
            yield self._notification(reason, channels, listed)

    def _escalation(self, active: Sequence[Alert]) -> Iterator[Notification]:
        rule = self.settings.escalate
        if rule is None:
            return
        due = [
            one
            for one in active
            if one.state is AlertState.FIRING and one.severity == _CRITICAL
            if one.escalated_at is None and one.fired_at is not None
            if self.now - one.fired_at >= rule.after
        ]
        if due:
            yield self._notification("escalation", rule.to, due, escalated=due)

    def _notification(
        self,
        reason: str,
        channels: Sequence[str],
        listed: Sequence[Alert],
        escalated: Sequence[Alert] = (),
    ) -> Notification:
        return Notification(
            group=self.name,
            reason=reason,
            channels=tuple(channels),
            alerts=tuple(one.id for one in listed),
            escalated=tuple(one.id for one in escalated),
            data=notified_data(listed, reason, self.now),
        )


def _is_active(alert: Alert) -> bool:
    return alert.state is AlertState.FIRING or _is_news(alert)


def _is_news(alert: Alert) -> bool:
    """Return whether channels were not sent the present state of an alert."""
    if alert.state is AlertState.FIRING:
        return alert.notified_at is None or alert.notified_at < (alert.fired_at or 0.0)
    is_over = alert.state is AlertState.RESOLVED and alert.notified_at is not None
    return is_over and (alert.notified_at or 0.0) < (alert.resolved_at or 0.0)


# ---------------- What a notification says


def notified_data(alerts: Sequence[Alert], reason: str, now: float) -> dict[str, Any]:
    """Return the alerts of a notification as data, with a title and a text for people."""
    ordered = sorted(alerts, key=_urgency)
    listed: list[dict[str, Any]] = []
    size = 0
    for one in ordered[:_LISTED]:
        row = _notified(one)
        size += len(as_text(row).encode())
        if listed and size > _LISTED_BYTES:
            break
        listed.append(row)
    unlisted = len(ordered) - len(listed)
    return {
        "title": _title(ordered, reason),
        "text": _message_text(listed, unlisted, now),
        "alerts": listed,
        "unlisted": unlisted,
    }


def _urgency(alert: Alert) -> tuple[bool, bool, float]:
    return alert.state is not AlertState.FIRING, alert.severity != _CRITICAL, -alert.since


def _notified(alert: Alert) -> dict[str, Any]:
    evidence = {
        one_text(name, _LONGEST_VALUE): _short_value(value)
        for name, value in [*alert.evidence.items()][:_MOST_VALUES]
    }
    return {
        "alert": alert.id,
        "rule": one_text(alert.rule, _LONGEST_VALUE),
        "subject": one_text(alert.subject, _LONGEST_VALUE),
        "state": alert.state.value,
        "severity": alert.severity,
        "summary": one_text(alert.summary, _LONGEST_LINE),
        "evidence": evidence,
        "action": one_text(alert.action, _LONGEST_LINE),
        "since": alert.since,
        "resolved_at": alert.resolved_at,
    }


def _short_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return one_text(value if isinstance(value, str) else as_text(value), _LONGEST_VALUE)


def one_text(text: str, length: int) -> str:
    """Return text of a site as one harmless line of at most `length` characters."""
    line = " ".join(sanitize(text).split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _title(alerts: Sequence[Alert], reason: str) -> str:
    prefix = {"escalation": "escalated: ", "reminder": "reminder: "}.get(reason, "")
    first = alerts[0]
    if len(alerts) == 1:
        state = "resolved" if first.state is AlertState.RESOLVED else first.severity
        return one_text(f"{prefix}{state}: {first.subject}: {first.summary}", _LONGEST_TITLE)
    firing = sum(one.state is AlertState.FIRING for one in alerts)
    counts = [
        *([f"{count_text(firing, 'alert')} firing"] if firing else []),
        *([f"{len(alerts) - firing} resolved"] if firing < len(alerts) else []),
    ]
    subjects = [*dict.fromkeys(one.subject for one in alerts)]
    more = f" and {len(subjects) - 1} more" if len(subjects) > 1 else ""
    return one_text(f"{prefix}{', '.join(counts)}: {subjects[0]}{more}", _LONGEST_TITLE)


def alert_lines(alert: Mapping[str, Any], now: float) -> list[tuple[str, str]]:
    """Return what a notification says about one of its alerts, as names and values."""
    since = utc_datetime(alert["since"]).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        ("problem", alert["summary"]),
        ("since", f"{since} ({_duration((alert['resolved_at'] or now) - alert['since'])})"),
        ("rule", f"{alert['rule']} (alert {alert['alert']})"),
        *((name, str(value)) for name, value in alert["evidence"].items()),
    ]
    return lines if alert["resolved_at"] else [*lines, ("action", alert["action"])]


def alert_heading(alert: Mapping[str, Any]) -> str:
    """Return the heading of an alert in a notification."""
    state = "RESOLVED" if alert["resolved_at"] else f"{alert['severity'].upper()}"
    return f"{state} {alert['subject']}"


def _message_text(alerts: Sequence[Mapping[str, Any]], unlisted: int, now: float) -> str:
    parts: list[str] = []
    for one in alerts:
        lines = [f"  {name}: {value}" for name, value in alert_lines(one, now)]
        parts.append("\n".join([alert_heading(one), *lines]))
    if unlisted:
        parts.append(f"and {unlisted} more; `longline alerts list` lists them")
    return "\n\n".join(parts).encode()[:_TEXT_BYTES].decode(errors="ignore")


def notification_html(data: Mapping[str, Any], now: float) -> str:
    """Return a notification as a simple HTML page; every text is escaped."""
    parts = []
    for one in data["alerts"]:
        rows = "".join(
            f"<tr><th align=left>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in alert_lines(one, now)
        )
        parts.append(f"<h3>{escape(alert_heading(one))}</h3><table>{rows}</table>")
    if data["unlisted"]:
        parts.append(f"<p>and {data['unlisted']} more</p>")
    title = escape(data["title"])
    return f"<html><head><title>{title}</title></head><body>{''.join(parts)}</body></html>"


def _duration(seconds: float) -> str:
    minutes = max(0, round(seconds / 60))
    hours, days = minutes // 60, minutes // 1440
    if days >= 2:  # noqa: PLR2004  # days
        return f"{days} d"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
