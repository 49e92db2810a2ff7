"""longline db: what the database is like, and moving all of it to another one."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.format import Listing, cleaned, number, plain_console
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.config.settings import prepare_home
from longline.services.moving import Move, Moved, move
from longline.storage.copy import Copied
from longline.storage.database import Description, describe, open_database

_MEGABYTE = 1_000_000


@click.group("db")
def command() -> None:
    """Look at the database, or move all data to another one."""


@command.command("copy")
@click.argument("target")
@click.option(
    "--from",
    "source",
    metavar="ADDRESS",
    help="Database to copy [the one that this home uses].",
)
@click.option("--force", is_flag=True, help="Copy although somebody works on jobs there.")
@click.option(
    "--mend", is_flag=True, help="Write U+FFFD for NUL characters, which PostgreSQL cannot keep."
)
@home_option
@json_option
def copy(
    target: str, *, source: str | None, force: bool, mend: bool, home: Path | None, as_json: bool
) -> None:
    """Copy everything to TARGET, history included; it must be empty.

    TARGET is an address (postgresql://user@host/name, sqlite:////path/file), or `postgres` for a
    server that longline runs in this home, or `sqlite` for the file there. It gets all or nothing:
    a copy that was interrupted can be run again. The source stays as it is.
    """
    moved = asyncio.run(move(settings_of(home), Move(target, source, force, mend)))
    if as_json:
        told = {"is_in_use": moved.is_in_use, "is_behind": moved.is_behind}
        print_json({**asdict(moved.copied), **told})
    else:
        _print_tables(moved.copied)
        click.echo(_next(moved))
    if moved.is_behind:
        click.echo(_behind(moved.copied), err=True)
        sys.exit(0 if force else 1)


@command.command("info")
@home_option
@json_option
def info(*, home: Path | None, as_json: bool) -> None:
    """Show which database this home uses, how large it is and what is in it."""
    settings = settings_of(home)
    prepare_home(settings)
    with closing(open_database(settings.database)) as database:
        address, found = database.address, asyncio.run(database.read(describe))
    if as_json:
        print_json({"address": address, **asdict(found)})
        return
    _print_description(address, found)


def _print_tables(copied: Copied) -> None:
    listing = Listing("table", "rows", "checksum", right=("rows",))
    for one in copied.tables:
        listing.add(one.name, number(one.rows), one.checksum)
    plain_console().print(listing)


def _next(moved: Moved) -> str:
    target = cleaned(moved.copied.target)
    rows = number(sum(one.rows for one in moved.copied.tables))
    done = f"{rows} rows are the same on both sides, in number and checksum."
    if moved.is_in_use:
        return f"{done}\nThis home uses {target} from now on."
    return (
        f"{done}\nTo use it, set LONGLINE_DATABASE_URL={target}"
        "\nor database_url in longline.yaml, with its password where *** stands."
    )


def _behind(copied: Copied) -> str:
    return (
        f"Somebody wrote to {cleaned(copied.source)} after it was read: that is not in the copy. "
        "See who does, and copy it again to an empty database."
    )


def _print_description(address: str, found: Description) -> None:
    click.echo(f"address   {cleaned(address)}")
    click.echo(f"kind      {found.kind} {found.version}")
    click.echo(f"tables    version {found.tables_version}")
    click.echo(f"size      {found.size_bytes / _MEGABYTE:.1f} MB")
    listing = Listing("table", "rows", right=("rows",))
    for name, rows in found.rows.items():
        listing.add(name, number(rows))
    plain_console().print(listing)
