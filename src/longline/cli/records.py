"""longline records: look at what was collected."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from longline.cli.options import home_option, json_option, print_json
from longline.cli.querying import query_of, query_options, with_whole_job
from longline.cli.reading import with_store
from longline.errors import UnknownRecord
from longline.exports.rows import outward
from longline.stores.records import RecordQuery
from longline.stores.store import Store

_LIST = 20
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINE = 100
_TITLE = 60


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
    rows = with_store(home, lambda store: _listed(store, query_of(filters)))
    if as_json:
        for row in rows:
            print_json(outward(row))
        return
    table = Table("key", "title", "score", "class", "version", "changed", box=None)
    for row in rows:
        shown = outward(row)
        table.add_row(
            escape(f"{shown['source']}/{shown['key']}"),
            escape(_title(shown)),
            _score(shown["score"]),
            escape(shown["grade"] or ""),
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
    row = with_store(home, lambda store: _found(store, key, source))
    if as_json:
        print_json(outward(row) | {"quality": row["about"].get("quality")})
        return
    _print_record(row)


@command.command("count")
@query_options
@home_option
def count(*, home: Path | None, **filters: Any) -> None:
    """Count records, or those that match."""
    click.echo(with_store(home, lambda store: _counted(store, query_of(filters))))


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
        name = escape(row["source"])
        table.add_row(name, str(row["records"]), _score(row["mean_score"]), escape(grades))
    Console().print(table if rows else "no records yet; try: longline demo")


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
        click.echo(f"version {row['version']}  {row['fingerprint']}  job {row['job_id']}")
    if not rows:
        click.echo("it has never changed")


async def _listed(store: Store, query: RecordQuery) -> list[dict[str, Any]]:
    return await store.records.list(await with_whole_job(store, query))


async def _counted(store: Store, query: RecordQuery) -> int:
    return await store.records.count(await with_whole_job(store, query))


async def _found(store: Store, key: str, source: str | None) -> dict[str, Any]:
    """Return a record by its key, or by source/key as `list` shows it; a key may hold slashes."""
    try:
        return await store.records.get(key, source=source)
    except UnknownRecord:
        name, _, rest = key.partition("/")
        if source or not rest:
            raise
    return await store.records.get(rest, source=name)


async def _versions(store: Store, key: str, source: str | None) -> list[dict[str, Any]]:
    row = await _found(store, key, source)
    return await store.records.versions(row["key"], source=row["source"])


def _print_record(row: dict[str, Any]) -> None:
    shown, about = outward(row), row["about"]
    console = Console(markup=False, highlight=False)  # what sites write may look like markup
    console.print(f"{shown['source']}/{shown['key']}", style="bold", end=" ", soft_wrap=True)
    console.print(shown["url"], soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    for name, value in shown["data"].items():
        table.add_row(Text(name), Text(_shortened(str(value))))
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


def _origins(provenance: dict[str, str]) -> dict[str, list[str]]:
    """Return the fields by where they come from: a layer and the address it read."""
    fields: dict[str, list[str]] = {}
    for name, origin in provenance.items():
        fields.setdefault(_CONTROLS.sub("�", origin), []).append(name)
    return fields


def _shortened(text: str) -> str:
    text = _CONTROLS.sub("�", text)  # a site's text must not steer our terminal
    return text if len(text) <= _LINE else f"{text[:_LINE]} … ({len(text)} chars)"


def _title(shown: dict[str, Any]) -> str:
    data = shown["data"]
    title = str(data.get("title") or data.get("name") or shown["url"])
    title = _CONTROLS.sub("�", title)
    return title if len(title) <= _TITLE else f"{title[: _TITLE - 1].rstrip()}…"


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.1f}"
