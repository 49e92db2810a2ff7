"""longline up: start a cluster on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from longline.cli.options import UP_TO_1000, Number, home_option, json_option, settings_of
from longline.cli.output import print_json
from longline.core.output import closed_stdout_ignored
from longline.services.base import OnStep, check_extra


@click.command("up")
@click.option(
    "--workers",
    type=Number(int, 0, 1000),
    show_default="as before, or 1",
    help="Number of workers; 0 starts only the servers. Running workers are never stopped.",
)
@click.option(
    "--processes",
    type=UP_TO_1000,
    show_default="as before, or one per core",
    help="Processes of each worker that is started.",
)
@click.option(
    "--postgres",
    "with_postgres",
    is_flag=True,
    help="Store jobs and records in a PostgreSQL server managed by this home (remembered).",
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
    """Start Redis, PostgreSQL and workers on this machine.

    Healthy services are not restarted. If a service fails to start, or on Ctrl-C, everything that
    this command started is stopped again. Servers that the settings name are used, but never
    started or stopped.
    """
    check_extra("longline up")
    # Needs optional packages.
    from longline.services.cluster import ClusterOptions, status, up  # noqa: PLC0415

    settings = settings_of(home)
    options = ClusterOptions(workers, processes, with_postgres)
    started = up(settings, options, step_printer(is_quiet=as_json))
    parts = [asdict(one) for one in status(settings)] if as_json else []
    with closed_stdout_ignored():
        if as_json:
            print_json({"started": [one.name for one in started.processes], "parts": parts})
        elif started.workers:
            click.echo("Ready. Run: longline run SOURCE --engine celery")
        else:
            click.echo("The servers are ready. Start a worker with: longline up --workers 1")


def step_printer(*, is_quiet: bool) -> OnStep:
    """Return what prints each step of `up` and `down`; nothing when it is quiet."""

    def print_step(service: str, step: str) -> None:
        if not is_quiet:
            with closed_stdout_ignored():
                click.echo(f"{service:10} {step}")

    return print_step
