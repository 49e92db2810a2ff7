"""Webhooks: where events are sent, and the log of their deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from longline.core.errors import LonglineError
from longline.storage.bulk import sanitize_text, upsert
from longline.storage.database import Repository, reads, writes
from longline.storage.events import EventFilter
from longline.storage.schema import subscribers, webhook_deliveries, webhooks
from longline.storage.subscribers import WEBHOOK, save_subscriber

_KEPT = 1000  # deliveries in the log of each webhook


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
        connection.execute(
            update(subscribers)
            .where(subscribers.c.name == webhook.subscriber)
            .values(is_enabled=True, due_at=0.0)
        )
        values: dict[str, Any] = {
            "url": webhook.url,
            "secrets": list(webhook.secrets),
            "allows_private": webhook.allows_private,
            "is_enabled": True,
            "disabled_reason": None,
        }
        row = {"name": webhook.name, "created_at": webhook.created_at, **values}
        connection.execute(
            upsert(connection, webhooks)
            .values(**row)
            .on_conflict_do_update(index_elements=["name"], set_=values)
        )
        return _find(connection, webhook.name)

    @writes
    def remove(self, connection: Connection, name: str) -> None:
        """Remove a webhook with its subscriber and its deliveries.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        found = _find(connection, name)
        connection.execute(delete(subscribers).where(subscribers.c.name == found.subscriber))
        connection.execute(delete(webhook_deliveries).where(webhook_deliveries.c.webhook == name))
        connection.execute(delete(webhooks).where(webhooks.c.name == name))

    @writes
    def disable(self, connection: Connection, name: str, reason: str) -> None:
        """Send nothing more to a webhook until it is added again."""
        found = _find(connection, name)
        connection.execute(
            update(webhooks)
            .where(webhooks.c.name == name)
            .values(is_enabled=False, disabled_reason=reason)
        )
        connection.execute(
            update(subscribers)
            .where(subscribers.c.name == found.subscriber)
            .values(is_enabled=False)
        )

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


def _find(connection: Connection, name: str) -> Webhook:
    row = connection.execute(select(webhooks).where(webhooks.c.name == name)).one_or_none()
    if row is None:
        raise UnknownWebhook(name)
    return _webhook_of(row)


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
