"""longline duplicates: records of different sites that describe the same thing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.analysis.clusters import (
    cluster_of,
    explain_cluster,
    first_clusters,
    group_records,
    summarize_cluster,
)
from longline.analysis.duplicates import SearchResult, decide, find_duplicates
from longline.analysis.match_rules import read_rules
from longline.cli.options import COUNT, home_option, json_option
from longline.cli.output import TextTable, one_line, print_json, stdout_console
from longline.cli.queries import with_store
from longline.core.clock import SystemClock
from longline.core.errors import BadOption
from longline.storage.matches import CONFIRMED, REJECTED
from longline.storage.store import Store

_CELL = 60  # characters
_IN_ONE_TABLE = 4  # records; more would leave each too little room
_SHOWN_BLOCKS = 5  # oversized blocks that are named
_LISTED = 20  # clusters, unless --limit says otherwise


@click.group("duplicates")
def duplicates_command() -> None:
    """Find records of different sites that describe the same thing.

    Records are linked, never deleted. Decisions by `confirm` and `reject` override the rules.
    """


@duplicates_command.command("find")
@click.argument("rules", type=click.Path(path_type=Path, dir_okay=False), metavar="RULES.yaml")
@home_option
@json_option
def find(rules: Path, *, home: Path | None, as_json: bool) -> None:
    """Match new and changed records by RULES.yaml.

    Run it again after each job. docs/duplicates.md describes the rules;
    examples/listings_match.yaml is an example.
    """
    read = read_rules(rules)
    found = with_store(
        home, lambda store: find_duplicates(store.matches, read, clock=SystemClock())
    )
    if as_json:
        print_json({"kind": read.match, **asdict(found)})
        return
    _print_found(read.match, found)


@duplicates_command.command("list")
@click.argument("kind", required=False)
@click.option(
    "--limit", type=COUNT, help="Maximum number of groups.  [default: 20; with --json, all]"
)
@home_option
@json_option
def list_clusters(kind: str | None, *, limit: int | None, home: Path | None, as_json: bool) -> None:
    """List groups of duplicate records, optionally only of KIND."""
    most = limit if as_json else limit or _LISTED
    rows, total = with_store(home, lambda store: _clusters(store, kind, most))
    if not as_json:
        _print_list(rows, total)
        return
    for row in rows:
        print_json(row)
    if len(rows) < total:  # every line of stdout is a cluster
        click.echo(f"{len(rows):,} of {total:,}", err=True)


@duplicates_command.command("show")
@click.argument("kind")
@click.argument("key")
@home_option
@json_option
def show_matches(kind: str, key: str, *, home: Path | None, as_json: bool) -> None:
    """Compare the records that match KEY (source/key)."""

    async def explained(store: Store) -> dict[str, Any]:
        await _check_kind(store, kind)
        cluster = await cluster_of(store.matches, kind, await _record(store, key))
        return await explain_cluster(store.matches, cluster)

    found = with_store(home, explained)
    if as_json:
        print_json(found)
        return
    _print_records(found)
    _print_pairs(found["pairs"])
    for pair in found["parted"]:
        reasons = "; ".join(f"{left} and {right}" for left, right in pair["rejected"])
        _print_pair(pair, f"confirmed, but separated by rejected pairs: {reasons}")


@duplicates_command.command("confirm")
@click.argument("kind")
@click.argument("key")
@click.argument("other")
@home_option
@json_option
def confirm(kind: str, key: str, other: str, *, home: Path | None, as_json: bool) -> None:
    """Record that KEY and OTHER (source/key) are the same thing."""
    _decide(home, kind, (key, other), CONFIRMED, as_json=as_json)


@duplicates_command.command("reject")
@click.argument("kind")
@click.argument("key")
@click.argument("other")
@home_option
@json_option
def reject(kind: str, key: str, other: str, *, home: Path | None, as_json: bool) -> None:
    """Record that KEY and OTHER (source/key) are different things."""
    _decide(home, kind, (key, other), REJECTED, as_json=as_json)


def _decide(
    home: Path | None, kind: str, keys: tuple[str, str], decision: str, *, as_json: bool
) -> None:
    async def decided(store: Store) -> None:
        await _check_kind(store, kind)
        left, right = [await _record(store, key) for key in keys]
        if left == right:
            raise BadOption("OTHER", "it is the same record as KEY")
        await decide(store.matches, kind, (left, right), decision, at=SystemClock().now())

    with_store(home, decided)
    if as_json:
        print_json({"kind": kind, "left": keys[0], "right": keys[1], "decision": decision})
        return
    click.echo(f"{keys[0]} and {keys[1]}: {decision}")


async def _clusters(
    store: Store, kind: str | None, most: int | None
) -> tuple[list[dict[str, Any]], int]:
    """Return the first clusters, and the number of all."""
    if kind is not None:
        await _check_kind(store, kind)
    rows: list[dict[str, Any]] = []
    total = 0
    for name in [kind] if kind is not None else await store.matches.kinds():
        known = await group_records(store.matches, name)
        total += len(known.groups)
        left = None if most is None else most - len(rows)
        async for cluster in first_clusters(store.matches, name, known, left):
            rows.append(summarize_cluster(cluster))  # noqa: PERF401  # a comprehension would hide the sum
    return rows, total


async def _check_kind(store: Store, kind: str) -> None:
    known = await store.matches.kinds()
    if kind not in known:
        listed = ", ".join(known) or "none; run `longline duplicates find RULES.yaml` first"
        raise BadOption("KIND", f"nothing was matched as {kind!r}; known kinds: {listed}")


async def _record(store: Store, name: str) -> int:
    source, slash, key = name.partition("/")
    if not (source and slash and key):
        raise BadOption("KEY", f"{name!r} is not of the form source/key, as in `records list`")
    return await store.matches.find(source, key)


def _print_found(kind: str, found: SearchResult) -> None:
    click.echo(
        f"{kind}: {found.records:,} new or changed records, {found.compared:,} pairs compared, "
        f"{found.matched:,} matches ({found.seconds:.1f} s)"
    )
    if found.too_little:
        click.echo(f"{found.too_little:,} records have too few fields to be compared")
    blocks = sorted(found.crowded.items(), key=lambda one: -one[1])
    if blocks:
        click.echo(f"{len(blocks):,} blocks were too large; only finer blocks were compared:")
    for name, size in blocks[:_SHOWN_BLOCKS]:
        click.echo(f"  {one_line(name, _CELL)}  {size:,} records")
    if found.oversized:
        click.echo(f"{found.oversized:,} groups are too large to resolve; use stricter rules")
    for source in found.unknown_sources:
        click.echo(f"warning: the source {source} of the rules has no records; check its name")
    if found.unknown_sources:
        click.echo(
            "  pairs with other sources are kept until all sources of the rules have records"
        )
    for name in found.unknown_fields:
        click.echo(f"warning: no record has the field {one_line(name, _CELL)}; check its name")
    if found.dropped:
        click.echo(f"dropped {found.dropped:,} pairs of sources that the rules no longer name")


def _print_list(rows: list[dict[str, Any]], total: int) -> None:
    if not rows:
        click.echo("no duplicates yet; try: longline duplicates find")
        return
    # A name that is cut could not be passed to `show`.
    whole = ("kind", "first record", "records", "sources", "score")
    table = TextTable(*whole, "title", whole=whole, cell_length=_CELL * 10)
    for row in rows:
        names = row["records"]
        title = one_line(str(row["title"] or ""), _CELL)
        sources = ", ".join(row["sources"])
        table.add(row["kind"], names[0], len(names), sources, f"{row['score']:g}", title)
    table.print()
    if len(rows) < total:
        click.echo(f"{len(rows):,} of {total:,}; --limit shows more")


def _print_records(found: dict[str, Any]) -> None:
    records = {one["record"]: one for one in found["records"]}
    for start in range(0, len(records), _IN_ONE_TABLE):
        names = list(records)[start : start + _IN_ONE_TABLE]
        table = TextTable("field", "merged", *names, wrap=("field", "merged", *names))
        for field in found["merged"]:
            values = (records[name]["data"].get(field["name"]) for name in names)
            table.add(_cell_text(field["name"]), _merged(field), *map(_cell_text, values))
        table.print()
    for field in found["merged"]:
        if field["note"]:
            click.echo(f"{_cell_text(field['name'])}: {_cell_text(field['note'])}")


def _merged(field: dict[str, Any]) -> str:
    if field["record"] is None:
        return "?"
    value = _cell_text(field["value"])
    return f"{value} ({field['record']})" if field["others"] else value


def _print_pairs(pairs: list[dict[str, Any]]) -> None:
    for pair in pairs:
        verdict = pair["decision"] or ("match" if pair["is_match"] else "contradictory")
        _print_pair(pair, f"{verdict}, {pair['score']:g} points")
        wrap = ("left", "right")
        table = TextTable("field", "points", "verdict", *wrap, wrap=wrap, right=("points",))
        for one in pair["evidence"]:
            sides = (_cell_text(one["left"]), _cell_text(one["right"]))
            table.add(
                _cell_text(one["field"]), f"{one['points']:+g}", _cell_text(one["verdict"]), *sides
            )
        table.print()
    if not pairs:
        click.echo("no other record matches")


def _print_pair(pair: dict[str, Any], text: str) -> None:
    console = stdout_console()
    names = one_line(f"{pair['left']} and {pair['right']}")
    console.print(f"\n{names}", style="bold", end="", soft_wrap=True)
    console.print(f": {one_line(text)}", soft_wrap=True)


def _cell_text(value: Any) -> str:
    return "" if value is None else one_line(str(value), _CELL)
