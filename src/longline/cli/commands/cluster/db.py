"""longline db: the database, and copying it to another one."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import number_text, print_json, size_text
from longline.cli.table import TextTable
from longline.config.settings import prepare_home
from longline.core.output import sanitize
from longline.services.database_copy import CopiedHome, copy_home
from longline.storage.database import describe, open_database


@click.group("db")
def command() -> None:
    """Inspect the database, or copy it to another one."""


@command.command("copy")
@click.argument("target")
@click.option(
    "--from",
    "source",
    metavar="ADDRESS",
    show_default="the database of this home",
    help="Database to copy.",
)
@click.option("--force", is_flag=True, help="Copy even if jobs are running.")
@click.option(
    "--replace-nul",
    is_flag=True,
    help="Replace NUL characters by U+FFFD: PostgreSQL cannot store them.",
)
@home_option
@json_option
def copy(
    target: str,
    *,
    source: str | None,
    force: bool,
    replace_nul: bool,
    home: Path | None,
    as_json: bool,
) -> None:
    """Copy all data including history to TARGET, which must be empty.

    TARGET is an address (postgresql://user@host/name, sqlite:////path/file), `postgres` for the
    server that longline runs in this home, or `sqlite` for the file there. The copy is atomic: an
    interrupted copy can be run again. The source is not changed.
    """
    copied = asyncio.run(
        copy_home(settings_of(home), target, source, force=force, replace_nul=replace_nul)
    )
    if as_json:
        state = {"is_in_use": copied.is_in_use, "is_behind": copied.is_behind}
        print_json({**asdict(copied.copied), **state})
    else:
        _print_copied(copied)
    if copied.is_behind:
        click.echo(
            f"{sanitize(copied.copied.source)} was changed during the copy, so the copy is "
            "incomplete. Stop all jobs and copy it again to an empty database.",
            err=True,
        )
        sys.exit(ExitCode.OK if force else ExitCode.FAILED)


@command.command("info")
@home_option
@json_option
def info(*, home: Path | None, as_json: bool) -> None:
    """Show the database of this home, its size and its tables."""
    settings = settings_of(home)
    prepare_home(settings)
    with closing(open_database(settings.database)) as database:
        address, found = database.address, asyncio.run(database.read(describe))
    if as_json:
        print_json({"address": address, **asdict(found)})
        return
    click.echo(f"address   {sanitize(address)}")
    click.echo(f"kind      {found.kind} {found.version}")
    click.echo(f"schema    version {found.tables_version}")
    click.echo(f"size      {size_text(found.size_bytes)}")
    table = TextTable("table", "rows", right=("rows",))
    for name, rows in found.rows.items():
        table.add(name, number_text(rows))
    table.print()


def _print_copied(copied: CopiedHome) -> None:
    table = TextTable("table", "rows", "checksum", right=("rows",))
    for one in copied.copied.tables:
        table.add(one.name, number_text(one.rows), one.checksum)
    table.print()
    target = sanitize(copied.copied.target)
    rows = number_text(sum(one.rows for one in copied.copied.tables))
    click.echo(f"Copied {rows} rows; counts and checksums match.")
    if copied.is_in_use:
        click.echo(f"This home now uses {target}.")
    else:
        click.echo(
            f"To use it, set LONGLINE_DATABASE_URL={target} or database_url in longline.yaml, "
            "with the password in place of ***."
        )
