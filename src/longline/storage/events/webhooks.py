"""Webhooks: where events are sent, and the log of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from longline.core.errors import BadOption, LonglineError
from longline.core.event_types import match_types
from longline.storage.backends import sanitize_text, upsert
from longline.storage.database import Repository, reads, writes
from longline.storage.events.events import EventFilter, append_events, event_row
from longline.storage.events.subscribers import WEBHOOK, save_subscriber
from longline.storage.schema import subscribers, webhook_deliveries, webhooks

_KEPT = 1000  # deliveries in the log of each webhook
_CHANGED = "source.changed"
_WATCH = "watch/"  # then SOURCE/WEBHOOK: a subscriber that notifies a webhook of changes


class UnknownWebhook(LonglineError):
    """There is no webhook of this name."""

    name: str
    message = "there is no webhook {name!r}"
    hint = "`longline webhooks list` lists them."


@dataclass(frozen=True, slots=True)
class Webhook:
    """A URL to which events are sent; its subscriber has the cursor and the filter.

    `secrets` are references such as `env:NAME`, newest first. `allows_private` permits a URL that
    leads to a private address. `disabled_reason` is None while it is enabled.
    """

    name: str
    url: str
    secrets: tuple[str, ...]
    allows_private: bool = False
    is_enabled: bool = True
    created_at: float = 0.0
    disabled_reason: str | None = None

    @property
    def subscriber(self) -> str:
        """The name of its subscriber."""
        return f"{WEBHOOK}{self.name}"


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One attempt to send an event.

    `event_id` is None for a test. `message_id` is the same for all attempts of an event, and
    `attempt` counts them from 1. `status` is None without a response, `error` when it succeeded.
    """

    webhook: str
    event_id: int | None
    message_id: str
    at: float
    status: int | None
    seconds: float
    error: str | None
    attempt: int = 1
    id: int = 0


class Webhooks(Repository):
    """The webhooks of a home and their deliveries."""

    @writes
    def add(self, connection: Connection, webhook: Webhook, wanted: EventFilter) -> Webhook:
        """Add a webhook, which gets events from now on.

        A known one is changed and enabled, is retried now, and keeps its cursor.

        Raises:
            BadOption: there is no such event type.
        """
        save_subscriber(connection, webhook.subscriber, wanted, webhook.created_at, None)
        values: dict[str, Any] = {
            "url": webhook.url,
            "secrets": list(webhook.secrets),
            "allows_private": webhook.allows_private,
        }
        created = {"created_at": webhook.created_at, "is_enabled": True}
        row = {"name": webhook.name, **created, **values}
        connection.execute(
            upsert(connection, webhooks)
            .values(**row)
            .on_conflict_do_update(index_elements=["name"], set_=values)
        )
        return _enable(connection, webhook.name)

    @writes
    def enable(self, connection: Connection, name: str) -> Webhook:
        """Send events to a webhook again, beginning now with the first it has not accepted.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        return _enable(connection, name)

    @writes
    def remove(self, connection: Connection, name: str) -> None:
        """Remove a webhook with its subscriber and its deliveries.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        found = _find(connection, name)
        connection.execute(delete(subscribers).where(_reads_for(found)))
        connection.execute(delete(webhook_deliveries).where(webhook_deliveries.c.webhook == name))
        connection.execute(delete(webhooks).where(webhooks.c.name == name))

    @writes
    def disable(self, connection: Connection, name: str, reason: str, at: float) -> None:
        """Send nothing more to a webhook until it is enabled; the event `webhook.disabled`.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        found = _find(connection, name)
        if not found.is_enabled:
            return
        _set_enabled(connection, found, reason)
        row = event_row(None, at, "webhook.disabled", webhook=name, reason=reason)
        append_events(connection, [row])

    @writes
    def watch(self, connection: Connection, name: str, source: str, at: float) -> bool:
        """Send the changes of a source to a webhook, from now on.

        Returns:
            Whether that is new: False if the webhook gets these events by its own filter.

        Raises:
            UnknownWebhook: there is none of this name.
            BadOption: it is disabled.
        """
        found = _find(connection, name)
        if not found.is_enabled:
            problem = f"the webhook {name} is disabled ({found.disabled_reason})"
            raise BadOption("--notify", f"{problem}; run `longline webhooks enable {name}`")
        row = connection.execute(
            select(subscribers).where(subscribers.c.name == found.subscriber)
        ).one()
        wanted = EventFilter(tuple(row.types), **row.filter)
        names = match_types(wanted.types) if wanted.types else [_CHANGED]
        has_source = wanted.source in (None, source)
        if _CHANGED in names and has_source and not wanted.subject and wanted.job is None:
            return False
        changes = EventFilter((_CHANGED,), source=source)
        save_subscriber(connection, f"{_WATCH}{source}/{name}", changes, at, None)
        return True

    @writes
    def unwatch(self, connection: Connection, source: str) -> int:
        """Stop sending the changes of a source to webhooks; return how many got them."""
        mine = subscribers.c.name.startswith(f"{_WATCH}{source}/", autoescape=True)
        return connection.execute(delete(subscribers).where(mine)).rowcount

    @reads
    def watches(self, connection: Connection) -> Sequence[tuple[str, str]]:
        """Return the subscribers of watches, each with the name of its webhook."""
        query = select(subscribers.c.name).where(
            subscribers.c.name.startswith(_WATCH, autoescape=True)
        )
        return [(name, name.rpartition("/")[2]) for name in connection.scalars(query)]

    @reads
    def get(self, connection: Connection, name: str) -> Webhook:
        """Return a webhook.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        return _find(connection, name)

    @reads
    def list(self, connection: Connection) -> list[Webhook]:
        """Return all webhooks by name."""
        rows = connection.execute(select(webhooks).order_by(webhooks.c.name)).all()
        return [_webhook_of(row) for row in rows]

    @writes
    def log_delivery(self, connection: Connection, made: WebhookDelivery) -> WebhookDelivery:
        """Log a delivery and return it with its attempt; the last 1,000 per webhook are kept."""
        log = webhook_deliveries
        of_message = (log.c.webhook == made.webhook) & (log.c.message_id == made.message_id)
        earlier = connection.scalar(select(func.max(log.c.attempt)).where(of_message)) or 0
        error = None if made.error is None else sanitize_text(made.error)
        row = {
            "webhook": made.webhook,
            "event_id": made.event_id,
            "message_id": made.message_id,
            "attempt": earlier + 1,
            "at": made.at,
            "status": made.status,
            "seconds": made.seconds,
            "error": error,
        }
        number = connection.scalar(insert(log).values(**row).returning(log.c.id)) or 0
        kept = select(log.c.id).where(log.c.webhook == made.webhook).order_by(log.c.id.desc())
        last = connection.scalar(kept.offset(_KEPT).limit(1))
        if last is not None:
            connection.execute(delete(log).where(log.c.webhook == made.webhook, log.c.id <= last))
        return replace(made, id=number, attempt=earlier + 1, error=error)

    @reads
    def was_delivered(self, connection: Connection, name: str, message_id: str) -> bool:
        """Return whether a webhook or channel has accepted a message."""
        log = webhook_deliveries
        of_message = (log.c.webhook == name) & (log.c.message_id == message_id)
        query = select(log.c.id).where(of_message, log.c.error.is_(None)).limit(1)
        return connection.scalar(query) is not None

    @reads
    def deliveries(
        self, connection: Connection, name: str, *, limit: int = _KEPT
    ) -> Sequence[WebhookDelivery]:
        """Return the newest deliveries of a webhook, oldest first.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        _find(connection, name)
        log = webhook_deliveries
        query = select(log).where(log.c.webhook == name).order_by(log.c.id.desc()).limit(limit)
        rows = connection.execute(query).mappings().all()
        return [WebhookDelivery(**row) for row in reversed(rows)]


def _reads_for(webhook: Webhook) -> ColumnElement[bool]:
    """Return the condition for the subscribers of a webhook: its own, and those of watches."""
    is_watch = subscribers.c.name.startswith(_WATCH, autoescape=True)
    is_its_own = subscribers.c.name.endswith(f"/{webhook.name}", autoescape=True)
    return or_(subscribers.c.name == webhook.subscriber, is_watch & is_its_own)


def _find(connection: Connection, name: str) -> Webhook:
    row = connection.execute(select(webhooks).where(webhooks.c.name == name)).one_or_none()
    if row is None:
        raise UnknownWebhook(name)
    return _webhook_of(row)


def _enable(connection: Connection, name: str) -> Webhook:
    found = _find(connection, name)
    _set_enabled(connection, found, None)
    connection.execute(
        update(subscribers).where(_reads_for(found)).values(due_at=0.0, failures=0, error=None)
    )
    return _find(connection, name)


def _set_enabled(connection: Connection, webhook: Webhook, disabled_reason: str | None) -> None:
    is_enabled = disabled_reason is None
    connection.execute(
        update(webhooks)
        .where(webhooks.c.name == webhook.name)
        .values(is_enabled=is_enabled, disabled_reason=disabled_reason)
    )
    connection.execute(update(subscribers).where(_reads_for(webhook)).values(is_enabled=is_enabled))


def _webhook_of(row: Row[Any]) -> Webhook:
    return Webhook(
        name=row.name,
        url=row.url,
        secrets=tuple(row.secrets),
        allows_private=row.allows_private,
        is_enabled=row.is_enabled,
        created_at=row.created_at,
        disabled_reason=row.disabled_reason,
    )
