"""longline config: settings, manifests and job files in one place."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from longline.cli.configured import Problem, entry_of, problems_of, set_in_file, values_behind
from longline.cli.options import (
    home_option,
    json_option,
    print_json,
    profile_given,
    profile_option,
    settings_of,
)
from longline.cli.showing import plain_console
from longline.config.differences import differences
from longline.config.layers import Explained
from longline.config.library import survey
from longline.config.library_entries import Entry, explain_entry
from longline.config.schemas import NAMES, schema_of
from longline.config.settings import explain_settings
from longline.errors import ConfigError


@click.group("config")
def command() -> None:
    """Look at settings, manifests and job files, check them, or set a value."""


@command.command("list")
@profile_option
@json_option
def list_all(*, as_json: bool) -> None:
    """List the manifests and job files of the sources folder, the broken ones too."""
    settings = settings_of()
    found = survey(settings)
    rows = [*map(_row, found.entries.values()), *map(_broken, found.problems)]
    if as_json:
        print_json(rows)
        return
    where = ", ".join(map(str, settings.sources))
    _print(("name", "kind", "file", "about"), rows, f"there is no manifest or job file in {where}")


@command.command("show")
@click.argument("name", required=False)
@home_option
@json_option
def show(name: str | None, *, home: Path | None, as_json: bool) -> None:
    """Show every value of NAME, or of the settings, and where it comes from.

    NAME is that of a manifest or a job file, or the path of one.
    """
    told: list[Explained]
    if name is None:
        told = explain_settings(home=home, profile=profile_given())
    else:
        told = explain_entry(entry_of(name, settings_of(home)))
    rows = [asdict(one) for one in told]
    if as_json:
        print_json(rows)
        return
    _print(("name", "value", "origin"), rows, "")


@command.command("validate")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]…")
@click.option("--no-secrets", is_flag=True, help="Leave out whether every secret is there.")
@profile_option
@json_option
def validate(files: tuple[Path, ...], *, no_secrets: bool, as_json: bool) -> None:
    """Check FILEs, or everything there is; exit with 2 when something is broken."""
    settings = settings_of()
    count, problems = problems_of(files, settings, with_secrets=not no_secrets)
    if as_json:
        print_json({"files": count, "problems": [asdict(one) for one in problems]})
    else:
        _print_problems(count, problems)
    sys.exit(2 if problems else 0)


@command.command("set")
@click.argument("name")
@click.argument("key")
@click.argument("value")
@profile_option
@json_option
def set_one(name: str, key: str, value: str, *, as_json: bool) -> None:
    """Set KEY (rate, or fields.price.type) of NAME to VALUE; comments stay as they are.

    NAME is that of a manifest or a job file, or the path of one. Nothing is written when the file
    would be broken by it.
    """
    changed = set_in_file(name, key, value, settings_of())
    if as_json:
        print_json([asdict(one) for one in changed])
        return
    for one in changed:
        click.echo(f"{one.path}: {_words(one.before)} -> {_words(one.after)}")
    if not changed:
        click.echo("it said so before; nothing was changed")


@command.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@home_option
@json_option
def diff(before: str, after: str, *, home: Path | None, as_json: bool) -> None:
    """Show what B says differently from A.

    Each is a file, the name of a manifest or a job file, or a job: that is what it ran with.
    """
    settings = settings_of(home)
    old, new = (values_behind(one, settings, home) for one in (before, after))
    found = differences(old, new)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    rows = [asdict(one) for one in found]
    _print(("change", "path", "before", "after"), rows, "they say the same")


@command.command("schema")
@click.argument("kind", type=click.Choice(NAMES), default="html")
def schema(kind: str) -> None:
    """Print the JSON Schema of a KIND of file, for editors that check and complete it."""
    print_json(schema_of(kind))


def _row(entry: Entry) -> dict[str, Any]:
    path = str(entry.document.path)
    return {"name": entry.name, "kind": entry.kind, "file": path, "about": entry.about}


def _broken(problem: ConfigError) -> dict[str, Any]:
    path = getattr(problem, "path", None)
    return {"name": None, "kind": "broken", "file": path, "about": str(problem)}


def _print(columns: tuple[str, ...], rows: Iterable[dict[str, Any]], empty: str) -> None:
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(_words(row[name]) for name in columns))
    plain_console(soft_wrap=True).print(table if table.row_count else empty)


def _print_problems(count: int, problems: list[Problem]) -> None:
    for one in problems:
        click.echo(f"longline: {one.sentence}", err=True)
    if not problems:
        click.echo(f"{count} files are sound" if count != 1 else "1 file is sound")


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
