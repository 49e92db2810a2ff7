"""Send events to webhooks, signed as Standard Webhooks 1.0.0 describes."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import orjson
from yarl import URL

from longline.config.secrets import SecretRef
from longline.core.clock import Clock, utc_datetime
from longline.core.errors import (
    BadOption,
    ConfigError,
    FetchError,
    LonglineError,
    StoreError,
    UnknownSecret,
)
from longline.core.model import Event, Usage
from longline.engine.runtime import first_error
from longline.engine.subscribers import Delivery
from longline.http.address_policy import AddressPolicy
from longline.http.errors import PrivateAddress
from longline.http.messages import Request
from longline.http.transport import HttpOptions, HttpTransport, Resolver
from longline.storage.store import Store
from longline.storage.subscribers import WEBHOOK, UnknownSubscriber
from longline.storage.webhooks import UnknownWebhook, Webhook, WebhookDelivery

TIMEOUT = 20.0
"""Seconds that a receiver has for its response."""
_HOUR = 3600.0
_WAITS = (
    *(5.0, 300.0, 1800.0, 2 * _HOUR, 5 * _HOUR),
    *(10 * _HOUR, 14 * _HOUR, 20 * _HOUR, 24 * _HOUR),
)
_POLL = 5.0  # seconds between two looks for new webhooks
_LARGEST_BODY = 20_000  # bytes that receivers are expected to accept
_RESPONSE = 10_000  # bytes of a response that are downloaded; they are not used
_SECRET = "whsec_"  # noqa: S105  # the prefix of secrets
_KEY_BYTES = range(24, 65)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SUCCESS = range(200, 300)
_GONE = 410
_PRIVATE = "{} is not a public address; add the webhook with --allow-private if this is intended"

OnSent = Callable[[WebhookDelivery], None]


class WebhookFailed(LonglineError):
    """A webhook did not accept an event."""

    name: str
    problem: str
    message = "the webhook {name} failed: {problem}"


def webhook_wait(failures: int) -> float:
    """Return the seconds to wait after this many failures in a row; from the ninth on, a day."""
    return _WAITS[min(failures, len(_WAITS)) - 1]


# ---------------- What is checked when a webhook is added


def check_webhook(webhook: Webhook) -> None:
    """Check the name, the URL and the secrets of a webhook.

    Raises:
        BadOption: the name or the URL cannot be used.
        UnknownSecret: a secret is missing, or is not one of a webhook.
    """
    if not _NAME.fullmatch(webhook.name):
        raise BadOption("NAME", "use letters, digits, dots, dashes and underscores, at most 64")
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
        problem = f"it must be {_SECRET} and the base64 of 24 to 64 random bytes"
        raise UnknownSecret(str(reference), problem)
    return key


# ---------------- Messages


def message_body(event: Event, event_id: str) -> bytes:
    """Return an event as JSON with the attribute names of CloudEvents 1.0.

    Data that would make it larger than 20 KB is replaced by null.
    """
    message: dict[str, Any] = {
        "id": event_id,
        "source": "/longline",
        "type": event.type,
        "specversion": "1.0",
        "time": utc_datetime(event.at).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "subject": event.subject,
        "datacontenttype": "application/json",
    }
    if event.job is not None:
        message["longlinejob"] = event.job
    if event.key is not None:
        message["longlinekey"] = event.key
    body = orjson.dumps({**message, "data": dict(event.data)})
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
        on_sent: called with each delivery, also a failed one.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: HttpOptions,
        on_sent: OnSent = lambda _delivery: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._on_sent = on_sent
        self._resolver = Resolver()
        self._transports: dict[tuple[str, bool], tuple[HttpTransport, AddressPolicy]] = {}

    async def run(self) -> None:
        """Deliver events to all webhooks until cancelled, also to those that are added later.

        Raises:
            StoreError: the database cannot be used.
        """
        running: dict[str, asyncio.Task[None]] = {}
        async with _task_group() as group:
            while True:
                for one in await self._store.webhooks.list():
                    # A task ends when its webhook is removed; one of this name may be added again.
                    if one.name not in running or running[one.name].done():
                        running[one.name] = group.create_task(self._run_one(one.name))
                await self._clock.sleep(_POLL)

    async def run_once(self) -> None:
        """Deliver what is due to all webhooks.

        Raises:
            StoreError: the database cannot be used.
        """
        async with _task_group() as group:
            for one in await self._store.webhooks.list():
                group.create_task(self._run_one(one.name, is_once=True))

    async def _run_one(self, name: str, *, is_once: bool = False) -> None:
        delivery = self.delivery(name)
        try:
            if not is_once:
                await delivery.run()
            while await delivery.deliver_batch():
                pass
        except UnknownSubscriber:
            return  # it was removed
        finally:
            with contextlib.suppress(StoreError):  # otherwise the lease expires
                await self._store.subscribers.release(f"{WEBHOOK}{name}", delivery.owner)

    def delivery(self, name: str) -> Delivery:
        """Return the delivery of events to one webhook."""

        async def handle(event: Event) -> None:
            webhook = await self._store.webhooks.get(name)  # it may have changed
            if not webhook.is_enabled:  # its subscriber was replayed
                raise WebhookFailed(name, f"it is disabled: {webhook.disabled_reason}")
            sent = await self.send(webhook, event)
            if sent.error is not None:
                raise WebhookFailed(name, sent.error)

        return Delivery(self._store, self._clock, f"{WEBHOOK}{name}", handle, webhook_wait)

    async def send_test(self, name: str) -> WebhookDelivery:
        """Send an event `custom.test`, which is not in the event log, now.

        Raises:
            UnknownWebhook: there is none of this name.
        """
        webhook = await self._store.webhooks.get(name)
        now = self._clock.now()
        data = {"webhook": name}
        event = Event(0, None, now, "custom.test", None, data, subject=webhook.subscriber)
        return await self.send(webhook, event, message_id=f"test_{secrets.token_hex(8)}")

    async def send(
        self, webhook: Webhook, event: Event, *, message_id: str | None = None
    ) -> WebhookDelivery:
        """Send one event now and log the delivery; a 410 disables the webhook.

        `message_id` is that of a test; the id of an event in the log is the same every time.
        """
        started = self._clock.now()
        status, error = await self._post(webhook, event, message_id or f"evt_{event.id}")
        made = WebhookDelivery(
            webhook=webhook.name,
            event_id=event.id or None,
            message_id=message_id or f"evt_{event.id}",
            at=started,
            status=status,
            seconds=self._clock.now() - started,
            error=error,
        )
        logged = await self._store.webhooks.log_delivery(made)
        if status == _GONE:
            with contextlib.suppress(UnknownWebhook):  # removed meanwhile
                await self._store.webhooks.disable(webhook.name, "the receiver responded 410 Gone")
        self._on_sent(logged)
        return logged

    async def close(self) -> None:
        """Close all connections."""
        for transport, _ in self._transports.values():
            await transport.close()
        self._transports.clear()
        await self._resolver.close()

    async def _post(
        self, webhook: Webhook, event: Event, message_id: str
    ) -> tuple[int | None, str | None]:
        """Return the status of the response, None without one, and what failed."""
        body = message_body(event, str(event.id) if event.id else message_id)
        transport, addresses = self._transport_of(webhook)
        try:
            keys = signing_keys(webhook)
            headers = signed_headers(keys, message_id, self._clock.now(), body)
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


@contextlib.asynccontextmanager
async def _task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a group of tasks that raises the first error itself, not a group of errors."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except* LonglineError as several:
        raise first_error(several) from several
