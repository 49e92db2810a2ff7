"""longline up: start a cluster on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.closed_pipe import reader_may_leave
from longline.cli.options import home_option, json_option, print_json, settings_of
from longline.services.needed import check_extra


@click.command("up")
@click.option(
    "--workers",
    type=click.IntRange(0, 1000),
    help="How many are to run [as many as before, or 1]; 0: servers only. None is taken away.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1000),
    help="Processes of each worker that is started [as it had, or one a core].",
)
@click.option(
    "--postgres",
    "with_postgres",
    is_flag=True,
    help="Keep jobs and records in a PostgreSQL of this home; afterwards that goes without saying.",
)
@home_option
@json_option
def command(
    *,
    workers: int | None,
    processes: int | None,
    with_postgres: bool,
    home: Path | None,
    as_json: bool,
) -> None:
    """Start what a cluster on this machine needs: Redis, PostgreSQL, workers.

    What is healthy is left alone. When a part fails, or on Ctrl-C, all that this call has started
    is stopped again. Servers that the settings name are used, never started or stopped.
    """
    check_extra("longline up")
    from longline.services.status import status  # noqa: PLC0415  # the same
    from longline.services.up import Wish, up  # noqa: PLC0415  # needs optional packages

    settings = settings_of(home)
    wish = Wish(workers, processes, with_postgres)
    started = up(settings, wish, say_nothing if as_json else say)
    parts = [asdict(one) for one in status(settings)] if as_json else []
    with reader_may_leave():
        if as_json:
            print_json({"started": [one.name for one in started.processes], "parts": parts})
        elif started.workers:
            click.echo("ready: longline run SOURCE --engine celery")
        else:
            click.echo("the servers are ready, and nobody works yet: longline up --workers 1")


def say(part: str, what: str) -> None:
    """Print one step, if anybody reads it."""
    with reader_may_leave():
        click.echo(f"{part:10} {what}")


def say_nothing(_part: str, _what: str) -> None:
    """Print nothing: whoever reads JSON wants one line."""
