"""longline archive: responses that jobs have archived."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click

from longline.cli.exit_codes import ExitCode
from longline.cli.options import home_option, json_option, settings_of
from longline.cli.output import print_json
from longline.config.settings import prepare_home
from longline.http.archive.base import Archive
from longline.wiring import open_archive

T = TypeVar("T")

_LABELS = {"size_bytes": "bytes", "answers": "responses", "bodies": "unique bodies"}


@click.group("archive")
def command() -> None:
    """Inspect and verify archived responses."""


@command.command("stats")
@home_option
@json_option
def archive_statistics(*, home: Path | None, as_json: bool) -> None:
    """Show the number and size of archived responses."""
    totals = asdict(_with_archive(home, lambda archive: archive.totals()))
    if as_json:
        print_json(totals)
        return
    for name, value in totals.items():
        click.echo(f"{_LABELS.get(name, name):13} {value:,}")


@command.command("verify")
@home_option
@json_option
def verify(*, home: Path | None, as_json: bool) -> None:
    """Check the digest of every archived response.

    Exits with 3 if one is damaged or missing. Missing responses are reported until index.sqlite is
    deleted; it is then rebuilt from the files.
    """
    found = _with_archive(home, lambda archive: archive.verify())
    if as_json:
        print_json(asdict(found))
    else:
        lines = found.problems or ("all archived responses are intact",)
        click.echo("\n".join([*lines, *(f"note: {note}" for note in found.notes)]))
    sys.exit(ExitCode.PARTIAL if found.problems else ExitCode.OK)


def _with_archive(home: Path | None, use: Callable[[Archive], Awaitable[T]]) -> T:
    settings = settings_of(home)
    prepare_home(settings)

    async def opened() -> T:
        async with open_archive(settings) as archive:
            return await use(archive)

    return asyncio.run(opened())
