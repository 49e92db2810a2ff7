"""longline records diff, changes, history: what became of records."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from longline.analysis.changes import Change, Changes, Fate, changes_between
from longline.cli.format import (
    Listing,
    SafeConsole,
    bar,
    date_time,
    note,
    one_line,
    plain_console,
    written,
)
from longline.cli.opening import found_record, with_store
from longline.cli.options import (
    COUNT,
    check_source,
    home_option,
    json_option,
    moment_of,
    print_json,
)
from longline.storage.records.differences import Difference
from longline.storage.records.history import Point, Step
from longline.storage.records.selecting import RecordQuery
from longline.storage.store import Store

_SHOWN = 20
_VALUE = 60
_BAR = 24
_CAVEAT = 400

_source_option = click.option("--source", help="The source, when several have such a key.")


@click.command("diff")
@click.argument("key")
@click.option("--from", "older", type=COUNT, help="From this version on.")
@click.option("--to", "newer", type=COUNT, help="Up to this version.")
@_source_option
@home_option
@json_option
def diff(
    key: str,
    *,
    older: int | None,
    newer: int | None,
    source: str | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Show what changed in a record from version to version, field by field."""
    steps = with_store(home, lambda store: _steps(store, key, source, (older, newer)))
    if as_json:
        print_json([step.as_dict() for step in steps])
        return
    console = plain_console()
    for step in steps:
        _print_step(console, step)
    if not steps:
        console.print("it has never changed")


@click.command("history")
@click.argument("key")
@click.argument("field")
@_source_option
@home_option
@json_option
def history(key: str, field: str, *, source: str | None, home: Path | None, as_json: bool) -> None:
    """Show the values that FIELD of a record has had, such as its prices."""
    points = with_store(home, lambda store: _points(store, key, field, source))
    if all(point.value is None for point in points):
        note(f"no version of {key} has anything in {field}")
    if as_json:
        print_json([asdict(point) for point in points])
    else:
        plain_console().print(_timeline(field, points))


@click.command("changes")
@click.argument("source", required=False)
@click.option("--from", "older", metavar="JOB", help="The run to compare with.")
@click.option("--to", "newer", metavar="JOB", help="The run to look at.")
@click.option(
    "--since", metavar="WHEN", help="Whatever the runs: all changes since 2026-11-01, 2d."
)
@click.option("--limit", type=COUNT, help="Show at most this many of each.")
@home_option
@json_option
def changes(
    source: str | None,
    *,
    older: str | None,
    newer: str | None,
    since: str | None,
    limit: int | None,
    home: Path | None,
    as_json: bool,
) -> None:
    """Show what appeared, changed and disappeared between two runs, the last ones of SOURCE.

    With --json, one object; with --since, one a line for each record.
    """
    if since is not None:
        if older or newer:
            raise click.UsageError("--since looks at no runs: give it, or --from and --to")
        then = moment_of(since, "--since") or 0.0
        query = RecordQuery(source=source, limit=limit)
        with_store(home, lambda store: _print_since(store, then, query, as_json=as_json))
        return
    most = limit if as_json else limit or _SHOWN
    found = with_store(home, lambda store: changes_between(store, source, older, newer, most=most))
    if as_json:
        print_json(found.as_dict())
    else:
        _print_changes(found)


async def _steps(
    store: Store, key: str, source: str | None, between: tuple[int | None, int | None]
) -> list[Step]:
    row = await found_record(store, key, source)
    older, newer = between
    return await store.records.history.diff(
        row["key"], source=row["source"], older=older, newer=newer
    )


async def _points(store: Store, key: str, field: str, source: str | None) -> list[Point]:
    row = await found_record(store, key, source)
    return await store.records.history.timeline(row["key"], field, source=row["source"])


async def _print_since(store: Store, then: float, query: RecordQuery, *, as_json: bool) -> None:
    await check_source(store, query.source)
    console, count = plain_console(), 0
    for step in store.records.history.since(then, query):
        count += 1
        if as_json:
            print_json(step.as_dict())
        else:
            _print_step(console, step)
    if not count and not as_json:
        console.print("nothing has changed since")


def _print_step(console: SafeConsole, step: Step) -> None:
    name = one_line(f"{step.source}/{step.key}", _VALUE)
    versions = "is new" if step.older is None else f"version {step.older} to {step.newer}"
    job = f"  job {step.job}" if step.job else ""
    console.print(f"{name}  {versions}  {date_time(step.at)}{job}", style="bold", soft_wrap=True)
    if step.older is not None:
        console.print(_differences(step.differences) if step.differences else "  the same data")


def _differences(found: tuple[Difference, ...]) -> Listing:
    table = Listing("field", "before", "after", compared=("before", "after"))
    for one in found:
        table.add(one.field, _side(one, "old"), _side(one, "new"), length=_VALUE)
    return table


def _side(one: Difference, side: str) -> str:
    return written(one.values[side]) if side in one.values else "(no such field)"


def _timeline(field: str, points: list[Point]) -> Listing:
    table = Listing("since", "version", field, "change", "", right=("version", field, "change"))
    numbers = [abs(point.value) for point in points if _is_number(point.value)]
    most = max(numbers, default=0)
    befores = [None, *(point.value for point in points)]
    for before, point in zip(befores, points, strict=False):
        share = abs(point.value) / most if most and _is_number(point.value) else 0.0
        value = one_line(written(point.value), _VALUE)
        cells = (date_time(point.since), point.version, value)
        table.add(*cells, _change(before, point.value), bar(share, _BAR))
    return table


def _change(before: Any, value: Any) -> str:
    if not _is_number(before) or not _is_number(value) or not before:
        return ""
    return f"{(value - before) / abs(before):+.1%}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _print_changes(found: Changes) -> None:
    console = plain_console()
    before = found.older or "nothing: this is its first run"
    console.print(f"{found.newer}, compared with {before}", style="bold", soft_wrap=True)
    counts = ", ".join(f"{found.counts[fate]:,} {fate.value}" for fate in Fate)
    console.print(f"  {counts}", soft_wrap=True)
    for caveat in found.caveats:
        console.print(f"  note: {one_line(caveat, _CAVEAT)}", soft_wrap=True)
    for fate in (Fate.APPEARED, Fate.CHANGED, Fate.DISAPPEARED, Fate.UNKNOWN):
        _print_fate(console, found, fate)


def _print_fate(console: SafeConsole, found: Changes, fate: Fate) -> None:
    told = found.of(fate)
    if not told:
        return
    console.print(f"\n{fate.value}", style="bold")
    if fate is Fate.CHANGED:
        console.print(_changed(told))
    else:
        for change in told:
            reason = f"  {one_line(change.reason, 200)}" if change.reason else ""
            console.print(f"  {one_line(change.key, _VALUE)}{reason}", soft_wrap=True)
    if (left := found.counts[fate] - len(told)) > 0:
        console.print(f"  … and {left:,} more; --limit shows them, --json all")


def _changed(told: tuple[Change, ...]) -> Listing:
    table = Listing("key", "field", "before", "after", compared=("before", "after"))
    for change in told:
        for place, one in enumerate(change.differences):
            key = "" if place else change.key
            table.add(key, one.field, _side(one, "old"), _side(one, "new"), length=_VALUE)
    return table
