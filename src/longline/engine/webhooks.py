"""Send events to webhooks, signed as Standard Webhooks 1.0.0 describes."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson
from yarl import URL

from longline.config.secrets import SecretRef
from longline.core.clock import Clock
from longline.core.errors import (
    BadOption,
    ConfigError,
    FetchError,
    LonglineError,
    UnknownSecret,
    error_text,
)
from longline.core.model import Event, Usage
from longline.engine.subscribers import Subscription, cloud_event
from longline.http.address_policy import AddressPolicy
from longline.http.errors import PrivateAddress
from longline.http.messages import Request
from longline.http.transport import HttpOptions, HttpTransport, Resolver
from longline.storage.events.subscribers import WEBHOOK
from longline.storage.events.webhooks import UnknownWebhook, Webhook, WebhookDelivery
from longline.storage.store import Store

TIMEOUT = 20.0
"""Seconds that a receiver has for its response."""
_HOUR = 3600.0
_WAITS = (
    *(5.0, 300.0, 1800.0, 2 * _HOUR, 5 * _HOUR),
    *(10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR),
)
_LARGEST_BODY = 20_000  # bytes that receivers are expected to accept
_RESPONSE = 10_000  # bytes of a response that are downloaded; they are not used
_SECRET = "whsec_"  # noqa: S105  # the prefix of secrets
_KEY_BYTES = range(24, 65)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SUCCESS = range(200, 300)
_GONE = 410
_PRIVATE = "{} is not a public address; add the webhook with --allow-private if this is intended"


class WebhookFailed(LonglineError):
    """A webhook did not accept an event."""

    name: str
    problem: str
    message = "the webhook {name} failed: {problem}"


def webhook_wait(failures: int) -> float | None:
    """Return the seconds to wait after this many failures in a row; None after the tenth."""
    return _WAITS[failures - 1] if failures <= len(_WAITS) else None


# ---------------- What is checked when a webhook is added


def check_webhook(webhook: Webhook) -> None:
    """Check the name, the URL and the secrets of a webhook.

    Raises:
        BadOption: the name or the URL cannot be used.
        UnknownSecret: a secret is missing, or is not one of a webhook.
    """
    if not _NAME.fullmatch(webhook.name):
        raise BadOption("NAME", "use at most 64 letters, digits, dots, dashes and underscores")
    _check_url(webhook)
    signing_keys(webhook)


def _check_url(webhook: Webhook) -> None:
    try:
        url = URL(webhook.url)
    except ValueError:
        raise BadOption("URL", "it is not a valid URL") from None
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise BadOption("URL", "it must begin with https:// or http:// and have a host")
    if url.user is not None or url.password is not None:
        raise BadOption("URL", "it must not contain a user name or a password")
    if webhook.allows_private:
        return
    try:
        AddressPolicy().check_literal(webhook.url)
    except PrivateAddress as error:
        raise BadOption("URL", _PRIVATE.format(error.address)) from error


def signing_keys(webhook: Webhook) -> list[bytes]:
    """Return the keys of a webhook, newest first; never print the result.

    Raises:
        BadOption: a secret is not a reference, or there is none.
        UnknownSecret: a secret is missing, or is not one of a webhook.
    """
    if not webhook.secrets:
        raise BadOption("--secret", "a webhook needs a secret, such as env:NAME")
    return [_read_key(text) for text in webhook.secrets]


def _read_key(text: str) -> bytes:
    try:
        reference = SecretRef.parse(text)
    except ValueError as error:
        raise BadOption("--secret", str(error)) from None
    encoded = reference.read().get_secret_value()
    try:
        key = base64.b64decode(encoded.removeprefix(_SECRET), validate=True)
    except (binascii.Error, ValueError):  # not chained: its text may have the secret
        key = b""
    if not encoded.startswith(_SECRET) or len(key) not in _KEY_BYTES:
        problem = f"it must be {_SECRET} followed by 24 to 64 random bytes in base64"
        raise UnknownSecret(str(reference), problem)
    return key


# ---------------- Messages


def message_id_of(log_id: str, event: Event) -> str:
    """Return the id of the message of an event, which is the same for all attempts."""
    # With the time, since a database that is restored gives its last numbers again.
    return f"evt_{log_id}_{event.id}_{round(event.at * 1000)}"


def message_body(message: Mapping[str, Any]) -> bytes:
    """Return an event of `cloud_event` as JSON.

    Data that would make it larger than 20 KB is replaced by null.
    """
    body = orjson.dumps(message)
    if len(body) <= _LARGEST_BODY:
        return body
    return orjson.dumps({**message, "longlinetruncated": True, "data": None})


def signed_headers(
    keys: Sequence[bytes], message_id: str, at: float, body: bytes
) -> Mapping[str, str]:
    """Return the headers of a message, with one signature for each key."""
    timestamp = str(int(at))
    content = b".".join((message_id.encode(), timestamp.encode(), body))
    digests = [hmac.new(key, content, hashlib.sha256).digest() for key in keys]
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(one).decode()}" for one in digests),
    }


# ---------------- Sending


class WebhookSender:
    """Sends events to webhooks and logs each delivery; close it at the end.

    Args:
        options: of the requests; the timeout is that of webhooks.
    """

    def __init__(self, store: Store, clock: Clock, options: HttpOptions) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._resolver = Resolver()
        self._transports: dict[tuple[str, bool], tuple[HttpTransport, AddressPolicy]] = {}
        self._log_id = ""

    def subscription(self, name: str, subscriber: str | None = None) -> Subscription:
        """Return how events are delivered to a webhook; ten failures in a row disable it.

        `subscriber` is that of a watch; None: the webhook's own.
        """

        async def handle(event: Event) -> None:
            webhook = await self._store.webhooks.get(name)  # it may have changed
            sent = await self.send(webhook, event)
            if sent.error is not None:
                raise WebhookFailed(name, sent.error)

        async def give_up(error: BaseException) -> None:
            problem = error.problem if isinstance(error, WebhookFailed) else error_text(error)
            await self._disable(name, f"{len(_WAITS) + 1} attempts failed: {problem}")

        return Subscription(
            subscriber or f"{WEBHOOK}{name}", handle, retry_wait=webhook_wait, give_up=give_up
        )

    async def send_test(self, name: str) -> WebhookDelivery:
        """Send an event `custom.test`, which is not in the event log, now.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        webhook = await self._store.webhooks.get(name)
        now = self._clock.now()
        data = {"webhook": name}
        event = Event(0, None, now, "custom.test", None, data, subject=webhook.subscriber)
        return await self.send(webhook, event)

    async def send(self, webhook: Webhook, event: Event) -> WebhookDelivery:
        """Send one event now and log the delivery; a 410 disables the webhook.

        The id of the message is the same every time, except for a test, whose event has the id 0.
        """
        self._log_id = self._log_id or await self._store.events.log_id()
        message = cloud_event(event, self._log_id)
        message_id = message_id_of(self._log_id, event)
        if not event.id:
            message_id = message["id"] = f"test_{secrets.token_hex(8)}"
        started = self._clock.now()
        status, error = await self._post(webhook, message_id, message_body(message))
        made = WebhookDelivery(
            webhook=webhook.name,
            event_id=event.id or None,
            message_id=message_id,
            at=started,
            status=status,
            seconds=self._clock.now() - started,
            error=error,
        )
        logged = await self._store.webhooks.log_delivery(made)
        if status == _GONE:
            await self._disable(webhook.name, "the receiver responded 410 Gone")
        return logged

    async def send_once(self, webhook: Webhook, message_id: str, event: Event) -> WebhookDelivery:
        """Send an event that is not in the event log, now; the receiver drops repeated ids.

        The header `Idempotency-Key` has the id, too. The delivery is not logged, and a failure
        does not disable the webhook.
        """
        self._log_id = self._log_id or await self._store.events.log_id()
        message = {**cloud_event(event, self._log_id), "id": message_id}
        started = self._clock.now()
        more = {"idempotency-key": message_id}
        status, error = await self._post(webhook, message_id, message_body(message), more)
        return WebhookDelivery(
            webhook=webhook.name,
            event_id=None,
            message_id=message_id,
            at=started,
            status=status,
            seconds=self._clock.now() - started,
            error=error,
        )

    async def close(self) -> None:
        """Close all connections."""
        for transport, _ in self._transports.values():
            await transport.close()
        self._transports.clear()
        await self._resolver.close()

    async def _disable(self, name: str, reason: str) -> None:
        with contextlib.suppress(UnknownWebhook):  # removed meanwhile
            await self._store.webhooks.disable(name, reason, self._clock.now())

    async def _post(
        self,
        webhook: Webhook,
        message_id: str,
        body: bytes,
        more_headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int | None, str | None]:
        """Return the status of the response, None without one, and what failed."""
        transport, addresses = self._transport_of(webhook)
        try:
            keys = signing_keys(webhook)
            headers = {**more_headers, **signed_headers(keys, message_id, self._clock.now(), body)}
            if webhook.allows_private:
                await addresses.begin(webhook.url)
            request = Request(webhook.url, "POST", headers, body, timeout=TIMEOUT, enough=_RESPONSE)
            page = await transport(request, Usage())
        except PrivateAddress as error:
            return None, _PRIVATE.format(error.address)
        except (FetchError, ConfigError) as error:
            return None, str(error)
        is_success = page.status in _SUCCESS
        return page.status, None if is_success else f"the receiver responded {page.status}"

    def _transport_of(self, webhook: Webhook) -> tuple[HttpTransport, AddressPolicy]:
        # Each URL has its own policy: a private one must not permit others to be private.
        key = (webhook.url, webhook.allows_private)
        if key not in self._transports:
            addresses = AddressPolicy(resolver=self._resolver)
            transport = HttpTransport(self._options, self._clock, addresses, self._resolver)
            self._transports[key] = (transport, addresses)
        return self._transports[key]
