"""longline records: look at what was collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from longline.cli.options import home_option, json_option, print_json
from longline.cli.querying import query_of, query_options
from longline.cli.reading import with_store
from longline.exports.rows import outward

_LIST = 20


@click.group("records")
def command() -> None:
    """Look at what was collected."""


@command.command("list")
@query_options
@home_option
@json_option
def list_records(*, home: Path | None, as_json: bool, **filters: Any) -> None:
    """List records, or those that match."""
    filters["limit"] = filters["limit"] or _LIST
    query = query_of(filters)
    rows = with_store(home, lambda store: store.records.list(query))
    if as_json:
        for row in rows:
            print_json(outward(row))
        return
    table = Table("key", "title", "score", "class", "version", "changed", box=None)
    for row in rows:
        shown = outward(row)
        table.add_row(
            f"{shown['source']}/{shown['key']}",
            _title(shown),
            _score(shown["score"]),
            shown["grade"] or "",
            str(shown["version"]),
            shown["changed_at"][:16],
        )
    Console().print(table if rows else "no records match")


@command.command("show")
@click.argument("key")
@click.option("--source", help="The source, when several have such a key.")
@home_option
@json_option
def show(key: str, *, source: str | None, home: Path | None, as_json: bool) -> None:
    """Show one record with its quality explained, its notes and where its fields come from."""
    key = key.rpartition("/")[2] or key
    row = with_store(home, lambda store: store.records.get(key, source=source))
    if as_json:
        print_json(outward(row) | {"quality": row["about"].get("quality")})
        return
    _print_record(row)


@command.command("count")
@query_options
@home_option
def count(*, home: Path | None, **filters: Any) -> None:
    """Count records, or those that match."""
    query = query_of(filters)
    click.echo(with_store(home, lambda store: store.records.count(query)))


@command.command("stats")
@home_option
@json_option
def stats(*, home: Path | None, as_json: bool) -> None:
    """Show how many records each source has, and how good they are."""
    rows = with_store(home, lambda store: store.records.statistics())
    if as_json:
        print_json(rows)
        return
    table = Table("source", "records", "mean score", "classes", box=None)
    for row in rows:
        grades = ", ".join(f"{name} {number}" for name, number in sorted(row["grades"].items()))
        table.add_row(row["source"], str(row["records"]), _score(row["mean_score"]), grades)
    Console().print(table if rows else "no records yet; try: longline demo")


@command.command("versions")
@click.argument("key")
@click.option("--source", help="The source, when several have such a key.")
@home_option
@json_option
def versions(key: str, *, source: str | None, home: Path | None, as_json: bool) -> None:
    """List what a record was before it changed."""
    rows = with_store(home, lambda store: store.records.versions(key, source=source))
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"version {row['version']}  {row['fingerprint']}  job {row['job_id']}")
    if not rows:
        click.echo("it has never changed")


def _print_record(row: dict[str, Any]) -> None:
    shown, about = outward(row), row["about"]
    console = Console()
    console.print(f"[bold]{shown['source']}/{shown['key']}[/] {shown['url']}", soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    for name, value in shown["data"].items():
        text = str(value)
        table.add_row(name, text if len(text) <= 100 else f"{text[:100]} … ({len(text)} chars)")  # noqa: PLR2004  # a line
    console.print(table)
    if quality := about.get("quality"):
        console.print(f"\n[bold]quality {quality['score']:.1f} ({quality['grade']})[/]")
        for part in quality["parts"]:
            reasons = "; ".join(part["reasons"])
            console.print(
                f"  {part['name']:<12} {part['earned']:.1f} of {part['weight']:.1f}  {reasons}"
            )
        for conflict in quality["conflicts"]:
            console.print(f"  conflict: {conflict}", soft_wrap=True)
    for note in shown["notes"]:
        console.print(f"  note on {note['field']}: {note['text']}", soft_wrap=True, markup=False)


def _title(shown: dict[str, Any]) -> str:
    data = shown["data"]
    return str(data.get("title") or data.get("name") or shown["url"])[:60]


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.1f}"
