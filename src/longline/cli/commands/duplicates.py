"""longline duplicates: records of different sites that describe the same thing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.analysis.clusters import explain_record, list_clusters
from longline.analysis.duplicates import SearchResult, decide_names, find_duplicates
from longline.analysis.match_rules import read_rules
from longline.cli.log_options import combine
from longline.cli.options import COUNT, common_options, wants_json
from longline.cli.output import TextTable, one_line, print_json, print_line, print_result
from longline.cli.queries import uses_store
from longline.core.clock import SystemClock
from longline.core.output import count_text
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
@common_options
@uses_store
async def find_matches(store: Store, rules: Path) -> None:
    """Match new and changed records with the rules in RULES.yaml.

    Run it again after each job. docs/duplicates.md describes the rules;
    examples/listings_match.yaml is an example.
    """
    read = read_rules(rules)
    found = await find_duplicates(store.matches, read, clock=SystemClock())
    print_result({"kind": read.match, **asdict(found)}, lambda: _print_found(read.match, found))


@duplicates_command.command("list")
@click.argument("kind", required=False)
@click.option(
    "--limit", type=COUNT, help="Maximum number of groups.  [default: 20; with --json, all]"
)
@common_options
@uses_store
async def list_duplicates(store: Store, kind: str | None, *, limit: int | None) -> None:
    """List groups of duplicate records, optionally only of KIND."""
    most = limit if wants_json() else limit or _LISTED
    rows, total = await list_clusters(store.matches, kind, most)
    if not wants_json():
        _print_list(rows, total)
        return
    for row in rows:
        print_json(row)
    if len(rows) < total:  # every line of stdout is a cluster
        click.echo(f"{len(rows):,} of {total:,}", err=True)


@duplicates_command.command("show")
@click.argument("kind")
@click.argument("key")
@common_options
@uses_store
async def show_matches(store: Store, kind: str, key: str) -> None:
    """Compare the records that match KEY (source/key)."""
    found = await explain_record(store.matches, kind, key)
    print_result(found, lambda: _print_cluster(found))


_pair_arguments = combine(
    click.argument("kind"), click.argument("key"), click.argument("other"), common_options
)


@duplicates_command.command("confirm")
@_pair_arguments
@uses_store
async def confirm_pair(store: Store, kind: str, key: str, other: str) -> None:
    """Record that KEY and OTHER (source/key) are the same thing."""
    await _decide(store, kind, (key, other), CONFIRMED)


@duplicates_command.command("reject")
@_pair_arguments
@uses_store
async def reject_pair(store: Store, kind: str, key: str, other: str) -> None:
    """Record that KEY and OTHER (source/key) are different things."""
    await _decide(store, kind, (key, other), REJECTED)


async def _decide(store: Store, kind: str, pair: tuple[str, str], decision: str) -> None:
    await decide_names(store.matches, kind, pair, decision, at=SystemClock().now())
    result = {"kind": kind, "left": pair[0], "right": pair[1], "decision": decision}
    print_result(result, lambda: click.echo(f"{' and '.join(pair)}: {decision}"))


def _print_found(kind: str, found: SearchResult) -> None:
    click.echo(
        f"{kind}: {count_text(found.records, 'new or changed record')}, "
        f"{count_text(found.compared, 'pair')} compared, "
        f"{count_text(found.matched, 'match', 'matches')} ({found.seconds:.1f} s)"
    )
    if found.too_little:
        records = count_text(found.too_little, "record has", "records have")
        click.echo(f"{records} too few fields to be compared")
    blocks = sorted(found.crowded.items(), key=lambda one: -one[1])
    if blocks:
        large = count_text(len(blocks), "block was", "blocks were")
        click.echo(f"{large} too large; only finer blocks were compared:")
    for name, size in blocks[:_SHOWN_BLOCKS]:
        click.echo(f"  {one_line(name, _CELL)}  {count_text(size, 'record')}")
    if found.oversized:
        groups = count_text(found.oversized, "group is", "groups are")
        click.echo(f"{groups} too large to resolve; use stricter rules")
    for source in found.unknown_sources:
        click.echo(f"warning: the rules name {source}, which has no records; check the name")
    if found.unknown_sources:
        click.echo(
            "  matches of sources that the rules do not name are kept until every source in the "
            "rules has records"
        )
    for name in found.unknown_fields:
        click.echo(f"warning: no record has the field {one_line(name, _CELL)}; check its name")
    if found.dropped:
        pairs = count_text(found.dropped, "pair")
        click.echo(f"dropped {pairs} with sources that the rules no longer name")


def _print_list(rows: list[dict[str, Any]], total: int) -> None:
    # A name that is cut could not be passed to `show`.
    columns = ("kind", "first record", "records", "sources", "score", "title")
    table = TextTable(*columns)
    for row in rows:
        names = row["records"]
        title = one_line(str(row["title"] or ""), _CELL)
        sources = ", ".join(row["sources"])
        table.add(row["kind"], names[0], len(names), sources, f"{row['score']:g}", title)
    table.print("no duplicates; to find some: longline duplicates find RULES.yaml", is_whole=True)
    if len(rows) < total:
        click.echo(f"{len(rows):,} of {total:,}; --limit shows more")


def _print_cluster(found: dict[str, Any]) -> None:
    records = {one["record"]: one for one in found["records"]}
    for start in range(0, len(records), _IN_ONE_TABLE):
        names = list(records)[start : start + _IN_ONE_TABLE]
        table = TextTable("field", "merged", *names)
        for field in found["merged"]:
            merged = "?"
            if field["record"] is not None:
                origin = f" ({field['record']})" if field["others"] else ""
                merged = f"{_cell_text(field['value'])}{origin}"
            values = (records[name]["data"].get(field["name"]) for name in names)
            table.add(_cell_text(field["name"]), merged, *map(_cell_text, values))
        table.print()
    for field in found["merged"]:
        if field["note"]:
            click.echo(f"{_cell_text(field['name'])}: {_cell_text(field['note'])}")
    for pair in found["pairs"]:
        result = pair["decision"] or ("match" if pair["is_match"] else "contradictory")
        _print_pair(pair, f"{result}, {pair['score']:g} points")
        table = TextTable("field", "points", "result", "left", "right")
        for one in pair["evidence"]:
            texts = (_cell_text(one[name]) for name in ("verdict", "left", "right"))
            table.add(_cell_text(one["field"]), f"{one['points']:+g}", *texts)
        table.print()
    if not found["pairs"]:
        click.echo("no other record matches")
    for pair in found["parted"]:
        reasons = "; ".join(f"{left} and {right}" for left, right in pair["rejected"])
        _print_pair(pair, f"confirmed, but separated by rejected pairs: {reasons}")


def _print_pair(pair: dict[str, Any], text: str) -> None:
    click.echo()
    print_line(f"{pair['left']} and {pair['right']}", "bold", end="")
    print_line(f": {text}")


def _cell_text(value: Any) -> str:
    return "" if value is None else one_line(str(value), _CELL)
