"""longline events: read the event log, explain its types, manage its subscribers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click
import orjson

from longline.cli.options import COUNT, JOB, common_options, number, wants_json
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
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.core.event_types import EVENT_TYPES, EventType, event_type
from longline.core.json import as_text
from longline.core.model import Event
from longline.core.output import count_text
from longline.engine.subscribers import read_events
from longline.storage.events import EventFilter
from longline.storage.store import Store
from longline.storage.subscribers import Subscriber

_CURSOR = number(int, 0)


@click.group("events")
def events_command() -> None:
    """Read the event log, and manage its subscribers.

    Every change of jobs, items, records and domains is an event, in the order of the commits.
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
@time_option("--since", "Start with the first event at this time.")
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
    wanted = await _complete_job(store, wanted)
    if since is not None:
        after = await store.events.before(since)
    if after is None:
        found = await store.events.last(wanted, limit=limit)
    else:
        found, _ = await store.events.read(after, wanted, limit=limit)
    rows = [event_json(event) for event in found]
    print_result(rows, lambda: _print_events(found))


@events_command.command("follow")
@_filter_options
@click.option("--after", type=_CURSOR, help="Start after the event with this id; default: now.")
@common_options
@uses_store
async def follow_events(store: Store, *, wanted: EventFilter, after: int | None) -> None:
    """Print events as they are committed.

    It runs until it is interrupted; with --json, it prints one object per line.
    """
    wanted = await _complete_job(store, wanted)
    start = await store.events.newest() if after is None else after
    is_json = wants_json()
    async for event in read_events(store, SystemClock(), wanted, start):
        if is_json:
            print_json(event_json(event))
        else:
            print_line(_line(event))


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
    """Let a subscriber read events again.

    If it has failed, it is also retried now.
    """
    changed = await store.subscribers.replay(name, after)
    row = _subscriber_json(changed)
    print_result(row, lambda: print_line(f"{name} reads the events after {after} again"))


@events_command.command("prune")
@click.option(
    "--before", type=TIME, required=True, help="Delete events from before this time, such as 30d."
)
@click.option("--keep", type=_CURSOR, default=0, help="Number of newest events to keep.")
@common_options
@uses_store
async def prune_events(store: Store, *, before: float, keep: int) -> None:
    """Delete old events of items and records.

    Events of jobs and domains stay. So do events that a subscriber has not handled yet, and those
    since the start of the oldest unfinished job.
    """
    deleted = 0
    while count := await store.events.prune(before=before, keep=keep):
        deleted += count
    print_result(
        {"deleted": deleted}, lambda: print_line(f"{count_text(deleted, 'event')} deleted")
    )


@events_command.command("unsubscribe")
@click.argument("name")
@common_options
@uses_store
async def remove_subscriber(store: Store, name: str) -> None:
    """Remove a subscriber with its cursor."""
    await store.subscribers.remove(name)
    print_result({"removed": name}, lambda: print_line(f"{name} is removed"))


async def _complete_job(store: Store, wanted: EventFilter) -> EventFilter:
    """Return the filter with the whole id of its job, of which users may write the beginning."""
    if wanted.job is None:
        return wanted
    job = await store.jobs.get(wanted.job)
    return EventFilter(wanted.types, job.id, wanted.source, wanted.subject)


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


def _subscriber_json(one: Subscriber) -> dict[str, Any]:
    row = asdict(one)
    times = ("moved_at", "waiting_since", "due_at")
    return {**row, **{name: iso_time(row[name] or None) for name in times}}


def _print_subscribers(found: list[Subscriber], now: float) -> None:
    table = TextTable("name", "cursor", "lag", "waiting", "failures", "error")
    for one in found:
        waiting = "" if one.waiting_since is None else duration_text(now - one.waiting_since)
        table.add(one.name, one.cursor, one.lag, waiting, one.failures, one.error or "")
    table.print()
    if not found:
        print_line("no subscribers")
