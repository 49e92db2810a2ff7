"""longline duplicates: the same thing on several sites."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from longline.cli.options import home_option, json_option, print_json
from longline.cli.reading import with_store
from longline.clock import SystemClock
from longline.config.matching import read_rules
from longline.errors import BadOption
from longline.matching.clusters import cluster_of, clusters
from longline.matching.finding import Found, find_duplicates
from longline.matching.telling import explain, summarise
from longline.stores.matches_words import CONFIRMED, REJECTED
from longline.stores.store import Store

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CELL = 60
_SIDE_BY_SIDE = 4  # records in one table; more would leave each no room
_TOLD = 5  # crowded blocks that are named


@click.group("duplicates")
def command() -> None:
    """Find records of several sites that are the same thing, and look at them.

    Records are joined, never deleted. What you confirm or reject stays so, whatever rules say.
    """


@command.command("find")
@click.argument("rules", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@json_option
def find(rules: Path, *, home: Path | None, as_json: bool) -> None:
    """Compare records that are new or changed by RULES, a YAML file; run it again after each job.

    The guide says how rules are written; examples/listings_match.yaml has a set of them.
    """
    read = read_rules(rules)
    found = with_store(
        home, lambda store: find_duplicates(store.matches, read, clock=SystemClock())
    )
    if as_json:
        print_json({"kind": read.match, **asdict(found)})
        return
    _print_found(read.match, found)


@command.command("list")
@click.argument("kind", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@home_option
@json_option
def list_clusters(kind: str | None, *, limit: int, home: Path | None, as_json: bool) -> None:
    """List what stands on several pages or sites; of KIND, or of every kind."""
    rows = with_store(home, lambda store: _listed(store, kind, limit))
    if as_json:
        for row in rows:
            print_json(row)
        return
    table = Table("kind", "first record", "records", "sources", "score", "title", box=None)
    for row in rows:
        names = row["records"]
        told = (row["kind"], names[0], str(len(names)), ", ".join(row["sources"]))
        table.add_row(*map(_cell, (*told, f"{row['score']:g}", row["title"])))
    Console().print(table if rows else "no duplicates are known; try: longline duplicates find")


@command.command("show")
@click.argument("kind")
@click.argument("key")
@home_option
@json_option
def show(kind: str, key: str, *, home: Path | None, as_json: bool) -> None:
    """Show all records that are the same as KEY (source/key), side by side, and why they are."""
    told = with_store(home, lambda store: _explained(store, kind, key))
    if as_json:
        print_json(told)
        return
    _print_records(told)
    _print_pairs(told["pairs"])


@command.command("confirm")
@click.argument("kind")
@click.argument("key")
@click.argument("other")
@home_option
@json_option
def confirm(kind: str, key: str, other: str, *, home: Path | None, as_json: bool) -> None:
    """Say that KEY and OTHER (source/key) are the same thing, whatever rules say."""
    _decide(home, kind, (key, other), CONFIRMED, as_json=as_json)


@command.command("reject")
@click.argument("kind")
@click.argument("key")
@click.argument("other")
@home_option
@json_option
def reject(kind: str, key: str, other: str, *, home: Path | None, as_json: bool) -> None:
    """Say that KEY and OTHER (source/key) are not the same thing, whatever rules say."""
    _decide(home, kind, (key, other), REJECTED, as_json=as_json)


def _decide(
    home: Path | None, kind: str, keys: tuple[str, str], decision: str, *, as_json: bool
) -> None:
    with_store(home, lambda store: _decided(store, kind, keys, decision))
    if as_json:
        print_json({"kind": kind, "left": keys[0], "right": keys[1], "decision": decision})
        return
    click.echo(f"{keys[0]} and {keys[1]}: {decision}")


async def _decided(store: Store, kind: str, keys: tuple[str, str], decision: str) -> None:
    await _check_kind(store, kind)
    left, right = [await _record(store, key) for key in keys]
    if left == right:
        raise BadOption("OTHER", "it is the same record as KEY; name another")
    await store.matches.decide(kind, (left, right), decision, at=SystemClock().now())


async def _listed(store: Store, kind: str | None, limit: int) -> list[dict[str, Any]]:
    if kind is not None:
        await _check_kind(store, kind)
    rows: list[dict[str, Any]] = []
    for name in [kind] if kind is not None else await store.matches.kinds():
        async for cluster in clusters(store.matches, name):
            if len(rows) == limit:
                return rows
            rows.append(summarise(cluster))
    return rows


async def _explained(store: Store, kind: str, key: str) -> dict[str, Any]:
    await _check_kind(store, kind)
    cluster = await cluster_of(store.matches, kind, await _record(store, key))
    return await explain(store.matches, cluster)


async def _check_kind(store: Store, kind: str) -> None:
    known = await store.matches.kinds()
    if kind not in known:
        listed = ", ".join(known) or "none; run `longline duplicates find RULES.yaml` first"
        raise BadOption("KIND", f"nothing was compared as {kind!r}; known are: {listed}")


async def _record(store: Store, name: str) -> int:
    source, slash, key = name.partition("/")
    if not (source and slash and key):
        raise BadOption("KEY", f"{name!r} is not of the form source/key, as `records list` has it")
    return await store.matches.find(source, key)


def _print_found(kind: str, found: Found) -> None:
    click.echo(
        f"{kind}: {found.records:,} records new or changed, {found.compared:,} pairs compared, "
        f"{found.matched:,} match ({found.seconds:.1f} s)"
    )
    if found.too_little:
        click.echo(f"{found.too_little:,} say too little to be compared")
    largest = sorted(found.crowded.items(), key=lambda one: -one[1])
    if largest:
        click.echo(f"{len(largest):,} blocks were too large and only finer ones compared:")
    for name, size in largest[:_TOLD]:
        click.echo(f"  {_cell_text(name)}  {size:,} records")
    if found.oversized:
        click.echo(
            f"{found.oversized:,} groups are too large to be looked through; stricter rules?"
        )


def _print_records(told: dict[str, Any]) -> None:
    console = Console()
    by_name = {one["record"]: one for one in told["records"]}
    for start in range(0, len(by_name), _SIDE_BY_SIDE):
        names = list(by_name)[start : start + _SIDE_BY_SIDE]
        table = Table("field", "all in one", *map(_cell, names), box=None)
        for field in told["merged"]:
            values = (by_name[name]["data"].get(field["name"]) for name in names)
            table.add_row(_cell(field["name"]), _cell(_one_view(field)), *map(_cell, values))
        console.print(table)
    for field in told["merged"]:
        if field["note"]:
            console.print(f"{_cell(field['name'])}: {_cell(field['note'])}", highlight=False)


def _one_view(field: dict[str, Any]) -> str:
    if field["record"] is None:
        return "?"
    value = _cell_text(field["value"])
    return f"{value} ({field['record']})" if field["others"] else value


def _print_pairs(pairs: list[dict[str, Any]]) -> None:
    console = Console()
    for pair in pairs:
        said = pair["decision"] or ("match" if pair["is_match"] else "contradict each other")
        ends = f"{_cell(pair['left'])} and {_cell(pair['right'])}"
        console.print(f"\n[bold]{ends}[/]: {said}, {pair['score']:g} points", highlight=False)
        table = Table("field", "points", "verdict", "", "", box=None)
        for one in pair["evidence"]:
            told = (one["field"], f"{one['points']:+g}", one["verdict"], one["left"], one["right"])
            table.add_row(*map(_cell, told))
        console.print(table)
    if not pairs:
        console.print("no other record is the same")


def _cell(value: Any) -> str:
    return escape(_cell_text(value))


def _cell_text(value: Any) -> str:
    text = "" if value is None else str(value)
    text = _CONTROLS.sub("�", text)  # a site's text must not steer our terminal
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"
