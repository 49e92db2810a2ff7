"""longline alerts: what is wrong, who is notified, and silences."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import (
    COUNT,
    DURATION,
    common_options,
    home_or_server_options,
    settings_of,
)
from longline.cli.output import (
    TextTable,
    duration_text,
    iso_time,
    one_line,
    print_facts,
    print_heading,
    print_line,
    print_note,
    print_result,
    time_text,
    value_text,
)
from longline.cli.queries import uses_store
from longline.cli.remote import first, iso_text, or_on_server, page_size
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.monitoring.alerts.alerting import EvaluationState, read_evaluation
from longline.monitoring.alerts.configuration import read_alert_settings
from longline.monitoring.alerts.learning import MIN_RUNS
from longline.monitoring.alerts.manifest_rules import read_rules
from longline.monitoring.alerts.notifications import is_silenced, silence_alerts
from longline.monitoring.alerts.rules import RULE_KINDS, Rule
from longline.storage.events.subscribers import Subscriber
from longline.storage.events.webhooks import WebhookDelivery
from longline.storage.monitoring.alerts import ALERT_CHANNEL, Alert, SentNotification, Silence
from longline.storage.store import Store
from longline.wiring import open_channels

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_STALE = 120.0  # seconds after which the last evaluation is old


@click.group("alerts")
def alerts_command() -> None:
    """Show what is wrong, and who is notified.

    `longline serve` evaluates the rules and sends notifications. The key `alerts` of longline.yaml
    defines channels and changes rules.
    """


async def _list_on_server(client: Client, *, with_all: bool, limit: int) -> None:
    found: list[models.Alert] = []
    for state in ("firing", "pending", *(["resolved"] if with_all else [])):
        listed = client.each(client.list_alerts, state=state, limit=page_size(limit + 1))
        found += await first(listed, limit + 1)
    rows = [_remote_alert_json(one) for one in found[:limit]]
    print_result({"alerts": rows}, lambda: _print_alerts(rows, SystemClock().now()))
    _note_more(len(found), limit)


@alerts_command.command("list")
@click.option("--all", "with_all", is_flag=True, help="Include resolved alerts.")
@click.option("--limit", type=COUNT, default=100, help="Maximum number of alerts.")
@home_or_server_options
@or_on_server(_list_on_server)
@uses_store
async def list_alerts(store: Store, *, with_all: bool, limit: int) -> None:
    """List open alerts, firing ones first.

    An alert is pending until its problem has lasted as long as its rule requires.
    """
    found = await store.alerts.list(with_resolved=with_all, limit=limit + 1)
    now = await store.now()
    silences = await store.alerts.silences(now)
    state = await read_evaluation(store, SystemClock())
    failing = await _failing_channels(store)
    rows = [_alert_json(one, silences) for one in found[:limit]]
    result = {
        "evaluated_at": iso_time(state.evaluated_at),
        "error": state.error,
        "failing_channels": {one.name.removeprefix(ALERT_CHANNEL): one.error for one in failing},
        "alerts": rows,
    }
    print_result(result, lambda: _print_alerts(rows, now))
    _note_evaluation(state, now)
    for one in failing:
        print_note(f"the channel {one.name.removeprefix(ALERT_CHANNEL)} is failing: {one.error}")
    _note_more(len(found), limit)


def _note_more(count: int, limit: int) -> None:
    if count > limit:
        print_note(f"only {limit} are listed; use --limit for more")


@alerts_command.command("show")
@click.argument("alert", type=COUNT)
@common_options
@uses_store
async def show_alert(store: Store, alert: int) -> None:
    """Show an alert, its evidence, and what to do.

    Also lists the notifications that were sent, and each attempt to deliver them.
    """
    found = await store.alerts.get(alert)
    now = await store.now()
    silences = await store.alerts.silences(now)
    sent = await store.alerts.notifications(found)
    deliveries = await store.alerts.deliveries(event_ids=[one.event_id for one in sent])
    row = {
        **_alert_json(found, silences),
        "notifications": [{**asdict(one), "at": iso_time(one.at)} for one in sent],
        "deliveries": [_delivery_json(*one) for one in deliveries],
    }
    print_result(row, lambda: _print_alert(row, found, now, sent, deliveries))


@alerts_command.command("test")
@click.argument("channel")
@common_options
@uses_store
async def send_sample_now(store: Store, channel: str) -> None:
    """Send a test message to CHANNEL now.

    CHANNEL is mail:NAME, apprise:NAME or webhook:NAME. Exits with 1 if the message is not accepted.
    """
    read_alert_settings()
    async with open_channels(settings_of(), store, SystemClock()) as channels:
        made = await channels.send_sample(channel)
    status = "" if made.status is None else f", status {made.status}"
    result = made.error or f"delivered{status}"
    line = one_line(f"{channel} {made.message_id}: {result} ({made.seconds:.2f} s)")
    print_result(_delivery_json(channel, made), lambda: print_line(line))
    if made.error is not None:
        sys.exit(ExitCode.FAILED)


@alerts_command.command("deliveries")
@click.argument("channel", required=False)
@click.option("--limit", type=COUNT, default=50, help="Maximum number of deliveries.")
@common_options
@uses_store
async def list_deliveries(store: Store, channel: str | None, *, limit: int) -> None:
    """List attempts to notify CHANNEL, or all channels.

    Lists the newest attempts, oldest first. The last 1,000 of each channel are kept.
    """
    found = await store.alerts.deliveries(channel=channel, limit=limit)
    rows = [_delivery_json(*one) for one in found]
    print_result(rows, lambda: _print_deliveries(found))


@alerts_command.command("rules")
@common_options
@uses_store
async def list_rules(store: Store) -> None:
    """List rules, their limits and their history.

    A learned limit needs 5 earlier runs of a source; until then, it finds nothing. The column
    `history` counts the sources that have enough runs.
    """
    rules = read_rules(settings_of())
    runs = await store.alerts.run_counts()
    rows = [_rule_json(one, runs) for one in rules]
    print_result(rows, lambda: _print_rules(rows))


# ---------------- Silences


@alerts_command.command("silence")
@click.argument("alert", type=COUNT, required=False)
@click.option("--rule", metavar="PATTERN", help="Only alerts of this rule.")
@click.option(
    "--subject", metavar="PATTERN", help="Only alerts about this subject, such as 'source/shop*'."
)
@click.option("--for", "seconds", type=DURATION, default="4h", help="Duration, such as 30m or 2d.")
@click.option("--reason", default="", help="Reason, shown in the list of silences.")
@common_options
@uses_store
async def add_silence(
    store: Store,
    alert: int | None,
    *,
    rule: str | None,
    subject: str | None,
    seconds: float,
    reason: str,
) -> None:
    """Silence notifications of some alerts for a while.

    Select them with --rule and --subject; ALERT selects its own rule and subject. Silenced alerts
    stay in the list, and are neither repeated nor escalated.
    """
    if alert is not None and (rule is not None or subject is not None):
        raise BadOption("ALERT", "give either the number of an alert, or --rule and --subject")
    if alert is None and not (rule or subject):
        raise BadOption("ALERT", "give the number of an alert, --rule or --subject")
    now = await store.now()
    chosen = (rule, subject) if alert is None else alert
    silence = await silence_alerts(store, chosen, seconds=seconds, reason=reason, at=now)
    row = _silence_json(silence)
    until = time_text(silence.until)
    print_result(row, lambda: print_line(f"silence {row['id']}: until {until} UTC"))


@alerts_command.command("silences")
@common_options
@uses_store
async def list_silences(store: Store) -> None:
    """List the active silences."""
    found = await store.alerts.silences(await store.now())
    rows = [_silence_json(one) for one in found]
    print_result(rows, lambda: _print_silences(found))


@alerts_command.command("unsilence")
@click.argument("silence", type=COUNT)
@common_options
@uses_store
async def end_silence(store: Store, silence: int) -> None:
    """End SILENCE now.

    Notifications of alerts that are still firing are then sent.
    """
    ended = await store.alerts.unsilence(silence, await store.now())
    print_result(_silence_json(ended), lambda: print_line(f"ended silence {silence}"))


# ---------------- What is printed


async def _failing_channels(store: Store) -> list[Subscriber]:
    return [
        one
        for one in await store.subscribers.list()
        if one.name.startswith(ALERT_CHANNEL) and one.failures
    ]


def _note_evaluation(state: EvaluationState, now: float) -> None:
    if state.error is not None:
        since = time_text(state.failed_at)
        print_note(f"rules have not been evaluated since {since} UTC: {state.error}")
    elif state.evaluated_at is None:
        print_note("rules have never been evaluated; `longline serve` evaluates them")
    elif now - state.evaluated_at > _STALE:
        age = duration_text(now - state.evaluated_at)
        print_note(f"rules were last evaluated {age} ago; `longline serve` evaluates them")


def _alert_json(one: Alert, silences: Sequence[Silence]) -> dict[str, Any]:
    times = ("since", "seen_at", "fired_at", "resolved_at", "notified_at", "escalated_at")
    row = asdict(one)
    return {
        **row,
        **{name: iso_time(row[name]) for name in times},
        "is_silenced": is_silenced(one, silences),
    }


def _remote_alert_json(one: models.Alert) -> dict[str, Any]:
    """Return an alert of a server as `_alert_json` does, without when it was notified."""
    row = one.model_dump()
    times = ("since", "seen_at", "fired_at", "resolved_at")
    return {**row, **{name: iso_text(row[name]) for name in times}}


def _print_alerts(rows: Sequence[Mapping[str, Any]], now: float) -> None:
    table = TextTable("alert", "state", "severity", "since", "subject", "rule", "summary")
    for row in rows:
        state = f"{row['state']} (silenced)" if row["is_silenced"] else row["state"]
        since = datetime.fromisoformat(row["since"]).timestamp()
        end = datetime.fromisoformat(row["resolved_at"]).timestamp() if row["resolved_at"] else now
        cells = (row["severity"], duration_text(max(0.0, end - since)))
        table.add(row["id"], state, *cells, row["subject"], row["rule"], row["summary"])
    table.print()
    if not rows:
        print_line("no alerts")


def _print_alert(
    row: Mapping[str, Any],
    one: Alert,
    now: float,
    sent: Sequence[SentNotification],
    deliveries: Sequence[tuple[str, WebhookDelivery]],
) -> None:
    print_line(f"alert {one.id}: {one.summary}", "bold")
    lasted = duration_text(max(0.0, (one.resolved_at or now) - one.since))
    facts = {
        "state": f"{one.state.value} (silenced)" if row["is_silenced"] else one.state.value,
        "severity": one.severity,
        "subject": one.subject,
        "rule": one.rule,
        "since": f"{time_text(one.since)} UTC ({lasted})",
    }
    if one.resolved_at is not None:
        facts["resolved"] = f"{time_text(one.resolved_at)} UTC"
    print_facts({**facts, "action": one.action}, width=10)
    if one.evidence:
        print_heading("evidence")
        width = max(len(str(name)) for name in one.evidence)
        values = {name: value_text(value) for name, value in one.evidence.items()}
        print_facts(values, width=min(width, 30), indent="  ")
    print_heading("notifications")
    for notification in sent:
        channels = ", ".join(notification.channels)
        print_line(f"  {time_text(notification.at)} {notification.reason}: {channels}")
    if not sent:
        print_line("  none")
    if deliveries:
        print_heading("deliveries")
        _print_deliveries(deliveries)


def _rule_json(rule: Rule, runs: Mapping[str, int]) -> dict[str, Any]:
    kind = RULE_KINDS[rule.kind]
    learns = rule.is_learned and kind.subject == "source"
    sources = [name for name in runs if rule.applies_to(name)]
    return {
        "name": rule.name,
        "kind": rule.kind,
        "about": kind.about,
        "enabled": rule.is_enabled,
        "severity": rule.severity,
        "for": rule.for_seconds,
        "limits": kind.limits or None,
        "unit": kind.unit if kind.limits else None,
        "min": rule.min,
        "max": rule.max,
        "learned": rule.is_learned,
        "only": list(rule.only),
        "except": list(rule.excluded),
        "sources": len(sources) if learns else None,
        "sources_with_history": (
            sum(runs[name] > MIN_RUNS for name in sources) if learns else None
        ),
    }


def _print_rules(rows: Sequence[Mapping[str, Any]]) -> None:
    table = TextTable("rule", "severity", "for", "limit", "history", "finds", drop=("finds",))
    for row in rows:
        history = ""
        if row["sources"] is not None:
            history = f"{row['sources_with_history']} of {row['sources']} sources"
        wait = duration_text(row["for"]) if row["for"] else ""
        severity = row["severity"] if row["enabled"] else "off"
        of = f" ({', '.join(row['only'])})" if row["only"] else ""
        table.add(f"{row['name']}{of}", severity, wait, _limit_text(row), history, row["about"])
    table.print()


def _limit_text(row: Mapping[str, Any]) -> str:
    def amount(value: float) -> str:
        if row["unit"] == "seconds":
            return duration_text(value)
        return f"{value:.0%}" if row["unit"] == "share" else f"{value:g}"

    parts = [f"{name} {amount(row[name])}" for name in ("min", "max") if row[name] is not None]
    return ", ".join([*parts, *(["learned"] if row["learned"] else [])])


def _delivery_json(channel: str, made: WebhookDelivery) -> dict[str, Any]:
    row = {"channel": channel, **asdict(made), "at": iso_time(made.at)}
    del row["webhook"]
    return row


def _print_deliveries(found: Sequence[tuple[str, WebhookDelivery]]) -> None:
    table = TextTable("time", "channel", "message", "attempt", "status", "seconds", "error")
    for channel, one in found:
        at = time_text(one.at, seconds=True)
        status = "" if one.status is None else one.status
        seconds = f"{one.seconds:.2f}"
        table.add(at, channel, one.message_id, one.attempt, status, seconds, one.error or "")
    table.print()
    if not found:
        print_line("no deliveries")


def _silence_json(one: Silence) -> dict[str, Any]:
    return {**asdict(one), "until": iso_time(one.until), "created_at": iso_time(one.created_at)}


def _print_silences(found: Sequence[Silence]) -> None:
    table = TextTable("silence", "rule", "subject", "until", "reason")
    for one in found:
        until = time_text(one.until)
        table.add(one.id, one.rule or "any", one.subject or "any", until, one.reason)
    table.print()
    if not found:
        print_line("no silences")
