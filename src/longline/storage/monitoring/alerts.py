"""Alerts, silences, and the notifications of both.

Each change of an alert is decided by a function of the caller and stored with its event in one
transaction, in which the alerts are locked: several servers decide one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from longline.core.errors import NotFoundError
from longline.core.model import JobState
from longline.storage.backends import sanitize_text, sanitize_value
from longline.storage.database import Repository, lock_name, reads, writes
from longline.storage.events.events import EventFilter, append_events, event_row
from longline.storage.events.subscribers import save_subscriber
from longline.storage.events.webhooks import WebhookDelivery
from longline.storage.schema import alerts, events, jobs, silences, subscribers, webhook_deliveries

ALERT_CHANNEL = "alert/"
"""The prefix of the subscribers of channels, followed by the channel, such as `mail:ops`."""
NOTIFIED = "alert.notified"
"""The type of the events that channels get."""
_LOCK = "alerts"
_DAY = 86_400.0
_KEPT = 90 * _DAY  # seconds that resolved alerts are kept
_SEARCHED = 1000  # notifications that are searched for an alert
_NEWS = 2 * _DAY  # seconds after which it is too late to report that an alert is resolved


class AlertState(StrEnum):
    """Where an alert is in its life."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class UnknownAlert(NotFoundError):
    """There is no alert of this number."""

    number: int
    message = "there is no alert {number}"
    hint = "`longline alerts list --all` lists them."


class UnknownSilence(NotFoundError):
    """There is no silence of this number."""

    number: int
    message = "there is no silence {number}"
    hint = "`longline alerts silences` lists them."


@dataclass(frozen=True, slots=True)
class Alert:
    """What a rule has found wrong with a subject.

    `since` is when the problem began, `seen_at` when it was last found. `fired_at` is when it began
    to fire, or became critical; `notified_at` and `escalated_at` are when channels were last sent
    it. `id` is 0 before it is stored.
    """

    rule: str
    subject: str
    state: AlertState
    severity: str
    summary: str
    evidence: Mapping[str, Any]
    action: str
    since: float
    seen_at: float
    fired_at: float | None = None
    resolved_at: float | None = None
    notified_at: float | None = None
    escalated_at: float | None = None
    id: int = 0


@dataclass(frozen=True, slots=True)
class AlertChange:
    """An alert as it is to be stored, and the type of the event of the change; None: no event.

    With `is_dropped`, the alert is deleted: it was pending and never fired.
    """

    alert: Alert
    event: str | None = None
    is_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts of a rule and a subject that are not notified until a time.

    `rule` and `subject` are patterns such as `source/shop*`; None: any.
    """

    rule: str | None
    subject: str | None
    until: float
    reason: str
    created_at: float
    id: int = 0


@dataclass(frozen=True, slots=True)
class Notification:
    """What is sent to channels: `data` is that of the event, `alerts` those it reports."""

    group: str
    reason: str
    channels: tuple[str, ...]
    alerts: tuple[int, ...]
    escalated: tuple[int, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SentNotification:
    """A notification in the event log, as the event `event_id`."""

    event_id: int
    at: float
    reason: str
    channels: tuple[str, ...]


DecideChanges = Callable[[Sequence[Alert]], Sequence[AlertChange]]
"""Decides from the open alerts what changes."""
DecideNotifications = Callable[[Sequence[Alert], Sequence[Silence]], Sequence[Notification]]
"""Decides from alerts and active silences what is sent."""


class Alerts(Repository):
    """The alerts of a home, and who is notified of them."""

    @writes
    def change(
        self, connection: Connection, decide: DecideChanges, at: float
    ) -> Sequence[AlertChange]:
        """Store what `decide` changes, each with its event; old resolved alerts are deleted."""
        lock_name(connection, _LOCK)
        opened = _alerts_in(connection, _OPEN.order_by(alerts.c.id))
        changes = decide(opened)
        # Mostly the same problems are found again, and one statement is enough for all of them.
        seen = {one.id: replace(one, seen_at=at) for one in opened}
        same: list[int] = []
        others: list[AlertChange] = []
        for one in changes:
            if seen.get(one.alert.id) == one.alert and not one.is_dropped:
                same.append(one.alert.id)
            else:
                others.append(one)
        _mark(connection, same, seen_at=at)
        event_rows = [_store_change(connection, one, at) for one in others]
        append_events(connection, [row for row in event_rows if row is not None])
        connection.execute(delete(alerts).where(alerts.c.resolved_at < at - _KEPT))
        return changes

    @writes
    def notify(
        self, connection: Connection, decide: DecideNotifications, at: float
    ) -> Sequence[Notification]:
        """Append an event `alert.notified` for each notification that `decide` returns.

        A channel that is not a subscriber yet becomes one, from this event on.
        """
        lock_name(connection, _LOCK)
        found = _alerts_in(connection, _candidates(at))
        notifications = decide(found, _silences_in(connection, _active_silences(at)))
        for one in notifications:
            for channel in one.channels:
                wanted = EventFilter((NOTIFIED,))
                save_subscriber(connection, f"{ALERT_CHANNEL}{channel}", wanted, at, None)
            _mark(connection, one.alerts, notified_at=at)
            _mark(connection, one.escalated, escalated_at=at)
        rows = [event_row(None, at, NOTIFIED, **_notified_data(one)) for one in notifications]
        append_events(connection, rows)
        return notifications

    @reads
    def candidates(
        self, connection: Connection, at: float
    ) -> tuple[Sequence[Alert], Sequence[Silence]]:
        """Return what `notify` passes to `decide`."""
        found = _alerts_in(connection, _candidates(at))
        return found, _silences_in(connection, _active_silences(at)) if found else []

    @reads
    def is_quiet(self, connection: Connection) -> bool:
        """Return whether no alert is open."""
        return connection.execute(_OPEN.limit(1)).first() is None

    @reads
    def list(
        self, connection: Connection, *, with_resolved: bool = False, limit: int = 1000
    ) -> Sequence[Alert]:
        """Return alerts: firing ones first, then critical ones, then the newest."""
        rank = case({AlertState.FIRING: 0, AlertState.PENDING: 1}, value=alerts.c.state, else_=2)
        urgency = case({"critical": 0}, value=alerts.c.severity, else_=1)
        query = select(alerts).order_by(rank, urgency, alerts.c.since.desc(), alerts.c.id.desc())
        if not with_resolved:
            query = query.where(_IS_OPEN)
        return _alerts_in(connection, query.limit(limit))

    @reads
    def page(
        self,
        connection: Connection,
        *,
        states: Collection[AlertState] = (),
        rule: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> Sequence[Alert]:
        """Return alerts, the newest first; only those before the alert `before`."""
        query = select(alerts).order_by(alerts.c.id.desc()).limit(limit)
        if states:
            query = query.where(alerts.c.state.in_([*states]))
        if rule is not None:
            query = query.where(alerts.c.rule == rule)
        if before is not None:
            query = query.where(alerts.c.id < before)
        return _alerts_in(connection, query)

    @reads
    def resolved(
        self, connection: Connection, *, before: int | None = None, limit: int = 50
    ) -> Sequence[Alert]:
        """Return resolved alerts, the newest first; only those before the alert `before`."""
        query = select(alerts).where(alerts.c.resolved_at.is_not(None))
        if before is not None:
            query = query.where(alerts.c.id < before)
        return _alerts_in(connection, query.order_by(alerts.c.id.desc()).limit(limit))

    @reads
    def get(self, connection: Connection, number: int) -> Alert:
        """Return an alert.

        Raises:
            UnknownAlert: there is none of this number.
        """
        found = _alerts_in(connection, select(alerts).where(alerts.c.id == number))
        if not found:
            raise UnknownAlert(number)
        return found[0]

    @reads
    def notifications(self, connection: Connection, alert: Alert) -> Sequence[SentNotification]:
        """Return what was sent about an alert, oldest first, of the last 1,000 notifications."""
        # They are about no job; with that condition, the database finds them by an index.
        query = select(events.c.id, events.c.at, events.c.data).where(
            events.c.job_id.is_(None), events.c.type == NOTIFIED
        )
        rows = connection.execute(query.order_by(events.c.id.desc()).limit(_SEARCHED)).all()
        return [
            SentNotification(row.id, row.at, row.data["reason"], tuple(row.data["channels"]))
            for row in reversed(rows)
            if any(one["alert"] == alert.id for one in row.data["alerts"])
        ]

    @reads
    def deliveries(
        self,
        connection: Connection,
        *,
        channel: str | None = None,
        event_ids: Collection[int] | None = None,
        limit: int = 100,
    ) -> Sequence[tuple[str, WebhookDelivery]]:
        """Return the newest deliveries of notifications with their channels, oldest first."""
        log = webhook_deliveries
        of_channel = log.c.webhook.contains(":")
        is_sent = and_(log.c.event_id == events.c.id, events.c.type == NOTIFIED)
        query = (
            select(log).outerjoin(events, is_sent).where(or_(of_channel, events.c.id.is_not(None)))
        )
        if channel is not None:
            query = query.where(log.c.webhook == channel.removeprefix("webhook:"))
        if event_ids is not None:
            query = query.where(log.c.event_id.in_([*event_ids]))
        rows = connection.execute(query.order_by(log.c.id.desc()).limit(limit)).mappings().all()
        made = [WebhookDelivery(**row) for row in reversed(rows)]
        return [
            (one.webhook if ":" in one.webhook else f"webhook:{one.webhook}", one) for one in made
        ]

    @reads
    def run_counts(self, connection: Connection) -> Mapping[str, int]:
        """Return how many runs of each source have ended with data."""
        has_data = jobs.c.state.in_((JobState.COMPLETE, JobState.PARTIAL))
        counted = func.coalesce(func.sum(case((has_data, 1), else_=0)), 0)
        query = select(jobs.c.source, counted).group_by(jobs.c.source).order_by(jobs.c.source)
        return {source: int(count) for source, count in connection.execute(query)}

    # ---------------- Channels and silences

    @writes
    def keep_channels(self, connection: Connection, channels: Collection[str]) -> int:
        """Remove the subscribers of channels that are not among these; return how many."""
        names = [f"{ALERT_CHANNEL}{one}" for one in channels]
        is_channel = subscribers.c.name.startswith(ALERT_CHANNEL, autoescape=True)
        gone = is_channel & subscribers.c.name.not_in(names)
        return connection.execute(delete(subscribers).where(gone)).rowcount

    @writes
    def silence(self, connection: Connection, silence: Silence) -> Silence:
        """Add a silence, with the event `alert.silenced`, and return it with its number."""
        values = {
            "rule": silence.rule,
            "subject": silence.subject,
            "until": silence.until,
            "reason": sanitize_text(silence.reason),
            "created_at": silence.created_at,
        }
        (added,) = _silences_in(connection, insert(silences).values(**values).returning(silences))
        append_events(connection, [_silence_event("alert.silenced", added, added.created_at)])
        return added

    @writes
    def unsilence(self, connection: Connection, number: int, at: float) -> Silence:
        """End a silence now, with the event `alert.unsilenced`.

        Raises:
            UnknownSilence: there is no active silence of this number.
        """
        active = _silences_in(connection, _active_silences(at).where(silences.c.id == number))
        if not active:
            raise UnknownSilence(number)
        (found,) = active
        connection.execute(update(silences).where(silences.c.id == number).values(until=at))
        append_events(connection, [_silence_event("alert.unsilenced", found, at)])
        return found

    @reads
    def silences(self, connection: Connection, at: float) -> Sequence[Silence]:
        """Return the active silences, oldest first."""
        return _silences_in(connection, _active_silences(at))


_IS_OPEN = alerts.c.resolved_at.is_(None)
_OPEN = select(alerts).where(_IS_OPEN)


def _candidates(at: float) -> Any:
    """Return the query for alerts that are open or whose end is to be reported.

    Those that were notified a short time ago say when their groups were last notified.
    """
    is_unreported = and_(
        alerts.c.notified_at < alerts.c.resolved_at, alerts.c.resolved_at > at - _NEWS
    )
    is_recent = alerts.c.notified_at > at - _DAY
    return select(alerts).where(or_(_IS_OPEN, is_unreported, is_recent)).order_by(alerts.c.id)


def _active_silences(at: float) -> Any:
    return select(silences).where(silences.c.until > at).order_by(silences.c.id)


def _store_change(connection: Connection, change: AlertChange, at: float) -> dict[str, Any] | None:
    """Store a change; return its event."""
    alert = change.alert
    if change.is_dropped:
        connection.execute(delete(alerts).where(alerts.c.id == alert.id))
        return None
    values = {
        **asdict(alert),
        "summary": sanitize_text(alert.summary),
        "evidence": sanitize_value(alert.evidence),
        "action": sanitize_text(alert.action),
    }
    number = values.pop("id")
    if number:
        connection.execute(update(alerts).where(alerts.c.id == number).values(**values))
    else:
        number = connection.scalar(insert(alerts).values(**values).returning(alerts.c.id)) or 0
    if change.event is None:
        return None
    names = ("rule", "subject", "severity", "summary", "evidence", "action", "since")
    data = {name: values[name] for name in names}
    return event_row(None, at, change.event, alert=number, **data)


def _mark(connection: Connection, numbers: Collection[int], **times: float) -> None:
    if numbers:
        connection.execute(update(alerts).where(alerts.c.id.in_([*numbers])).values(**times))


def _notified_data(one: Notification) -> dict[str, Any]:
    return {
        "group": one.group,
        "reason": one.reason,
        "channels": [*one.channels],
        **sanitize_value(one.data),
    }


def _silence_event(name: str, one: Silence, at: float) -> dict[str, Any]:
    data: dict[str, Any] = {"silence": one.id, "rule": one.rule, "subject": one.subject}
    return event_row(None, at, name, **data, until=one.until, reason=one.reason)


def _alerts_in(connection: Connection, query: Any) -> Sequence[Alert]:
    rows = connection.execute(query).mappings().all()
    return [Alert(**{**row, "state": AlertState(row["state"])}) for row in rows]


def _silences_in(connection: Connection, query: Any) -> Sequence[Silence]:
    return [Silence(**row) for row in connection.execute(query).mappings().all()]
