"""longline duplicates: the same thing on several sites."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.cells import cell_len
from rich.table import Column, Table

from longline.analysis.matching.clusters import (
    cluster_of,
    explain,
    first_clusters,
    grouped,
    summarise,
)
from longline.analysis.matching.rules import read_rules
from longline.analysis.matching.search import Found, decide, find_duplicates
from longline.cli.format import cleaned, plain_console
from longline.cli.opening import with_store
from longline.cli.options import COUNT, home_option, json_option, print_json
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.storage.records.matches import CONFIRMED, REJECTED
from longline.storage.store import Store

_CELL = 60
_SIDE_BY_SIDE = 4  # records in one table; more would leave each no room
_TOLD = 5  # crowded blocks that are named
_LISTED = 20  # things in a table, unless more are asked for
_TITLE = 12  # letters of a title that a list has room for at least
_PADDING = 2  # around each column of a table


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
@click.option("--limit", type=COUNT, help="At most this many [20; with --json all].")
@home_option
@json_option
def list_clusters(kind: str | None, *, limit: int | None, home: Path | None, as_json: bool) -> None:
    """List what stands on several pages or sites; of KIND, or of every kind."""
    most = limit if as_json else limit or _LISTED
    rows, total = with_store(home, lambda store: _listed(store, kind, most))
    if not as_json:
        _print_list(rows, total)
        return
    for row in rows:
        print_json(row)
    if len(rows) < total:  # each line of the answer is a thing, so this stands beside it
        click.echo(f"{len(rows):,} of {total:,}", err=True)


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
    _print_parted(told["parted"])


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
    await decide(store.matches, kind, (left, right), decision, at=SystemClock().now())


async def _listed(
    store: Store, kind: str | None, most: int | None
) -> tuple[list[dict[str, Any]], int]:
    """Return the first things, and how many there are."""
    if kind is not None:
        await _check_kind(store, kind)
    rows: list[dict[str, Any]] = []
    total = 0
    for name in [kind] if kind is not None else await store.matches.kinds():
        known = await grouped(store.matches, name)
        total += len(known.groups)
        left = None if most is None else most - len(rows)
        async for cluster in first_clusters(store.matches, name, known, left):
            rows.append(summarise(cluster))  # noqa: PERF401  # a comprehension would hide the sum
    return rows, total


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
    _print_doubts(found)


def _print_doubts(found: Found) -> None:
    """Say what in the rules may be misspelt, and which pairs are gone because of them."""
    for source in found.unknown_sources:
        click.echo(f"warning: no record here is of the source {source}; is its name right?")
    if found.unknown_sources:
        click.echo("  until it has one, pairs of sources that the rules do not name are kept")
    for name in found.unknown_fields:
        click.echo(f"warning: no record has the field {_cell_text(name)}; is its name right?")
    if found.dropped:
        click.echo(
            f"{found.dropped:,} pairs were dropped: the rules no longer name the source of one"
        )


def _print_list(rows: list[dict[str, Any]], total: int) -> None:
    console = plain_console()
    if not rows:
        console.print("no duplicates are known; try: longline duplicates find")
        return
    columns = [
        _whole("kind", [row["kind"] for row in rows]),
        _whole("first record", [row["records"][0] for row in rows]),
        _whole("records", []),
        _whole("sources", [f"{source}," for row in rows for source in row["sources"]]),
        _whole("score", [f"{row['score']:g}" for row in rows]),
    ]
    needed = sum((column.width or 0) + _PADDING for column in columns)
    # A name that is cut short cannot be given to `show`; rather is the line too long.
    console.width = max(console.width, needed + _TITLE)
    title = Column("title", no_wrap=True, overflow="ellipsis", max_width=console.width - needed - 2)
    table = Table(*columns, title, box=None)
    for row in rows:
        names = row["records"]
        told = (str(len(names)), ", ".join(row["sources"]), f"{row['score']:g}", row["title"])
        table.add_row(_cell(row["kind"]), _plain(names[0]), *map(_cell, told))
    console.print(table)
    if len(rows) < total:
        click.echo(f"{len(rows):,} of {total:,}; --limit shows more")


def _whole(name: str, cells: list[str]) -> Column:
    """Return a column as wide as its longest cell."""
    return Column(name, width=max(cell_len(_plain(cell)) for cell in (name, *cells)))


def _print_records(told: dict[str, Any]) -> None:
    console = plain_console()
    by_name = {one["record"]: one for one in told["records"]}
    for start in range(0, len(by_name), _SIDE_BY_SIDE):
        names = list(by_name)[start : start + _SIDE_BY_SIDE]
        heads = (Column(_plain(name), overflow="fold") for name in names)
        table = Table("field", "all in one", *heads, box=None)
        for field in told["merged"]:
            values = (by_name[name]["data"].get(field["name"]) for name in names)
            table.add_row(_cell(field["name"]), _cell(_one_view(field)), *map(_cell, values))
        console.print(table)
    for field in told["merged"]:
        if field["note"]:
            console.print(f"{_cell(field['name'])}: {_cell(field['note'])}")


def _one_view(field: dict[str, Any]) -> str:
    if field["record"] is None:
        return "?"
    value = _cell_text(field["value"])
    return f"{value} ({field['record']})" if field["others"] else value


def _print_pairs(pairs: list[dict[str, Any]]) -> None:
    console = plain_console()
    for pair in pairs:
        said = pair["decision"] or ("match" if pair["is_match"] else "contradict each other")
        console.print(f"\n{_both(pair)}", style="bold", end="", soft_wrap=True)
        console.print(f": {said}, {pair['score']:g} points", soft_wrap=True)
        table = Table("field", "points", "verdict", "", "", box=None)
        for one in pair["evidence"]:
            told = (one["field"], f"{one['points']:+g}", one["verdict"], one["left"], one["right"])
            table.add_row(*map(_cell, told))
        console.print(table)
    if not pairs:
        console.print("no other record is the same")


def _print_parted(parted: list[dict[str, Any]]) -> None:
    console = plain_console()
    for pair in parted:
        reasons = "; ".join(
            f"{_plain(left)} and {_plain(right)}" for left, right in pair["rejected"]
        )
        console.print(f"\n{_both(pair)}", style="bold", end="", soft_wrap=True)
        line = f": confirmed, but kept apart, since rejected are: {reasons}"
        console.print(line, soft_wrap=True)


def _both(pair: dict[str, Any]) -> str:
    return f"{_plain(pair['left'])} and {_plain(pair['right'])}"


def _cell(value: Any) -> str:
    return _cell_text(value)


def _cell_text(value: Any) -> str:
    text = "" if value is None else _plain(str(value))
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _plain(text: str) -> str:
    return cleaned(text, is_line=True)
