"""longline archive: look at the answers that jobs have kept."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click

from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.config.settings import prepare_home
from longline.http.archive.base import Archive
from longline.wiring import open_archive

T = TypeVar("T")


@click.group("archive")
def command() -> None:
    """Look at the answers that jobs have kept."""


@command.command("stats")
@home_option
@json_option
def stats(*, home: Path | None, as_json: bool) -> None:
    """Say how much the archive holds."""
    totals = asdict(_with_archive(home, lambda archive: archive.totals()))
    if as_json:
        print_json(totals)
        return
    for name, value in totals.items():
        click.echo(f"{name:12} {value:,}")


@command.command("verify")
@home_option
@json_option
def verify(*, home: Path | None, as_json: bool) -> None:
    """Read every record and check its digest; exit with 3 when something is wrong or gone.

    What is gone is told until index.sqlite is deleted, which is made anew from the files.
    """
    found = _with_archive(home, lambda archive: archive.verify())
    if as_json:
        print_json(asdict(found))
    else:
        lines = found.problems or ("everything is as it was written",)
        click.echo("\n".join([*lines, *(f"note: {note}" for note in found.notes)]))
    sys.exit(3 if found.problems else 0)


def _with_archive(home: Path | None, use: Callable[[Archive], Awaitable[T]]) -> T:
    settings = settings_of(home)
    prepare_home(settings)

    async def look() -> T:
        async with open_archive(settings) as archive:
            return await use(archive)

    return asyncio.run(look())
