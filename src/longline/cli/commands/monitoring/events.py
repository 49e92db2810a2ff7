"""longline events: the event log, its types, projections and subscribers."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
import orjson

from longline.cli.exit_codes import ExitCode
from longline.cli.options import (
    COUNT,
    JOB,
    common_options,
    home_or_server_options,
    number,
    settings_of,
    wants_json,
)
from longline.cli.output import (
    TextTable,
    duration_text,
    iso_time,
    one_line,
    print_json,
    print_line,
    print_result,
    time_text,
)
from longline.cli.queries import TIME, time_option, uses_store
from longline.cli.remote import or_on_server
from longline.core.clock import SharedClock, SystemClock
from longline.core.errors import BadOption
from longline.core.event_types import EVENT_TYPES, EventType, event_type
from longline.core.json import as_text
from longline.core.model import Event
from longline.core.output import count_text
from longline.engine.subscribers import DeliveryResult, complete_job, read_events
from longline.storage.events.events import EventFilter, ProjectionStatus
from longline.storage.events.projections import PROJECTIONS
from longline.storage.events.subscribers import WEBHOOK, Subscriber
from longline.storage.store import Store

if TYPE_CHECKING:  # needs the transport, which the other commands do not
    from longline.client.client import Client
    from longline.engine.deliveries import EventDeliveries

_CURSOR = number(int, 0)


@click.group("events")
def events_command() -> None:
    """Read the event log, and manage its subscribers.

    Every change to a job, an item or a record is an event, numbered in commit order.
    """


def _filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select events; the command gets them as `wanted`."""

    @click.option("--type", "types", multiple=True, help="Event type or pattern, such as 'job.*'.")
    @click.option("--job", type=JOB, help="Only events of this job.")
    @click.option("--source", help="Only events of this source.")
    @click.option("--subject", help="Only events about this subject, such as domain/HOST.")
    @functools.wraps(command)
    def run(
        *args: Any,
        types: tuple[str, ...],
        job: str | None,
        source: str | None,
        subject: str | None,
        **kwargs: Any,
    ) -> Any:
        return command(*args, wanted=EventFilter(types, job, source, subject), **kwargs)

    return run


@events_command.command("list")
@_filter_options
@click.option("--after", type=_CURSOR, help="Start after the event with this id.")
@time_option("--since", "Only events since TIME")
@click.option("--limit", type=COUNT, default=50, help="Maximum number of events.")
@common_options
@uses_store
async def list_events(
    store: Store, *, wanted: EventFilter, after: int | None, since: float | None, limit: int
) -> None:
    """List events, oldest first.

    Without --after or --since, the newest are listed.
    """
    if after is not None and since is not None:
        raise BadOption("--after", "cannot be combined with --since")
    wanted = await complete_job(store, wanted)
    if since is not None:
        after = await store.events.before(since)
    if after is None:
        found = await store.events.last(wanted, limit=limit)
    else:
        found, _ = await store.events.read(after, wanted, limit=limit)
    rows = [event_json(event) for event in found]
    print_result(rows, lambda: _print_events(found))


async def _follow_on_server(client: Client, *, wanted: EventFilter, after: int | None) -> None:
    events = client.events(
        after=after,
        types=wanted.types,
        job=wanted.job,
        source=wanted.source,
        subject=wanted.subject,
    )
    async for one in events:
        _print_followed(Event(**{**one.model_dump(), "at": one.at.timestamp()}))


@events_command.command("follow")
@_filter_options
@click.option(
    "--after",
    type=_CURSOR,
    show_default="now",
    help="Start after the event with this id.",
)
@home_or_server_options
@or_on_server(_follow_on_server)
@uses_store
async def follow_events(store: Store, *, wanted: EventFilter, after: int | None) -> None:
    """Print events as they are committed.

    Runs until interrupted. With --json, prints one object per line.
    """
    wanted = await complete_job(store, wanted)
    start = await store.events.newest() if after is None else after
    async for event in read_events(store, SystemClock(), wanted, start):
        _print_followed(event)


def _print_followed(event: Event) -> None:
    if wants_json():
        print_json(event_json(event))
    else:
        print_line(_line(event))


@events_command.command("deliver")
@click.option(
    "--once",
    is_flag=True,
    help="Deliver pending events and exit, with code 1 if a subscriber failed.",
)
@common_options
@uses_store
async def deliver_events(store: Store, *, once: bool) -> None:
    """Deliver events to all subscribers.

    These are webhooks, channels of alerts and reports, plugins and the Redis stream. Runs until
    interrupted. Several processes may run it: at any time, only one of them delivers to
    a subscriber. With --json, prints one object per attempt.
    """
    results: list[DeliveryResult] = []

    def note(result: DeliveryResult) -> None:
        _print_delivered(result)
        if once:
            results.append(result)

    from longline.wiring import open_event_deliveries  # noqa: PLC0415  # the other commands do without

    clock = SharedClock()
    await clock.follow(store)
    async with open_event_deliveries(settings_of(), store, clock, note) as deliveries:
        if not once:
            await _run_until_stopped(deliveries, clock, store)
            return
        await deliveries.run_once()
    if not results and not wants_json():
        print_line("no events to deliver")
    if any(one.error is not None for one in results):
        sys.exit(ExitCode.FAILED)


async def _run_until_stopped(deliveries: EventDeliveries, clock: SharedClock, store: Store) -> None:
    from longline.engine.runtime import handling_signals, in_background  # noqa: PLC0415  # the same

    stop = asyncio.Event()
    with handling_signals(stop.set):
        async with in_background(clock.keep_following(store)), in_background(deliveries.run()):
            await stop.wait()


def _print_delivered(result: DeliveryResult) -> None:
    if wants_json():
        print_json({**asdict(result), "due_at": iso_time(result.due_at)})
        return
    texts = []
    if result.events:
        texts.append(f"{count_text(result.events, 'event')} delivered, up to event {result.cursor}")
    if result.error is not None:
        due = time_text(result.due_at, seconds=True)
        texts.append(f"failed: {result.error}")
        texts.append("no further attempts" if result.due_at is None else f"next attempt at {due}")
    print_line(one_line(f"{result.subscriber}: {'; '.join(texts)}"))


@events_command.command("types")
@click.argument("name", required=False)
@common_options
def show_types(name: str | None) -> None:
    """List event types, or show one with its schema."""
    if name is None:
        rows = [_type_json(one) for one in EVENT_TYPES.values()]
        print_result(rows, _print_types)
        return
    schema = {**_type_json(event_type(name)), "schema": event_type(name).json_schema()}
    text = orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode()
    print_result(schema, lambda: click.echo(text))


@events_command.command("subscribers")
@common_options
@uses_store
async def list_subscribers(store: Store) -> None:
    """List subscribers, their lag and failures."""
    found = await store.subscribers.list()
    now = await store.now()
    rows = [_subscriber_json(one) for one in found]
    print_result(rows, lambda: _print_subscribers(found, now))


@events_command.command("replay")
@click.argument("name")
@click.option("--after", type=_CURSOR, default=0, help="Start after the event with this id.")
@common_options
@uses_store
async def replay_events(store: Store, name: str, *, after: int) -> None:
    """Deliver events to a subscriber again.

    A subscriber that is waiting after a failure is retried immediately.
    """
    changed = await store.subscribers.replay(name, after)
    row = _subscriber_json(changed)
    print_result(row, lambda: print_line(f"{name} continues after event {after}"))


@events_command.command("projections")
@common_options
@uses_store
async def list_projections(store: Store) -> None:
    """List projections: tables computed from the events.

    They are updated when events are appended, and can be rebuilt from the events.
    """
    found = await store.projections.list()
    rows = [{**asdict(one), "rebuilt_at": iso_time(one.rebuilt_at)} for one in found]
    print_result(rows, lambda: _print_projections(found))


@events_command.command("rebuild")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@common_options
@uses_store
async def rebuild_projections(store: Store, names: tuple[str, ...]) -> None:
    """Rebuild projections from the events.

    `all` rebuilds every projection. Jobs may run during a rebuild. The old rows are replaced when
    the new ones are complete.
    """
    chosen = [*PROJECTIONS] if names == ("all",) else [*dict.fromkeys(names)]
    now = SystemClock().now()
    events = await store.projections.rebuild(chosen, now)
    print_result(
        {"rebuilt": chosen, "events": events},
        lambda: print_line(f"rebuilt {', '.join(chosen)} from {count_text(events, 'event')}"),
    )


@events_command.command("show")
@click.argument("name", metavar="PROJECTION")
@click.option("--key", "keys", multiple=True, help="Only the row with this key. Repeatable.")
@time_option("--since", "Only rows since TIME")
@click.option("--limit", type=COUNT, default=20, help="Maximum number of rows.")
@common_options
@uses_store
async def show_projection(
    store: Store, name: str, *, keys: tuple[str, ...], since: float | None, limit: int
) -> None:
    """Show rows of a projection, newest first."""
    rows = await store.projections.rows(name, keys=keys or None, since=since, limit=limit)
    print_result(rows, lambda: _print_rows(rows))


@events_command.command("prune")
@click.option("--before", type=TIME, help="Delete events older than this, such as 30d.")
@click.option("--keep", type=COUNT, metavar="N", help="Delete all but the newest N events.")
@common_options
@uses_store
async def prune_events(store: Store, *, before: float | None, keep: int | None) -> None:
    """Delete old events of items, records and occurrences.

    Projections keep what they have counted. All other events are kept, as are events that
    a subscriber has not handled yet and events since the start of the oldest unfinished job.
    """
    if before is None and keep is None:
        raise BadOption("--before", "give --before, --keep or both")
    deleted, is_done = 0, False
    while not is_done:
        step = await store.events.prune(before=before, max_count=keep)
        deleted, is_done = deleted + step.deleted, step.is_done
    slowest = await store.subscribers.slowest(before=before, max_count=keep)
    row = {"deleted": deleted, "kept_for": None if slowest is None else slowest.name}
    print_result(row, lambda: _print_pruned(deleted, slowest))


def _print_pruned(deleted: int, slowest: Subscriber | None) -> None:
    print_line(f"{count_text(deleted, 'event')} deleted")
    if slowest is None:
        return
    remove = f"events unsubscribe {slowest.name}"
    if slowest.name.startswith(WEBHOOK):
        remove = f"webhooks remove {slowest.name.removeprefix(WEBHOOK)}"
    state = "has" if slowest.is_enabled else "is disabled and has"
    print_line(
        one_line(
            f"events after {slowest.cursor} are kept for {slowest.name}, which {state} not handled "
            f"them; if it is no longer needed, run `longline {remove}`"
        )
    )


@events_command.command("unsubscribe")
@click.argument("name")
@common_options
@uses_store
async def remove_subscriber(store: Store, name: str) -> None:
    """Remove a subscriber and its cursor."""
    await store.subscribers.remove(name)
    print_result({"removed": name}, lambda: print_line(f"removed {name}"))


def event_json(event: Event) -> dict[str, Any]:
    """Return an event for programs."""
    return {**asdict(event), "at": iso_time(event.at)}


def _line(event: Event) -> str:
    key = f" {event.key}" if event.key is not None else ""
    data = ", ".join(f"{name}={as_text(value)}" for name, value in event.data.items())
    text = (
        f"{event.id} {time_text(event.at, seconds=True)} {event.type} {event.subject}{key} {data}"
    )
    return one_line(text.rstrip())


def _print_events(found: list[Event]) -> None:
    for event in found:
        print_line(_line(event))
    if not found:
        print_line("no events")


def _type_json(one: EventType) -> dict[str, Any]:
    return {
        "type": one.name,
        "version": one.version,
        "subject": one.about.partition("=")[0],
        "about": one.meaning,
    }


def _print_types() -> None:
    table = TextTable("type", "subject", "meaning")
    for one in EVENT_TYPES.values():
        table.add(one.name, one.about.partition("=")[0], one.meaning)
    table.print()


def _print_projections(found: list[ProjectionStatus]) -> None:
    table = TextTable("name", "version", "rows", "rebuilt (UTC)", "meaning")
    for one in found:
        state = time_text(one.rebuilt_at) if one.rebuilt_at else ""
        table.add(one.name, one.version, one.rows, state, one.meaning)
    table.print()
    for one in found:
        if one.starts_after:
            print_line(f"{one.name} counts only events after {one.starts_after}")
        if one.position is not None:
            print_line(f"{one.name} is being rebuilt, at event {one.position}")


def _print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        print_line(one_line(", ".join(f"{name}={as_text(value)}" for name, value in row.items())))
    if not rows:
        print_line("no rows")


def _subscriber_json(one: Subscriber) -> dict[str, Any]:
    row = asdict(one)
    times = ("moved_at", "waiting_since", "due_at")
    return {**row, **{name: iso_time(row[name] or None) for name in times}}


def _print_subscribers(found: list[Subscriber], now: float) -> None:
    table = TextTable("name", "cursor", "lag", "waiting", "failures", "problem")
    for one in found:
        waiting = "" if one.waiting_since is None else duration_text(now - one.waiting_since)
        problems = ["disabled"] if not one.is_enabled else []
        problems += [] if one.error is None else [one.error]
        table.add(one.name, one.cursor, one.lag, waiting, one.failures, "; ".join(problems))
    table.print()
    if not found:
        print_line("no subscribers")
