"""longline launches: what executors run, or are going to run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from longline.cli.options import COUNT, common_options, number
from longline.cli.output import (
    TextTable,
    iso_time,
    one_line,
    print_facts,
    print_line,
    print_result,
    time_text,
)
from longline.cli.queries import uses_store
from longline.scheduling.launch_groups import cancel_launch, find_launch, group_result, result_of
from longline.storage.scheduling.launches import Launch
from longline.storage.store import Store

_LAUNCH = number(int, 1)
_TIMES = ("due_at", "created_at", "started_at", "ended_at", "until")


@click.group("launches")
def launches_command() -> None:
    """List, show and cancel launches: runs that `longline serve` starts."""


@launches_command.command("list")
@click.option("--open", "is_open", is_flag=True, help="Only launches that have not ended.")
@click.option("--origin", help="Only launches with this origin, such as schedule/NAME.")
@click.option("--limit", type=COUNT, default=50, help="Maximum number of launches.")
@common_options
@uses_store
async def list_launches(store: Store, *, is_open: bool, origin: str | None, limit: int) -> None:
    """List launches, newest first."""
    found = await store.launches.list(origin=origin, is_open=is_open, limit=limit)
    print_result([_launch_json(one) for one in found], lambda: _print_launches(found))


def _print_launches(launches: list[Launch]) -> None:
    columns = ("launch", "kind", "name", "state", "origin", "created", "job", "reason")
    table = TextTable(*columns, drop=("kind", "origin", "created", "job"), note="reason")
    for one in launches:
        created = time_text(one.created_at)
        row = (str(one.id), one.kind, one.name, result_of(one), one.origin, created)
        table.add(*row, one.target, one.reason and one_line(one.reason))
    table.print()


@launches_command.command("show")
@click.argument("launch", type=_LAUNCH)
@common_options
@uses_store
async def show_launch(store: Store, launch: int) -> None:
    """Show LAUNCH, and the result of all launches with the same origin."""
    found = await find_launch(store, launch)
    group = await group_result(store, found.origin)
    row = {**_launch_json(found), "group": asdict(group)}
    print_result(row, lambda: _print_launch(found, group.state, group.results))


def _print_launch(launch: Launch, state: str, results: Any) -> None:
    facts = {
        "name": f"{launch.kind} {launch.name}",
        "state": result_of(launch),
        "reason": launch.reason,
        "job": launch.target,
        "origin": launch.origin,
        "created": time_text(launch.created_at, seconds=True),
        "deaths": str(launch.deaths),
        "group": f"{state}: {', '.join(f'{count} {name}' for name, count in results.items())}",
    }
    shown = {name: one_line(value) for name, value in facts.items() if value}
    print_facts(shown, width=9)


@launches_command.command("cancel")
@click.argument("launch", type=_LAUNCH)
@common_options
@uses_store
async def cancel(store: Store, launch: int) -> None:
    """Cancel LAUNCH, and its job if it is running."""
    found = await cancel_launch(store, launch, "cancelled by the user")
    print_result(_launch_json(found), lambda: print_line(f"launch {launch} is {result_of(found)}"))


def _launch_json(launch: Launch) -> dict[str, Any]:
    row = asdict(launch)
    return {**row, **{name: iso_time(row[name]) for name in _TIMES if row[name]}}
