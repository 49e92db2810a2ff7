"""longline records: look at what was collected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from longline.cli.commands.data.records_history import changes, diff, history
from longline.cli.commands.data.records_statistics import quality, stats
from longline.cli.format import (
    Listing,
    cleaned,
    columns_of,
    date_time,
    one_line,
    picked,
    plain_console,
    value_of,
    written,
)
from longline.cli.opening import found_record, with_store
from longline.cli.options import (
    asked,
    filter_options,
    home_option,
    json_option,
    moment_of,
    print_json,
    query_of,
    query_options,
)
from longline.export.rows import export_row
from longline.storage.records.selecting import RecordQuery
from longline.storage.store import Store

# ---------------- One record in the terminal: what was collected, and apart from it what machines

_LINE = 100


def print_record(row: dict[str, Any]) -> None:
    """Print a record, why its quality is what it is, and where its fields come from."""
    shown, about = export_row(row), row["about"]
    console = plain_console()  # what sites write may look like markup
    name = cleaned(f"{shown['source']}/{shown['key']}", is_line=True)
    console.print(name, style="bold", end=" ", soft_wrap=True)
    console.print(cleaned(shown["url"], is_line=True), soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    for name, value in shown["data"].items():
        table.add_row(Text(cleaned(name, is_line=True)), Text(_shortened(str(value))))
    console.print(table)
    if quality := about.get("quality"):
        console.print(f"\nquality {quality['score']:.1f} ({quality['grade']})", style="bold")
        for part in quality["parts"]:
            reasons = "; ".join(part["reasons"])
            console.print(
                f"  {part['name']:<12} {part['earned']:.1f} of {part['weight']:.1f}  {reasons}"
            )
        for conflict in quality["conflicts"]:
            console.print(f"  conflict: {conflict}", soft_wrap=True)
    if origins := _origins(shown["provenance"]):
        console.print("\nwhere its fields come from", style="bold")
    for origin, names in origins.items():
        console.print(f"  {origin}: {', '.join(names)}", soft_wrap=True)
    for note in shown["notes"]:
        console.print(f"  note on {note['field']}: {note['text']}", soft_wrap=True)


def print_said(said: Sequence[dict[str, Any]]) -> None:
    """Print what machines were asked about a record; nothing when they never were."""
    if not said:
        return
    console = plain_console()
    console.print("\nmachine-made, not collected", style="bold")
    for one in said:
        console.print(f"  {cleaned(_heading(one), is_line=True)}", soft_wrap=True)
        if one["reason"]:
            console.print(f"    {_shortened(one['reason'])}", soft_wrap=True)
        for name, value in _fields(one["answer"]):
            console.print(f"    {cleaned(name)}: {_shortened(written(value))}", soft_wrap=True)


def _heading(one: dict[str, Any]) -> str:
    age = "" if one["is_current"] else f", of version {one['record_version']}, not this one"
    at = f", {date_time(one['answered_at'])}" if one["answered_at"] is not None else ""
    origin = f"{one['model']}, prompt version {one['prompt_version']}{at}"
    return f"{one['task']}: {one['state']}{age} ({origin})"


def _fields(answer: Any) -> list[tuple[str, Any]]:
    if answer is None:
        return []
    return list(answer.items()) if isinstance(answer, dict) else [("answer", answer)]


def _origins(provenance: dict[str, str]) -> dict[str, list[str]]:
    """Return the fields by where they come from: a layer and the address it read."""
    fields: dict[str, list[str]] = {}
    for name, origin in provenance.items():
        fields.setdefault(cleaned(origin), []).append(name)
    return fields


def _shortened(text: str) -> str:
    text = cleaned(text)  # a site's text must not steer our terminal
    return text if len(text) <= _LINE else f"{text[:_LINE]} … ({len(text)} chars)"


_LIST = 20
_TITLE = 60


@click.group("records")
def command() -> None:
    """Look at what was collected.

    With --json, each answers with one value; list, search and changes --since with one object a
    line for each record (JSON Lines).
    """


_columns_option = click.option(
    "--columns", metavar="A,B.C", help="These fields, separated by commas; @score is one of ours."
)


@command.command("list")
@_columns_option
@query_options
@home_option
@json_option
def list_records(*, columns: str | None, home: Path | None, as_json: bool, **filters: Any) -> None:
    """List records, or those that match.

    With --json, one object a line for each.
    """
    _list(columns, home, filters, as_json=as_json)


@command.command("search")
@click.argument("text")
@_columns_option
@filter_options
@home_option
@json_option
def search(
    text: str, *, columns: str | None, home: Path | None, as_json: bool, **filters: Any
) -> None:
    """List records that hold TEXT anywhere in their data, key or address.

    With --json, one object a line for each.
    """
    _list(columns, home, {**filters, "text": text}, as_json=as_json)


def _list(
    columns: str | None, home: Path | None, filters: dict[str, Any], *, as_json: bool
) -> None:
    query = query_of({**filters, "limit": filters["limit"] or _LIST})
    names = columns_of(columns)
    rows = with_store(home, lambda store: _listed(store, query, names))
    if as_json:
        for row in rows:
            print_json(picked(row, names) if names else export_row(row))
    elif rows:
        plain_console().print(_picked_table(rows, names) if names else _table(rows))
    else:
        click.echo("no records match")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("key", "title", "score", "class", "version", "changed", box=None)
    for row in rows:
        shown = export_row(row)
        table.add_row(
            cleaned(f"{shown['source']}/{shown['key']}", is_line=True),
            _title(shown),
            _score(shown["score"]),
            shown["grade"] or "",
            str(shown["version"]),
            shown["changed_at"][:16],
        )
    return table


def _picked_table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> Listing:
    table = Listing("key", *names)
    for row in rows:
        values = (one_line(written(value_of(row, name)), _TITLE) for name in names)
        table.add(f"{row['source']}/{row['key']}", *values)
    return table


@command.command("show")
@click.argument("key")
@click.option("--source", help="The source, when several have such a key.")
@click.option("--as-of", metavar="WHEN", help="As it was then: 2026-11-01 (UTC), or 2d, 3h ago.")
@home_option
@json_option
def show(
    key: str, *, source: str | None, as_of: str | None, home: Path | None, as_json: bool
) -> None:
    """Show one record: its quality explained, where its fields come from, what machines said."""
    then = moment_of(as_of, "--as-of")
    row, said = with_store(home, lambda store: _found(store, key, source, then))
    if as_json:
        added = {"quality": row["about"].get("quality"), "enrichments": said}
        print_json(export_row(row) | added)
        return
    print_record(row)
    print_said(said)


@command.command("count")
@query_options
@home_option
@json_option
def count(*, home: Path | None, as_json: bool, **filters: Any) -> None:
    """Count records, or those that match."""
    found = with_store(home, lambda store: _counted(store, query_of(filters)))
    if as_json:
        print_json({"records": found})
    else:
        click.echo(found)


@command.command("versions")
@click.argument("key")
@click.option("--source", help="The source, when several have such a key.")
@home_option
@json_option
def versions(key: str, *, source: str | None, home: Path | None, as_json: bool) -> None:
    """List what a record was before it changed."""
    rows = with_store(home, lambda store: _versions(store, key, source))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        job = f"  job {row['job_id']}" if row["job_id"] else ""  # by hand, or not known
        click.echo(f"version {row['version']}  {row['fingerprint']}{job}")
    if not rows:
        click.echo("it has never changed")


for _other in (stats, quality, diff, changes, history):
    command.add_command(_other)


async def _listed(
    store: Store, query: RecordQuery, columns: tuple[str, ...]
) -> list[dict[str, Any]]:
    return await store.records.list(await asked(store, query, columns))


async def _found(
    store: Store, key: str, source: str | None, as_of: float | None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    row = await found_record(store, key, source, as_of=as_of)
    said = (await store.questions.of_records([row["id"]])).get(row["id"], [])
    # What is current is so for the version that is shown, which may be one of the past.
    return row, [one | {"is_current": one["record_version"] == row["version"]} for one in said]


async def _counted(store: Store, query: RecordQuery) -> int:
    return await store.records.count(await asked(store, query))


async def _versions(store: Store, key: str, source: str | None) -> list[dict[str, Any]]:
    row = await found_record(store, key, source)
    return await store.records.versions(row["key"], source=row["source"])


def _title(shown: dict[str, Any]) -> str:
    data = shown["data"]
    title = str(data.get("title") or data.get("name") or shown["url"])
    title = cleaned(title)
    return title if len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip()}…"


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.1f}"
