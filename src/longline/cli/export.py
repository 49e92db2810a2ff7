"""longline export: write records to a file."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.options import home_option, json_option, print_json
from longline.cli.querying import query_of, query_options, with_whole_job
from longline.config.settings import load_settings, prepare_home
from longline.exports.files import FORMATS, export_stream, export_to
from longline.stores.store import open_store


@click.command("export")
@click.option(
    "--output",
    "-o",
    default="longline-export.jsonl",
    show_default=True,
    help="The file; '-' is standard output.",
)
@click.option("--format", "form", type=click.Choice(list(FORMATS)), help="Unless the ending says.")
@query_options
@home_option
@json_option
def command(
    output: str, form: str | None, *, home: Path | None, as_json: bool, **filters: object
) -> None:
    """Write records to a file.

    It is written beside its place and renamed, so that nobody ever sees half of it.
    """
    settings = load_settings(home=home)
    prepare_home(settings)
    with open_store(settings.database) as store:
        query = asyncio.run(with_whole_job(store, query_of(filters)))
        if output == "-":
            stream = sys.stdout.buffer
            export_stream(stream, lambda: store.records.stream(query), form=form or "jsonl")
            return
        done = export_to(Path(output), lambda: store.records.stream(query), form=form)
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(f"{done.records} records written to {done.path} ({done.format})")
