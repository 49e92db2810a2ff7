"""longline launches: what executors run, or are going to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from longline.cli.options import COUNT, home_or_server_options, number
from longline.cli.output import (
    TextTable,
    iso_time,
    one_line,
    print_facts,
    print_line,
    print_result,
)
from longline.cli.queries import uses_store
from longline.cli.remote import first, iso_text, or_on_server, page_size
from longline.scheduling.launch_groups import cancel_launch, find_launch, group_result
from longline.storage.scheduling.launches import Launch
from longline.storage.store import Store

if TYPE_CHECKING:
    from longline.client.client import Client
    from longline.server import models

_LAUNCH = number(int, 1)
_TIMES = ("due_at", "created_at", "started_at", "ended_at", "until")


@click.group("launches")
def launches_command() -> None:
    """List, show and cancel launches: runs that `longline serve` starts."""


async def _list_on_server(client: Client, *, is_open: bool, origin: str | None, limit: int) -> None:
    listed = client.each(
        client.list_launches, origin=origin, is_open=is_open, limit=page_size(limit)
    )
    rows = [_remote_launch_json(one) for one in await first(listed, limit)]
    print_result(rows, lambda: _print_launches(rows))


@launches_command.command("list")
@click.option("--open", "is_open", is_flag=True, help="Only launches that have not ended.")
@click.option("--origin", help="Only launches with this origin, such as schedule/NAME.")
@click.option("--limit", type=COUNT, default=50, help="Maximum number of launches.")
@home_or_server_options
@or_on_server(_list_on_server)
@uses_store
async def list_launches(store: Store, *, is_open: bool, origin: str | None, limit: int) -> None:
    """List launches, newest first."""
    found = await store.launches.list(origin=origin, is_open=is_open, limit=limit)
    rows = [_launch_json(one) for one in found]
    print_result(rows, lambda: _print_launches(rows))


def _print_launches(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = ("launch", "kind", "name", "state", "origin", "created", "job", "reason")
    table = TextTable(*columns, drop=("kind", "origin", "created", "job"), note="reason")
    for row in rows:
        state, created = row["result"] or row["state"], _time_text(row["created_at"], 16)
        cells = (str(row["id"]), row["kind"], row["name"], state, row["origin"], created)
        table.add(*cells, row["target"], row["reason"] and one_line(row["reason"]))
    table.print()


async def _show_on_server(client: Client, launch: int) -> None:
    row = _remote_launch_json(await client.get_launch(launch))
    print_result(row, lambda: _print_launch(row))


@launches_command.command("show")
@click.argument("launch", type=_LAUNCH)
@home_or_server_options
@or_on_server(_show_on_server)
@uses_store
async def show_launch(store: Store, launch: int) -> None:
    """Show LAUNCH, and the result of all launches with the same origin."""
    found = await find_launch(store, launch)
    group = await group_result(store, found.origin)
    row = {**_launch_json(found), "group": asdict(group)}
    print_result(row, lambda: _print_launch(row))


def _print_launch(row: Mapping[str, Any]) -> None:
    facts = {
        "name": f"{row['kind']} {row['name']}",
        "state": row["result"] or row["state"],
        "reason": row["reason"],
        "job": row["target"],
        "origin": row["origin"],
        "created": _time_text(row["created_at"], 19),
    }
    if "deaths" in row:  # not of a server
        facts["deaths"] = str(row["deaths"])
    if "group" in row:
        group = row["group"]
        results = ", ".join(f"{count} {name}" for name, count in group["results"].items())
        facts["group"] = f"{group['state']}: {results}"
    shown = {name: one_line(value) for name, value in facts.items() if value}
    print_facts(shown, width=9)


async def _cancel_on_server(client: Client, launch: int) -> None:
    row = _remote_launch_json(await client.cancel_launch(launch))
    print_result(row, lambda: _print_cancelled(row))


@launches_command.command("cancel")
@click.argument("launch", type=_LAUNCH)
@home_or_server_options
@or_on_server(_cancel_on_server)
@uses_store
async def cancel(store: Store, launch: int) -> None:
    """Cancel LAUNCH, and its job if it is running."""
    row = _launch_json(await cancel_launch(store, launch, "cancelled by the user"))
    print_result(row, lambda: _print_cancelled(row))


def _print_cancelled(row: Mapping[str, Any]) -> None:
    print_line(f"launch {row['id']} is {row['result'] or row['state']}")


def _time_text(iso: str, length: int) -> str:
    return iso[:length].replace("T", " ")


def _launch_json(launch: Launch) -> dict[str, Any]:
    row = asdict(launch)
    return {**row, **{name: iso_time(row[name]) for name in _TIMES if row[name]}}


def _remote_launch_json(launch: models.Launch) -> dict[str, Any]:
    """Return a launch of a server as `_launch_json` does, without what only executors need."""
    row = launch.model_dump()
    return {**row, **{name: iso_text(row[name]) for name in _TIMES if row.get(name)}}
