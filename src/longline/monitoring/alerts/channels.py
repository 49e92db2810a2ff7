"""Channels: subscribers of events that send notifications to people.

An event with `channels` in its data is sent by each of these channels: at least once, always with
the same id, and retried for a day. A channel that fails does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longline.core.clock import Clock
from longline.core.errors import BadOption, LonglineError, MissingExtra, UnknownSecret
from longline.core.event_types import match_types
from longline.core.model import Event
from longline.core.redaction import KNOWN_SECRETS
from longline.core.threads import Threads
from longline.engine.subscribers import Subscription
from longline.engine.webhooks import WebhookSender, message_id_of
from longline.monitoring.alerts.configuration import AlertFile, AlertSettings
from longline.monitoring.alerts.mail import Mail, send_mail
from longline.monitoring.alerts.notifications import notification_html, notified_data
from longline.monitoring.reports.definitions import ReportFile
from longline.monitoring.reports.maker import ReportWriter, load_report
from longline.monitoring.reports.text import as_plain_text
from longline.storage.events.webhooks import Webhook, WebhookDelivery
from longline.storage.monitoring.alerts import ALERT_CHANNEL, NOTIFIED, Alert, AlertState
from longline.storage.monitoring.reports import REPORT_CHANNEL, REPORT_MADE
from longline.storage.store import Store

_LOG = logging.getLogger(__name__)
_OLDEST = 86_400.0  # seconds after which a notification is not sent any more
_GIVEN_UP = "it could not be sent within a day, and is not retried"


class ChannelFailed(LonglineError):
    """A channel did not accept a notification."""

    channel: str
    problem: str
    message = "the channel {channel} failed: {problem}"


class Channels:
    """The channels of a home.

    Args:
        sender: sends to webhooks.
        file: says which channels there are.
        reports: says which of them get reports.
        ca_file: certificate authorities that mail servers may have besides the system's.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sender: WebhookSender,
        file: AlertFile,
        ca_file: Path | None = None,
        *,
        reports: ReportFile | None = None,
    ) -> None:
        self._store = store
        self._reports = reports
        self._clock = clock
        self._sender = sender
        self._file = file
        self._ca_file = ca_file
        self._log_id = ""

    async def subscriptions(self) -> Sequence[Subscription]:
        """Return how events are delivered to the channels of the settings."""
        settings = await self._file.current(self._store)
        found = [self._subscription(one) for one in settings.channels]
        if self._reports is None:
            return found
        reports = await self._reports.current(self._store)
        channels = dict.fromkeys(name for one in reports.values() for name in one.channels)
        found += [self._subscription(one, REPORT_CHANNEL) for one in channels]
        return [*found, ReportWriter(self._store).subscription()] if reports else found

    async def send_sample(self, channel: str) -> WebhookDelivery:
        """Send a notification of an alert that does not exist, now.

        Raises:
            BadOption: there is no such channel.
            UnknownWebhook: there is no such webhook.
        """
        now = self._clock.now()
        alert = Alert(
            rule="test",
            subject="home",
            state=AlertState.FIRING,
            severity="warning",
            summary="this is a test; nothing is wrong",
            evidence={"channel": channel},
            action="none",
            since=now,
            seen_at=now,
        )
        texts = notified_data([alert], "test", now)
        data = {"group": "home", "reason": "test", "channels": [channel], **texts}
        event = Event(0, None, now, NOTIFIED, None, data, subject="alert_group/home")
        settings = await asyncio.to_thread(self._file.read)
        kind, _, name = channel.partition(":")
        if kind == "webhook" and name:
            return await self._sender.send(await self._store.webhooks.get(name), event)
        if channel not in settings.own_channels:
            raise BadOption("CHANNEL", _unknown(channel, settings))
        return await self._send(channel, event, f"test_{secrets.token_hex(8)}")

    def _subscription(self, channel: str, prefix: str = ALERT_CHANNEL) -> Subscription:
        async def handle(event: Event) -> None:
            if channel in event.data.get("channels", ()):
                await self._deliver(channel, event)

        # It is added with its first notification.
        return Subscription(f"{prefix}{channel}", handle)

    async def _deliver(self, channel: str, event: Event) -> None:
        """Send a notification unless it was sent before.

        Raises:
            ChannelFailed: it was not accepted.
        """
        kind, _, name = channel.partition(":")
        if kind == "webhook":
            await self._deliver_to_webhook(name, event)
            return
        message_id = message_id_of(await self._log(), event)
        # A person would see it twice if the process died before the cursor was saved.
        if await self._store.webhooks.was_delivered(channel, message_id):
            return
        if self._clock.now() - event.at > _OLDEST:
            await self._log_delivery(channel, event, message_id, _GIVEN_UP)
            _LOG.warning("%s: gave up sending notification %d after a day", channel, event.id)
            return
        made = await self._send(channel, event, message_id)
        if made.error is not None:
            raise ChannelFailed(channel, made.error)

    async def _deliver_to_webhook(self, name: str, event: Event) -> None:
        webhook = await self._store.webhooks.get(name)
        if await self._gets_by_itself(webhook, event):
            return
        if not webhook.is_enabled:
            problem = f"it is disabled ({webhook.disabled_reason})"
            raise ChannelFailed(f"webhook:{name}", problem)
        if await self._store.webhooks.was_delivered(name, message_id_of(await self._log(), event)):
            return
        if self._clock.now() - event.at > _OLDEST:
            _LOG.warning("webhook:%s: gave up sending notification %d after a day", name, event.id)
            return
        made = await self._sender.send(webhook, event)
        if made.error is not None:
            raise ChannelFailed(f"webhook:{name}", made.error)

    async def _gets_by_itself(self, webhook: Webhook, event: Event) -> bool:
        """Return whether a webhook is sent an event because of its own filter."""
        wanted = (await self._store.subscribers.get(webhook.subscriber)).wanted
        has_type = not wanted.types or event.type in match_types(wanted.types)
        has_subject = wanted.subject in (None, "", event.subject)
        return has_type and has_subject and wanted.job is None and wanted.source is None

    async def _send(self, channel: str, event: Event, message_id: str) -> WebhookDelivery:
        started = self._clock.now()
        try:
            status, error = await self._attempt(channel, event, message_id)
        except (UnknownSecret, MissingExtra, BadOption) as problem:
            status, error = None, str(problem)
        seconds = self._clock.now() - started
        if error is not None:
            error = KNOWN_SECRETS.text(error)
        return await self._log_delivery(
            channel, event, message_id, error, status=status, seconds=seconds
        )

    async def _attempt(
        self, channel: str, event: Event, message_id: str
    ) -> tuple[int | None, str | None]:
        settings = await asyncio.to_thread(self._file.read)
        kind, _, name = channel.partition(":")
        data: Mapping[str, Any] = event.data
        if channel not in settings.own_channels:
            raise BadOption("channel", _unknown(channel, settings))
        if kind == "mail":
            text, html = await self._mail_texts(event)
            mail = Mail(message_id, event.at, data["title"], text, html)
            # In a daemon thread: a server that does not respond must not keep the process alive.
            thread = Threads(1, "longline-mail")
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    thread, send_mail, settings.mail[name], mail, self._ca_file
                )
            finally:
                thread.shutdown()
        urls = [one.read().get_secret_value() for one in settings.apprise[name].urls]
        try:
            from longline.monitoring.alerts import apprise_sender  # noqa: PLC0415  # optional
        except ImportError as error:
            raise MissingExtra("apprise", f"the channel {channel}") from error
        return None, await apprise_sender.send_apprise(urls, data["title"], data["text"])

    async def _mail_texts(self, event: Event) -> tuple[str, str]:
        """Return the plain and the HTML part of the mail about an event."""
        data = event.data
        found = await load_report(self._store, event) if event.type == REPORT_MADE else None
        if found is None:
            return data["text"], data.get("html") or notification_html(data, event.at)
        from longline.monitoring.reports.html import as_html  # noqa: PLC0415  # imports Jinja2

        _, page = found
        return as_plain_text(page), as_html(page, is_mail=True)

    async def _log_delivery(
        self,
        channel: str,
        event: Event,
        message_id: str,
        error: str | None,
        *,
        status: int | None = None,
        seconds: float = 0.0,
    ) -> WebhookDelivery:
        made = WebhookDelivery(
            webhook=channel,
            event_id=event.id or None,
            message_id=message_id,
            at=self._clock.now() - seconds,
            status=status,
            seconds=seconds,
            error=error,
        )
        return await self._store.webhooks.log_delivery(made)

    async def _log(self) -> str:
        self._log_id = self._log_id or await self._store.events.log_id()
        return self._log_id


def _unknown(channel: str, settings: AlertSettings) -> str:
    known = ", ".join([*settings.own_channels, "webhook:NAME"])
    return f"there is no channel {channel!r}; known: {known}"
