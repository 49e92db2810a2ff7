"""longline run: collect from a source."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from longline.cli.job_runs import run_shown
from longline.cli.options import (
    COUNT,
    engine_option,
    home_option,
    ignore_robots_option,
    json_option,
    settings_of,
    source_options,
    values_of,
)
from longline.cli.site_runs import leave, run_many_shown
from longline.orchestrator import EngineName, Orchestrator


@click.command("run")
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="Every manifest and job file of the folders in the setting `sources`.",
)
@click.option(
    "--parallel/--sequential", default=None, help="Several side by side [default], or one by one."
)
@click.option("--limit", type=COUNT, help="Collect at most this many items.")
@source_options
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds an answer.")
@click.option("--cache/--no-cache", default=None, help="Keep and validate answers as HTTP says.")
@click.option(
    "--archive/--no-archive",
    default=None,
    help="Keep every answer (WARC) to extract from it again.",
)
@click.option("--max-requests", type=COUNT, help="End after so many requests.")
@click.option("--max-bytes", help="End after so much was received, for example 50MB.")
@click.option("--max-seconds", type=float, help="End after so long.")
@engine_option("the setting `engine`, which is local")
@click.option("--detach", is_flag=True, help="Leave it to the workers; needs --engine celery.")
@click.option(
    "--export",
    metavar="FILE",
    help="Write its records there once it has ended; with --engine celery, a worker does.",
)
@ignore_robots_option
@click.option("--fresh", is_flag=True, help="Start a new job even if an unfinished one is there.")
@home_option
@json_option
def command(
    sources: tuple[str, ...],
    *,
    is_all: bool,
    parallel: bool | None,
    engine: EngineName | None,
    detach: bool,
    export: str | None,
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
    Several run side by side, each with its own limits; none holds up or fails another.
    """
    values = {name: value for name, value in given.items() if value not in (None, ())}
    budget = {name: values.pop(f"max_{name}", None) for name in ("requests", "bytes", "seconds")}
    if any(budget.values()):
        values["budget"] = {name: value for name, value in budget.items() if value is not None}
    if options:
        values["set"] = dict(options)  # as text: the source's own model knows the types
    if params:
        values["params"] = values_of(params)
    settings = settings_of(home)
    orchestrator = Orchestrator(settings=settings)
    if is_all == bool(sources):
        raise click.UsageError("name a SOURCE, or several, or say --all")
    if export is not None and (is_all or len(sources) > 1):
        raise click.UsageError("--export is for one SOURCE: the next would replace its records")
    if detach:
        if (engine or settings.engine) != "celery":
            raise click.UsageError("--detach leaves it to workers: say --engine celery, too")
        names = list(sources) or None
        left = {"fresh": fresh, "export": export}
        sys.exit(asyncio.run(leave(orchestrator, names, values, left, as_json=as_json)))
    if is_all or len(sources) > 1:
        how = {"params": values, "fresh": fresh, "engine": engine, "parallel": parallel}
        names = list(sources) or None
        sys.exit(asyncio.run(run_many_shown(orchestrator, names, how, as_json=as_json)))
    sys.exit(
        asyncio.run(
            run_shown(
                orchestrator,
                lambda hooks: orchestrator.execute(
                    sources[0], values, fresh=fresh, engine=engine, export=export, **hooks
                ),
                as_json=as_json,
                is_left=(engine or settings.engine) == "celery",
            )
        )
    )
