"""longline run: collect from a source."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from longline.cli.options import (
    home_option,
    ignore_robots_option,
    json_option,
    settings_of,
    source_options,
    values_of,
)
from longline.cli.running import run_shown
from longline.orchestrator import Orchestrator


@click.command("run")
@click.argument("source")
@click.option("--limit", type=click.IntRange(min=1), help="Collect at most this many items.")
@source_options
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds an answer.")
@click.option("--cache/--no-cache", default=None, help="Keep and validate answers as HTTP says.")
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Keep every answer (WARC) to extract from it again.",
)
@click.option("--max-requests", type=click.IntRange(min=1), help="End after so many requests.")
@click.option("--max-bytes", help="End after so much was received, for example 50MB.")
@click.option("--max-seconds", type=float, help="End after so long.")
@click.option("--engine", type=click.Choice(["local"]), default="local", show_default=True)
@ignore_robots_option
@click.option("--fresh", is_flag=True, help="Start a new job even if an unfinished one is there.")
@home_option
@json_option
def command(
    source: str,
    *,
    engine: str,
    fresh: bool,
    home: Path | None,
    as_json: bool,
    options: tuple[tuple[str, str], ...],
    params: tuple[tuple[str, str], ...],
    **given: Any,
) -> None:
    """Collect from SOURCE; run the same command again to resume it.

    SOURCE is a name (longline sources), a manifest or a job file (YAML), a Python file with a
    Source in it, or a class, function or Scrapy spider: package.module:Name or file.py:name.
    """
    del engine  # only one so far; the option is part of the contract
    values = {name: value for name, value in given.items() if value not in (None, ())}
    budget = {name: values.pop(f"max_{name}", None) for name in ("requests", "bytes", "seconds")}
    if any(budget.values()):
        values["budget"] = {name: value for name, value in budget.items() if value is not None}
    if options:
        values["set"] = dict(options)  # as text: the source's own model knows the types
    if params:
        values["params"] = values_of(params)
    orchestrator = Orchestrator(settings=settings_of(home))
    sys.exit(
        asyncio.run(
            run_shown(
                orchestrator,
                lambda hooks: orchestrator.execute(source, values, fresh=fresh, **hooks),
                as_json=as_json,
            )
        )
    )
