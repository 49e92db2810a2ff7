"""longline webhooks: send events to URLs, and inspect the deliveries."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import COUNT, common_options, settings_of
from longline.cli.output import (
    TextTable,
    iso_time,
    one_line,
    print_line,
    print_note,
    print_result,
    time_text,
)
from longline.cli.queries import uses_store
from longline.config.documents import read_document
from longline.config.settings import settings_file
from longline.core.clock import SystemClock
from longline.core.errors import BadFile
from longline.engine.webhooks import check_webhook
from longline.monitoring.reports.definitions import webhooks_in
from longline.storage.events.events import EventFilter
from longline.storage.events.subscribers import Subscriber
from longline.storage.events.webhooks import Webhook, WebhookDelivery
from longline.storage.store import Store
from longline.wiring import open_webhook_sender


@click.group("webhooks")
def webhooks_command() -> None:
    """Send events to URLs, signed and with retries.

    Messages follow Standard Webhooks. `longline serve` or `longline events deliver`
    sends them.
    """


@webhooks_command.command("list")
@common_options
@uses_store
async def list_webhooks(store: Store) -> None:
    """List webhooks, their lag and their failures."""
    found = await store.webhooks.list()
    subscribers = {one.name: one for one in await store.subscribers.list()}
    rows = [_webhook_json(one, subscribers[one.subscriber]) for one in found]
    print_result(rows, lambda: _print_webhooks(rows))


@webhooks_command.command("add")
@click.argument("name")
@click.argument("url")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    required=True,
    help="Reference to a whsec_ secret: env:NAME, file:PATH or keyring:SERVICE/NAME. Repeatable, "
    "newest first.",
)
@click.option("--type", "types", multiple=True, help="Event type or pattern, such as 'job.*'.")
@click.option("--source", help="Only events of this source.")
@click.option("--subject", help="Only events about this subject, such as domain/HOST.")
@click.option("--allow-private", is_flag=True, help="Allow a URL with a private address.")
@common_options
@uses_store
async def add_webhook(
    store: Store,
    name: str,
    url: str,
    *,
    secrets: tuple[str, ...],
    types: tuple[str, ...],
    source: str | None,
    subject: str | None,
    allow_private: bool,
) -> None:
    """Send new events to URL, as the webhook NAME.

    If NAME exists, it is changed and enabled again, and continues after the last event that it
    received.
    """
    now = await store.now()
    webhook = Webhook(name, url, secrets, allows_private=allow_private, created_at=now)
    check_webhook(webhook)
    added = await store.webhooks.add(webhook, EventFilter(types, source=source, subject=subject))
    row = await _read_row(store, added)
    print_result(row, lambda: print_line(f"{name} gets events after {row['cursor']}"))


@webhooks_command.command("enable")
@click.argument("name")
@common_options
@uses_store
async def enable_webhook(store: Store, name: str) -> None:
    """Send events to the webhook NAME again.

    Delivery continues immediately, with the first event that it has not accepted.
    """
    enabled = await store.webhooks.enable(name)
    row = await _read_row(store, enabled)
    print_result(row, lambda: print_line(f"{name} gets events after {row['cursor']}"))


@webhooks_command.command("remove")
@click.argument("name")
@common_options
@uses_store
async def remove_webhook(store: Store, name: str) -> None:
    """Remove the webhook NAME and its deliveries."""
    await store.webhooks.remove(name)
    print_result({"removed": name}, lambda: print_line(f"removed {name}"))
    path = settings_file()
    with contextlib.suppress(BadFile):  # `longline config validate` reports it
        if path is not None and name in webhooks_in(read_document(path)):
            print_note(f"{path} still names webhook:{name}; remove it there, too")


@webhooks_command.command("test")
@click.argument("name")
@common_options
@uses_store
async def send_test(store: Store, name: str) -> None:
    """Send a custom.test event to NAME now.

    Exits with 1 if the receiver does not accept it.
    """
    async with open_webhook_sender(settings_of(), store, SystemClock()) as sender:
        _report(await sender.send_test(name))


@webhooks_command.command("redeliver")
@click.argument("name")
@click.option("--event", type=COUNT, required=True, help="Id of the event.")
@common_options
@uses_store
async def redeliver_event(store: Store, name: str, *, event: int) -> None:
    """Send an event to NAME again, with the same id.

    The event may be of any type and source. Exits with 1 if the receiver does not accept it.
    """
    webhook = await store.webhooks.get(name)
    found = await store.events.get(event)
    async with open_webhook_sender(settings_of(), store, SystemClock()) as sender:
        _report(await sender.send(webhook, found))


@webhooks_command.command("deliveries")
@click.argument("name")
@click.option("--limit", type=COUNT, default=50, help="Maximum number of deliveries.")
@common_options
@uses_store
async def list_deliveries(store: Store, name: str, *, limit: int) -> None:
    """List the newest deliveries of NAME, oldest first.

    The last 1,000 deliveries of each webhook are kept.
    """
    found = await store.webhooks.deliveries(name, limit=limit)
    rows = [_delivery_json(one) for one in found]
    print_result(rows, lambda: _print_deliveries(found))


async def _read_row(store: Store, webhook: Webhook) -> dict[str, Any]:
    (one,) = [one for one in await store.subscribers.list() if one.name == webhook.subscriber]
    return _webhook_json(webhook, one)


def _webhook_json(one: Webhook, subscriber: Subscriber) -> dict[str, Any]:
    row = asdict(one)
    return {
        **row,
        "created_at": iso_time(one.created_at),
        "types": subscriber.wanted.types,
        "source": subscriber.wanted.source,
        "subject": subscriber.wanted.subject,
        "cursor": subscriber.cursor,
        "lag": subscriber.lag,
        "failures": subscriber.failures,
        "due_at": iso_time(subscriber.due_at or None),
        "error": subscriber.error,
    }


def _print_webhooks(rows: Sequence[dict[str, Any]]) -> None:
    table = TextTable("name", "url", "types", "lag", "failures", "problem")
    for row in rows:
        problem = row["error"] or ""
        if row["disabled_reason"] is not None:
            problem = f"disabled: {row['disabled_reason']}"
        types = ", ".join(row["types"]) or "all"
        table.add(row["name"], row["url"], types, row["lag"], row["failures"], problem)
    table.print()
    if not rows:
        print_line("no webhooks")


def _delivery_json(one: WebhookDelivery) -> dict[str, Any]:
    return {**asdict(one), "at": iso_time(one.at)}


def _report(made: WebhookDelivery) -> None:
    """Print a delivery, and exit with 1 if it failed."""
    result = made.error or f"delivered, status {made.status}"
    text = f"{made.webhook} {made.message_id} attempt {made.attempt}: {result}"
    line = one_line(f"{text} ({made.seconds:.2f} s)")
    print_result(_delivery_json(made), lambda: print_line(line))
    if made.error is not None:
        sys.exit(ExitCode.FAILED)


def _print_deliveries(found: Sequence[WebhookDelivery]) -> None:
    table = TextTable("time", "message", "attempt", "status", "seconds", "error")
    for one in found:
        at = time_text(one.at, seconds=True)
        status = "" if one.status is None else one.status
        seconds = f"{one.seconds:.2f}"
        table.add(at, one.message_id, one.attempt, status, seconds, one.error or "")
    table.print()
    if not found:
        print_line("no deliveries")
